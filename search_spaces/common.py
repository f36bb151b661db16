"""The parameters of every method: learning rate, clipping norm, and the priced batch size, noise and epochs."""

from __future__ import annotations

from search_spaces.domains import Categorical, LogUniform
from search_spaces.parameter import Limits, Parameter

__all__ = ["PARAMETERS", "PRICED"]

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="learning_rate",
        aliases=("lr", "eta"),
        default=LogUniform(0.01, 2.0),
        legal=Limits(low_open=True),
        usual=True,
        source="published: 0.001 (DP-LSSGD, Adam), 0.1024 to 0.15 (DPLIS, DP-LSSGD, SGD); 0.5 best in a first look; "
        "widened upwards because it is the strongest baseline",
        description="step size before the schedule",
    ),
    Parameter(
        name="max_grad_norm",
        aliases=("C",),
        default=LogUniform(0.1, 10.0),
        legal=Limits(low=1e-6, high=1e6),
        source="published: C = 1 (DPLIS), 1 and 3 (DP-LSSGD), 3 and 10 (weight decay); 0.1 in the clipping study",
        description="clipping norm of one sample's gradient; free, because the noise scales with it",
    ),
)

PRICED: tuple[Parameter, ...] = (
    Parameter(
        name="batch_size",
        aliases=("b",),
        default=Categorical((64, 128, 256, 512, 1024, 2048, 4096)),
        legal=Limits(low=1, integer=True),
        priced=True,
        source="published: 64 (DPLIS, Reddit), 128 (DP-LSSGD), 256 (DPLIS); 4096 in a first look at MNIST",
        description="EXPECTED batch size under Poisson sampling",
    ),
    Parameter(
        name="noise_multiplier",
        default=LogUniform(0.5, 10.0),
        legal=Limits(low_open=True),
        priced=True,
        source="published: 1.1 to 3 (DPLIS), 1.3 and 1.5 (weight decay), 2 to 10 (DP-LSSGD)",
        description="noise standard deviation divided by the clipping norm",
    ),
    Parameter(
        name="epochs",
        default=LogUniform(1.0, 100.0),
        legal=Limits(low_open=True),
        priced=True,
        source="published: 50 (DP-LSSGD, weight decay)",
        description="training length: steps = epochs / sample_rate",
    ),
)
