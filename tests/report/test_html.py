"""The page: self-contained, well-formed, everything escaped, every scored trial in the charts."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import budget, report, row

from tuner.report.charts import curves, score_by_parameter, score_by_trial
from tuner.report.html import render, write
from tuner.report.markdown import to_html

VOID = {"meta", "wbr"}
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


class Checker(HTMLParser):
    """Fails on tags that do not close in order, and collects what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object"):
            self.loads.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check(page: str) -> str:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.loads == []
    assert "url(" not in page
    assert "@import" not in page
    return " ".join(checker.words)


def whole() -> str:
    return render(
        report(
            row(0, 0.5),
            row(1, 0.9),
            row(2, 0.8, "pruned", reason="below <the> median"),
            row(3, None, "failed", reason="score is not a number"),
            card="# Card <script>alert(1)</script>",
            experiment="name: digits",
            next_commands=("tune export digits",),
            facts=(("data set", "digits"),),
        )
    )


def test_the_page_needs_nothing_else_and_says_what_matters() -> None:
    words = check(whole())
    for expected in (
        "The guarantee is the cap: ε = 8 at δ = 1e-05",
        "Best configuration, trial 1",
        "4 of 5",
        "2 complete, 1 pruned, 1 failed",
        "below <the> median",
        "Card <script>alert(1)</script>",
        "tune export digits",
        "validation_accuracy by step",
    ):
        assert expected in words


@pytest.mark.parametrize(
    "page", [render(report()), render(report(row(0))), render(report(row(0, None, "failed"), budget=None))]
)
def test_pages_with_next_to_nothing_on_them(page: str) -> None:
    check(page)


def test_not_private_is_said_and_no_epsilon_is_named() -> None:
    words = check(render(report(row(0), budget=None)))
    assert "Not private" in words
    assert "ε = " not in words


def test_every_scored_trial_is_a_point_and_the_best_stands_out() -> None:
    shown = report(row(0, 0.5), row(1, 0.9), row(2, 0.8, "pruned"), row(3, None, "failed"))
    for chart in (
        score_by_trial(shown),
        score_by_parameter(shown, "learning_rate"),
        score_by_parameter(shown, "schedule"),
    ):
        circles = re.findall(r'<circle class="point (\w+)"', chart)
        assert sorted(circles) == ["best", "complete", "pruned"]


def test_a_better_score_stands_higher_and_a_larger_value_further_right() -> None:
    shown = report(*(row(number, number / 10, parameters={"a": 10.0**number}) for number in range(1, 6)))
    chart = ElementTree.fromstring(score_by_parameter(shown, "a"))
    places = [(float(item.attrib["cx"]), float(item.attrib["cy"])) for item in chart.iter("circle")]
    gaps = [right[0] - left[0] for left, right in itertools.pairwise(places)]
    assert gaps == pytest.approx([gaps[0]] * 4, abs=0.2), "decades are equally far apart"
    assert gaps[0] > 0
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


@given(scores=st.lists(FINITE, min_size=1, max_size=6), values=st.lists(FINITE, min_size=6, max_size=6))
def test_any_finite_numbers_give_well_formed_charts_inside_their_frame(
    scores: list[float], values: list[float]
) -> None:
    rows = [row(n, score, parameters={"a": values[n]}) for n, score in enumerate(scores)]
    shown = report(*rows)
    for chart in (score_by_trial(shown), curves(shown), score_by_parameter(shown, "a")):
        if not chart:
            continue
        tree = ElementTree.fromstring(chart)
        _, _, width, height = (float(part) for part in tree.attrib["viewBox"].split())
        for item in tree.iter("circle"):
            assert 0 <= float(item.attrib["cx"]) <= width
            assert 0 <= float(item.attrib["cy"]) <= height


CARD = """# Privacy card: digits

**ε = 4: for what is *shown* & <b>kept</b>.** Check `tune verify <x>`.

| | ε |
|---|---|
| **claimed** | 4 |
| <i>spent</i> | 1.5 |

## Details for a reviewer

### The claim

- search: a|b
- `<script>`: **x**
"""


def test_the_card_is_shown_as_it_reads() -> None:
    page = render(report(row(0), card=CARD))
    check(page)
    for expected in (
        "<h3>Privacy card: digits</h3>",
        "<p><b>ε = 4: for what is *shown*",
        "<tr><td><b>claimed</b></td><td>4</td></tr>",
        "<td>&lt;i&gt;spent&lt;/i&gt;</td>",
        "<code>tune verify &lt;x&gt;</code>",
        "<summary>Details for a reviewer</summary><h5>The claim</h5><ul><li>search: a|b</li>",
        "<li><code>&lt;script&gt;</code>: <b>x</b></li>",
    ):
        assert expected in page, expected


TRICKS = st.text(alphabet="<>&\"'`*|-# \n\tab\u2028", max_size=60)


@given(text=TRICKS)
def test_no_card_writes_html(text: str) -> None:
    """Whatever is in it: tags close in order, and none but ours is there."""
    found = to_html(text)
    assert set(re.findall(r"</?([a-z0-9]+)", found)) <= TAGS
    check(found)


TAGS = {"b", "p", "ul", "li", "h3", "h4", "h5", "code", "div", "table", "thead", "tbody", "tr", "th", "td"}


@given(words=st.lists(st.text(alphabet='ab<&"', min_size=1, max_size=6), min_size=1, max_size=5))
def test_every_word_of_a_card_is_on_the_page(words: list[str]) -> None:
    for text in ("\n\n".join(words), "\n".join(f"- {word}" for word in words), "# " + " ".join(words)):
        assert " ".join(check(to_html(text)).split()) == " ".join(words)


def test_one_is_not_several() -> None:
    page = render(report(row(0), budget=budget(1, 0, 2)))
    assert "spent 1 step, ε" in page
    assert "left 1 step<" in page
    assert "reserved 0 steps<" in page


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write(report(row(0)), path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
