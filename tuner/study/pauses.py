"""Pauses of a rung-wise search (`search.full_runs`): where trials pause, and which of them is promoted next.

All configurations first train to their first level. At each level the best trials, and no more than the level's quota,
are promoted to the next one. Promotion depends on scores only. This module imports neither Optuna nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor
from typing import Any

from tuner.study.names import canonical_pruner

__all__ = ["Climber", "Levels", "best_first", "levels_of", "next_promotion", "reached"]


@dataclass(frozen=True)
class Levels:
    """Rungs at which trials pause, and the share of the trials that are promoted from each.

    Attributes:
        steps: rungs of the longest trial, in increasing order. The last is its end.
        keep: for each rung but the last, the largest share of the trials there that go on to the next.
    """

    steps: tuple[int, ...]
    keep: tuple[float, ...]

    def quota(self, level: int, trials: int) -> int:
        """Return how many of `trials` trials are promoted from a level. At least one is."""
        return max(1, floor(self.keep[level] * trials + 1e-9))

    def cost(self, trials: int) -> float:
        """Return the steps of `trials` trials of which each level promotes its quota, in whole runs."""
        steps, before = 0, 0
        for level, step in enumerate(self.steps):
            steps += trials * (step - before)
            before = step
            trials = self.quota(level, trials) if level < len(self.keep) else trials
        return steps / self.steps[-1]


@dataclass(frozen=True)
class Climber:
    """State of a trial that decides about promotions. Levels are numbered from 0, and -1 is the start.

    Attributes:
        at: level of the last report.
        to: level up to which the trial's steps are reserved.
        scores: score at each level that the trial has reached.
        paused: whether the trial is paused.
        over: whether the trial has ended.
        bracket: number of its group. Only trials of one group are compared.
    """

    number: int
    at: int
    to: int
    scores: Mapping[int, float] = field(default_factory=dict)
    paused: bool = False
    over: bool = False
    bracket: int = 0


def levels_of(
    pruner: str, options: Mapping[str, Any], rungs: Sequence[int], *, trials: int = 0, full_runs: float | None = None
) -> Levels:
    """Return the levels of a pruner. `rungs` are the rungs of the longest trial.

    Successive halving and Hyperband promote one of `reduction_factor` trials, at the first rungs at or after
    `min_resource` · `reduction_factor`^k steps. With every other pruner, trials pause at each rung. The share that goes
    on from step r to step s is (r/s)^a. a is 1, so that each level takes about the same number of steps in total, or
    the least number with which `trials` trials take at most `full_runs` whole runs.
    """
    steps = tuple(rungs)
    if canonical_pruner(pruner) in ("successive_halving", "hyperband"):
        factor = int(options.get("reduction_factor", 4 if canonical_pruner(pruner) == "successive_halving" else 3))
        first = options.get("min_resource", rungs[0])
        at = (first if isinstance(first, int) else rungs[0]) * factor ** int(options.get("min_early_stopping_rate", 0))
        found = []
        while at < rungs[-1]:
            found.append(next(rung for rung in rungs if rung >= at))
            at *= factor
        steps = tuple(sorted({*found, rungs[-1]}))
        return Levels(steps, (1 / factor,) * (len(steps) - 1))
    plain = Levels(steps, tuple(here / after for here, after in pairwise(steps)))
    if full_runs is None:
        return plain
    low, high = 0.0, 40.0
    for _ in range(40):
        power = (low + high) / 2
        fits = Levels(steps, tuple(share**power for share in plain.keep)).cost(trials) <= full_runs * (1 + 1e-9)
        low, high = (low, power) if fits else (power, high)
    return Levels(steps, tuple(share**high for share in plain.keep))


def next_promotion(climbers: Sequence[Climber], levels: Levels, *, mode: str) -> tuple[list[int], bool]:
    """Return the paused trials that may be promoted now, the most urgent first, and whether others must wait.

    The lowest level is served first. A trial is promoted only if it is among the quota of its level whatever the trials
    that are still on their way there will score, so that the decision does not depend on who is faster. If no paused
    trial is sure of that, and some are on their way, the second value is True.
    """
    found: list[int] = []
    for level in range(len(levels.keep)):
        for bracket in sorted({each.bracket for each in climbers}):
            group = [each for each in climbers if each.bracket == bracket]
            coming = [each for each in group if each.at < level <= each.to and not each.over]
            there = _ranked([each for each in group if level in each.scores], level, mode)
            quota = levels.quota(level, len(there) + len(coming))
            free = quota - sum(each.to > level for each in there)
            sure = [each for each in there[: max(quota - len(coming), 0)] if each.paused and each.at == level]
            found += [each.number for each in sure[: max(free, 0)]]
            if not found and coming and free > 0:
                return [], True
    return found, False


def _ranked(climbers: Sequence[Climber], level: int, mode: str) -> list[Climber]:
    """Return trials by their score at a level, best first. Of equal scores, the lower number is first."""
    order = sorted(climbers, key=lambda each: each.number)
    return sorted(order, key=lambda each: each.scores[level], reverse=mode == "max")


def best_first(climbers: Sequence[Climber], *, mode: str) -> list[Climber]:
    """Return trials by the level that they have reached, then by their score there, best first."""
    reached = [each for each in climbers if each.at >= 0]
    by_score = sorted(
        sorted(reached, key=lambda each: each.number), key=lambda each: each.scores[each.at], reverse=mode == "max"
    )
    return sorted(by_score, key=lambda each: -each.at)


def reached(levels: Levels, *, trials: int, full_runs: float) -> tuple[int, ...]:
    """Return how many trials reach each level of a search of equally long trials, none of which fails or is pruned.

    The numbers depend on the budget alone. They are those of the driver (`RungWise.allows`), with one trial at a time.
    """
    ends = [step / levels.steps[-1] for step in levels.steps]
    at = [-1] * trials  # the lower number always has the better score
    left = full_runs * (1 + 1e-9)
    moved = True
    while moved:
        moved, deepest = False, max(at)
        for number, whole in _candidates(at, levels):
            before = ends[at[number]] if at[number] >= 0 else 0.0
            there = max(at[number] + 1, deepest, 0)
            others = any(each == deepest for other, each in enumerate(at) if other != number)
            rest = 1.0 - (ends[max(deepest, 0)] if others else ends[there])
            if whole or deepest == len(ends) - 1:  # nothing else fits, or one is complete: this one must be too
                there, rest = len(ends) - 1, 0.0
            if left - (ends[there] - before) >= rest:
                left -= ends[at[number] + 1] - before
                at[number] += 1
                moved = True
                break
    return tuple(sum(each >= level for each in at) for level in range(len(ends)))


def _candidates(at: Sequence[int], levels: Levels) -> list[tuple[int, bool]]:
    """Return the trials that may go on, in the order in which the driver tries them, and whether to the end only."""
    new = [number for number, each in enumerate(at) if each < 0][:1]
    last = len(levels.steps) - 1
    climbers = [
        Climber(number, each, each, dict.fromkeys(range(each + 1), -number), paused=each < last)
        for number, each in enumerate(at)
        if each >= 0
    ]
    promoted, _ = next_promotion(climbers, levels, mode="max")
    rest = [each.number for each in best_first(climbers, mode="max") if each.paused]
    return [(number, False) for number in (*new, *promoted)] + [(number, True) for number in rest]
