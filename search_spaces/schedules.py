"""Learning-rate schedules as a conditional domain: the parameters of a kind are sampled only when it was chosen.

In an experiment file::

    schedule: cosine
    schedule: {choice: [constant, cosine, {inverse_time: {decay: {log_uniform: [0.5, 3]}}}]}
    warmup: {uniform: [0, 0.2]}          # a fraction of the steps, before any kind

The trial's flat keys are ``schedule``, ``schedule.KIND.PARAMETER`` and ``schedule.warmup``.
"""

from __future__ import annotations

from search_spaces.domains import Categorical, LogUniform, Uniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["CONDITIONAL", "KINDS", "SCHEDULE", "WARMUP", "kind_of"]

KINDS: tuple[str, ...] = ("constant", "step", "inverse_time", "exponential", "cosine")
"""The kinds of schedules; each may have a warm-up before it."""

SCHEDULE = Parameter(
    name="schedule",
    default=Categorical(("constant", "inverse_time", "cosine")),
    legal=Words(KINDS),
    source="DP-LSSGD paper: constant, a/t, and a tenth from step 10 000 on; cosine is the usual decay elsewhere",
    description="how the learning rate changes over the steps",
)

WARMUP = Parameter(
    name="schedule.warmup",
    aliases=("warmup",),
    default=Uniform(0.0, 0.2),
    legal=Limits(high=1.0, high_open=True),
    source="common practice: up to a fifth of the steps; nothing was published with these methods",
    description="fraction of the steps over which the learning rate first rises",
)

CONDITIONAL: tuple[Parameter, ...] = (
    Parameter(
        name="schedule.step.factor",
        default=LogUniform(0.05, 0.5),
        legal=Limits(high=1.0, low_open=True),
        source="DP-LSSGD paper: 0.1 at iteration 10 000",
        description="factor of the learning rate at each drop",
    ),
    Parameter(
        name="schedule.step.every",
        default=Uniform(0.2, 0.8),
        legal=Limits(high=1.0, low_open=True),
        source="one drop or a few: DP-LSSGD drops once, at iteration 10 000",
        description="fraction of the steps between two drops",
    ),
    Parameter(
        name="schedule.inverse_time.decay",
        default=LogUniform(0.5, 3.0),
        legal=Limits(),
        source="DP-LSSGD paper: a/t with a from 0.5 to 3.0",
        description="factor 1 / (1 + decay · step / steps)",
    ),
    Parameter(
        name="schedule.exponential.final",
        default=LogUniform(0.01, 0.5),
        legal=Limits(high=1.0, low_open=True),
        source="around the 0.1 to which DP-LSSGD drops",
        description="factor at the end: final ^ (step / steps)",
    ),
    Parameter(
        name="schedule.cosine.final",
        default=Uniform(0.0, 0.2),
        legal=Limits(high=1.0),
        source="common practice: a cosine that ends at or near 0",
        description="factor at the end of the cosine",
    ),
)


def kind_of(name: str) -> str | None:
    """Return the kind of schedule that a parameter belongs to; None when it depends on none."""
    head, _, rest = name.partition(".")
    kind = rest.partition(".")[0]
    return kind if head == "schedule" and kind in KINDS else None
