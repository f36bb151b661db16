"""Learning-rate schedules: what multiplies the rate at each step. Free for the accountant; no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trainables.errors import HyperparameterError

__all__ = ["SCHEDULE_KEYS", "SCHEDULE_KINDS", "ScheduleSettings", "factor"]

WARMUP_KEY: Final = "schedule.warmup"

# Flat trial key -> (the kind it belongs to, the field of ScheduleSettings). Warm-up is a prefix of every kind.
SCHEDULE_KEYS: Final[Mapping[str, tuple[str | None, str]]] = {
    WARMUP_KEY: (None, "warmup"),
    "schedule.step.factor": ("step", "step_factor"),
    "schedule.step.every": ("step", "step_every"),
    "schedule.inverse_time.decay": ("inverse_time", "inverse_time_decay"),
    "schedule.exponential.final": ("exponential", "exponential_final"),
    "schedule.cosine.final": ("cosine", "cosine_final"),
}


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Which schedule, and its parameters; those of another kind than `kind` are not used.

    Attributes:
        kind: one of SCHEDULE_KINDS.
        warmup: fraction of all steps, in [0, 1), over which the rate first rises linearly to its full value.
        step_factor: what the rate is multiplied by at every drop, in (0, 1].
        step_every: fraction of the steps after warm-up between two drops, in (0, 1].
        inverse_time_decay: the rate is divided by 1 + decay at the end; 0 or more.
        exponential_final: factor reached at the end, in (0, 1].
        cosine_final: factor reached at the end, in [0, 1].

    Raises:
        HyperparameterError: the kind is unknown, or a number is not finite or out of its range.
    """

    kind: str = "constant"
    warmup: float = 0.0
    step_factor: float = 0.1
    step_every: float = 0.5
    inverse_time_decay: float = 3.0
    exponential_final: float = 0.1
    cosine_final: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULE_KINDS:
            raise HyperparameterError(f"schedule must be one of {', '.join(SCHEDULE_KINDS)}; got {self.kind!r}")
        # Every comparison is written so that NaN and infinity fail it.
        rules = (
            (0 <= self.warmup < 1, WARMUP_KEY, "in [0, 1)", self.warmup),
            (0 < self.step_factor <= 1, "schedule.step.factor", "in (0, 1]", self.step_factor),
            (0 < self.step_every <= 1, "schedule.step.every", "in (0, 1]", self.step_every),
            (
                0 <= self.inverse_time_decay < math.inf,
                "schedule.inverse_time.decay",
                "finite and at least 0",
                self.inverse_time_decay,
            ),
            (0 < self.exponential_final <= 1, "schedule.exponential.final", "in (0, 1]", self.exponential_final),
            (0 <= self.cosine_final <= 1, "schedule.cosine.final", "in [0, 1]", self.cosine_final),
        )
        problems = [f"{name} must be {rule}; got {value!r}" for holds, name, rule, value in rules if not holds]
        if problems:
            raise HyperparameterError("\n".join(problems))


def factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """What multiplies the learning rate at one step.

    Warm-up takes the first w = ceil(warmup · total_steps) steps, rising as (step + 1) / (w + 1); the schedule proper
    then runs over the steps that are left, from factor 1.

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
