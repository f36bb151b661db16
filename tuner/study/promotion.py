"""K as fidelity: at which rungs a promoted number (`search_spaces.Promoted`) reaches its levels. No Optuna, no torch.

All trials have the same level at the same fraction of their steps, so what they score at a rung can be compared. The
plan is fixed before the search: nothing of it is sampled, and it costs the accountant nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from search_spaces import SearchSpace, promoted_levels
from tuner.errors import InputError
from tuner.study.rungs import scaled_rungs

__all__ = ["check_promotion", "each_level", "full_fidelity_from", "level_steps", "rungs_of_levels", "with_steps"]


def level_steps(levels: int, rungs: Sequence[int]) -> tuple[int, ...]:
    """The step from which each of n levels holds, in a trial that reports at `rungs`.

    Level 0 holds from step 0. Level i begins at the first rung at or after the fraction i/n of the steps (in whole
    steps), but never at the rung of the level before it (then at the next one), and early enough to leave every later
    level a rung before the last: so the last level holds from the last-but-one rung at the latest, and the final score
    is one of the last level. The score AT the rung where a level begins is of a model that was trained with the level
    before it.

    Args:
        levels: n, at least 2.
        rungs: the steps of the reports, rising; the last is the end of the trial.

    Raises:
        InputError: there are fewer rungs than levels.
    """
    if len(rungs) < levels:
        raise InputError(
            f"a promotion must have at least as many rungs as levels, each level begins at a rung of its own, got "
            f"{levels} levels and reports at {', '.join(map(str, rungs))}. Raise search.rungs, train for more steps, "
            "or write fewer levels."
        )
    steps, places = rungs[-1], [-1]
    for level in range(1, levels):
        wanted = next(place for place, rung in enumerate(rungs) if rung >= round(level / levels * steps))
        latest = len(rungs) - 1 - levels + level
        places.append(min(max(wanted, places[-1] + 1), latest))
    return (0, *(rungs[place] for place in places[1:]))


def full_fidelity_from(space: SearchSpace, rungs: Sequence[int]) -> float:
    """The fraction of a trial's steps from which on everything promoted is at its last level; 0 where nothing is.

    A score at this fraction or before is of a model that was trained with lower levels only: evidence of full fidelity
    is what is reported strictly after it.

    Args:
        space: what is searched.
        rungs: the nominal steps of the reports, rising; the last is the end.

    Raises:
        InputError: there are fewer rungs than levels.
    """
    starts = [level_steps(len(levels), rungs)[-1] for levels in space.promoted.values()]
    return max(starts, default=0) / rungs[-1]


def with_steps(parameters: Mapping[str, object], *, rungs: Sequence[int], steps: int) -> dict[str, object]:
    """A trial's parameters as its training takes them: of what is promoted, the steps of its own at which it rises.

    Args:
        parameters: flat.
        rungs: the nominal ones, by which all trials are compared.
        steps: of this trial.
    """
    found = dict(parameters)
    for name, value in parameters.items():
        levels = promoted_levels(value)
        if levels is not None:
            nominal = level_steps(len(levels), rungs)
            own = [0, *(_own(start, rungs[-1], steps) for start in nominal[1:])]
            found[name] = {"promote": list(levels), "from_step": own}
    return found


def each_level(parameters: Mapping[str, object], *, rungs: Sequence[int]) -> list[tuple[float, dict[str, object]]]:
    """The parts of a trial between two rises, each as (its share of the steps, its parameters with plain numbers)."""
    levels = {name: found for name, value in parameters.items() if (found := promoted_levels(value)) is not None}
    starts = {name: level_steps(len(each), rungs) for name, each in levels.items()}
    edges = sorted({0, rungs[-1], *(start for each in starts.values() for start in each)})
    parts = []
    for start, end in pairwise(edges):
        here = {name: each[sum(at <= start for at in starts[name]) - 1] for name, each in levels.items()}
        parts.append(((end - start) / rungs[-1], {**parameters, **here}))
    return parts


def rungs_of_levels(parameters: Mapping[str, object], *, rungs: Sequence[int], steps: int) -> list[float] | None:
    """Rungs, as fractions, with which a search of this one trial rises at the very same steps; None where nothing does.

    There are as many as levels, and then each level can begin at one of them only.
    """
    for value in with_steps(parameters, rungs=rungs, steps=steps).values():
        if isinstance(value, Mapping):
            return [*(start / steps for start in value["from_step"][1:]), 1.0]
    return None


def check_promotion(space: SearchSpace, rungs: Sequence[int], *, shortest: int) -> None:
    """Check that every level holds for more than one step of the shortest trial, so that none is lost to rounding.

    Args:
        space: what is searched.
        rungs: the nominal ones.
        shortest: steps of the shortest trial.

    Raises:
        InputError: one does not, or there are fewer rungs than levels.
    """
    for name, levels in space.promoted.items():
        edges = (*level_steps(len(levels), rungs), rungs[-1])
        if not all((end - start) * shortest > rungs[-1] for start, end in pairwise(edges)):
            raise InputError(
                f"every level of {name} must hold for more than one step of the shortest trial, got "
                f"{len(levels)} levels in {shortest} steps. Train for more epochs, or write fewer levels."
            )


def _own(start: int, nominal: int, steps: int) -> int:
    """The step of a trial's own that corresponds to a nominal rung."""
    return min(scaled_rungs((start, nominal), steps))
