"""Hyper-parameters of every method, checked against `search_spaces.PARAMETERS`. Only `stages` imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, Final

from search_spaces import PARAMETERS, Limits, Words
from search_spaces.optimizers import ADAM, NOISE_FLOOR, SGD
from search_spaces.schedules import GEN, GEN_RATES
from trainables.checks import value_problem
from trainables.engine.schedules import ScheduleSettings
from trainables.errors import HyperparameterError
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages
    from trainables.engine.update import Update

__all__ = ["PRICED", "Hyperparameters", "check_augmentation"]

PRICED: Final = ("batch_size", "steps", "noise_multiplier")
"""Hyper-parameters on which ε depends. The search sets them, so a trial's flat parameters must not contain them."""

_NOT_SEARCHED: Final[Mapping[str, Limits | Words]] = {
    "steps": Limits(low=1, integer=True),
    "noise_multiplier": Limits(),  # 0 is for studies that set private: false
}
"""Legal values of parameters that `search_spaces.PARAMETERS` does not contain or restricts to a narrower range."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Hyper-parameters of every method.

    Attributes:
        on_release: whether the method trains on a release, instead of by private steps on the records.
        on_votes: whether that release consists of labels that teachers voted for, on public inputs.
        at_once: whether the method takes one step on all records, which perturbs a minimum (`trainables.convex`).
        batch_size: EXPECTED batch size under Poisson sampling. ε depends on it.
        steps: number of private steps of the trial. ε depends on it.
        noise_multiplier: standard deviation of the noise divided by the clipping norm; 0 is not private. ε depends on
            it.
        max_grad_norm: clipping norm C of one sample's gradient over all parameters together.
        learning_rate: learning rate, which the schedule multiplies by a factor at each step. With the schedule gen, it
            is the starting rate.
        schedule: kind of schedule, with its parameters.
        optimizer: 'sgd', 'adam' or 'adam_corrected'. Only 'sgd' uses `momentum`; the others use `adam_…`.
        momentum: momentum of SGD, in [0, 1).
        adam_beta1: decay of Adam's mean, in [0, 1).
        adam_beta2: decay of Adam's mean square, in [0, 1).
        adam_floor: number that Adam adds to the square root of the mean square.
        adam_noise_floor: κ of 'adam_corrected'. Its corrected mean square is at least κ² times the noise's variance.
        clipping: 'flat', 'per_layer' or 'automatic' (`trainables.engine.clip`).
        augmentation: kind of random views that replace an image: 'none', 'flip', 'crop' or 'crop_flip'.
        augmentation_multiplicity: M, the number of views of an image in a step. The gradients of the views are averaged
            before the clip (De et al. 2022).
        ema_decay: decay of the moving average of the weights, which is scored and exported. With 0, these are the last
            weights.
        extrapolation: a of the extrapolated average of the weights (`trainables.engine.average`), or 'chosen': the best
            a on the validation records (`trainables.extrapolation`). With 0, the average itself is exported.

    Raises:
        HyperparameterError: a value is illegal. The message has all problems, one on each line.
    """

    on_release: ClassVar[bool] = False
    on_votes: ClassVar[bool] = False
    at_once: ClassVar[bool] = False
    batch_size: int
    steps: int
    noise_multiplier: float
    max_grad_norm: float = 1.0
    learning_rate: float = 0.1
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    optimizer: str = "sgd"
    momentum: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_floor: float = 1e-8
    adam_noise_floor: float = NOISE_FLOOR
    clipping: str = "flat"
    augmentation: str = "none"
    augmentation_multiplicity: int = 1
    ema_decay: float = 0.0
    extrapolation: float | str = 0.0

    def __post_init__(self) -> None:
        problems = [
            self._problem(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "schedule"
        ]
        if self.optimizer != SGD and self.momentum != 0:
            problems.append(
                (
                    "momentum-with-adam",
                    f"`momentum` must be 0 with {self.optimizer} (got {self.momentum!r}). Remove momentum, or use sgd.",
                )
            )
        copies = self.augmentation_multiplicity
        if self.augmentation == "none" and isinstance(copies, int) and copies > 1:
            problems.append(
                (
                    "copies-without-augmentation",
                    f"`augmentation_multiplicity` must be 1 without augmentation (got {copies!r}). Write 1, or set "
                    "augmentation to flip, crop or crop_flip.",
                )
            )
        if self.schedule.kind == GEN and not GEN_RATES.allows(self.learning_rate):
            problems.append(
                (
                    "value-illegal",
                    f"`learning_rate` must be {GEN_RATES} with the schedule gen (got {self.learning_rate!r}).",
                )
            )
        HyperparameterError.raise_any(problems)

    def _problem(self, name: str, value: object) -> tuple[str, str] | None:
        if isinstance(value, Promotion) and PARAMETERS[name].promotable:
            if not isinstance(self.steps, int) or value.from_step[-1] < self.steps:
                return None
            last = value.from_step[-1]
            return (
                "promotion-malformed",
                f"The last level of `{name}` must start before the end of the {self.steps} steps (got step {last}).",
            )
        return value_problem(name, value, _NOT_SEARCHED.get(name))

    def stages(self, layout: Layout) -> Stages:
        """Return the stages of a private step for a model with this layout. A method may override some stages."""
        from trainables.engine.augmentation import random_views
        from trainables.engine.step import Stages

        return Stages(augmentation=random_views(self.augmentation, copies=self.augmentation_multiplicity))

    def update(self, like: Tensor, *, variance: Callable[[], float | Tensor]) -> Update:
        """Return the optimizer. `like` has the shape, dtype and device of θ.

        `variance` returns the variance of the noise in the gradient after post-processing (`noise_variance`).
        """
        from trainables.engine.update import Adam, CorrectedAdam, Sgd

        if self.optimizer == SGD:
            return Sgd(like, momentum=self.momentum)
        own = {"beta1": self.adam_beta1, "beta2": self.adam_beta2, "floor": self.adam_floor}
        if self.optimizer == ADAM:
            return Adam(like, **own)
        return CorrectedAdam(like, variance=variance(), noise_floor=self.adam_noise_floor, **own)


def check_augmentation(augmentation: str, input_shape: tuple[int, ...]) -> None:
    """Raise HyperparameterError for an augmentation if inputs do not have the shape (channels, height, width)."""
    if augmentation != "none" and len(input_shape) != 3:
        raise HyperparameterError(
            "augmentation-needs-images",
            f"Augmentation {augmentation!r} needs images of shape (channels, height, width), but inputs have the shape "
            f"{input_shape}. Set augmentation to none.",
        )
