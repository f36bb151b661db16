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
        source="ours: noise s on features of size x shrinks weights by about x²/(x² + s²); on Adult, 30 was best",
    ),
)
