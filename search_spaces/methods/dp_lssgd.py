"""DP-LSSGD: strength and scope of Laplacian smoothing. Smoothing is post-processing, so it costs no privacy."""

from search_spaces.domains import Categorical, Uniform
from search_spaces.parameter import Limits, Parameter, Words

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="laplacian_sigma",
        aliases=("sigma",),
        default=Uniform(0.0, 3.0),
        legal=Limits(),
        usual=True,
        source="DP-LSSGD paper, Table 2: 0, 1, 2 and 3",
    ),
    Parameter(
        name="laplacian_scope",
        default=Categorical(("layer", "model")),
        legal=Words(("layer", "model")),
        source="DP-LSSGD: the authors' code smooths each layer (`layer`); Algorithm 1 of the paper smooths all "
        "parameters as one vector (`model`)",
    ),
)
