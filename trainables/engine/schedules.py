"""Learning-rate schedules: at each step, the learning rate is multiplied by a factor.

A schedule costs no privacy, except `gen`, whose rate comes from a private release (`trainables.engine.gen`). It takes a
public share of the step's budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from search_spaces.schedules import CONDITIONAL, GEN, WARMUP, kind_of
from trainables.checks import refuse_illegal, value_problem
from trainables.errors import HyperparameterError

__all__ = ["PROBE_SHARE", "SCHEDULE_KEYS", "NoiseSplit", "ScheduleSettings", "noise_split", "rate_factor"]

PROBE_SHARE: Final = 0.019
"""Default share of the probes. It increases the noise of the gradients by 0.96 %."""

_ROUNDED_UP: Final = 1.0 + 2.0**-40  # so that no rounding makes the two releases cost more than was charged

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
        inverse_time_decay: number of at least 0: the rate at the end is the full rate divided by 1 + this number. Or
            'per_step' or 'per_epoch': the rate is divided by the number of the step or epoch, counted from 1.
        exponential_final: rate at the end divided by the full rate, in (0, 1].
        cosine_final: rate at the end divided by the full rate, in [0, 1].
        gen_probe_share: share of a step's squared privacy loss that the loss probes take, in (0, 1).
    """

    kind: str = "constant"
    warmup: float = 0.0
    step_factor: float = 0.1
    step_every: float = 0.5
    inverse_time_decay: float | str = 3.0
    exponential_final: float = 0.1
    cosine_final: float = 0.0
    gen_probe_share: float = PROBE_SHARE

    @property
    def probe_share(self) -> float | None:
        """Share of the loss probes; None if the steps have no probes."""
        return self.gen_probe_share if self.kind == GEN else None

    def __post_init__(self) -> None:
        refuse_illegal("schedule", self.kind)
        HyperparameterError.raise_any(
            value_problem(key, getattr(self, name)) for key, (_, name) in SCHEDULE_KEYS.items()
        )


@dataclass(frozen=True, kw_only=True)
class NoiseSplit:
    """Noise of the releases of one step, each in units of its own sensitivity.

    Attributes:
        gradient: noise multiplier of the clipped sum of gradients.
        probe: noise multiplier of the loss probes, or None for a step without probes.
    """

    gradient: float
    probe: float | None = None


def noise_split(noise_multiplier: float, *, probe_share: float | None) -> NoiseSplit:
    """Divide the charged noise multiplier σ of a step among its releases. A step without probes has one release.

    With the share p of the probes, the gradient gets σ_g = σ/√(1 - p), and the probes get σ_l = σ/√p. Then
    σ_g⁻² + σ_l⁻² = σ⁻², and both releases of one Poisson sample are together as private as one Gaussian release with
    σ. Both are rounded up.

    Proof. Fix all that was seen, and which of the shared records are drawn. The hockey-stick divergence is jointly
    convex, so this is enough. In units of the noise, and around the values without the record z, the first result is
    N(0, I) or N(a, I) with ‖a‖ <= 1/σ_g. Given the first result y, the second is N(0, I) or N(c(y), I) with
    ‖c(y)‖ <= 1/σ_l: the shift depends on y, its bound does not. Let t be N(0, 1) or N(1/σ, 1), and g an independent
    N(0, 1). Then w₁ = (σ/σ_g)·t - (σ/σ_l)·g and w₂ = (σ/σ_l)·t + (σ/σ_g)·g are independent, with variance 1 and means 0
    or (1/σ_g, 1/σ_l). So σ_g·a·w₁ + N(0, I - σ_g²·aaᵀ) has the law of the first result in both cases, and given y,
    σ_l·c(y)·w₂ + N(0, I - σ_l²·c(y)c(y)ᵀ) that of the second; both covariances are at least 0. So one random function
    makes the law without z of N(0, 1), and the law with z of N(1/σ, 1). It is linear in laws: with the sample rate q it
    makes the mixture of both of (1-q)·N(0, 1) + q·N(1/σ, 1). No random function raises the divergence, in either
    direction. The bound is reached if every shift has its full length.
    """
    if probe_share is None:
        return NoiseSplit(gradient=noise_multiplier)
    up = noise_multiplier * _ROUNDED_UP
    return NoiseSplit(gradient=up / math.sqrt(1.0 - probe_share), probe=up / math.sqrt(probe_share))


def rate_factor(settings: ScheduleSettings, step: int, total_steps: int, *, steps_per_epoch: float) -> float:
    """Return the factor in [0, 1] that multiplies the learning rate at `step`. Steps are counted from 0.

    With `gen`, it multiplies the rate that the probes set, and only warm-up changes it.

    Warm-up takes the first w = ceil(warmup · total_steps) steps, with the factor (step + 1) / (w + 1). After the
    warm-up, the schedule starts with the factor 1. `steps_per_epoch` is the PUBLIC 1 / sample_rate.
    """
    warmup_steps = math.ceil(settings.warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    step, steps = step - warmup_steps, max(1, total_steps - warmup_steps)
    match settings.kind:
        case "constant" | "gen":
            return 1.0
        case "step":
            period = max(1, round(settings.step_every * steps))  # whole steps, so that rounding moves no drop
            return float(settings.step_factor ** (step // period))
        case "inverse_time":
            decay = settings.inverse_time_decay
            if isinstance(decay, str):
                return 1.0 / (1 + (step if decay == "per_step" else int(step / steps_per_epoch)))
            return 1.0 / (1.0 + decay * step / steps)
        case "exponential":
            return float(settings.exponential_final ** (step / steps))
        case "cosine":
            falling = 0.5 * (1.0 + math.cos(math.pi * step / steps))
            return settings.cosine_final + (1.0 - settings.cosine_final) * falling
    raise NotImplementedError(settings.kind)
