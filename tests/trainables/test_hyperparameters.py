"""Hyper-parameters and schedules: their names, their ranges, their errors, and what importing them costs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.schedules import INVERSE_TIMES, KINDS
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings, rate_factor
from trainables.errors import HyperparameterError, TrainableError
from trainables.hyperparameters import Hyperparameters, check_augmentation
from trainables.methods import from_parameters
from tuner.error_codes import EXPLANATIONS

FRACTIONS = st.floats(0.01, 1.0)


def make(method: str = "composed", parameters: dict[str, Any] | None = None, **changes: float) -> Hyperparameters:
    priced: dict[str, Any] = {"batch_size": 4, "steps": 10, "noise_multiplier": 1.0}
    return from_parameters(method, parameters or {}, **(priced | changes))


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"smoothing_radus": 1.0}, "parameter-unknown"),
        ({"noise_multiplier": 1.0}, "parameter-priced"),
        ({"smoothing_samples": 2.5}, "value-illegal"),
        ({"smoothing_samples": True}, "value-illegal"),
        ({"learning_rate": "0.1"}, "value-illegal"),
        ({"momentum": 1.0}, "value-illegal"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum-with-adam"),
        ({"momentum": 0.5, "optimizer": "adam_corrected"}, "momentum-with-adam"),
        ({"adam_beta1": 0.5}, "optimizer-mismatch"),
        ({"optimizer": "adam", "adam_noise_floor": 0.5}, "optimizer-mismatch"),
        ({"optimizer": "adam_corrected", "adam_noise_floor": 0.0}, "value-illegal"),
        ({"clipping": "global"}, "value-illegal"),
        ({"augmentation": "flip", "augmentation_multiplicity": 2.0}, "value-illegal"),
        ({"augmentation_multiplicity": "x"}, "value-illegal"),
        ({"augmentation_multiplicity": 4}, "copies-without-augmentation"),
        ({"schedule": "linear"}, "value-illegal"),
        ({"schedule": "cosine", "schedule.step.factor": 0.5}, "schedule-mismatch"),
        ({"schedule": "cosine", "schedule.cosine.final": "x"}, "value-illegal"),
    ],
)
def test_an_illegal_parameter_is_refused_with_its_name(parameters: dict[str, Any], code: str) -> None:
    with raises_code(HyperparameterError, code) as caught:
        make(parameters=parameters)
    assert code in EXPLANATIONS
    assert any(name in str(caught.value) for name in parameters)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_no_number_may_be_nan_infinite_or_negative(value: float) -> None:
    numbers = ("max_grad_norm", "learning_rate", "momentum", "ema_decay", "laplacian_sigma", "weight_decay")
    cases: list[dict[str, Any]] = [{name: value} for name in (*numbers, "smoothing_radius")]
    cases += [{"schedule": kind or "constant", key: value} for key, (kind, _) in SCHEDULE_KEYS.items()]
    for parameters in cases:
        with raises_code(HyperparameterError, "value-illegal") as caught:
            make(parameters=parameters)
        assert f"`{[*parameters][-1]}`" in str(caught.value)
    with raises_code(HyperparameterError, "value-illegal"):
        make(noise_multiplier=value)


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


def test_a_misspelt_name_gets_the_nearest() -> None:
    with raises_code(HyperparameterError, "method-unknown") as caught:
        make("dpliss")
    assert "'dplis'" in str(caught.value)
    with raises_code(HyperparameterError, "parameter-unknown") as caught:
        make(parameters={"smoothing_radus": 1.0})
    assert "'smoothing_radius'" in str(caught.value)


# -- schedules --------------------------------------------------------------------------------------------------------


@given(
    settings=st.builds(
        ScheduleSettings,
        kind=st.sampled_from(KINDS),
        warmup=st.floats(0, 0.99),
        step_factor=FRACTIONS,
        step_every=FRACTIONS,
        inverse_time_decay=st.floats(0, 100) | st.sampled_from(INVERSE_TIMES),
        exponential_final=FRACTIONS,
        cosine_final=FRACTIONS,
    ),
    steps=st.integers(1, 60),
)
def test_schedules_rise_through_the_warm_up_and_then_fall(settings: ScheduleSettings, steps: int) -> None:
    factors = [rate_factor(settings, step, steps, steps_per_epoch=3.5) for step in range(steps)]
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
        (ScheduleSettings(kind="inverse_time", inverse_time_decay="per_step"), [1, 1 / 2, 1 / 3, 1 / 4]),
        (ScheduleSettings(kind="inverse_time", inverse_time_decay="per_epoch"), [1, 1, 1 / 2, 1 / 3]),
        (ScheduleSettings(kind="exponential", exponential_final=1 / 16), [1, 1 / 2, 1 / 4, 1 / 8]),
        (ScheduleSettings(kind="cosine"), [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
        (ScheduleSettings(kind="cosine", cosine_final=0.5, warmup=0.5), [1 / 3, 2 / 3, 1, 0.75]),
    ],
)
def test_schedules_by_hand(settings: ScheduleSettings, expected: list[float]) -> None:
    assert [rate_factor(settings, step, 4, steps_per_epoch=1.5) for step in range(4)] == pytest.approx(
        expected, rel=1e-12
    )
