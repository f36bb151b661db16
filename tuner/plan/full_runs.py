"""Plan of a rung-wise search (`search.full_runs`): the steps that it takes, and how many whole runs to plan for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, log2
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.plan.shapes import rung_steps
from tuner.privacy.accountant.filters import steps_of_runs
from tuner.study.pauses import Levels, levels_of, reached

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.experiment.sections import SearchSection
    from tuner.plan.shapes import Choices

__all__ = ["Bought", "bought", "planned_runs", "recommended", "scores_at_most", "search_levels"]

_DRAWS = 400
_SEED = 15
_DOUBLING = 0.015
"""Part of a score that twice as many runs are taken to cost, because all steps then have √2 times the noise. Of
logistic regression on MNIST at ε = 0.3 it is 0.01 to 0.02, and less at a larger ε."""
_LITTLE = 0.005
"""A recommended number of runs may lose this part of the score against the best number."""
_SPEEDS = (0.15, 0.45)
"""A curve of scores rises as 1 − exp(−f/s) in the fraction f of a trial. s is between these numbers."""
_MOST = 50
"""A search of more trials gets the recommendation of this many, in proportion."""
_MOST_SHOWN = 200
_STEP = 1.06
"""Ratio of the numbers of runs that are compared, which are rounded to quarters."""


@dataclass(frozen=True, kw_only=True)
class Bought:
    """What a number of whole runs buys.

    Attributes:
        full_runs: number of whole runs of steps.
        levels: steps at which trials pause.
        reached: for each level, how many trials reach it if none fails.
        loss: mean loss of score of the winner in simulated searches, as a part of the best configuration's score.
        recommended: the number of whole runs that `full_runs: auto` takes.
    """

    full_runs: float
    levels: tuple[int, ...]
    reached: tuple[int, ...]
    loss: float
    recommended: float

    def __post_init__(self) -> None:
        for name in ("levels", "reached"):  # JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))


def planned_runs(experiment: Experiment, choices: Choices) -> Bought | None:
    """Return the number of whole runs for which the budget is planned, and what it buys; None without `full_runs`.

    Raises:
        InputError: the number does not hold one whole run and the first steps of every other trial.
    """
    search = experiment.search
    if search.full_runs is None:
        return None
    steps = max(choice.longest for choice in choices.menu)
    rungs = rung_steps(search.rungs, steps)
    advised = recommended(search, rungs)
    if search.full_runs == "auto":
        return bought(search, rungs, advised, advised)
    first, least = _least(search, rungs)
    if search.full_runs < least * (1 - 1e-9):
        raise InputError(
            "full-runs-too-small",
            f"`search.full_runs` must be at least {ceil(least * 1000) / 1000:g} (got {search.full_runs:g}). It must "
            f"pay for one whole run of {steps} steps and the first {first} steps of {search.trials - 1} other "
            "trials. Raise full_runs, plan fewer trials, or let trials report earlier with `search.rungs`.",
        )
    return bought(search, rungs, search.full_runs, advised)


def search_levels(search: SearchSection, rungs: tuple[int, ...], *, trials: int, full_runs: float | None) -> Levels:
    """Return the levels at which trials pause. Where the pruner leaves it open, they use up all planned whole runs."""
    return levels_of(search.pruner.name, search.pruner.options, rungs, trials=trials, full_runs=full_runs)


def scores_at_most(rungs: tuple[int, ...], *, trials: int, full_runs: float) -> int:
    """Return an upper bound on the number of scores of a search that takes the steps of `full_runs` whole runs.

    Each score follows the steps since the rung before it, and each rung is reached by at most `trials` trials. So the
    bound is what fits if the shortest ways to a rung are taken first.
    """
    left, scores = steps_of_runs(full_runs, rungs[-1]), 0
    for way in sorted(after - before for before, after in zip((0, *rungs), rungs, strict=False)):
        taken = min(trials, left // way)
        scores, left = scores + taken, left - taken * way
    return scores


def bought(search: SearchSection, rungs: tuple[int, ...], full_runs: float, advised: float) -> Bought:
    """Return what `full_runs` whole runs buy in a search of equally long trials. `advised` is the recommendation."""
    steps, there, loss = _simulated(search, rungs, full_runs)
    return Bought(full_runs=full_runs, levels=steps, reached=there, loss=loss, recommended=advised)


def recommended(search: SearchSection, rungs: tuple[int, ...]) -> float:
    """Return the smallest number of whole runs that loses little.

    Fewer runs mean less noise for all trials, and more of them a better choice of the winner, by simulated searches.
    """
    if search.trials > _MOST:
        return recommended(search.model_copy(update={"trials": _MOST}), rungs) * search.trials / _MOST
    _, least = _least(search, rungs)
    losses: dict[float, float] = {}
    runs = ceil(least * 4) / 4
    while runs < search.trials and _DOUBLING * log2(runs) < min(losses.values(), default=1.0):
        losses[runs] = _simulated(search, rungs, runs)[2] + _DOUBLING * log2(runs)
        runs = max(runs + 0.25, round(runs * _STEP * 4) / 4)
    losses[float(search.trials)] = _DOUBLING * log2(search.trials)  # all are whole, so the best is chosen
    return next(runs for runs, loss in losses.items() if loss <= min(losses.values()) + _LITTLE)


def _simulated(
    search: SearchSection, rungs: tuple[int, ...], full_runs: float
) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Return the levels of a search, how many trials reach each, and its mean loss."""
    if search.trials > _MOST_SHOWN:  # in proportion, because the exact numbers take long
        scale = search.trials / _MOST_SHOWN
        few = search.model_copy(update={"trials": _MOST_SHOWN})
        steps, some, loss = _simulated(few, rungs, full_runs / scale)
        return steps, tuple(round(each * scale) for each in some), loss
    levels = search_levels(search, rungs, trials=search.trials, full_runs=full_runs)
    there = reached(levels, trials=search.trials, full_runs=full_runs)
    return levels.steps, there, _loss(levels.steps, there)


def _least(search: SearchSection, rungs: tuple[int, ...]) -> tuple[int, float]:
    """Return the steps before a trial's first pause, and the least number of whole runs."""
    first = search_levels(search, rungs, trials=search.trials, full_runs=None).steps[0]
    return first, 1 + (search.trials - 1) * first / rungs[-1]


@lru_cache
def _loss(steps: tuple[int, ...], there: tuple[int, ...]) -> float:
    """Return the mean loss of simulated searches in which `there[i]` trials reach the level of `steps[i]` steps.

    Configurations are drawn at random. A configuration is good if two of its parameters are near the best ones, and the
    curves of scores rise at different speeds, so that they cross. A score has a small error. The seed is public.
    """
    import numpy as np

    random = np.random.default_rng(_SEED)
    trials = there[0]
    off = random.uniform(-1, 1, (_DRAWS, trials, 2))
    final = np.exp(-2 * (off**2).sum(2))
    low, high = map(log, _SPEEDS)
    speed = np.exp(random.uniform(low, high, (_DRAWS, trials)))
    alive = np.ones((_DRAWS, trials), dtype=bool)
    for step, count in zip(steps, (*there[1:], 1), strict=True):
        risen = (1 - np.exp(-step / steps[-1] / speed)) / (1 - np.exp(-1 / speed))
        score = np.where(alive, final * risen + random.normal(0, 0.005, final.shape), -np.inf)
        kept = np.argsort(-score, axis=1)[:, :count]
        alive = np.zeros_like(alive)
        np.put_along_axis(alive, kept, values=True, axis=1)
    best = final.max(1)
    return float(np.mean((best - final[alive]) / best))
