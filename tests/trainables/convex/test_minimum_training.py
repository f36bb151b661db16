"""Trainings that perturb a minimum: one charged step over all records, the linear layer that it returns, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from training_fakes import CountingCharge, MakeSpec, Trained, raw

from trainables.convex.logistic import minimum, problem_of
from trainables.data import DatasetRequest, Splits
from trainables.errors import GateError, HyperparameterError
from trainables.training import PrivateTraining

METHODS = ("output_perturbation", "objective_perturbation")
ONE_STEP: dict[str, Any] = {"batch_size": 160, "sample_rate": 1.0, "steps": 1}
PARAMETERS = {"weight_decay": 0.01, "feature_clip": 2.0}


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_the_model_is_the_minimum(method: str, trained: Trained, fake_data: Splits) -> None:
    """Of logistic regression on clipped inputs with a bias, over the public number of records and not their own."""
    still = {"private": False, "noise_seed": 1, "noise_multiplier": 0.0}
    training = trained(1, method=method, parameters=PARAMETERS, **ONE_STEP, **still)
    problem = problem_of(fake_data.x_train, fake_data.y_train, classes=3, clip=2.0, normaliser=160, weight_decay=0.01)
    rows = minimum(problem, tolerance=1e-9).reshape(3, -1)
    weights, biases = training.model.parameters()
    assert torch.allclose(weights.double(), rows[:, :-1], atol=1e-6)
    assert torch.allclose(biases.double(), rows[:, -1], atol=1e-6)
    assert training.evaluate()["validation_accuracy"] > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_it_is_charged_as_one_step_before_it_is_taken_and_is_restored(
    method: str, make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits, tmp_path: Path
) -> None:
    spec = make_spec(method=method, parameters=PARAMETERS, **ONE_STEP)
    refused = CountingCharge(cap=0)
    untouched = PrivateTraining(spec, refused)
    with pytest.raises(PermissionError):
        untouched.run_to(1)
    assert untouched.noise_draws == 0
    training = PrivateTraining(spec, charge)
    training.run_to(1)
    assert (charge.leases, charge.mechanisms, training.noise_draws) == ([1], {(1.0, 1.0)}, 1)
    assert training.max_grad_norm == pytest.approx(10**0.5)
    training.save(tmp_path / "step-1.pt")
    again = PrivateTraining(spec, charge)
    again.load(tmp_path / "step-1.pt")
    assert torch.equal(raw(again), raw(training))
    assert again.noise_draws == 1


@pytest.mark.parametrize("method", METHODS)
def test_hostile_records_do_not_decide_whether_it_fails(method: str, make_spec: MakeSpec, fake_data: Splits) -> None:
    hostile = torch.tensor([[float("nan"), 1.0], [3e38, -3e38], [1e-40, 0.0]])
    worse = replace(
        fake_data,
        x_train=torch.cat([fake_data.x_train, hostile]),
        y_train=torch.cat([fake_data.y_train, torch.tensor([0, 1, 2])]),
    )
    training = PrivateTraining(
        make_spec(method=method, parameters=PARAMETERS, **ONE_STEP), CountingCharge(), splits=worse
    )
    training.run_to(1)
    assert raw(training).isfinite().all()
    none = replace(fake_data, x_train=fake_data.x_train[:0], y_train=fake_data.y_train[:0])
    empty = PrivateTraining(make_spec(method=method, parameters=PARAMETERS, **ONE_STEP), CountingCharge(), splits=none)
    empty.run_to(1)
    assert raw(empty).isfinite().all()


def test_conditions_are_enforced(make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits) -> None:
    asked = {"method": "output_perturbation", "parameters": PARAMETERS, **ONE_STEP}
    refused: tuple[tuple[dict[str, object], type[Exception], str], ...] = (
        ({"model": "mlp_64"}, GateError, "model-not-convex"),
        ({"sample_rate": 0.5}, GateError, "convex-one-step"),
        ({"dataset": DatasetRequest(name="fake", unit="user")}, GateError, "convex-unsupported"),
        ({"parameters": {"weight_decay": 0.0}}, HyperparameterError, "convex-not-strong"),
    )
    users = replace(fake_data, users_train=torch.zeros(1, 1).long(), users_validation=torch.zeros(1, 1).long())
    for changes, kind, code in refused:
        with raises_code(kind, code):
            PrivateTraining(make_spec(**(asked | changes)), charge, splits=users)
    assert charge.leases == []
