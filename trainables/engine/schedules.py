"""Learning-rate schedules: at each step, the learning rate is multiplied by a factor. A schedule costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from search_spaces.schedules import CONDITIONAL, WARMUP, kind_of
from trainables.checks import refuse_illegal, value_problem
from trainables.errors import HyperparameterError

__all__ = ["SCHEDULE_KEYS", "ScheduleSettings", "rate_factor"]

SCHEDULE_KEYS: Final[Mapping[str, tuple[str | None, str]]] = {
    parameter.name: (kind_of(parameter.name), parameter.name.removeprefix("schedule.").replace(".", "_"))
    for parameter in (WARMUP, *CONDITIONAL)
}
"""Flat key of a trial's parameter → (kind of schedule, or None for all kinds; field of ScheduleSettings)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Kind of schedule, and its parameters. The parameters of other kinds have no effect.

    Attributes:
        kind: one of `search_spaces.schedules.KINDS`.
        warmup: fraction of all steps, in [0, 1), over which the rate first rises linearly to its full value.
        step_factor: factor in (0, 1] by which every drop multiplies the rate.
        step_every: steps between two drops, as a fraction of the steps after warm-up, in (0, 1].
        inverse_time_decay: number a of at least 0. The rate at the end is the full rate divided by 1 + a.
        exponential_final: rate at the end divided by the full rate, in (0, 1].
        cosine_final: rate at the end divided by the full rate, in [0, 1].
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
        HyperparameterError.raise_any(
            value_problem(key, getattr(self, name)) for key, (_, name) in SCHEDULE_KEYS.items()
        )


def rate_factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """Return the factor in [0, 1] that multiplies the learning rate at `step`. Steps are counted from 0.

    Warm-up takes the first w = ceil(warmup · total_steps) steps, with the factor (step + 1) / (w + 1). After the
    warm-up, the schedule starts with the factor 1.
    """
    warmup_steps = math.ceil(settings.warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    step, steps = step - warmup_steps, max(1, total_steps - warmup_steps)
    match settings.kind:
        case "constant":
            return 1.0
        case "step":
            period = max(1, round(settings.step_every * steps))  # whole steps, so that rounding moves no drop
            return float(settings.step_factor ** (step // period))
        case "inverse_time":
            return 1.0 / (1.0 + settings.inverse_time_decay * step / steps)
        case "exponential":
            return float(settings.exponential_final ** (step / steps))
        case "cosine":
            falling = 0.5 * (1.0 + math.cos(math.pi * step / steps))
            return settings.cosine_final + (1.0 - settings.cosine_final) * falling
    raise NotImplementedError(settings.kind)
