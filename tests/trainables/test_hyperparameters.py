"""Hyper-parameters and schedules: their names, their ranges, their errors, and what importing them costs."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.engine.schedules import SCHEDULE_KEYS, SCHEDULE_KINDS, ScheduleSettings, factor
from trainables.errors import HyperparameterError, TrainableError
from trainables.hyperparameters import (
    HYPERPARAMETERS,
    PRICED,
    Composed,
    Hyperparameters,
    check_augmentation,
    from_parameters,
)

FRACTIONS = st.floats(0.01, 1.0)


def make(method: str = "composed", parameters: dict[str, Any] | None = None, **changes: float) -> Hyperparameters:
    priced: dict[str, Any] = {"batch_size": 4, "steps": 10, "noise_multiplier": 1.0}
    return from_parameters(method, parameters or {}, **(priced | changes))


@pytest.mark.parametrize("method", HYPERPARAMETERS)
def test_every_method_has_its_class_and_defaults(method: str) -> None:
    assert type(make(method)) is HYPERPARAMETERS[method]


def test_composed_defaults_are_off() -> None:
    made = make("composed")
    assert isinstance(made, Composed)
    assert (made.laplacian_sigma, made.smoothing_radius, made.smoothing_samples, made.weight_decay) == (0, 0, 1, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"smoothing_radus": 1.0}, "did you mean 'smoothing_radius'"),
        ({"noise_multiplier": 1.0}, "noise_multiplier is priced"),
        ({"batch_size": 1}, "batch_size is priced"),
        ({"max_grad_norm": 0.0}, r"max_grad_norm must be in \[1e-06, 1e\+06\]; got 0.0"),
        ({"smoothing_samples": 2.5}, "whole number"),
        ({"smoothing_samples": True}, "whole number"),
        ({"learning_rate": "0.1"}, "must be a number; got '0.1'"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\); got 1.0"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum belongs to sgd"),
        ({"laplacian_scope": "tensor"}, "laplacian_scope must be one of layer, model"),
        ({"clipping": "global"}, "clipping must be one of flat, automatic, per_layer; got 'global'"),
        ({"augmentation": "cutout"}, "augmentation must be one of none, flip, crop, crop_flip; got 'cutout'"),
        ({"ema_decay": 1.0}, r"ema_decay must be in \[0, 1\); got 1.0"),
        ({"ema_decay": -0.1}, r"ema_decay must be in \[0, 1\); got -0.1"),
        ({"augmentation": "flip", "augmentation_multiplicity": 0}, "at least 1; got 0"),
        ({"augmentation": "flip", "augmentation_multiplicity": 2.0}, "whole number; got 2.0"),
        ({"augmentation_multiplicity": "x"}, "whole number; got 'x'"),
        ({"augmentation_multiplicity": 4}, "needs an augmentation.*; got 4 with 'none': write 1, or take flip"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"schedule": "cosine", "schedule.step.factor": 0.5}, "belongs to the schedule 'step'"),
        ({"schedule": "cosine", "schedule.cosine.final": "x"}, "must be a number"),
        ({"schedule": "step", "schedule.step.every": 0.0}, r"schedule.step.every must be in \(0, 1\]; got 0.0"),
        ({"schedule.warmup": 1.0}, r"schedule.warmup must be in \[0, 1\)"),
    ],
)
def test_errors_say_rule_and_value(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        make(parameters=parameters)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_no_number_may_be_nan_infinite_or_negative(value: float) -> None:
    of_all, of_some = ("max_grad_norm", "learning_rate", "momentum", "ema_decay"), ("laplacian_sigma", "weight_decay")
    for name in (*of_all, *of_some, "smoothing_radius"):
        with pytest.raises(HyperparameterError, match=name):
            make(parameters={name: value})
    for key, (kind, _) in SCHEDULE_KEYS.items():
        with pytest.raises(HyperparameterError, match=key):
            make(parameters={"schedule": kind or "constant", key: value})
    with pytest.raises(HyperparameterError, match="noise_multiplier"):
        make(noise_multiplier=value)


@pytest.mark.parametrize("method", HYPERPARAMETERS)
def test_the_options_of_the_step_are_off_and_free(method: str) -> None:
    made = make(method)
    options = (made.clipping, made.augmentation, made.augmentation_multiplicity, made.ema_decay)
    assert options == ("flat", "none", 1, 0)
    chosen = {"clipping": "per_layer", "augmentation": "crop", "augmentation_multiplicity": 3, "ema_decay": 0.9}
    made = make(method, chosen)
    assert {name: getattr(made, name) for name in chosen} == chosen
    assert not set(chosen) & set(PRICED)


def test_only_images_are_augmented() -> None:
    check_augmentation("none", (54,))
    check_augmentation("crop_flip", (3, 32, 32))
    with pytest.raises(HyperparameterError, match=r"images.*; got 'flip' for inputs of shape \(54,\): write none"):
        check_augmentation("flip", (54,))


def test_all_problems_come_at_once() -> None:
    with pytest.raises(HyperparameterError) as caught:
        make(parameters={"learning_rate": -1.0, "weight_decay": math.nan}, batch_size=0)
    assert len(str(caught.value).splitlines()) == 3
    assert isinstance(caught.value, TrainableError | ValueError)


def test_unknown_method() -> None:
    with pytest.raises(HyperparameterError, match="did you mean 'dplis'"):
        make("dpliss")


# -- schedules --------------------------------------------------------------------------------------------------------


@given(
    settings=st.builds(
        ScheduleSettings,
        kind=st.sampled_from(SCHEDULE_KINDS),
        warmup=st.floats(0, 0.99),
        step_factor=FRACTIONS,
        step_every=FRACTIONS,
        inverse_time_decay=st.floats(0, 100),
        exponential_final=FRACTIONS,
        cosine_final=FRACTIONS,
    ),
    steps=st.integers(1, 60),
)
def test_schedules_rise_through_the_warm_up_and_then_fall(settings: ScheduleSettings, steps: int) -> None:
    factors = [factor(settings, step, steps) for step in range(steps)]
    top = min(math.ceil(settings.warmup * steps), steps)
    assert all(0 < each <= 1 for each in factors)
    assert all(a < b for a, b in pairwise(factors[:top]))
    assert all(a >= b for a, b in pairwise(factors[top:]))
    if top < steps:
        assert factors[top] == 1.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ScheduleSettings(), [1, 1, 1, 1]),
        (ScheduleSettings(kind="step", step_factor=0.1, step_every=0.5), [1, 1, 0.1, 0.1]),
        (ScheduleSettings(kind="step", step_factor=0.5, step_every=0.25), [1, 0.5, 0.25, 0.125]),
        (ScheduleSettings(kind="inverse_time", inverse_time_decay=4.0), [1, 1 / 2, 1 / 3, 1 / 4]),
        (ScheduleSettings(kind="exponential", exponential_final=1 / 16), [1, 1 / 2, 1 / 4, 1 / 8]),
        (ScheduleSettings(kind="cosine"), [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
        (ScheduleSettings(kind="cosine", cosine_final=0.5, warmup=0.5), [1 / 3, 2 / 3, 1, 0.75]),
    ],
)
def test_schedules_by_hand(settings: ScheduleSettings, expected: list[float]) -> None:
    assert [factor(settings, step, 4) for step in range(4)] == pytest.approx(expected, rel=1e-12)


def test_names_and_ranges_are_known_without_torch() -> None:
    code = "import sys, trainables.hyperparameters, trainables.model_names; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
