"""The gate of what rises within a trial: it needs a rung for each of its levels."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import PARAMETERS, SpaceError
from tuner.experiment.findings import Finding, Gate, whole_space
from tuner.experiment.model import Experiment
from tuner.experiment.yamlfile import Path

__all__ = ["PROMOTION_GATES"]


def _rungs(experiment: Experiment) -> Iterator[Finding]:
    try:
        promoted = whole_space(experiment).promoted
    except SpaceError:  # another gate says what is wrong with it
        return
    rungs = experiment.search.rungs
    reports = rungs if isinstance(rungs, int) else len(rungs)
    for name, levels in promoted.items():
        if reports < len(levels):
            key = next(key for key in (name, *PARAMETERS[name].aliases) if key in experiment.search.space)
            yield Finding(
                path=("search", "space", key),
                rule="a promotion needs at least as many rungs as levels: each begins at a rung of its own",
                value=f"{len(levels)} levels and {reports} rung{'' if reports == 1 else 's'}",
                fix=f"Write search.rungs: {len(levels)} or more, or fewer levels.",
            )


_NEEDS: tuple[Path, ...] = (("search", "space"), ("search", "rungs"), ("trainable", "method"))

PROMOTION_GATES: tuple[tuple[Gate, tuple[Path, ...]], ...] = ((_rungs, _NEEDS),)
"""Every gate with the keys it looks at."""
