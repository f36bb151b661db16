"""Every view of a search names the same best trial."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path

import pytest
from rich.console import Console

from tuner.privacy.modes import SELECTION
from tuner.recorder.history import History
from tuner.report.live import LiveView
from tuner.report.sweep_report import SweepReport, TrialRow
from tuner.study.best import best_score, best_trial
from tuner.study.types import TrialStatus, TrialView
from tuner.sweep import folder as sweeps
from tuner.sweep import sealed
from tuner.sweep.sealed import SealedRuns, release

CASES: list[tuple[tuple[float | None, ...], int | None, int | None]] = [
    ((0.3, 0.5, 0.4), 1, 0),
    ((0.5, 0.5, 0.3), 0, 2),
    ((0.3, 0.5, 0.5, 0.3), 1, 0),
    ((nan, 0.3, 0.5), 2, 1),
    ((0.5, nan, 0.3), 0, 2),
    ((inf, 0.5, -inf), 1, 1),
    ((None, 0.4, 0.4), 1, 1),
    ((nan, None, inf), None, None),
]
"""Scores of trials 0, 1, …, and the best of them when larger and when smaller is better."""


def trials_of(scores: Sequence[float | None]) -> list[TrialView]:
    done = [
        TrialView(id=f"t{number}", number=number, state=TrialStatus.COMPLETE, step=1, last_score=score)
        for number, score in enumerate(scores)
    ]
    pruned = TrialView(id="pruned", number=len(scores), state=TrialStatus.PRUNED, step=1, last_score=0.99)
    return [*done, pruned]


def by_search(trials: Sequence[TrialView], mode: str) -> int | None:
    best = best_trial(trials, mode=mode)
    return None if best is None else best.number


def by_recorder(trials: Sequence[TrialView], mode: str) -> int | None:
    history = History()
    for each in trials:
        facts = {"trial": each.id, "number": each.number, "state": each.state.name.lower(), "score": each.last_score}
        history.apply({"kind": "trial_finished", **facts})
    best = history.best(mode)
    return None if best is None else int(best[0].removeprefix("t"))


def by_report(trials: Sequence[TrialView], mode: str) -> int | None:
    rows = tuple(TrialRow.of(each) for each in trials)
    best = SweepReport(
        name="n", sweep="n", state="done", trials=rows, trials_planned=len(rows), metric="m", mode=mode, budget=None
    ).best
    return None if best is None else best.number


def by_live_view(trials: Sequence[TrialView], mode: str) -> int | None:
    live = LiveView(name="n", trials=len(trials), console=Console(file=io.StringIO()), metric="m", mode=mode)
    for each in trials:
        live.trial_finished(each)
    return None if live._best is None else live._best.number


@pytest.mark.parametrize(("scores", "largest", "smallest"), CASES)
def test_all_views_name_the_same_trial_in_whatever_order_trials_end(
    scores: tuple[float | None, ...], largest: int | None, smallest: int | None
) -> None:
    for (mode, best), view in itertools.product(
        (("max", largest), ("min", smallest)), (by_search, by_recorder, by_report, by_live_view)
    ):
        for trials in (trials_of(scores), trials_of(scores)[::-1]):
            assert view(trials, mode) == best, (mode, view.__name__)
    found = best_score(scores, mode="max")
    assert found == (None if largest is None else scores[largest])


@pytest.mark.parametrize(("scores", "largest", "_smallest"), CASES)
def test_a_sealed_search_differs_only_in_ties(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: tuple[float | None, ...],
    largest: int | None,
    _smallest: int | None,
) -> None:
    sweep = sweeps.create(tmp_path, "sealed", mode=SELECTION)
    for number in range(len(scores)):
        place = sweep.trials / f"t{number}" / "checkpoint"
        place.mkdir(parents=True)
        (place / "step-00000010.pt").write_text("")
    made: list[TrialView] = []

    def initial(_path: Path, run: TrialView) -> None:
        made.append(run)

    monkeypatch.setattr(sealed, "_write_initial", initial)
    runs, trials = SealedRuns(len(scores), bytes(32)), trials_of(scores)
    winner = release(sweep, runs, trials, metric="m", mode="max", spec_of=lambda run, _place: run)
    assert winner.found == bool(scores)
    assert winner.trained == (largest is not None) == (not made)
    assert winner.score == (0.0 if largest is None else scores[largest])
