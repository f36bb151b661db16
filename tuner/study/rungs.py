"""Rungs of trials of different lengths. Each trial reports at the same fractions of its own steps."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["scaled_rungs"]


def scaled_rungs(rungs: Sequence[int], steps: int) -> dict[int, int]:
    """Map the steps at which a trial of `steps` steps reports to the corresponding rungs of the longest trial.

    The steps are the keys of the result, and both keys and values increase. The last pair is (`steps`, `rungs[-1]`). In
    a short trial, several rungs can correspond to the same step. The trial then reports once, for the last such rung.

    Args:
        rungs: increasing rungs of the longest trial.
        steps: number of steps of this trial.
    """
    nominal = rungs[-1]
    return {max(1, min(steps, round(rung * steps / nominal))): rung for rung in rungs}
