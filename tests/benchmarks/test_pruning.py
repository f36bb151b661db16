"""The comparisons of searches: the cost of a simulated sweep, repeatability, and equal terms on real data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from benchmarks.pruning.curves import RUNGS, problem
from benchmarks.pruning.methods import ABLATIONS, METHODS
from benchmarks.pruning.simulation import Sweep, one_sweep, play
from benchmarks.pruning_real import sweeps as real
from tuner.experiment import load_experiment


@dataclass
class Scripted:
    """A method that tries these radii in turn, stops given trials, keeps the first complete one, and then ends."""

    radii: tuple[float, ...]
    stops: Mapping[int, int] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    started: int = 0

    def start(self) -> tuple[int, float] | None:
        if self.started == len(self.radii):
            return None
        self.started += 1
        return self.started - 1, self.radii[self.started - 1]

    def report(self, trial: int, rung: int, score: float) -> bool:
        if rung == len(RUNGS) - 1:
            self.done.append(trial)
        return self.stops.get(trial) == rung

    def drop(self, trial: int) -> None:
        self.dropped.append(trial)

    def keep(self) -> int | None:
        return self.done[0] if self.done else None

    def enough(self) -> bool:
        return bool(self.done)


def played(method: Scripted, *, budget: int = 540, slots: int = 1, ends: bool = False) -> Sweep:
    truth = problem("unimodal", np.random.default_rng(1))
    return play(truth, method, np.random.default_rng(2), budget=budget, slots=slots, ends=ends)


def test_a_trial_costs_its_epochs_and_a_pruned_one_only_those_it_took() -> None:
    truth = problem("unimodal", np.random.default_rng(1))
    sweep = played(Scripted((20.0, 1.0, 30.0), stops={1: 1}), budget=50)
    assert sweep.epochs == [3, 6, 9, 18, 27, 30, 33, 36, 39, 42], "51 would be above the budget"
    assert sweep.pruned == {1}
    assert sweep.regrets == [math.inf] * 4 + [truth.regret(20.0)] * 6, "nothing is kept before a trial is complete"
    assert sweep.stopped is None, "with `when_sure: go_on` it spends its budget"
    assert [sweep.regret_at(epochs) for epochs in (26, 27)] == [math.inf, truth.regret(20.0)]


@pytest.mark.parametrize("leads", [True, False])
def test_a_sweep_that_ends_lets_a_running_trial_go_on_only_if_it_leads_at_its_rung(leads: bool) -> None:
    truth = problem("unimodal", np.random.default_rng(1))
    first, running = (1.0, 30.0) if leads else (30.0, 1.0)
    # Two slots: the second trial is pruned after 18 epochs, so the third has taken 9 when the first ends at 27.
    method = Scripted((first, first, running, 30.0), stops={1: 3})
    sweep = played(method, slots=2, ends=True)
    assert method.dropped == ([] if leads else [2])
    assert sweep.stopped == (27 + 18 + (27 if leads else 9), truth.regret(first))
    assert method.started == 3, "nothing starts once it is sure"


SLOW = {"gp", "ours"}  # these draw from the seed alone; test_contracts.py tests that


@pytest.mark.parametrize("method", sorted(METHODS.keys() - SLOW))
def test_a_simulated_sweep_is_repeatable(method: str) -> None:
    """Hyperband takes the bracket of a trial from the name of the study, so a random name is another sweep."""
    first, again, other = (
        one_sweep(number, "unimodal", method=method, seed=5, noise=1.0, slots=4) for number in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("workload", [real.FASHION, real.QUICK], ids=lambda workload: workload.dataset)
@pytest.mark.parametrize("search", real.SEARCHES)
def test_the_real_sweeps_of_a_search_differ_only_in_their_method(
    tmp_path: Path, workload: real.Workload, search: str
) -> None:
    rest = []
    for run in real.runs_of(workload, search):
        file = real.experiment_file(run, workload, {"name": "digits"}, tmp_path)
        (tmp_path / "sweep.yaml").write_text(json.dumps(file))
        assert load_experiment(tmp_path / "sweep.yaml").privacy.private
        for name in {"sampler", "pruner", "when_sure"} & set(file["search"]):
            del file["search"][name]
        rest.append({**file, "seed": 0})
    assert len(rest) == len(real.METHODS) * len(workload.seeds)
    assert all(each == rest[0] for each in rest)


@pytest.mark.slow
def test_every_ablation_changes_a_sweep() -> None:
    """A name that no rule reads would be an ablation of nothing."""
    left = set(ABLATIONS) - {"ours"}
    noisy = [("collapsing", 1.0, 4, 160, number) for number in range(6)]
    clear = [("unimodal", 0.3, 1, 300, number) for number in range(3)]  # where a search becomes sure
    unclear = [("unequal_tops", 1.0, 4, 270, number) for number in range(6)]  # where it matters how many tops there are
    for shape, noise, slots, budget, number in (*noisy, *clear, *unclear):
        ours, *others = (
            one_sweep(number, shape, method=name, seed=5, noise=noise, slots=slots, budget=budget)
            for name in ("ours", *sorted(left))
        )
        left = {name for name, played in zip(sorted(left), others, strict=True) if played == ours}
        if not left:
            return
    assert left == set()
