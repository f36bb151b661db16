"""A method of the user's own: the stages that it may supply, those that it may not, and what the gate finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from torch import Tensor, nn

from trainables.audit.sensitivity import SensitivityProbe, check_sensitivity
from trainables.engine.layout import Layout
from trainables.errors import GateError, HyperparameterError, TrainableError
from trainables.gradients import gradient_source
from trainables.methods import from_parameters
from trainables.models import build
from trainables.own_method import OwnMethod, check_own_method

SHAPE, CLASSES = (1, 8, 8), 4
SEEN: list[int] = []


def loud(_layout: Layout, *, factor: float = 1e6) -> Mapping[str, Any]:
    """It makes every gradient long, which the clip after it must bound."""
    return {"before_clip": lambda gradient: factor * gradient}


def counting(_layout: Layout) -> Mapping[str, Any]:
    """It remembers its calls: what one batch was decides about the next."""

    def before_clip(gradient: Tensor) -> Tensor:
        SEEN.append(1)
        return gradient * len(SEEN)

    return {"before_clip": before_clip}


def random(_layout: Layout) -> Mapping[str, Any]:
    return {"after_noise": lambda gradient: gradient + torch.randn(gradient.shape)}


def shorter(_layout: Layout) -> Mapping[str, Any]:
    return {"after_noise": lambda gradient: gradient[1:]}


def not_finite(_layout: Layout) -> Mapping[str, Any]:
    return {"after_noise": lambda gradient: gradient / 0.0}


def clipping(_layout: Layout) -> Mapping[str, Any]:
    return {"clip": lambda gradient: gradient, "after_noise": lambda gradient: gradient}


def noise(_layout: Layout) -> Mapping[str, Any]:
    return {"noise": lambda gradient: gradient}


def nothing(_layout: Layout) -> object:
    return {}


def smoothed(_layout: Layout) -> Mapping[str, Any]:
    return {"after_noise": lambda gradient: gradient / 2}


def settings(function: Callable[..., object] | str, **parameters: object) -> OwnMethod:
    name = function if isinstance(function, str) else f"{__name__}:{function.__name__}"
    found = from_parameters(name, parameters, batch_size=5, steps=1, noise_multiplier=1.0)
    assert isinstance(found, OwnMethod)
    return found


def model() -> tuple[nn.Module, Layout]:
    module = build("mlp_64", input_shape=SHAPE, classes=CLASSES, seed=0)
    return module, Layout.of(module)


@pytest.mark.parametrize("clip", ["flat", "automatic", "per_layer"])
def test_the_clip_bounds_whatever_a_stage_before_it_returns(clip: str) -> None:
    module, layout = model()
    source = gradient_source(module, layout, SHAPE, precision="float32")
    probe = SensitivityProbe(module, source, settings(loud, clipping=clip, max_grad_norm=0.7))
    found = list(probe.probe(SHAPE, CLASSES, records=4, generator=torch.Generator().manual_seed(1)))
    assert [moved for moved in found if not moved.within] == []
    assert max(moved.length for moved in found) > 0.5 * found[0].bound, "the control: the stage is in the step"


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (counting, "method-depends-on-more"),
        (random, "method-depends-on-more"),
        (shorter, "method-output-invalid"),
        (not_finite, "method-output-invalid"),
        (clipping, "method-stages-invalid"),
        (noise, "method-stages-invalid"),
        (nothing, "method-stages-invalid"),
        ("absent.module:stages", "method-not-importable"),
        (f"{__name__}:SHAPE", "method-stages-invalid"),
    ],
)
def test_what_a_method_may_not_be_is_refused(function: Callable[..., object] | str, code: str) -> None:
    with raises_code(TrainableError, code):
        check_own_method(settings(function), model()[1])


def test_parameters_are_those_of_the_function() -> None:
    layout = model()[1]
    check_own_method(settings(loud, **{"own.factor": 2.0}), layout)
    with raises_code(HyperparameterError, "method-parameters"):
        settings(loud, **{"own.facto": 2.0}).stages(layout)
    with raises_code(HyperparameterError, "parameter-unknown"):
        settings(loud, factor=2.0)


def test_the_corrected_adam_needs_a_noise_that_is_known() -> None:
    layout = model()[1]
    settings(loud, optimizer="adam_corrected").stages(layout)
    with raises_code(HyperparameterError, "method-with-corrected-adam"):
        settings(smoothed, optimizer="adam_corrected").stages(layout)


def test_the_sensitivity_probe_of_the_gate_is_about_the_method() -> None:
    """A state that a record before changed moves the sums of the others."""
    module, layout = model()
    source = gradient_source(module, layout, SHAPE, precision="float32")
    about = {"input_shape": SHAPE, "classes": CLASSES}
    check_sensitivity(module, source, method=f"{__name__}:loud", **about)
    SEEN.clear()
    with raises_code(GateError, "sensitivity-exceeded"):
        check_sensitivity(module, source, method=f"{__name__}:flipping", **about)


def flipping(_layout: Layout) -> Mapping[str, Any]:
    def before_clip(gradient: Tensor) -> Tensor:
        SEEN.append(1)
        return gradient * (-1) ** len(SEEN)

    return {"before_clip": before_clip}
