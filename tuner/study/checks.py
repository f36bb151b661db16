"""Check of the numbers that a study driver is given."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["check_settings"]


def check_settings(study: Study, trials: int, steps_per_trial: int, rung_steps: Sequence[int], mode: str) -> None:
    """Reject numbers that contradict each other or the study, all in one error.

    Raises:
        tuner.errors.InputError: one or more rules are broken.
    """
    problems = []
    if trials < 1:
        problems.append(f"`trials` must be at least 1 (got {trials}).")
    if steps_per_trial < 1:
        problems.append(f"`steps_per_trial` must be at least 1 (got {steps_per_trial}).")
    rungs = list(rung_steps)
    if not rungs or rungs[0] < 1 or rungs[-1] != steps_per_trial or any(a >= b for a, b in itertools.pairwise(rungs)):
        problems.append(
            f"`rung_steps` must rise from at least 1 to `steps_per_trial` = {steps_per_trial} (got {rungs})."
        )
    direction = {"max": "MAXIMIZE", "min": "MINIMIZE"}.get(mode)
    if direction is None:
        problems.append(f"`mode` must be 'max' or 'min' (got {mode!r}).")
    elif study.direction.name != direction:
        problems.append(f"`mode` {mode!r} needs a study with direction {direction} (got {study.direction.name}).")
    if problems:
        raise InputError("study-settings-invalid", " ".join(problems))
