"""Where trials of different lengths report: each at the same fractions of its own steps."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["scaled_rungs"]


def scaled_rungs(rungs: Sequence[int], steps: int) -> dict[int, int]:
    """The steps at which a trial reports, each with the nominal rung that it is compared at.

    A trial that is too short for all rungs reports once where several fall on one of its steps, and is then compared
    at the last of these.

    Args:
        rungs: the nominal ones, rising; the last is the nominal number of steps.
        steps: of the trial, at least 1.

    Returns:
        Own step → nominal step, rising in both; the last pair is (`steps`, last of `rungs`).
    """
    nominal = rungs[-1]
    return {max(1, min(steps, round(rung * steps / nominal))): rung for rung in rungs}
