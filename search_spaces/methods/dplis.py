"""DPLIS: radius, samples and reduction of the loss smoothing, which is free because it comes before the clip."""

from __future__ import annotations

from search_spaces.domains import Categorical, Integer, LogUniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["PARAMETERS"]

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="smoothing_radius",
        aliases=("R",),
        default=LogUniform(1.0, 80.0),
        legal=Limits(),
        usual=True,
        source="DPLIS paper, Tables 2, 3 and 5: best R from 4 to 40; doubled so that 40 is not at the edge",
        description="strength R of the loss smoothing",
    ),
    Parameter(
        name="smoothing_samples",
        aliases=("K",),
        default=Integer(1, 20, log=True),
        legal=Limits(low=1, integer=True),
        promotable=True,
        source="DPLIS paper: K = 10 (images), 20 (Reddit); a step costs K times the work",
        description="weight perturbations K of a step",
    ),
    Parameter(
        name="smoothing_reduction",
        default=Categorical(("mean", "sum")),
        legal=Words(("mean", "sum")),
        source="DPLIS paper: equation 6 divides by K, the authors' code does not",
        description="how the K gradients become one",
    ),
)
