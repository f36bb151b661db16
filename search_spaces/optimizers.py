"""Optimizer, its own parameters, and the activation. A trial samples only the parameters of the optimizer it chose.

In an experiment file::

    optimizer: {choice: [sgd, adam, adam_corrected]}
    momentum: {uniform: [0, 0.95]}                   # of sgd only
    adam_beta1: 0.9                                  # of adam and adam_corrected
    adam_noise_floor: {log_uniform: [0.03, 1]}       # of adam_corrected only

A parameter that the space leaves out has the value of `trainable`, the same for all trials.
"""

from __future__ import annotations

from search_spaces.domains import Categorical, LogUniform, Uniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["ADAM", "ADAM_CORRECTED", "NOISE_FLOOR", "OPTIMIZER", "PARAMETERS", "SGD"]

SGD, ADAM, ADAM_CORRECTED = "sgd", "adam", "adam_corrected"
NOISE_FLOOR = 0.2
"""Default of `adam_noise_floor`."""

_ADAMS = ("optimizer", (ADAM, ADAM_CORRECTED))

OPTIMIZER = Parameter(
    name="optimizer",
    default=Categorical((SGD, ADAM)),
    legal=Words((SGD, ADAM, ADAM_CORRECTED)),
    of_trainable=True,
    source="the optimizers of the DP-LSSGD paper; adam_corrected is DP-AdamBC (Tang, Shpilevskiy & Lecuyer 2024)",
)

PARAMETERS: tuple[Parameter, ...] = (
    OPTIMIZER,
    Parameter(
        name="momentum",
        default=Uniform(0.0, 0.95),
        legal=Limits(high=1.0, high_open=True),
        needs=("optimizer", (SGD,)),
        of_trainable=True,
        source="common practice: 0.9; the papers of our methods use no momentum",
    ),
    Parameter(
        name="adam_beta1",
        aliases=("beta1",),
        default=Uniform(0.5, 0.99),
        legal=Limits(high=1.0, high_open=True),
        needs=_ADAMS,
        source="Kingma & Ba 2015: 0.9; a larger value averages the noise over more steps",
    ),
    Parameter(
        name="adam_beta2",
        aliases=("beta2",),
        default=Uniform(0.9, 0.9999),
        legal=Limits(high=1.0, high_open=True),
        needs=_ADAMS,
        source="Kingma & Ba 2015: 0.999",
    ),
    Parameter(
        name="adam_floor",
        default=LogUniform(1e-8, 1e-3),
        legal=Limits(low_open=True),
        needs=_ADAMS,
        source="Kingma & Ba 2015: 1e-8; a floor above the noise of a step turns Adam into SGD with momentum",
    ),
    Parameter(
        name="adam_noise_floor",
        default=LogUniform(0.03, 1.0),
        legal=Limits(low_open=True),
        needs=("optimizer", (ADAM_CORRECTED,)),
        source="DP-AdamBC has a fixed floor γ′; our floor is (adam_noise_floor · deviation of the noise)², which "
        "changes with the noise, the clip and the batch size",
    ),
    Parameter(
        name="activation",
        default=Categorical(("relu", "tanh")),
        legal=Words(("relu", "tanh")),
        of_trainable=True,
        source="DPLIS paper, Table 11: relu and tanh (a tempered sigmoid)",
    ),
)
