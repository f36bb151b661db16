"""Output perturbation: the L2 coefficient, and the clip of the inputs. The noise follows both, so both are free."""

from search_spaces.domains import LogUniform
from search_spaces.methods import dp_weight_decay
from search_spaces.parameter import Limits, Parameter

PARAMETERS: tuple[Parameter, ...] = (
    *(parameter for parameter in dp_weight_decay.PARAMETERS if parameter.name == "weight_decay"),
    Parameter(
        name="feature_clip",
        default=LogUniform(0.5, 5.0),
        legal=Limits(low=1e-3, high=1e3),
        source="our choice: the rows of our tables have norms of about 1 to 4; the noise grows with the clip, as with "
        "max_grad_norm",
    ),
)
