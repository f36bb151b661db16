"""Recommendations of the shipped prior: medians and spreads of good values, from public facts about a training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from math import exp, inf, isfinite, log, sqrt
from typing import Any, Final

from search_spaces.common import AVERAGED
from search_spaces.domains import as_yaml
from search_spaces.errors import DomainError
from search_spaces.optimizers import NOISE_FLOOR
from search_spaces.prior.features import features, noise_to_signal

__all__ = [
    "FAMILIES",
    "Recommended",
    "Setting",
    "is_measured",
    "largest_step",
    "leaving_out",
    "left_out",
    "provenance",
    "recommend",
]

FAMILIES: Final = ("linear", "convolutional", "recurrent", "attention", "other")
"""Families of models."""

_POSITIVE: Final = ("batch_size", "steps", "train_size", "classes")
_BOUNDS: Final = {
    "learning_rate": (1e-5, 1e3),
    "max_grad_norm": (1e-2, 10.0),
    "smoothing_samples": (1.0, 20.0),
}
_OPTIMIZERS: Final = ("sgd", "adam", "adam_corrected")
FITTED_CLASSES, MOST_CLASSES = 10, 100
"""Largest number of classes that the formulas were fitted on, and that was measured for more classes."""

_AVERAGES: Final = 0.9  # least ema_decay that counts as an average of the weights

_LEFT_OUT: ContextVar[str | None] = ContextVar("left_out", default=None)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """PUBLIC facts about one private training.

    Attributes:
        noise_multiplier: standard deviation of a step's noise, divided by the clipping norm; 0 without noise.
        batch_size: expected batch size, in records or users.
        steps: number of steps.
        train_size: public number of training records or users.
        dimension: number of trainable parameters; None takes the median of the measured trainings.
        classes: number of classes.
        family: one of `FAMILIES`.
        method: training method.
        optimizer: 'sgd', 'adam' or 'adam_corrected'.

    Raises:
        DomainError: a value is not finite, not positive or unknown.
    """

    noise_multiplier: float
    batch_size: float
    steps: float
    train_size: float
    dimension: float | None
    classes: float
    family: str = "other"
    method: str = "dp_sgd"
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in _POSITIVE}
        if self.dimension is not None:
            numbers["dimension"] = self.dimension
        for name, value in numbers.items():
            if not (isfinite(value) and value > 0):
                raise DomainError("prior-setting-invalid", f"{name} must be positive and finite", as_yaml(value))
        if not (isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            rule, value = "noise_multiplier must be finite and at least 0", as_yaml(self.noise_multiplier)
            raise DomainError("prior-setting-invalid", rule, value)
        for name, known in (("family", FAMILIES), ("optimizer", _OPTIMIZERS)):
            if getattr(self, name) not in known:
                rule = f"{name} must be one of {', '.join(known)}"
                raise DomainError("prior-setting-invalid", rule, as_yaml(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """Log-normal prior of a parameter: its median, and the standard deviation of its logarithm."""

    value: float
    spread: float


@contextmanager
def leaving_out(dataset: str) -> Iterator[None]:
    """Leave the measurements on a data set out, inside the block, to judge a search on that data set.

    All that the product knows of measured searches follows: recommendations, default domains and expected prices.
    """
    token = _LEFT_OUT.set(dataset)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def left_out() -> str | None:
    """Return the name of the data set whose measurements are left out, or None."""
    return _LEFT_OUT.get()


def recommend(setting: Setting, *, given: Mapping[str, float] | None = None) -> dict[str, Recommended]:
    """Return the prior of each parameter by name.

    Args:
        setting: public facts about the training.
        given: values that are fixed already. A fixed `max_grad_norm` moves the learning rate, because with SGD their
            product sets the length of a step. A fixed `momentum` lengthens steps, so it lowers the rate. So does an
            `ema_decay` below 0.9: without an average of the weights, all the noise of the last steps remains.
    """
    given = given or {}
    measured, fits = _measured(), _fits()
    last = given.get("ema_decay", AVERAGED) < _AVERAGES
    dimension = measured["median_dimension"] if setting.dimension is None else setting.dimension
    known = features(
        noise_multiplier=setting.noise_multiplier,
        batch_size=setting.batch_size,
        steps=setting.steps,
        dimension=dimension,
        classes=min(setting.classes, FITTED_CLASSES),
    )
    unknown = measured["spread_of_unknown_dimension"] if setting.dimension is None else 0.0
    found: dict[str, Recommended] = {}
    clip = _formula(fits["max_grad_norm"], known, setting.family, unknown)
    found["max_grad_norm"] = _within("max_grad_norm", clip)
    used = float(given.get("max_grad_norm", found["max_grad_norm"].value))
    if setting.optimizer != "sgd":
        rate = _formula(fits["adam_rate"], known, setting.family, unknown, last=last)
        if setting.optimizer == "adam_corrected":
            floor = float(given.get("adam_noise_floor", NOISE_FLOOR))
            rate = replace(rate, value=rate.value * _corrected(setting, dimension, floor))
    else:
        product = _formula(fits["rate_times_clip"], known, setting.family, unknown, last=last)
        many = _more_classes(setting.family, setting.classes) ** fits.get("many_classes", 0.0)
        most = largest_step(setting.family, steps=setting.steps, classes=setting.classes)
        # A larger clip changes nothing where all gradients are clipped, but then leaves more of them as they are.
        extra = fits["rate_times_clip"]["clip"] * log(used / found["max_grad_norm"].value)
        lower = 1 - float(given.get("momentum", 0.0))
        rate = Recommended(value=min(product.value * many, most) * exp(extra) / used * lower, spread=product.spread)
    found["learning_rate"] = _within("learning_rate", rate)
    for name, fit in fits["others"].items():
        found[name] = _within(name, _formula(fit, known, setting.family, 0.0))
    found |= _lengths(measured["lengths"], setting)
    return found


def _corrected(setting: Setting, dimension: float, floor: float) -> float:
    """Return the factor of Adam's rate that keeps steps as long if the noise leaves the second moment.

    Adam divides by √(noise² + signal²), the corrected Adam by about √((floor · noise)² + signal²). Not measured.
    """
    ratio = noise_to_signal(
        noise_multiplier=setting.noise_multiplier, batch_size=setting.batch_size, dimension=dimension
    )
    return sqrt(((floor * ratio) ** 2 + 1) / (ratio**2 + 1))


def largest_step(family: str, *, steps: float, classes: float) -> float:
    """Return the largest product of learning rate and clip that measured networks bear with SGD.

    It grows with the root of the number of steps, and with the root of the number of classes above ten: gradients of
    different classes point in different directions, so their mean is shorter. Linear models have no limit.
    """
    borne = [each["most"] for each in _fits()["rate_times_clip"]["families"].values() if each["most"] is not None]
    return inf if family == "linear" else min(borne, default=inf) * sqrt(steps * _more_classes(family, classes))


def _more_classes(family: str, classes: float) -> float:
    """Return how many times as many classes there are as the formulas were fitted on, up to what was measured.

    For models of text, whose classes are words, nothing was measured, and it is 1.
    """
    if family in ("recurrent", "attention"):
        return 1.0
    return min(max(classes, FITTED_CLASSES), MOST_CLASSES) / FITTED_CLASSES


def is_measured(family: str, *, optimizer: str) -> bool:
    """Return whether the rates of an optimizer were measured for models of this family."""
    return family in _measured()["fits"]["rate_times_clip" if optimizer == "sgd" else "adam_rate"]["families"]


def provenance() -> Mapping[str, Any]:
    """Return where the prior comes from: command, data sets with checksums, seeds, versions and number of runs."""
    return dict(_measured()["provenance"])


def _fits() -> dict[str, Any]:
    """Return the coefficients, without the measurements on the data set that is left out."""
    measured = _measured()
    return dict(measured["without"].get(left_out(), measured["fits"]))


@lru_cache(maxsize=1)
def _measured() -> dict[str, Any]:
    text = files("search_spaces.prior").joinpath("measured.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _formula(
    fit: Mapping[str, Any], known: Mapping[str, float], family: str, unknown: float, *, last: bool = False
) -> Recommended:
    """Return exp(intercept + family's offset + Σ coefficient · feature) and the spread.

    `last` adds what was measured for the last weights instead of averaged ones.
    """
    own = fit.get("families", {}).get(family, {"spread": fit.get("unmeasured_family", 0.0)})
    total = fit["intercept"] + sum(value * known[name] for name, value in fit["coefficients"].items())
    total += own.get("offset", 0.0) + (fit["last_weights"] if last else 0.0)
    spread = sqrt(fit["spread"] ** 2 + own["spread"] ** 2 + unknown**2)
    return Recommended(value=exp(min(max(total, -50.0), 50.0)), spread=spread)


def _within(name: str, found: Recommended) -> Recommended:
    low, high = _BOUNDS.get(name, (1e-12, 1e12))
    return Recommended(value=min(max(found.value, low), high), spread=found.spread)


def _lengths(fit: Mapping[str, Any], setting: Setting) -> dict[str, Recommended]:
    """Return the batch size and the epochs: a share of the records and a number of passes."""
    batch = max(1.0, min(setting.train_size, fit["sample_rate"] * setting.train_size))
    return {
        "batch_size": Recommended(value=batch, spread=fit["sample_rate_spread"]),
        "epochs": Recommended(value=fit["epochs"], spread=fit["epochs_spread"]),
    }
