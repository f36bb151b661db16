"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];  // none that would send anything away
const options = {responsive: true, displaylogo: false, modeBarButtons: buttons};

function element(name, parent, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

// A place draws its chart when it comes into view, or before the page is printed.
const drawn = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawn.get(entry.target)();
}, {rootMargin: "400px"});

for (const place of document.querySelectorAll(".plot")) {
  const mine = place.dataset.charts.split(" ").map((number) => charts[number]);
  let choice = null;
  if (mine.length > 1) {
    choice = element("select", element("label", place, place.dataset.label + " "));
    for (const chart of mine) choice.add(new Option(chart.name));
  } else {
    element("h3", place, mine[0].name);
  }
  const canvas = element("div", place), note = element("p", place);
  canvas.style.minHeight = mine[0].layout.height + "px";
  canvas.setAttribute("role", "img");
  note.className = "soft";
  const draw = () => {
    const chart = mine[choice ? choice.selectedIndex : 0];
    seen.unobserve(place);
    canvas.setAttribute("aria-label", chart.name + ". The tables of this page have its numbers.");
    canvas.style.minHeight = chart.layout.height + "px";
    note.textContent = chart.note;
    Plotly.react(canvas, chart.data, structuredClone(chart.layout), options);
  };
  if (choice) choice.addEventListener("change", draw);
  drawn.set(place, draw);
  seen.observe(place);
}

addEventListener("beforeprint", () => {
  for (const [place, draw] of drawn) {
    draw();
    Plotly.relayout(place.querySelector("[role=img]"), {autosize: false, width: 640});
  }
});
addEventListener("afterprint", () => drawn.forEach((draw) => draw()));

// A click on a heading sorts its table: numbers by value, words by letter, what is missing last. Another click turns it.
const key = (row, column) => row.cells[column].textContent.replaceAll("\u202f", "").trim();
const missing = (text) => text === "–" || text === "";
function order(a, b) {
  const [x, y] = [parseFloat(a), parseFloat(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((first, second) => {
        const [a, b] = [key(first, column), key(second, column)];
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        return up ? order(a, b) : order(b, a);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
