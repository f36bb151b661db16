"""PATE's student: an absolute smoothing of the loss, and the L2 coefficient. The experiment file sets the votes."""

from search_spaces.domains import Uniform
from search_spaces.methods import dp_weight_decay, dplis
from search_spaces.parameter import Limits, Parameter

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="smoothing_sigma",
        default=Uniform(0.0, 0.1),
        legal=Limits(),
        usual=True,
        source="DPLIS paper, Table 13: 0.025 to 0.04 on SVHN; 0 is the loss without smoothing. The radius R of DPLIS "
        "multiplies the noise of a step. R does not apply here, because a student's steps have no noise",
    ),
    *(parameter for parameter in dplis.PARAMETERS if parameter.name == "smoothing_samples"),
    *(parameter for parameter in dp_weight_decay.PARAMETERS if parameter.name == "weight_decay"),
)
