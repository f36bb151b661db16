"""Learning-rate schedules: the factor of the rate at each step. They cost no privacy. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from search_spaces.schedules import CONDITIONAL, WARMUP, kind_of
from trainables.checks import refuse_illegal, value_problem
from trainables.errors import HyperparameterError

__all__ = ["SCHEDULE_KEYS", "SCHEDULE_KINDS", "ScheduleSettings", "rate_factor"]

SCHEDULE_KEYS: Final[Mapping[str, tuple[str | None, str]]] = {
    parameter.name: (kind_of(parameter.name), parameter.name.removeprefix("schedule.").replace(".", "_"))
    for parameter in (WARMUP, *CONDITIONAL)
}
"""Flat key of a trial → (the kind it belongs to, the field of ScheduleSettings). Every kind may have a warm-up."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """One schedule with its parameters; those of other kinds are not used.

    Attributes:
        kind: one of SCHEDULE_KINDS.
        warmup: fraction of all steps, in [0, 1), over which the rate first rises linearly to its full value.
        step_factor: what the rate is multiplied by at every drop, in (0, 1].
        step_every: fraction of the steps after warm-up between two drops, in (0, 1].
        inverse_time_decay: the rate is divided by 1 + decay at the end; 0 or more.
        exponential_final: factor reached at the end, in (0, 1].
        cosine_final: factor reached at the end, in [0, 1].

    Raises:
        HyperparameterError: the kind is unknown, or a number is illegal.
    """

    kind: str = "constant"
    warmup: float = 0.0
    step_factor: float = 0.1
    step_every: float = 0.5
    inverse_time_decay: float = 3.0
    exponential_final: float = 0.1
    cosine_final: float = 0.0

    def __post_init__(self) -> None:
        refuse_illegal("schedule", self.kind)
        problems = [
            problem for key, (_, name) in SCHEDULE_KEYS.items() if (problem := value_problem(key, getattr(self, name)))
        ]
        if problems:
            raise HyperparameterError.of(problems)


def rate_factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """Return the factor of the learning rate at one step.

    Warm-up takes the first w = ceil(warmup · total_steps) steps, rising as (step + 1) / (w + 1); the schedule proper
    then runs over the remaining steps, from factor 1.

    Args:
        settings: the schedule.
        step: counts from 0.
        total_steps: steps of the whole run, at least 1.

    Returns:
        A factor in [0, 1].
    """
    warmup_steps = math.ceil(settings.warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return _FACTORS[settings.kind](settings, step - warmup_steps, max(1, total_steps - warmup_steps))


def _constant(_settings: ScheduleSettings, _step: int, _steps: int) -> float:
    return 1.0


def _step(settings: ScheduleSettings, step: int, steps: int) -> float:
    # The period is a whole number of steps, so that no drop moves by rounding of a quotient.
    period = max(1, round(settings.step_every * steps))
    return float(settings.step_factor ** (step // period))


def _inverse_time(settings: ScheduleSettings, step: int, steps: int) -> float:
    return 1.0 / (1.0 + settings.inverse_time_decay * step / steps)


def _exponential(settings: ScheduleSettings, step: int, steps: int) -> float:
    return float(settings.exponential_final ** (step / steps))


def _cosine(settings: ScheduleSettings, step: int, steps: int) -> float:
    falling = 0.5 * (1.0 + math.cos(math.pi * step / steps))
    return settings.cosine_final + (1.0 - settings.cosine_final) * falling


_FACTORS: Final[Mapping[str, Callable[[ScheduleSettings, int, int], float]]] = {
    "constant": _constant,
    "step": _step,
    "inverse_time": _inverse_time,
    "exponential": _exponential,
    "cosine": _cosine,
}
SCHEDULE_KINDS: Final[tuple[str, ...]] = tuple(_FACTORS)
