"""Weight decay: L2 coefficient, and whether the decay acts before the clip or in the update. Decay costs no privacy."""

from search_spaces.domains import Categorical, LogUniform
from search_spaces.parameter import Limits, Parameter, Words

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="weight_decay",
        aliases=("lambda",),
        default=LogUniform(1e-6, 0.1),
        legal=Limits(),
        usual=True,
        source="weight-decay paper: 1e-4. The paper reports 5 as the best value on MNIST, but in the paper's code the "
        "L2 term has no gradient. With the gradient, 5 gives the accuracy of guessing",
    ),
    Parameter(
        name="weight_decay_mode",
        default=Categorical(("before_clipping", "decoupled")),
        legal=Words(("before_clipping", "decoupled")),
        source="weight-decay paper: `before_clipping` is the method of the paper, and `decoupled` is its baseline",
    ),
)
