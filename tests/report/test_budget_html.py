"""The page of a budget: whole, harmless whatever things are called, and no more sure than the cap makes one."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tuner.privacy.ledger.history import Point
from tuner.privacy.ledger.odometer import LABEL
from tuner.report.budget_page import _sure, render, write

NASTY = """<script>alert(1)</script> & "quotes" 'too'"""
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def values(**changes: object) -> dict[str, Any]:
    search = {
        "search": NASTY, "user": NASTY, "unit": "record", "mode": "composition", "cap_text": NASTY, "epsilon": 2.0,
        "delta": 1e-5, "validation": {"epsilon": 1.0, "delta": 1e-6}, "status": "open", "counts": True,
        "opened": "2026-03-02 09:00:00", "trials": 3,
    }  # fmt: skip
    pair = {"epsilon": 2.0, "delta": 1e-5}
    line = {"time": "2026-03-02", "search": NASTY, "user": NASTY, "text": NASTY, "committed": (2.0, 1e-5)}
    made: dict[str, Any] = {
        "dataset": NASTY, "ledger": NASTY, "ledger_id": "id", "made": "2026-03-09 09:00:00", "cap": pair, "order": None,
        "rule": NASTY, "unit": "record", "committed": pair, "left": pair, "order_used": None,
        "guarantee": pair, "over": False, "divided": True,
        "shares": [{"user": NASTY, "granted": pair, "committed": pair, "left": None}], "searches": [search],
        "entries": 7, "head": "ab" * 32, "history": [line],
        "odometer": {"epsilon_spent": 1.0, "delta": 1e-5, "delta_is": "the cap's", "label": LABEL},
    }  # fmt: skip
    return {**made, **changes}


POINTS = [Point(START, 0.0, 8.0), Point(START + timedelta(days=2), 2.0, 8.0)]


class Tags(HTMLParser):
    """Every tag that is opened must be one that we write, and be closed."""

    VOID = frozenset({"meta", "line", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize(
    "changes",
    [{}, {"cap": None, "left": None}, {"order": 6.0, "order_used": 0.5}, {"searches": [], "shares": [], "history": []}],
)
def test_names_cannot_write_into_the_page_and_nothing_is_loaded(changes: dict[str, Any]) -> None:
    page = render(values(**changes), POINTS)
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    assert not tags.seen & {"script", "link", "img", "iframe", "object"}
    assert not [name for name in tags.attributes if name.startswith("on") or name in {"src", "href"}]
    assert not re.search(r"https?://|url\(|@import", page)
    assert "<script>" not in page


def test_the_odometer_is_labelled_and_the_guarantee_is_the_cap() -> None:
    page = render(values(), POINTS)
    assert re.search(r"spent so far</th><td>ε = 1 at δ = 1e-05, the cap&#x27;s \(odometer, not a guarantee", page)
    assert "guarantee (the cap)" in page


def test_a_page_with_a_sealed_search_does_not_say_how_the_chain_grows() -> None:
    sealed = {**values()["searches"][0], "status": "sealed", "trials": None, "opened": "2026-03-02"}
    page = render(values(searches=[sealed], entries=None), POINTS)
    assert "could be told from how it grows" in page
    assert "only the opening is shown" in page
    assert "could be told" not in render(values(), POINTS)


def test_a_cap_below_what_was_committed_is_not_called_the_guarantee() -> None:
    """Lowering a cap takes back nothing that was released."""
    holds = {"epsilon": 6.0, "delta": 1e-5}
    page = render(values(over=True, guarantee=holds, committed=holds), POINTS)
    assert "guarantee (the cap)" not in page
    assert "What holds is what is committed: ε = 6 at δ = 1e-05" in page
    assert f"at most {_sure(6.0)} sure" in page
    assert f"at most {_sure(2.0)} sure" in render(values(), POINTS)


def test_without_a_cap_the_page_says_that_nothing_is_limited() -> None:
    page = render(values(cap=None, left=None), [Point(START, 2.0, None)])
    assert "nothing limits in advance" in page
    assert 'class="cap"' not in page


def test_the_chart_draws_what_was_committed_when() -> None:
    """Read back from the path: the step up is at two of seven days, the height that of 2 beside 8."""
    page = render(values(), POINTS)
    path = re.search(r'class="committed" d="M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H([\d.]+)"', page)
    cap = re.search(r'class="cap" d="M[\d.]+ ([\d.]+)', page)
    assert path is not None
    assert cap is not None
    start, zero, step, height, end = map(float, path.groups())
    assert (step - start) / (end - start) == pytest.approx(2 / 7, abs=0.01)
    assert (zero - height) / (zero - float(cap[1])) == pytest.approx(2 / 8, abs=0.01)


@pytest.mark.parametrize("days", [0, 0.001, 1, 400])
def test_a_history_of_any_length_has_a_chart(days: float) -> None:
    page = render(values(made="2026-03-01 00:00:00"), [POINTS[0], Point(START + timedelta(days=days), 1.0, None)])
    assert "NaN" not in page
    assert "inf" not in page.split("<svg")[1].split("</svg>")[0]


def test_practically_all_is_not_called_at_most_that() -> None:
    """Nobody is at most practically sure."""
    huge = {"epsilon": 100.0, "delta": 1e-5}
    page = render(values(cap=huge, guarantee=huge), POINTS)
    assert "can be practically 100 % sure of it" in page
    assert "at most practically" not in page


def test_the_history_tells_whom_a_line_is_about() -> None:
    """A grant is noted with who receives it, not with who granted it."""
    page = render(values(), POINTS)
    assert ">about user</th>" in page[page.index("<h2>History") :]


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 100.0, 1e6])
def test_how_sure_one_becomes_is_never_rounded_down(epsilon: float) -> None:
    said = _sure(epsilon)
    if said == "practically 100 %":
        assert epsilon > 11
        return
    true = 100 / (1 + math.exp(-epsilon))
    number = float(said.removesuffix(" %"))
    assert true <= number <= true + 0.1
    assert number < 100 or epsilon > 11


def test_the_page_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "budget.html"
    path.write_text("old")
    write(values(), POINTS, path)
    assert path.read_text().endswith("</html>\n")
    assert list(tmp_path.iterdir()) == [path]
