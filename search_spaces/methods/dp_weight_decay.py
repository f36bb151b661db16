"""Weight decay before clipping: the L2 coefficient and where it acts; free before and after the noise."""

from __future__ import annotations

from search_spaces.domains import Categorical, LogUniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["PARAMETERS"]

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="weight_decay",
        aliases=("lambda",),
        default=LogUniform(1e-5, 5.0),
        legal=Limits(),
        usual=True,
        source="weight-decay paper: 1e-4 and, best on MNIST, 5",
        description="L2 coefficient λ",
    ),
    Parameter(
        name="weight_decay_mode",
        default=Categorical(("before_clipping", "decoupled")),
        legal=Words(("before_clipping", "decoupled")),
        source="weight-decay paper: the method and the baseline it replaces",
        description="added to each sample's gradient before the clip, or decoupled from it",
    ),
)
