"""Hyper-parameters and schedules: their names, their ranges, their errors, and what importing them costs."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.schedules import KINDS
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings, rate_factor
from trainables.errors import HyperparameterError, TrainableError
from trainables.hyperparameters import PRICED, Hyperparameters, check_augmentation
from trainables.methods import METHODS, from_parameters
from trainables.methods.composed import DPComposed
from tuner.error_codes import EXPLANATIONS

FRACTIONS = st.floats(0.01, 1.0)


def make(method: str = "composed", parameters: dict[str, Any] | None = None, **changes: float) -> Hyperparameters:
    priced: dict[str, Any] = {"batch_size": 4, "steps": 10, "noise_multiplier": 1.0}
    return from_parameters(method, parameters or {}, **(priced | changes))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_class_and_defaults(method: str) -> None:
    assert type(make(method)) is METHODS[method]


def test_composed_defaults_are_off() -> None:
    made = make("composed")
    assert isinstance(made, DPComposed)
    assert (made.laplacian_sigma, made.smoothing_radius, made.smoothing_samples, made.weight_decay) == (0, 0, 1, 0)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"smoothing_radus": 1.0}, "parameter-unknown"),
        ({"noise_multiplier": 1.0}, "parameter-priced"),
        ({"batch_size": 1}, "parameter-priced"),
        ({"max_grad_norm": 0.0}, "value-illegal"),
        ({"smoothing_samples": 2.5}, "value-illegal"),
        ({"smoothing_samples": True}, "value-illegal"),
        ({"learning_rate": "0.1"}, "value-illegal"),
        ({"momentum": 1.0}, "value-illegal"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum-with-adam"),
        ({"laplacian_scope": "tensor"}, "value-illegal"),
        ({"clipping": "global"}, "value-illegal"),
        ({"augmentation": "cutout"}, "value-illegal"),
        ({"ema_decay": 1.0}, "value-illegal"),
        ({"ema_decay": -0.1}, "value-illegal"),
        ({"augmentation": "flip", "augmentation_multiplicity": 0}, "value-illegal"),
        ({"augmentation": "flip", "augmentation_multiplicity": 2.0}, "value-illegal"),
        ({"augmentation_multiplicity": "x"}, "value-illegal"),
        ({"augmentation_multiplicity": 4}, "copies-without-augmentation"),
        ({"schedule": "linear"}, "value-illegal"),
        ({"schedule": "cosine", "schedule.step.factor": 0.5}, "schedule-mismatch"),
        ({"schedule": "cosine", "schedule.cosine.final": "x"}, "value-illegal"),
        ({"schedule": "step", "schedule.step.every": 0.0}, "value-illegal"),
        ({"schedule.warmup": 1.0}, "value-illegal"),
    ],
)
def test_an_illegal_parameter_is_refused_with_its_name(parameters: dict[str, Any], code: str) -> None:
    with raises_code(HyperparameterError, code) as caught:
        make(parameters=parameters)
    assert code in EXPLANATIONS
    assert any(name in str(caught.value) for name in parameters)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with raises_code(HyperparameterError, "parameter-unknown") as caught:
        make(parameters={"smoothing_radus": 1.0})
    assert "'smoothing_radius'" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_no_number_may_be_nan_infinite_or_negative(value: float) -> None:
    of_all, of_some = ("max_grad_norm", "learning_rate", "momentum", "ema_decay"), ("laplacian_sigma", "weight_decay")
    for name in (*of_all, *of_some, "smoothing_radius"):
        with raises_code(HyperparameterError, "value-illegal") as caught:
            make(parameters={name: value})
        assert f"`{name}`" in str(caught.value)
    for key, (kind, _) in SCHEDULE_KEYS.items():
        with raises_code(HyperparameterError, "value-illegal") as caught:
            make(parameters={"schedule": kind or "constant", key: value})
        assert f"`{key}`" in str(caught.value)
    with raises_code(HyperparameterError, "value-illegal"):
        make(noise_multiplier=value)


@pytest.mark.parametrize("method", METHODS)
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
    with raises_code(HyperparameterError, "augmentation-needs-images"):
        check_augmentation("flip", (54,))


def test_all_problems_come_at_once() -> None:
    with pytest.raises(HyperparameterError) as caught:
        make(parameters={"learning_rate": -1.0, "weight_decay": math.nan}, batch_size=0)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(line.endswith("[value-illegal]") for line in lines)
    assert isinstance(caught.value, TrainableError | ValueError)


def test_unknown_method() -> None:
    with raises_code(HyperparameterError, "method-unknown") as caught:
        make("dpliss")
    assert "'dplis'" in str(caught.value)


# -- schedules --------------------------------------------------------------------------------------------------------


@given(
    settings=st.builds(
        ScheduleSettings,
        kind=st.sampled_from(KINDS),
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
    factors = [rate_factor(settings, step, steps) for step in range(steps)]
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
    assert [rate_factor(settings, step, 4) for step in range(4)] == pytest.approx(expected, rel=1e-12)


def test_names_and_ranges_are_known_without_torch() -> None:
    code = "import sys, trainables.methods, trainables.model_names; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
