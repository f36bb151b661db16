"""DPLIS: radius, samples and reduction of the loss smoothing. Smoothing precedes the clip and costs no privacy."""

from search_spaces.domains import Categorical, Integer, Uniform
from search_spaces.parameter import Limits, Parameter, Words

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="smoothing_radius",
        aliases=("R",),
        default=Uniform(0.0, 60.0),
        legal=Limits(),
        usual=True,
        source="DPLIS paper, Tables 2, 3 and 5: the best R is between 4 and 40, and 40 is the largest R of its grid; "
        "R = 0 is DP-SGD",
    ),
    Parameter(
        name="smoothing_samples",
        aliases=("K",),
        default=Integer(1, 20, log=True),
        legal=Limits(low=1, integer=True),
        promotable=True,
        source="DPLIS paper: K = 10 (images), 20 (Reddit); a step takes K times the work",
    ),
    Parameter(
        name="smoothing_reduction",
        default=Categorical(("mean", "sum")),
        legal=Words(("mean", "sum")),
        source="DPLIS paper: equation 6 divides by K (`mean`), but the authors' code does not (`sum`)",
    ),
)
