"""One simulated sweep: concurrent trials that report at rungs and are pruned by any method."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from benchmarks.pruning.curves import RUNGS, Problem, problem
from benchmarks.pruning.methods import ABLATIONS, METHODS, TOLERANCE, Method
from benchmarks.pruning.random_curves import FAMILIES, random_problem

BUDGET = 270
"""Trial-epochs of every sweep."""


@dataclass
class Sweep:
    """The course of one sweep.

    Attributes:
        epochs: trial-epochs spent at each report, ascending.
        regrets: points by which the true score of the kept trial is below the best, at each report; inf without one.
        sure: whether the method was sure at some time.
        stopped: trial-epochs and regret at the end of a sweep that ended early; None for all others.
        launched: R of each trial.
        pruned: numbers of the pruned trials.
    """

    epochs: list[int] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    sure: bool = False
    stopped: tuple[int, float] | None = None
    launched: dict[int, float] = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)

    def regret_at(self, epochs: int) -> float:
        """Return the regret after `epochs` trial-epochs."""
        place = int(np.searchsorted(self.epochs, epochs, side="right")) - 1
        return self.regrets[place] if place >= 0 else math.inf


def play(
    truth: Problem, method: Method, random: np.random.Generator, *, budget: int, slots: int, ends: bool = False
) -> Sweep:
    """Run a method until the budget, in trial-epochs, is spent.

    Args:
        truth: curves and deviations.
        method: search.
        random: generator of the trials' deviations.
        budget: trial-epochs.
        slots: number of concurrent trials.
        ends: whether the sweep ends as with `when_sure: stop`. While the method is sure, no trial starts, and a running
            trial goes on only if no other one has a better score at its rung. The scores of such a trial may make the
            method unsure, and then the sweep goes on.
    """
    sweep, order = Sweep(), count()
    events: list[tuple[int, int, int, int]] = []  # when, tie-break, trial, rung
    scores: dict[int, tuple[float, ...]] = {}
    best_at = [-math.inf] * len(RUNGS)
    now, spent, kept, sure = 0, 0, math.inf, False

    def launch() -> None:
        while len(events) < slots and (found := method.start()) is not None:
            trial, radius = found
            sweep.launched[trial] = radius
            scores[trial] = truth.trial(radius, random)
            heapq.heappush(events, (now + RUNGS[0], next(order), trial, 0))

    launch()
    while events:
        now, _, trial, rung = heapq.heappop(events)
        spent += RUNGS[rung] - (RUNGS[rung - 1] if rung else 0)
        if spent > budget:
            break
        score = scores[trial][rung]
        stops, last = method.report(trial, rung, score), rung == len(RUNGS) - 1
        best_at[rung] = max(best_at[rung], score)
        if ends and sure and not (stops or last) and score < best_at[rung] and method.enough():
            method.drop(trial)
            stops = True
        if stops and not last:
            sweep.pruned.add(trial)
        elif not last:
            heapq.heappush(events, (now + RUNGS[rung + 1] - RUNGS[rung], next(order), trial, rung + 1))
        if stops or last:  # only then is the question asked, which takes most of the time
            if (best := method.keep()) is not None:
                kept = truth.regret(sweep.launched[best])
            if ends or not sweep.sure:
                sure = method.enough()
                sweep.sure |= sure
        sweep.epochs.append(spent)
        sweep.regrets.append(kept)
        if not (ends and sure):
            launch()  # after every report, as the tuner's driver does
        elif not events:
            sweep.stopped = (spent, kept)
    return sweep


@dataclass(frozen=True)
class Played:
    """A sweep with the facts that the tables show.

    Attributes:
        sweep: course of the sweep, which uses its whole budget.
        stopped: trial-epochs and regret at which the sweep ends with `when_sure: stop`; None if it uses its budget.
        best_pruned: whether the best of the launched trials was pruned.
        near: number of launched trials within the tolerance of the best.
        near_pruned: how many of these were pruned.
    """

    sweep: Sweep
    stopped: tuple[int, float] | None
    best_pruned: bool
    near: int
    near_pruned: int


def one_sweep(
    number: int, shape: str, *, method: str, seed: int, noise: float, slots: int, budget: int = BUDGET
) -> Played:
    """Simulate sweep `number` of a method; a number has the same curve for every method."""

    def played(*, ends: bool) -> tuple[Problem, Sweep]:
        random = np.random.default_rng([seed, number])
        truth = (random_problem if shape in FAMILIES else problem)(shape, random, noise=noise)
        own = {**ABLATIONS, **METHODS}[method](seed * 100_000 + number)
        return truth, play(truth, own, random, budget=budget, slots=slots, ends=ends)

    truth, sweep = played(ends=False)
    stopped = played(ends=True)[1].stopped if sweep.sure else None
    regrets = {trial: truth.regret(radius) for trial, radius in sweep.launched.items()}
    near = [trial for trial, regret in regrets.items() if regret <= TOLERANCE]
    best = min(regrets, key=lambda trial: regrets[trial])
    return Played(sweep, stopped, best in sweep.pruned, len(near), sum(trial in sweep.pruned for trial in near))
