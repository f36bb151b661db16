"""Input perturbation: the L2 coefficient of the loss on the release. The release itself is set in the file."""

from search_spaces.methods import dp_weight_decay
from search_spaces.parameter import Parameter

PARAMETERS: tuple[Parameter, ...] = tuple(
    parameter for parameter in dp_weight_decay.PARAMETERS if parameter.name == "weight_decay"
)
