"""Rungs of trials of different lengths: each reports at the same fractions of its own steps."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["scaled_rungs"]


def scaled_rungs(rungs: Sequence[int], steps: int) -> dict[int, int]:
    """Return the steps at which a trial reports, each with the nominal rung at which it is compared.

    In a short trial several rungs can fall on one step. It then reports once and is compared at the last of them.

    Args:
        rungs: the nominal steps of the reports, rising; the last is the nominal number of steps.
        steps: steps of the trial, at least 1.

    Returns:
        Own step → nominal step, both rising; the last pair is (`steps`, last of `rungs`).
    """
    nominal = rungs[-1]
    return {max(1, min(steps, round(rung * steps / nominal))): rung for rung in rungs}
