"""The page: self-contained, well-formed, everything escaped, every scored trial in the charts."""

from __future__ import annotations

import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import budget, report, row

from tuner.report.charts import curves, legend, score_by_parameter, score_by_trial
from tuner.report.markdown import to_html
from tuner.report.page import render, write
from tuner.report.sweep_report import Scale

VOID = {"meta", "wbr", "img"}
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


class Checker(HTMLParser):
    """Fails on tags that do not close in order, and collects what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside = dict(attrs).get("src") if tag == "img" else None  # a picture in the page itself is not loaded
        if tag in ("script", "link", "img", "iframe", "object") and not str(inside).startswith("data:image/svg+xml,"):
            self.loads.append(tag)
            self.loads += [name for name, _ in attrs if name == "src"]
        self.loads += [name for name, _ in attrs if name == "href" or name.startswith("on")]
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
        "Best trial: 1",
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


def test_the_winner_by_the_curve_stands_out_and_the_best_score_stays_a_fact() -> None:
    why = "trial 2 by the curve (trial 1 scored higher: 0.9 against 0.8)"
    shown = report(row(0, 0.5), row(1, 0.9), row(2, 0.8), chosen=2, why=why)
    page = render(shown)
    words = check(page)
    assert "Best trial: 2" in words
    assert f"Chosen: {why}." in words
    assert "2 ★" in words
    assert page.count("★") == 1
    assert re.search(r"best validation_accuracy\s*0.9\s*trial 1", words)
    assert "● winner" in legend(shown)
    assert "— winner" in legend(shown, lines=True)
    (circle,) = re.findall(r'<circle class="point best".*?</circle>', score_by_trial(shown), re.DOTALL)
    assert "trial 2" in circle
    (line,) = re.findall(r'<polyline class="curve best".*?</polyline>', curves(shown), re.DOTALL)
    assert "trial 2" in line
    same = check(render(report(row(0, 0.5), row(1, 0.9), chosen=1)))
    assert "by the curve" not in same
    assert "Chosen" not in same


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


PICTURED = """## The numbers

![The pairs of ε and δ]("x".svg)

Every dot is a pair that holds.

After it.
"""


def test_the_picture_of_a_card_is_in_the_page_or_nothing_is_said_of_it() -> None:
    bare = check(to_html(PICTURED))
    assert "The pairs of" not in bare
    assert "Every dot" not in bare
    assert "After it." in bare
    page = to_html(PICTURED, '<svg><script>alert("1")</script></svg>')
    assert "Every dot" in check(page)
    assert '<img alt="The pairs of ε and δ" src="data:image/svg+xml,%3Csvg%3E' in page
    assert "<svg" not in page, "as an image it can run nothing and style nothing"
    shown = render(report(row(0), card=PICTURED, card_picture="<svg/>"))
    assert "<img" in shown


def test_a_trial_that_was_cut_off_is_told_and_has_not_ended() -> None:
    shown = report(row(0), row(1, 0.4, "cut off"), state="interrupted")
    words = check(render(shown))
    assert "1 of 5" in words
    assert "1 complete, 1 cut off" in words
    assert '<span class="chip cut-off">cut off</span>' in render(shown)
    assert 'class="point cut-off"' in score_by_trial(shown)


def test_a_sealed_search_speaks_of_its_winner_and_says_when_none_may_come() -> None:
    for state, words in (("running", "winner not released yet"), ("interrupted", "winner not released yet")):
        page = check(render(report(state=state, sealed=True)))
        assert words in page
        assert "no winner" not in page.lower()
    page = check(render(report(state="done", sealed=True)))
    assert "no winner" in page
    assert "for the winner alone" in page
    assert "for the winner: its configuration, its model and its score" in page
    assert "whole search" not in page
    assert "odometer" not in page


def test_a_public_search_says_that_nothing_was_charged() -> None:
    words = check(render(report(row(0), budget=None, claim="Declared public.")))
    assert "nothing charged" in words
    assert "not private" not in words.lower()


def test_the_noise_of_a_score_stands_beside_it() -> None:
    assert "0.87 ± 0.083" in check(render(report(row(0, 0.87), score_error=0.0831)))


def test_only_what_is_drawn_is_in_the_legend_with_its_mark() -> None:
    shown = report(row(0, 0.5), row(1, 0.9), row(2, 0.8, "pruned", curve=()), row(3, None, "failed"))
    assert re.findall(r">([○●—] \w+)<", legend(shown)) == ["● complete", "○ pruned", "● best"]
    assert re.findall(r">([○●—] \w+)<", legend(shown, lines=True)) == ["— complete", "— best"]


def test_an_axis_is_that_of_the_search() -> None:
    values = (0.10, 0.12, 0.15)
    rows = [row(n, n / 10, parameters={"a": value}) for n, value in enumerate(values)]

    def places(scale: Scale | None) -> list[float]:
        chart = score_by_parameter(report(*rows, scales={} if scale is None else {"a": scale}), "a")
        assert chart.count('class="tick"') > 4, "both axes have ticks"
        return [float(found) for found in re.findall(r'cx="([0-9.]+)"', chart)]

    def share(found: list[float]) -> float:
        return (found[1] - found[0]) / (found[2] - found[0])

    logged = (math.log(0.12) - math.log(0.10)) / (math.log(0.15) - math.log(0.10))
    assert share(places(Scale(log=True))) == pytest.approx(logged, abs=0.002)
    assert share(places(Scale())) == pytest.approx(0.4, abs=0.002)
    assert share(places(None)) == pytest.approx(0.4, abs=0.002)


def test_a_choice_has_a_tick_at_every_option_in_its_order() -> None:
    rows = [row(n, n / 10, parameters={"batch": value}) for n, value in enumerate((64, 256, 64))]
    chart = score_by_parameter(report(*rows, scales={"batch": Scale(options=(256, 128, 64))}), "batch")
    assert re.findall(r'text-anchor="middle">(\w+)<', chart)[:3] == ["256", "128", "64"]
    places = [float(found) for found in re.findall(r'cx="([0-9.]+)"', chart)]
    assert places[0] == places[2] > places[1]


def test_columns_that_say_nothing_are_left_out_and_the_page_does_not_name_itself() -> None:
    commands = ("tune export digits", "tune report digits")
    page = render(report(row(0, epsilon=1.5), next_commands=commands))
    assert "<th>reason</th>" not in page
    assert "<th class=words>ε of the trial, as if alone</th>" in page
    assert "tune export digits" in page
    assert "tune report" not in page
    assert "<th>reason</th>" in render(report(row(0, reason="below the median")))


def test_numbers_that_are_left_out_are_explained() -> None:
    words = check(render(report(row(0), row(3), not_started=2)))
    assert "2 candidates did not fit what was left and were not started" in words
    assert "1 candidate did not fit what was left and was not started" in check(render(report(row(0), not_started=1)))


def test_a_narrow_screen_scrolls_charts_and_breaks_words() -> None:
    page = render(report(row(0), row(1), facts=(("folder", "/a/very/long/path"),)))
    assert re.search(r"\.facts td,\.facts th\{[^}]*overflow-wrap:anywhere", page)
    assert "min-width:560px" in page
    assert page.count("<div class=wide><svg") == 2
