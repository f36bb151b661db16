"""DP-LSSGD: strength and scope of Laplacian smoothing, which is free because it is post-processing."""

from __future__ import annotations

from search_spaces.domains import Categorical, Uniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["PARAMETERS"]

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="laplacian_sigma",
        aliases=("sigma",),
        default=Uniform(0.0, 3.0),
        legal=Limits(),
        usual=True,
        source="DP-LSSGD paper, Table 2: 0, 1, 2 and 3",
        description="strength of Laplacian smoothing, 0 = off",
    ),
    Parameter(
        name="laplacian_scope",
        default=Categorical(("layer", "model")),
        legal=Words(("layer", "model")),
        source="DP-LSSGD: the authors' code smooths each tensor, Algorithm 1 the whole vector",
        description="the part of the gradient that is smoothed as one vector",
    ),
)
