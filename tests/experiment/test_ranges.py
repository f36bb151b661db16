"""What a file may say and the accountants cannot do: refused with its place, and never a traceback."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import InputError
from tuner.experiment import loads
from tuner.plan.plan import make_plan
from tuner.sweep.ready import training_spec

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
    experiment = loads(FILE, overrides)
    return make_plan(experiment, experiment.dataset_request("nowhere"))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["privacy.epsilon=1e-300"], r"privacy\.epsilon: must be from 1e-06 to 1e\+06"),
        (["privacy.epsilon=9e-7"], r"privacy\.epsilon: must be from"),
        (["privacy.epsilon=1.1e6"], r"privacy\.epsilon: must be from"),
        (["privacy.epsilon=1e308"], r"got 1e\+308\. Write for example 8"),
        ([PROTECTED, "dataset.validation.epsilon=1e-300"], r"dataset\.validation\.epsilon: must be from"),
        (
            ["privacy.noise_multiplier=1e-300"],
            r"privacy\.noise_multiplier: must be auto or a finite",
        ),
        (["privacy.noise_multiplier=1e300"], r"number from 0\.001 to 1e\+06, .* got 1e300\."),
        (["privacy.noise_multiplier={choice: [1, 1e-7]}"], r"every noise_multiplier must be from .* got 1e-07\."),
        (["search.space.noise_multiplier={log_uniform: [0.5, 1e9]}"], r"search\.space\.noise_multiplier: every"),
        ([PROTECTED, "dataset.validation.noise=1e-300"], r"dataset\.validation\.noise: must be auto or a finite"),
        ([PROTECTED, "dataset.validation.noise=1e300"], r"dataset\.validation\.noise: must be auto or a finite"),
        ([*SEALED, "privacy.runs.shape=1e16"], r"privacy\.runs: the shape of negative_binomial must be at most"),
        ([*SEALED, "privacy.runs.shape=1e17"], r"Write 1e\+06\."),
        ([*SEALED, "privacy.runs.shape=1e-99"], r"Write 0\."),
        ([*SEALED[:1], "privacy.epsilon=700"], r"at most 672 at delta 1e-05, .* got 700"),
    ],
)
def test_what_no_accountant_can_do_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        planned(*overrides)
    assert len(str(caught.value).splitlines()) == 1, "one mistake is told once"


@pytest.mark.parametrize(
    "overrides",
    [
        ["privacy.epsilon=1e-6"],
        ["privacy.epsilon=1e6"],
        ["privacy.noise_multiplier=1e6"],
        ["privacy.noise_multiplier={choice: [1, 2]}"],
        [*SEALED, "privacy.runs.shape=1e6"],
        [*SEALED, "privacy.runs.shape=1e-9"],
    ],
)
def test_what_stands_at_the_edge_is_planned(overrides: list[str]) -> None:
    plan = planned(*overrides)
    assert plan.epsilon_at_cap <= plan.epsilon


@pytest.mark.parametrize(("seed", "number", "wanted"), [(2**32 - 1, 0, 2**32 - 1), (2**32 - 1, 3, 2), (7, 3, 10)])
def test_the_seed_of_every_trial_can_be_written_into_a_file(seed: int, number: int, wanted: int) -> None:
    overrides = (f"seed={seed}", "privacy.private=false", f"privacy.noise_seed={seed}")
    experiment = loads(FILE, overrides)
    request = experiment.dataset_request("nowhere")
    parameters: dict[str, object] = {"learning_rate": 0.5}
    spec = training_spec(experiment, request, make_plan(experiment, request), parameters=parameters, number=number)
    assert (spec.seed, spec.noise_seed) == (wanted, wanted)
    assert loads(FILE, [f"seed={spec.seed}"]).seed == wanted
