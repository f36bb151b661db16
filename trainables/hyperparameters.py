"""The hyper-parameters of each method: one frozen dataclass a method, checked when made. No torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import Any, ClassVar, Final

from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.errors import HyperparameterError
from trainables.promotion import Promotion

__all__ = [
    "DPLIS",
    "DPLSSGD",
    "DPSGD",
    "HYPERPARAMETERS",
    "PRICED",
    "Composed",
    "DPWeightDecay",
    "Hyperparameters",
    "check_augmentation",
    "from_parameters",
]

# What the accountant prices: a trial may not choose these by itself, the search has one of each.
PRICED: Final = ("batch_size", "steps", "noise_multiplier")


@dataclass(frozen=True)
class _Number:
    """The range of a number; `low` and `high` belong to it unless they are said to be open."""

    low: float
    high: float = inf
    low_is_open: bool = False
    high_is_open: bool = False
    whole: bool = False

    def problem(self, name: str, value: object) -> str | None:
        """The rule and the value when `value` breaks the rule; written so that NaN and infinity fail."""
        kind = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"{name} must be a {'whole number' if self.whole else 'number'}; got {value!r}"
        above = value > self.low if self.low_is_open else value >= self.low
        below = value < self.high if self.high_is_open else value <= self.high
        if isfinite(value) and above and below:
            return None
        return f"{name} must be {self}; got {value!r}"

    def __str__(self) -> str:
        if self.high == inf:
            return f"finite and {'greater than' if self.low_is_open else 'at least'} {self.low:g}"
        ends = "(" if self.low_is_open else "[", ")" if self.high_is_open else "]"
        return f"in {ends[0]}{self.low:g}, {self.high:g}{ends[1]}"


_POSITIVE: Final = _Number(0, low_is_open=True)
_NOT_NEGATIVE: Final = _Number(0)
_COUNT: Final = _Number(1, whole=True)


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What every method has.

    Attributes:
        batch_size: EXPECTED batch size under Poisson sampling. Priced.
        steps: private steps of the whole trial. Priced.
        noise_multiplier: standard deviation of the noise divided by the clipping norm. Priced. 0 is no privacy at
            all, and only a run that says `private: false` may have it.
        max_grad_norm: clipping norm C of one sample's gradient over all parameters together.
        learning_rate: rate before the schedule.
        schedule: factor of the rate at each step.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD, in [0, 1).
        clipping: 'flat' clips a sample's whole gradient, 'per_layer' each layer's to C / √layers, 'automatic' divides
            by the norm (Bu et al. 2022). C is the most that one sample adds, in all three.
        augmentation: random views of an image in the place of it, 'none', 'flip', 'crop' or 'crop_flip'.
        augmentation_multiplicity: M, views of a sample in a step; its gradient is their mean, taken before the clip
            (De et al. 2022).
        ema_decay: β of the moving average of the weights, which is what is scored and exported; 0 is the last weights.

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

    NUMBERS: ClassVar[Mapping[str, _Number]] = {
        "batch_size": _COUNT,
        "steps": _COUNT,
        "noise_multiplier": _NOT_NEGATIVE,
        "max_grad_norm": _Number(1e-6, 1e6),  # far outside, single precision no longer bounds what is clipped
        "learning_rate": _POSITIVE,
        "momentum": _Number(0, 1, high_is_open=True),
        "augmentation_multiplicity": _COUNT,
        "ema_decay": _Number(0, 1, high_is_open=True),
        "laplacian_sigma": _NOT_NEGATIVE,
        "smoothing_radius": _NOT_NEGATIVE,
        "smoothing_samples": _COUNT,
        "weight_decay": _NOT_NEGATIVE,
    }
    PROMOTED: ClassVar[frozenset[str]] = frozenset({"smoothing_samples"})
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "optimizer": ("sgd", "adam"),
        "clipping": ("flat", "automatic", "per_layer"),
        "augmentation": ("none", "flip", "crop", "crop_flip"),
        "laplacian_scope": ("layer", "model"),
        "smoothing_reduction": ("mean", "sum"),
        "weight_decay_mode": ("before_clipping", "decoupled"),
    }

    def __post_init__(self) -> None:
        problems = []
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if name in self.PROMOTED and isinstance(value, Promotion):
                if isinstance(self.steps, int) and not value.from_step[-1] < self.steps:
                    rule = f"{name} must reach its last level before the last of {self.steps} steps"
                    problems.append(f"{rule}; got step {value.from_step[-1]}")
            elif name in self.NUMBERS and (problem := self.NUMBERS[name].problem(name, value)):
                problems.append(problem)
            if name in self.CHOICES and value not in self.CHOICES[name]:
                problems.append(f"{name} must be one of {', '.join(self.CHOICES[name])}; got {value!r}")
        if self.optimizer == "adam" and self.momentum != 0:
            problems.append(
                f"momentum belongs to sgd, adam has its own; got {self.momentum!r}: leave it out or take sgd"
            )
        copies = self.augmentation_multiplicity
        if self.augmentation == "none" and isinstance(copies, int) and copies > 1:
            problems.append(
                "augmentation_multiplicity above 1 needs an augmentation, without one all copies are the same; got "
                f"{copies!r} with 'none': write 1, or take flip, crop or crop_flip"
            )
        if problems:
            raise HyperparameterError("\n".join(problems))


@dataclass(frozen=True, kw_only=True)
class DPSGD(Hyperparameters):
    """DP-SGD: the five stages with nothing changed."""


@dataclass(frozen=True, kw_only=True)
class DPLSSGD(Hyperparameters):
    """DP-LSSGD: the noised gradient is smoothed by the inverse of A_σ (σ is `laplacian_sigma`, 0 = off).

    Scope 'layer' smooths each parameter tensor by itself (the authors' code), 'model' the whole vector (Algorithm 1).
    """

    laplacian_sigma: float = 1.0
    laplacian_scope: str = "layer"


@dataclass(frozen=True, kw_only=True)
class DPLIS(Hyperparameters):
    """DPLIS: the loss is smoothed over K = `smoothing_samples` weight perturbations of strength R = `smoothing_radius`.

    Reduction 'mean' is the paper's equation 6; 'sum' is the authors' code, which never divides by K. K is one number,
    or rises at given steps.
    """

    smoothing_radius: float = 10.0
    smoothing_samples: int | Promotion = 10
    smoothing_reduction: str = "mean"


@dataclass(frozen=True, kw_only=True)
class DPWeightDecay(Hyperparameters):
    """Weight decay λ, added to each sample's gradient before its clip, or 'decoupled' in the update (the baseline)."""

    weight_decay: float = 1e-4
    weight_decay_mode: str = "before_clipping"


@dataclass(frozen=True, kw_only=True)
class Composed(DPLSSGD, DPLIS, DPWeightDecay):
    """All of them at once; what is not asked for is off, so that the defaults are DP-SGD."""

    laplacian_sigma: float = 0.0
    smoothing_radius: float = 0.0
    smoothing_samples: int | Promotion = 1
    weight_decay: float = 0.0


HYPERPARAMETERS: Final[Mapping[str, type[Hyperparameters]]] = {
    "dp_sgd": DPSGD,
    "dp_lssgd": DPLSSGD,
    "dplis": DPLIS,
    "dp_weight_decay": DPWeightDecay,
    "composed": Composed,
}


def from_parameters(
    method: str,
    parameters: Mapping[str, object],
    *,
    batch_size: int,
    steps: int,
    noise_multiplier: float,
    optimizer: str = "sgd",
    momentum: float = 0.0,
) -> Hyperparameters:
    """The hyper-parameters of one trial from its flat dictionary.

    Args:
        method: a key of HYPERPARAMETERS.
        parameters: what the search chose: field names, `schedule` with the name of its kind, and that kind's own keys
            (SCHEDULE_KEYS); `smoothing_samples` is a number, or a mapping as `Promotion.of` takes it. An `optimizer` or
            `momentum` here goes before the argument of that name.
        batch_size: of the whole search.
        steps: of the trial.
        noise_multiplier: of the whole search.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD.

    Raises:
        HyperparameterError: unknown method or name (with the nearest), a priced name, or a value out of its range.
    """
    if method not in HYPERPARAMETERS:
        raise HyperparameterError(
            f"method must be one of {', '.join(HYPERPARAMETERS)}; got {method!r}{_nearest(method, HYPERPARAMETERS)}"
        )
    kind = HYPERPARAMETERS[method]
    names = [each.name for each in fields(kind) if each.name not in PRICED]
    problems = [
        _problem_of_name(name, method, names) for name in parameters if name not in names and name not in SCHEDULE_KEYS
    ]
    if problems:
        raise HyperparameterError("\n".join(problems))
    values: dict[str, Any] = {"optimizer": optimizer, "momentum": momentum}
    values |= {
        name: Promotion.of(value) if name in kind.PROMOTED and isinstance(value, Mapping) else value
        for name, value in parameters.items()
        if name in names
    }
    values |= {"schedule": _schedule(parameters)}
    values |= {"batch_size": batch_size, "steps": steps, "noise_multiplier": noise_multiplier}
    return kind(**values)


def check_augmentation(augmentation: str, input_shape: tuple[int, ...]) -> None:
    """Refuse to flip or crop what is no image; the shape is public, so a plan can ask.

    Args:
        augmentation: the name.
        input_shape: of one input, without the batch.

    Raises:
        HyperparameterError: an input is not (channels, height, width).
    """
    if augmentation != "none" and len(input_shape) != 3:
        raise HyperparameterError(
            f"augmentation takes images of shape (channels, height, width); got {augmentation!r} for inputs of shape "
            f"{input_shape}: write none"
        )


def _problem_of_name(name: str, method: str, names: list[str]) -> str:
    if name in PRICED:
        return f"{name} is priced: the whole search has one, set it in the experiment and not in a trial"
    known = [*names, *SCHEDULE_KEYS]
    return f"{method} has no parameter {name!r}{_nearest(name, known)}; it has {', '.join(known)}"


def _schedule(parameters: Mapping[str, object]) -> ScheduleSettings:
    kind = parameters.get("schedule", "constant")
    if isinstance(kind, ScheduleSettings):
        return kind
    settings: dict[str, Any] = {"kind": kind}
    for key, (owner, name) in SCHEDULE_KEYS.items():
        if key not in parameters:
            continue
        if owner not in (None, kind):
            raise HyperparameterError(f"{key} belongs to the schedule {owner!r}; the schedule here is {kind!r}")
        value = parameters[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise HyperparameterError(f"{key} must be a number; got {value!r}")
        settings[name] = value
    return ScheduleSettings(**settings)


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
