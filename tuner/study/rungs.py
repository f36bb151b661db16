"""Rungs of trials of different lengths. Each trial reports at the same fractions of its own steps."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["scaled_rungs"]


def scaled_rungs(rungs: Sequence[int], steps: int) -> dict[int, int]:
    """Return the steps at which a trial of `steps` steps reports, each with the nominal rung for comparison.

    Both rise, and the last pair is (`steps`, last of `rungs`). In a short trial several rungs can fall on one step. The
    trial then reports once, for the last of them.
    """
    nominal = rungs[-1]
    return {max(1, min(steps, round(rung * steps / nominal))): rung for rung in rungs}
