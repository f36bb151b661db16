"""What a method declares: a frozen dataclass of hyper-parameters, and its stages. No torch until stages are built.

The ranges are not repeated here: every value is checked against `search_spaces.PARAMETERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from search_spaces import PARAMETERS, Limits, Words
from trainables.checks import value_problem
from trainables.engine.schedules import ScheduleSettings
from trainables.errors import HyperparameterError
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages

__all__ = ["PRICED", "Hyperparameters", "Method", "check_augmentation"]

PRICED: Final = ("batch_size", "steps", "noise_multiplier")
"""Hyper-parameters on which ε depends: a trial gets them from the search and does not choose them."""

_NOT_SEARCHED: Final[Mapping[str, Limits | Words]] = {
    "steps": Limits(low=1, integer=True),
    "noise_multiplier": Limits(),  # 0 is for studies that set private: false
    "optimizer": Words(("sgd", "adam")),
    "momentum": Limits(high=1.0, high_open=True),
}
"""Legal values of what a search space does not have, or has in a narrower range."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Hyper-parameters of every method.

    Attributes:
        batch_size: EXPECTED batch size under Poisson sampling. Priced.
        steps: private steps of the whole trial. Priced.
        noise_multiplier: standard deviation of the noise divided by the clipping norm. Priced. 0 gives no privacy and
            is accepted only in a run with `private: false`.
        max_grad_norm: clipping norm C of one sample's gradient over all parameters together.
        learning_rate: rate before the schedule.
        schedule: factor of the rate at each step.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD, in [0, 1).
        clipping: 'flat' clips a sample's whole gradient, 'per_layer' each layer's to C / √layers, 'automatic' divides
            by the norm (Bu et al. 2022). A sample adds at most C in each.
        augmentation: random views that replace an image: 'none', 'flip', 'crop' or 'crop_flip'.
        augmentation_multiplicity: M, views of a sample in a step; its gradient is their mean, taken before the clip
            (De et al. 2022).
        ema_decay: β of the moving average of the weights that is scored and exported; 0 is the last weights.

    Raises:
        HyperparameterError: with all problems, one a line.
    """

    batch_size: int
    steps: int
    noise_multiplier: float
    max_grad_norm: float = 1.0
    learning_rate: float = 0.1
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    optimizer: str = "sgd"
    momentum: float = 0.0
    clipping: str = "flat"
    augmentation: str = "none"
    augmentation_multiplicity: int = 1
    ema_decay: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            problem
            for each in fields(self)
            if each.name != "schedule" and (problem := self._problem(each.name, getattr(self, each.name)))
        ]
        if self.optimizer == "adam" and self.momentum != 0:
            problems.append(
                ("momentum-with-adam", f"adam takes no momentum (got {self.momentum!r}). Remove momentum, or use sgd.")
            )
        copies = self.augmentation_multiplicity
        if self.augmentation == "none" and isinstance(copies, int) and copies > 1:
            problems.append(
                (
                    "copies-without-augmentation",
                    f"`augmentation_multiplicity` is {copies!r}, but without augmentation all copies are the same. "
                    "Write 1, or set augmentation to flip, crop or crop_flip.",
                )
            )
        if problems:
            raise HyperparameterError.of(problems)

    def _problem(self, name: str, value: object) -> tuple[str, str] | None:
        if isinstance(value, Promotion) and PARAMETERS[name].promotable:
            if not isinstance(self.steps, int) or value.from_step[-1] < self.steps:
                return None
            last = value.from_step[-1]
            return (
                "promotion-malformed",
                f"`{name}` must reach its last level before the last of {self.steps} steps (got step {last}).",
            )
        return value_problem(name, value, _NOT_SEARCHED.get(name))


@dataclass(frozen=True)
class Method:
    """One training method.

    Attributes:
        hyperparameters: class of its hyper-parameters.
        changes: the stages that it changes, from its hyper-parameters and the layout of the model. torch is imported
            inside, so that a plan can read the hyper-parameters without it.
    """

    hyperparameters: type[Hyperparameters]
    changes: Callable[[Any, Layout], Stages]

    def stages(self, hyperparameters: Hyperparameters, layout: Layout) -> Stages:
        """Return the stages of a private step, with the augmentation that every method may have."""
        from trainables.engine.augmentation import random_views

        views = random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity)
        return replace(self.changes(hyperparameters, layout), augmentation=views)


def check_augmentation(augmentation: str, input_shape: tuple[int, ...]) -> None:
    """Refuse to augment anything but images; the shape is public, so a plan can check it.

    Args:
        augmentation: its name.
        input_shape: of one input, without the batch.

    Raises:
        HyperparameterError: an input is not (channels, height, width).
    """
    if augmentation != "none" and len(input_shape) != 3:
        raise HyperparameterError(
            "augmentation-needs-images",
            f"Augmentation {augmentation!r} needs images of shape (channels, height, width), but inputs have the shape "
            f"{input_shape}. Write none.",
        )
