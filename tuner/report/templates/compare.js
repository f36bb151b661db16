"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const view = document.getElementById("view"), place = document.getElementById("chart");
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];  // none that would send anything away
for (const chart of charts) view.add(new Option(chart.name));
function draw() {
  const chart = charts[view.selectedIndex];
  if (chart) Plotly.react(place, chart.data, chart.layout, {responsive: true, displaylogo: false, modeBarButtons: buttons});
}
view.addEventListener("change", () => { location.hash = view.selectedIndex; draw(); });
view.selectedIndex = Math.min(Number(location.hash.slice(1)) || 0, charts.length - 1);  // a link may name a chart
draw();

// A click on a heading sorts its table, numbers by value and words by letter; another click turns the order.
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].textContent.trim();
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
        const order = Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
