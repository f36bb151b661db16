"""The page of a sweep: every fact is on it with scripts and without, everything is escaped, and it loads nothing."""

from __future__ import annotations

import re

import pytest
from html_checks import NASTY, checked, without_scripts, words_of
from report_fakes import budget, budget_of_units, budget_with_scores, picture, report, row, spending_of

from tuner.privacy.modes import SELECTION
from tuner.report.sweep_page import sweep_page as whole_page
from tuner.report.sweep_report import SweepReport

NAN = float("nan")


def sweep_page(shown: SweepReport) -> str:
    """The page as it is without scripts. That only its own two run is checked on the way."""
    return without_scripts(whole_page(shown))[0]


def chart_names(shown: SweepReport) -> list[str]:
    return [chart["name"] for chart in without_scripts(whole_page(shown))[1]]


def test_every_fact_of_a_sweep_is_on_its_page() -> None:
    shown = report(
        row(0, 0.5, epsilon=1.25),
        row(1, 0.9, error=0.0831, parameters={"learning_rate": 0.125, "schedule": "cosine"}),
        row(2, 0.8, "pruned", reason="below the median", step=20),
        row(3, None, "failed", reason="score is not a number"),
        row(4, 0.4, "cut off"),
        subtitle="dplis on digits",
        reason="the budget is used up",
        state="budget reached",
        next_commands=("tune export digits", "tune report digits"),
        facts=(("data set", "digits: 1 search"), ("folder", "/a/very/long/path")),
        experiment="name: digits",
        budget=budget_with_scores(),
        not_started=2,
    )
    page, names = sweep_page(shown), chart_names(shown)
    assert {
        "validation_accuracy of each trial",
        "learning curves",
        "learning_rate",
        "schedule",
        "parallel coordinates",
    } <= set(names)
    assert "learning_rate and schedule" not in names, "two complete trials make no surface"
    words = words_of(page)
    for expected in (
        "digits-0001", "dplis on digits", "budget reached", "the budget is used up",
        "0.9 ± 0.083", "trial 1", "4 of 5", "2 complete, 1 pruned, 1 failed, 1 cut off",
        "spent 300 steps, ε 2.718", "reserved 100 steps", "left 600 steps", "of 1000 steps",
        "spent 12 scores", "of 40 scores", "The guarantee of ONE search is its cap: ε = 8 at δ = 1e-05",
        "Best trial: 1", "learning_rate 0.125", "tune export digits",
        "below the median", "score is not a number", "20 / 100", "1.25", "1 ★",
        "2 configurations did not fit the remaining budget",
        "data set digits: 1 search", "/a/very/long/path", "name: digits",
    ):  # fmt: skip
        assert expected in words, expected
    assert "tune report" not in words, "the reader has this page"
    assert page.count("★") == 1
    assert "at 50 at 100" in words, "every score by its step, for readers without scripts"


def test_every_name_is_escaped_and_nothing_is_loaded() -> None:
    rows = [
        row(number, 0.5, reason=NASTY, id=NASTY, parameters={NASTY: f"{NASTY} {number}", "<b>": number})
        for number in range(3)
    ]
    page = sweep_page(
        report(
            *rows, name=NASTY, sweep=NASTY, metric=NASTY, reason=NASTY, subtitle=NASTY, card=f"# {NASTY}\n\n{NASTY}",
            next_commands=(NASTY,), facts=((NASTY, NASTY),), experiment=NASTY, why=NASTY, chosen=1,
            curves=(picture(parameter=NASTY, fallback=NASTY, unimodal=False),), spending=spending_of(rows),
        )
    )  # fmt: skip
    words = words_of(page)
    assert words.count(NASTY) > 20
    assert "<script" not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    "shown",
    [
        report(),
        report(row(0)),
        report(row(0, None, "failed"), budget=None),
        report(row(0, NAN, curve=((1, NAN), (2, NAN))), row(1, NAN, parameters={"learning_rate": NAN})),
        report(row(0, float("inf")), budget=budget(0, 0, 0)),
        report(budget=budget_of_units()),
        report(spending=None, curves=(picture(points=()),)),
    ],
    ids=["empty", "one", "failed", "nan", "inf", "units", "no points"],
)
def test_a_page_with_hardly_anything_or_not_a_number(shown: object) -> None:
    words = words_of(sweep_page(shown))  # type: ignore[arg-type]
    assert "nan" not in words.split()


def test_not_private_is_said_and_no_epsilon_is_named() -> None:
    words = words_of(sweep_page(report(row(0), budget=None)))
    assert "Not private" in words
    assert "ε = " not in words


def test_a_sealed_search_shows_nothing_but_its_winner() -> None:
    winner = row(0, 0.87, parameters={"learning_rate": 0.3}, curve=())
    others = {"curves": (picture(),), "spending": spending_of([row(0), row(1)]), "not_started": 3}
    page = whole_page(report(winner, accounting=SELECTION, **others))
    assert "<script" not in page, "there is nothing to draw"
    words = words_of(page)
    assert "0.87" in words
    assert "learning_rate 0.3" in words
    assert "for the winner alone" in words
    hidden = "Curve of|smoothing_radius|run to their end|reserved|odometer|Trials|candidates|1 of 5"
    assert not re.search(hidden, words)
    assert checked(page).pictures == []


@pytest.mark.parametrize(("state", "may_come"), [("running", True), ("interrupted", True), ("done", False)])
def test_a_sealed_search_without_a_winner_says_whether_one_may_come(state: str, *, may_come: bool) -> None:
    words = words_of(whole_page(report(state=state, accounting=SELECTION)))
    assert ("winner not released yet" in words) is may_come
    assert ("no winner" in words) is not may_come


def test_a_unimodal_search_has_its_curve_in_words_as_a_chart_and_as_tables() -> None:
    rows = [row(0, 0.8), row(1, 0.7, "pruned", step=20), row(2, 0.85)]
    page = sweep_page(report(*rows, curves=(picture(),), spending=spending_of(rows)))
    words = words_of(page)
    for sentence in (*picture().sentences, *spending_of(rows).sentences):
        assert sentence in words
    for sentence in picture().sentences:
        assert any(sentence in alt for alt in checked(page).pictures), "who cannot see the chart is told what is in it"
    assert "90 – – never started" in words
    assert "5 0.82 50% pruned" in words
    rejected = picture(unimodal=False, above=60.0, below=10.0, fallback="median")
    assert rejected.rejected in words_of(sweep_page(report(row(0), curves=(rejected,))))
