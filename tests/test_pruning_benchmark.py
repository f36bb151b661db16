"""The simulated comparison of searches: what a sweep counts, that it can be made again, and what a run must show."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from benchmarks import pruning
from benchmarks.engine_bars import judge
from benchmarks.engine_measure import Figure
from benchmarks.pruning import BARS, one_sweep
from benchmarks.pruning_curves import RUNGS, problem
from benchmarks.pruning_methods import METHODS
from benchmarks.pruning_sweeps import Sweep, play

ASKED: Mapping[str, float] = {
    "unimodal.ours.epochs_80": 165,
    "unimodal.ours.epochs_90": 185,
    "unimodal.ours_over_asha_80": 0.5,
    "unimodal.ours_over_bohb_80": 0.5,
    "unimodal.ours_over_gp_90": 0.55,
    "unimodal.ours.stop_right": 0.95,
    "unimodal.ours.stop_median": 180,
    "unimodal.ours.best_pruned": 0.02,
    "unimodal.ours.near_pruned": 0.03,
    "drifting.ours.epochs_90": 200,
    "one_slot.ours.epochs_90": 160,
    "bracket.misses_known": 0.05,
    "bracket.misses_estimated": 0.05,
    "wide_second_peak.ours_less_random_540": 0,
    "narrow_second_peak.ours_over_asha_540": 2,
    "times.decision_ms": 20,
    "times.refit_s": 1,
}


@dataclass
class Scripted:
    """A method that tries these radii in turn, stops what it is told to, keeps the first complete one and then ends."""

    radii: tuple[float, ...]
    stops: Mapping[int, int] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    started: int = 0

    def start(self, running: int) -> tuple[int, float] | None:
        if self.started == len(self.radii):
            return None
        self.started += 1
        return self.started - 1, self.radii[self.started - 1]

    def report(self, trial: int, rung: int, score: float) -> bool:
        if rung == len(RUNGS) - 1:
            self.done.append(trial)
        return self.stops.get(trial) == rung

    def keep(self) -> int | None:
        return self.done[0] if self.done else None

    def enough(self) -> bool:
        return bool(self.done)


def played(method: Scripted, *, budget: int = 540, slots: int = 1) -> Sweep:
    truth = problem("unimodal", np.random.default_rng(1))
    return play(truth, method, np.random.default_rng(2), budget=budget, slots=slots)


def test_a_trial_costs_its_epochs_and_one_that_is_stopped_no_more_than_it_took() -> None:
    truth = problem("unimodal", np.random.default_rng(1))
    sweep = played(Scripted((20.0, 1.0, 30.0), stops={1: 1}), budget=50)
    assert sweep.epochs == [3, 6, 9, 18, 27, 30, 33, 36, 39, 42], "51 would be above the budget"
    assert sweep.pruned == {1}
    assert sweep.launched == {0: 20.0, 1: 1.0, 2: 30.0}
    assert sweep.regrets[:4] == [math.inf] * 4, "nothing can be kept before a trial is complete"
    assert sweep.regrets[4:] == [truth.regret(20.0)] * 6
    assert sweep.stopped == (27, truth.regret(20.0))


def test_trials_side_by_side_are_paid_for_as_if_one_after_another() -> None:
    alone, beside = (played(Scripted((20.0, 1.0, 30.0, 40.0)), slots=slots) for slots in (1, 4))
    assert alone.epochs[-1] == beside.epochs[-1] == 4 * RUNGS[-1]
    assert (alone.stopped or (0,))[0] == RUNGS[-1]
    last_step = RUNGS[-1] - RUNGS[-2]
    assert (beside.stopped or (0,))[0] == 4 * RUNGS[-1] - 3 * last_step, "the others are one rung behind"


def test_what_a_sweep_had_after_so_many_epochs() -> None:
    sweep = Sweep(epochs=[3, 6, 9], regrets=[math.inf, 0.5, 0.1])
    assert [sweep.regret_at(epochs) for epochs in (2, 3, 5, 6, 8, 9, 100)] == [
        math.inf, math.inf, math.inf, 0.5, 0.5, 0.1, 0.1,
    ]  # fmt: skip


# The Gaussian process of Optuna takes its time; it draws as our own samplers do, from the seed.
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"gp", "ours, any shape"}))
def test_a_sweep_can_be_made_again(method: str) -> None:
    """Hyperband takes a trial's bracket from the name of the study: a name of chance is another sweep."""
    first, again, other = (
        one_sweep(number, shape="unimodal", method=method, seed=5, noise=1.0, slots=4) for number in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_every_method_meets_the_same_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods that try one radius lose the same; in another sweep, which has another curve, they do not."""
    for name in ("one", "two"):
        monkeypatch.setitem(METHODS, name, lambda _seed: Scripted((20.0,)))
    one, two, other = (
        one_sweep(number, shape="unimodal", method=name, seed=7, noise=1.0, slots=4).sweep.regrets
        for number, name in ((2, "one"), (2, "two"), (3, "two"))
    )
    assert one == two
    assert one != other


def test_every_bar_that_was_asked_for_is_there_and_no_other() -> None:
    assert {bar.name: bar.limit for bar in BARS} == ASKED
    assert [bar.name for bar in BARS if bar.direction == "at least"] == ["unimodal.ours.stop_right"]


def test_one_figure_on_the_wrong_side_is_named_and_no_other() -> None:
    limits = {bar.name: Figure(bar.limit) for bar in BARS}
    assert judge(limits, BARS).falls_short == ()
    for bar in BARS:
        worse = bar.limit + (0.01 if bar.direction == "at most" else -0.01)
        assert judge(limits | {bar.name: Figure(worse)}, BARS).falls_short == (bar.name,)


def test_the_last_line_is_one_json_object_that_names_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    status = pruning.main(["--only", "times", "--json", "--seed", "3"])
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(shown["figures"]) == {"times.decision_ms", "times.refit_s"}
    assert set(shown["left_out"]) == ASKED.keys() - shown["figures"].keys()
    assert status == bool(shown["falls_short"])
    assert shown["environment"]["seed"] == 3
