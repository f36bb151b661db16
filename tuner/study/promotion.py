"""Promoted parameters (`search_spaces.Promoted`), whose values increase from level to level during a trial.

Each level begins at the same fraction of the steps in all trials, so the scores of different trials at a rung can be
compared. The levels are fixed before the search, so they have no privacy cost. This module imports neither Optuna nor
torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from search_spaces import SearchSpace, promoted_levels
from tuner.errors import InputError
from tuner.study.rungs import scaled_rungs

__all__ = ["check_promotion", "each_level", "full_fidelity_from", "level_steps", "rungs_of_levels", "with_steps"]


def level_steps(levels: int, rungs: Sequence[int]) -> tuple[int, ...]:
    """Return the first step of each of n levels, in a trial that reports at `rungs`.

    Level 0 starts at step 0. Level i starts at the first rung at or after the fraction i/n of the steps, with two
    exceptions:

    - If the previous level starts at or after this rung, level i starts one rung after the previous level.
    - If too few rungs remain for the later levels, level i starts earlier. Every level thus starts before the last
      rung, so the final score belongs to the last level.

    The score AT the rung where a level starts belongs to the previous level.

    Args:
        levels: n, at least 2.
        rungs: steps at which the trial reports, in increasing order. The last step is the end of the trial.

    Raises:
        InputError: there are fewer rungs than levels.
    """
    if len(rungs) < levels:
        raise InputError(
            "promotion-rungs",
            f"A promotion with {levels} levels needs {levels} rungs, but trials report only at steps "
            f"{', '.join(map(str, rungs))}. Raise `search.rungs`, train for more steps, or write fewer levels.",
        )
    steps, places = rungs[-1], [-1]
    for level in range(1, levels):
        wanted = next(place for place, rung in enumerate(rungs) if rung >= round(level / levels * steps))
        latest = len(rungs) - 1 - levels + level
        places.append(min(max(wanted, places[-1] + 1), latest))
    return (0, *(rungs[place] for place in places[1:]))


def full_fidelity_from(space: SearchSpace, rungs: Sequence[int]) -> float:
    """Return the fraction of a trial's steps after which every promoted parameter is at its last level.

    Scores up to this fraction belong to lower levels. Without a promoted parameter, the fraction is 0.
    """
    starts = [level_steps(len(levels), rungs)[-1] for levels in space.promoted.values()]
    return max(starts, default=0) / rungs[-1]


def with_steps(parameters: Mapping[str, object], *, rungs: Sequence[int], steps: int) -> dict[str, object]:
    """Return a trial's flat parameters, with the first step of each level added to every promoted parameter.

    Args:
        parameters: flat parameters of the trial.
        rungs: rungs of the longest trial of the search.
        steps: number of steps of this trial.
    """
    found = dict(parameters)
    for name, value in parameters.items():
        levels = promoted_levels(value)
        if levels is not None:
            nominal = level_steps(len(levels), rungs)
            own = [0, *(min(scaled_rungs((start, rungs[-1]), steps)) for start in nominal[1:])]
            found[name] = {"promote": list(levels), "from_step": own}
    return found


def each_level(parameters: Mapping[str, object], *, rungs: Sequence[int]) -> list[tuple[float, dict[str, object]]]:
    """Split a trial into parts in which all promoted parameters are constant.

    Returns:
        For each part, the fraction of the trial's steps, and a dict of parameters whose values are plain numbers.
    """
    levels = {name: found for name, value in parameters.items() if (found := promoted_levels(value)) is not None}
    starts = {name: level_steps(len(each), rungs) for name, each in levels.items()}
    edges = sorted({0, rungs[-1], *(start for each in starts.values() for start in each)})
    parts = []
    for start, end in pairwise(edges):
        here = {name: each[sum(at <= start for at in starts[name]) - 1] for name, each in levels.items()}
        parts.append(((end - start) / rungs[-1], {**parameters, **here}))
    return parts


def rungs_of_levels(parameters: Mapping[str, object], *, rungs: Sequence[int], steps: int) -> list[float] | None:
    """Return rungs for a new search that repeats only this trial. Every level then begins at the same step as before.

    The rungs are fractions of the trial's steps. Return None if no parameter is promoted.
    """
    for value in with_steps(parameters, rungs=rungs, steps=steps).values():
        if isinstance(value, Mapping):
            return [*(start / steps for start in value["from_step"][1:]), 1.0]
    return None


def check_promotion(space: SearchSpace, rungs: Sequence[int], *, shortest: int) -> None:
    """Check that every level lasts for more than one step of the shortest trial. Rounding could skip a shorter level.

    Raises:
        InputError: a level is too short, or there are fewer rungs than levels.
    """
    for name, levels in space.promoted.items():
        edges = (*level_steps(len(levels), rungs), rungs[-1])
        if not all((end - start) * shortest > rungs[-1] for start, end in pairwise(edges)):
            raise InputError(
                "promotion-steps",
                f"Every level of {name} must last for more than one step of the shortest trial, but that "
                f"trial has {len(levels)} levels in {shortest} steps. Train for more epochs, or write fewer levels.",
            )
