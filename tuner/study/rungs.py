"""Rungs (steps at which a trial reports) for trials of different lengths.

All trials report at the same fractions of their steps.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["scaled_rungs"]


def scaled_rungs(rungs: Sequence[int], steps: int) -> dict[int, int]:
    """Return the corresponding rung of the longest trial for each reporting step of a trial with `steps` steps.

    The keys are steps of this trial, and the values are rungs. Both increase. The last pair is (`steps`, `rungs[-1]`).
    In a short trial, several rungs can correspond to the same step. The trial then reports once, for the last of these
    rungs.

    Args:
        rungs: increasing rungs of the longest trial.
        steps: number of steps of this trial.
    """
    nominal = rungs[-1]
    return {max(1, min(steps, round(rung * steps / nominal))): rung for rung in rungs}
