"""One simulated sweep: trials that run side by side, report at rungs, and are stopped or not; any method can play."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from benchmarks.pruning_curves import EPOCHS, RUNGS, Problem

__all__ = ["Method", "Sweep", "play"]


class Method(Protocol):
    """A search: proposes radii, stops trials, and says which finished trial it would keep."""

    def start(self, running: int) -> tuple[int, float] | None:
        """Number and R of a new trial; None to leave the slot idle until something is reported."""
        ...

    def report(self, trial: int, rung: int, score: float) -> bool:
        """A score at a rung; whether the trial stops there. At the last rung it is complete."""
        ...

    def keep(self) -> int | None:
        """The trial that would be exported now; None before one is complete."""
        ...

    def enough(self) -> bool:
        """Whether the search would end now and keep the rest of its budget."""
        ...


@dataclass
class Sweep:
    """What became of one.

    Attributes:
        epochs: trial-epochs spent when something was reported, rising.
        regrets: points that the kept trial's true score was below the best then; inf before there was one.
        stopped: trial-epochs and regret where the method would have ended; None if it never would.
        launched: R of each trial.
        pruned: numbers of those that were stopped.
    """

    epochs: list[int] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    stopped: tuple[int, float] | None = None
    launched: dict[int, float] = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)

    def regret_at(self, epochs: int) -> float:
        """After so many trial-epochs."""
        place = int(np.searchsorted(self.epochs, epochs, side="right")) - 1
        return self.regrets[place] if place >= 0 else math.inf


def play(problem: Problem, method: Method, random: np.random.Generator, *, budget: int, slots: int) -> Sweep:
    """Run a method until the budget is spent.

    Args:
        problem: the truth.
        method: the search.
        random: of the trials' deviations.
        budget: trial-epochs.
        slots: trials that can run at a time.
    """
    sweep, order = Sweep(), count()
    events: list[tuple[int, int, int, int]] = []  # when, tie-break, trial, rung
    scores: dict[int, tuple[float, ...]] = {}
    now, spent, kept = 0, 0, math.inf

    def launch() -> None:
        while len(events) < slots and (found := method.start(len(events))) is not None:
            trial, radius = found
            sweep.launched[trial] = radius
            scores[trial] = problem.trial(radius, random)
            heapq.heappush(events, (now + RUNGS[0], next(order), trial, 0))

    launch()
    while events:
        now, _, trial, rung = heapq.heappop(events)
        spent += RUNGS[rung] - (RUNGS[rung - 1] if rung else 0)
        if spent > budget:
            break
        stops, last = method.report(trial, rung, scores[trial][rung]), rung == len(RUNGS) - 1
        if stops and not last:
            sweep.pruned.add(trial)
        elif not last:
            heapq.heappush(events, (now + RUNGS[rung + 1] - RUNGS[rung], next(order), trial, rung + 1))
        if (best := method.keep()) is not None:
            kept = problem.regret(sweep.launched[best])
        sweep.epochs.append(spent)
        sweep.regrets.append(kept)
        if sweep.stopped is None and method.enough():  # asked after every report, as the driver does
            sweep.stopped = (spent, kept)
        launch()  # one that waits is asked again after every report, as the tuner's driver does
    return sweep


assert RUNGS[-1] == EPOCHS
