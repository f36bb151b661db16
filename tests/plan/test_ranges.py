"""Values beyond the range of the accountants are refused with their place."""

from __future__ import annotations

from typing import Any

import pytest
from errors_helper import raises_code

from tuner.errors import ExperimentError, InputError
from tuner.experiment import parse_experiment
from tuner.plan.plan import make_plan
from tuner.sweep.trial_spec import training_spec

FILE = """
schema: 1
name: tiny
dataset: {name: digits}
trainable: {method: dp_sgd, model: logistic_regression, batch_size: 128, epochs: 1}
privacy: {epsilon: 8.0, delta: 1e-5}
search: {trials: 2, sampler: random, rungs: 1, space: {learning_rate: {log_uniform: [0.1, 2.0]}}}
"""
PROTECTED = "dataset.validation.protected=true"
SEALED = ("privacy.accounting=selection", "privacy.runs.law=negative_binomial", "search.trials=3")


def planned(*overrides: str) -> Any:  # noqa: ANN401 - a Plan
    experiment = parse_experiment(FILE, overrides)
    return make_plan(experiment, experiment.dataset_request("nowhere"))


@pytest.mark.parametrize(
    ("overrides", "key", "code"),
    [
        (["privacy.epsilon=1e-300"], "privacy.epsilon", "value-out-of-range"),
        (["privacy.epsilon=9e-7"], "privacy.epsilon", "value-out-of-range"),
        (["privacy.epsilon=1.1e6"], "privacy.epsilon", "value-out-of-range"),
        ([PROTECTED, "dataset.validation.epsilon=1e-300"], "dataset.validation.epsilon", "value-out-of-range"),
        (["privacy.noise_multiplier=1e-300"], "privacy.noise_multiplier", "value-not-allowed"),
        (["privacy.noise_multiplier=1e300"], "privacy.noise_multiplier", "value-not-allowed"),
        (["privacy.noise_multiplier={choice: [1, 1e-7]}"], "privacy.noise_multiplier", "value-out-of-range"),
        (
            ["search.space.noise_multiplier={log_uniform: [0.5, 1e9]}"],
            "search.space.noise_multiplier",
            "value-out-of-range",
        ),
        ([PROTECTED, "dataset.validation.noise=1e-300"], "dataset.validation.noise", "value-not-allowed"),
        ([PROTECTED, "dataset.validation.noise=1e300"], "dataset.validation.noise", "value-not-allowed"),
    ],
)
def test_values_beyond_the_accountants_are_refused_once(overrides: list[str], key: str, code: str) -> None:
    with raises_code(ExperimentError, code) as caught:
        planned(*overrides)
    (problem,) = caught.value.problems  # type: ignore[attr-defined]
    assert problem.key == key


@pytest.mark.parametrize("shape", ["1e16", "1e17", "1e-99"])
def test_shapes_beyond_the_accountants_are_refused_once(shape: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        planned(*SEALED, f"privacy.runs.shape={shape}")
    (problem,) = caught.value.problems
    assert problem.key == "privacy.runs"


def test_an_epsilon_beyond_the_cut_of_a_sealed_search_is_refused() -> None:
    with raises_code(InputError, "epsilon-too-large"):
        planned(SEALED[0], "privacy.epsilon=700")


@pytest.mark.parametrize(
    "overrides",
    [
        ["privacy.epsilon=1e-6"],
        ["privacy.epsilon=1e6"],
        ["privacy.noise_multiplier=1e6"],
        [*SEALED, "privacy.runs.shape=1e6"],
    ],
)
def test_values_at_the_edge_are_planned(overrides: list[str]) -> None:
    plan = planned(*overrides)
    assert plan.epsilon_at_cap <= plan.epsilon


@pytest.mark.parametrize(("seed", "number", "wanted"), [(2**32 - 1, 0, 2**32 - 1), (2**32 - 1, 3, 2), (7, 3, 10)])
def test_the_seed_of_every_trial_can_be_written_into_a_file(seed: int, number: int, wanted: int) -> None:
    overrides = (f"seed={seed}", "privacy.private=false", f"privacy.noise_seed={seed}")
    experiment = parse_experiment(FILE, overrides)
    request = experiment.dataset_request("nowhere")
    parameters: dict[str, object] = {"learning_rate": 0.5}
    spec = training_spec(experiment, request, make_plan(experiment, request), parameters=parameters, number=number)
    assert (spec.seed, spec.noise_seed) == (wanted, wanted)
    assert parse_experiment(FILE, [f"seed={spec.seed}"]).seed == wanted
