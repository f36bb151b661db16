"""Learning-rate schedules and their parameters. A trial samples only the parameters of the schedule that it chose.

In an experiment file::

    schedule: cosine
    schedule: {choice: [constant, cosine, {inverse_time: {decay: {log_uniform: [0.5, 3]}}}]}
    schedule: {inverse_time: {decay: per_step}}     # η = learning_rate / t at step t = 1, 2, …
    schedule: gen                        # the rate sets itself, so learning_rate must not be searched
    warmup: {uniform: [0, 0.2]}          # a fraction of the steps, before any schedule

A trial's parameters have the flat keys ``schedule``, ``schedule.KIND.PARAMETER`` and ``schedule.warmup``.
"""

from __future__ import annotations

from search_spaces.domains import Categorical, LogUniform, Uniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["CONDITIONAL", "GEN", "GEN_RATES", "INVERSE_TIMES", "KINDS", "SCHEDULE", "WARMUP", "kind_of"]

GEN = "gen"
"""The schedule that sets the rate by private probes of the loss. The probes are a second release of every step."""

GEN_RATES = Limits(low=1e-6, high=1e6)
"""Legal starting rates of `gen`, which changes the rate by many orders of magnitude."""

INVERSE_TIMES: tuple[str, ...] = ("per_step", "per_epoch")
"""Words for the decay of `inverse_time`: the rate is divided by the number of the step or epoch, counted from 1."""

KINDS: tuple[str, ...] = ("constant", "step", "inverse_time", "exponential", "cosine", GEN)
"""Kinds of schedules. Each may follow a warm-up."""

SCHEDULE = Parameter(
    name="schedule",
    default=Categorical(("constant", "inverse_time", "cosine")),
    legal=Words(KINDS),
    source="DP-LSSGD paper: constant, a/t, and a drop to a tenth at step 10 000; cosine is common in training without "
    "privacy",
)

WARMUP = Parameter(
    name="schedule.warmup",
    aliases=("warmup",),
    default=Uniform(0.0, 0.2),
    legal=Limits(high=1.0, high_open=True),
    source="common practice: up to a fifth of the steps; the papers of our methods use no warm-up",
)

CONDITIONAL: tuple[Parameter, ...] = (
    Parameter(
        name="schedule.step.factor",
        default=LogUniform(0.05, 0.5),
        legal=Limits(high=1.0, low_open=True),
        needs=("schedule", ("step",)),
        source="DP-LSSGD paper: the rate drops to a tenth at step 10 000",
    ),
    Parameter(
        name="schedule.step.every",
        default=Uniform(0.2, 0.8),
        legal=Limits(high=1.0, low_open=True),
        needs=("schedule", ("step",)),
        source="one to four drops in a training; DP-LSSGD drops the rate once, at step 10 000",
    ),
    Parameter(
        name="schedule.inverse_time.decay",
        default=LogUniform(0.5, 100.0),
        legal=Limits(words=INVERSE_TIMES),
        needs=("schedule", ("inverse_time",)),
        source="DP-LSSGD paper: the rate a/t is `per_step` with the learning_rate a, from 0.5 to 3.0. The paper's code "
        "divides the rate once an epoch (`per_epoch`). With a number as decay, the rate falls more slowly: the last "
        "rate is between 1/1.5 and 1/101 of the first",
    ),
    Parameter(
        name="schedule.exponential.final",
        default=LogUniform(0.01, 0.5),
        legal=Limits(high=1.0, low_open=True),
        needs=("schedule", ("exponential",)),
        source="a range around 0.1, because the rate of the DP-LSSGD paper ends at a tenth of its first value",
    ),
    Parameter(
        name="schedule.cosine.final",
        default=Uniform(0.0, 0.2),
        legal=Limits(high=1.0),
        needs=("schedule", ("cosine",)),
        source="common practice: a cosine that ends at or near 0",
    ),
    Parameter(
        name="schedule.gen.probe_share",
        default=LogUniform(0.01, 0.2),
        legal=Limits(high=1.0, low_open=True, high_open=True),
        needs=("schedule", ("gen",)),
        source="in Liu & Bu 2025, the probes raise the noise of the gradients by less than 1 %, as a share of up to "
        "0.0197 does here; small batches need a larger share",
    ),
)


def kind_of(name: str) -> str | None:
    """Return the kind of schedule that has this parameter. None if every kind or no kind has it."""
    head, _, rest = name.partition(".")
    kind = rest.partition(".")[0]
    return kind if head == "schedule" and kind in KINDS else None
