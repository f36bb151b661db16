"""Input perturbation: the L2 coefficient, and a gain against the shrinking that noise on features causes.

The release itself is set in the experiment file, because each value of it would be charged.
"""

from search_spaces.domains import LogUniform
from search_spaces.methods import dp_weight_decay
from search_spaces.parameter import Limits, Parameter

PARAMETERS: tuple[Parameter, ...] = (
    *(parameter for parameter in dp_weight_decay.PARAMETERS if parameter.name == "weight_decay"),
    Parameter(
        name="feature_gain",
        default=LogUniform(1.0, 100.0),
        legal=Limits(low_open=True),
        usual=True,
        source="our choice: noise of deviation s on features of size x multiplies the weights by about x²/(x² + s²), "
        "and the gain reverses this; on Adult, 30 was best",
    ),
)
