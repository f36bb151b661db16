"""The page of a budget: every entry is on it, names cannot write into it, and it is no more sure than the cap."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from figure_checks import series, texts
from html_checks import NASTY, checked, words_of

from tuner.privacy.ledger.history import Point
from tuner.privacy.ledger.odometer import LABEL
from tuner.report.budget_page import budget_chart, budget_page, sureness

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def values(**changes: object) -> dict[str, Any]:
    search = {
        "search": NASTY, "user": NASTY, "unit": "record", "mode": "composition", "cap_text": NASTY, "epsilon": 2.0,
        "delta": 1e-5, "validation": {"epsilon": 1.0, "delta": 1e-6}, "status": "open", "counts": True,
        "opened": "2026-03-02 09:00:00", "trials": 3, "purpose": NASTY, "contact": NASTY,
    }  # fmt: skip
    pair = {"epsilon": 2.0, "delta": 1e-5}
    line = {"time": "2026-03-02", "search": NASTY, "user": NASTY, "text": NASTY, "committed": (2.0, 1e-5)}
    made: dict[str, Any] = {
        "dataset": NASTY, "claim": NASTY, "ledger": NASTY, "ledger_id": "id", "made": "2026-03-09 09:00:00",
        "cap": pair, "order": None, "rule": NASTY, "unit": "record", "committed": pair, "left": pair,
        "order_used": None, "guarantee": pair, "over": False, "void": [], "divided": True,
        "division": NASTY, "division_fault": NASTY,
        "shares": [{"user": NASTY, "granted": pair, "committed": pair, "left": None}], "searches": [search],
        "entries": 7, "head": "ab" * 32, "history": [line],
        "odometer": {"epsilon_spent": 1.0, "delta": 1e-5, "delta_is": "the cap's δ", "label": LABEL}, "damaged": {},
    }  # fmt: skip
    return {**made, **changes}


POINTS = [Point(START, 0.0, 8.0), Point(START + timedelta(days=2), 2.0, 8.0)]


def page_words(points: list[Point] = POINTS, **changes: object) -> str:
    return words_of(budget_page(values(**changes), points))


@pytest.mark.parametrize(
    "changes",
    [{}, {"damaged": {NASTY: NASTY}}, {"cap": None, "left": None, "guarantee": None}, {"order": 6.0, "order_used": 0.5},
     {"searches": [], "shares": [], "history": []}],
)  # fmt: skip
def test_names_cannot_write_into_the_page_and_nothing_is_loaded(changes: dict[str, Any]) -> None:
    page = budget_page(values(**changes), POINTS)
    assert len(checked(page).pictures) == 1
    assert NASTY in words_of(page)
    assert "<script" not in page


def test_the_guarantee_is_not_rounded_down() -> None:
    cap = {"epsilon": 1.2345674, "delta": 1e-5}
    said = page_words(cap=cap, guarantee=cap)
    assert "guarantee (the cap) ε = 1.2345674" in said
    assert "The cap is ε = 1.2345674 at" in said
    assert "1.23457" not in said


def test_every_entry_of_the_ledger_is_on_the_page() -> None:
    pair = {"epsilon": 0.375, "delta": 3e-7}
    first, second = {**values()["searches"][0]}, {**values()["searches"][0]}
    first |= {
        "search": "sweep-a",
        "user": "ann",
        "epsilon": 1.25,
        "delta": 2e-6,
        "cap_text": "1 000 steps",
        "trials": 17,
        "purpose": "triage of letters",
        "contact": "ann@example.org",
    }
    second |= {
        "search": "sweep-b",
        "user": None,
        "purpose": "",
        "contact": "",
        "counts": False,
        "status": "closed",
        "validation": None,
    }
    shares = [
        {"user": "ann", "granted": pair, "committed": pair, "left": {"epsilon": 0.125, "delta": 4e-7}},
        {"user": "bob", "granted": {"epsilon": 0.0, "delta": 0.0}, "committed": pair, "left": None},
        {"user": "cyd", "granted": None, "committed": pair, "left": None},
    ]
    history = [
        {"time": f"2026-03-0{day}", "search": None, "user": "ann", "text": f"event {day}", "committed": (day / 8, 1e-5)}
        for day in range(1, 6)
    ]
    words = page_words(searches=[first, second], shares=shares, history=history)
    for expected in (
        "sweep-a ann triage of letters; ann@example.org record 1.25 2e-06 2026-03-02 09:00:00 open 17",
        "composition: 1 000 steps",
        "validation ε = 1, δ = 1e-06",
        "sweep-b not recorded not stated record", "closed", "charged nothing, so it counts as 0",
        "1 counts against the cap",
        "ann 0.375 3e-07 0.375 3e-07 0.125 4e-07", "bob share revoked – 0.375 3e-07 – –", "cyd – – 0.375 3e-07 – –",
        *(f"2026-03-0{day} – ann event {day} {day / 8:g} 1e-05" for day in range(1, 6)),
        "ab" * 32, "entries 7", "id of the ledger id", "as of 2026-03-09 09:00:00 UTC",
    ):  # fmt: skip
        assert expected in words, expected


def test_a_cap_below_what_was_committed_is_not_called_the_guarantee() -> None:
    """Lowering a cap takes back nothing that was released."""
    lowered = {"epsilon": 6.0, "delta": 1e-5}
    words = page_words(over=True, guarantee=lowered, committed=lowered)
    assert "guarantee (the cap)" not in words
    assert "The guarantee is now the committed amount: ε = 6 at δ = 1e-05" in words
    assert sureness(6.0) in words
    assert sureness(2.0) in page_words()


def test_without_a_cap_there_is_no_guarantee_and_no_line_of_a_cap() -> None:
    words = page_words([Point(START, 2.0, None)], cap=None, left=None, guarantee=None)
    assert "What is guaranteed without a cap" in words
    assert "sure" not in words.replace("ensure", "")
    assert "How much of the cap is used" not in words
    assert "cap" not in series(budget_chart([Point(START, 2.0, None)]))


def test_the_chart_has_a_row_with_a_name_for_each_event_that_changed_something() -> None:
    later = [START + timedelta(days=day) for day in range(5)]
    events = [
        Point(later[0], 0.0, 8.0, "", "cap"), Point(later[1], 2.0, 8.0, "sweep-a", "opened"),
        Point(later[2], 2.0, 8.0, "sweep-a", "card"), Point(later[3], 0.0, 8.0, "sweep-a", "closed"),
        Point(later[4], 0.0, 6.0, "", "cap"),
    ]  # fmt: skip
    figure = budget_chart(events)
    assert figure is not None
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["2026-03-02  cap set", "2026-03-03  sweep-a", "2026-03-05  sweep-a closed", "2026-03-06  cap set"]
    bars = {(bar.get_y() + 0.35, bar.get_x(), bar.get_width()) for bar in axes.patches if bar.get_width()}  # type: ignore[attr-defined]
    assert bars == {(1.0, 0.0, 2.0), (2.0, 0.0, 2.0), (2.0, 2.0, -2.0)}, "what was given back goes to the left"
    assert series(figure)["cap"] == [(8.0, y) for y in (-0.5, 0.5, 0.5, 1.5, 1.5, 2.5)] + [(6.0, 2.5), (6.0, 3.5)]
    assert {"ε", "cap"} <= set(texts(figure))


def test_each_share_is_a_bar_of_the_whole_cap() -> None:
    def pair(epsilon: float) -> dict[str, float]:
        return {"epsilon": epsilon, "delta": 1e-6}

    shares = [
        {"user": "ann", "granted": pair(4.0), "committed": pair(1.0), "left": pair(3.0)},
        {"user": "bob", "granted": pair(0.0), "committed": pair(2.0), "left": None},
    ]
    page = budget_page(values(cap=pair(8.0), committed=pair(3.0), shares=shares), POINTS)
    widths = re.findall(r'class="(committed|left|granted)" style="width:([\d.]+)%"', page)
    assert widths == [
        ("committed", "37.500"), ("left", "62.500"), ("committed", "12.500"), ("granted", "37.500"),
        ("committed", "25.000"), ("granted", "0.000"),
    ]  # fmt: skip


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 100.0, 1e6])
def test_how_sure_one_becomes_is_never_rounded_down(epsilon: float) -> None:
    said = sureness(epsilon)
    if said == "practically 100 % sure":
        assert epsilon > 11
        return
    true = 100 / (1 + math.exp(-epsilon))
    number = float(said.removeprefix("at most ").removesuffix(" % sure"))
    assert true <= number <= true + 0.1
    assert number < 100 or epsilon > 11
