"""Perturbed minima: sensitivity by brute force over all records of a small domain, the solver, the conditions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from training_fakes import keyed

from trainables.convex import logistic
from trainables.convex.descent import private_descent
from trainables.convex.logistic import Problem, minimum, problem_of
from trainables.convex.noise import sensitivity
from trainables.convex.output import output_perturbation, require_convex
from trainables.errors import GateError, HyperparameterError

CLIP, TOLERANCE = 1.5, 1e-9


def problem(records: list[tuple[float, float, int]], *, decay: float = 0.1, normaliser: int = 4) -> Problem:
    x = torch.tensor([record[:2] for record in records]).reshape(-1, 2)
    y = torch.tensor([record[2] for record in records]).long()
    return problem_of(x, y, classes=2, clip=CLIP, normaliser=normaliser, weight_decay=decay)


@pytest.mark.parametrize("decay", [0.02, 0.5])
def test_no_record_moves_the_minimum_further_than_the_noise_covers(decay: float) -> None:
    """Every pair of data sets of up to two records of a domain, with one record more; and the bound is not idle."""
    domain = [(x, z, y) for x, z in ((5.0, 0.0), (-5.0, 0.0), (0.0, 0.3)) for y in (0, 1)]
    bound = sensitivity(clip=CLIP, normaliser=4, weight_decay=decay, tolerance=TOLERANCE)
    largest = 0.0
    for size in (0, 1, 2):
        for others in product(domain, repeat=size):
            before = minimum(problem(list(others), decay=decay), tolerance=TOLERANCE)
            for record in domain:
                after = minimum(problem([*others, record], decay=decay), tolerance=TOLERANCE)
                largest = max(largest, float((after - before).norm()))
    assert 0.1 * bound < largest <= bound


def test_a_record_that_the_others_oppose_moves_the_minimum_by_most_of_the_bound() -> None:
    """The others push it to the wrong label, each along it for a fifth, so that they hardly curve the loss there."""
    others = 30
    along = torch.cat([torch.full((others, 1), 0.2), 0.96**0.5 * torch.eye(others)], 1)
    x, y = torch.cat([along, torch.eye(1, others + 1)]) * 100, torch.tensor([1] * others + [0])
    decay = 2 * (100**2 + 1) / others
    with_it, without = (
        minimum(problem_of(x[:n], y[:n], classes=2, clip=100.0, normaliser=others, weight_decay=decay), tolerance=1e-8)
        for n in (others + 1, others)
    )
    bound = sensitivity(clip=100.0, normaliser=others, weight_decay=decay, tolerance=1e-8)
    assert 0.6 * bound < float((with_it - without).norm()) <= bound


def test_the_gradient_is_that_of_the_loss_and_the_minimum_is_certified() -> None:
    records = [(1.0, 0.2, 0), (-0.4, 1.0, 1), (0.3, -0.9, 1)]
    found = problem(records)
    theta = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (wanted,) = torch.autograd.grad(found.loss(theta), theta)
    assert torch.allclose(found.gradient(theta.detach()), wanted, rtol=1e-12)
    hessian = torch.autograd.functional.hessian(found.loss, theta.detach())
    assert torch.allclose(found.hessian(theta.detach()), hessian, rtol=1e-10)
    assert float(found.gradient(minimum(found, tolerance=TOLERANCE)).norm()) <= TOLERANCE
    with pytest.raises(HyperparameterError, match="convex-tolerance"):
        minimum(found, tolerance=0.0)


def test_a_solver_that_newton_leaves_goes_on_by_gradient_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may decide whether a trial fails."""
    monkeypatch.setattr(logistic, "_ROUNDS", 0)
    found = problem([(1.0, 0.2, 0), (-0.4, 1.0, 1)], decay=0.2)
    assert float(found.gradient(minimum(found, tolerance=TOLERANCE)).norm()) <= TOLERANCE


def test_the_noise_is_in_proportion_to_the_sensitivity_and_descent_without_noise_finds_the_minimum() -> None:
    found = problem([(1.0, 0.2, 0), (-0.4, 1.0, 1)])
    best = minimum(found, tolerance=TOLERANCE)
    draws = np.concatenate(
        [
            (
                output_perturbation(
                    found, clip=CLIP, noise_multiplier=2.0, tolerance=TOLERANCE, generator=keyed(1 + key)
                )
                - best
            ).numpy()
            for key in range(200)
        ]
    )
    scale = 2.0 * sensitivity(clip=CLIP, normaliser=4, weight_decay=0.1, tolerance=TOLERANCE)
    assert stats.kstest(draws / scale, "norm").pvalue > 1e-4
    assert stats.kstest(draws / (0.7 * scale), "norm").pvalue < 1e-3
    still = private_descent(found, clip=CLIP, steps=4000, learning_rate=0.5, noise_multiplier=0.0, generator=keyed())
    assert torch.allclose(still, best, atol=1e-6)


def test_conditions_are_enforced() -> None:
    require_convex("logistic_regression")
    with pytest.raises(GateError, match="model-not-convex"):
        require_convex("mlp_input")
    for decay in (0.0, -1.0, float("nan")):
        with pytest.raises(HyperparameterError, match="convex-not-strong"):
            problem([(1.0, 0.0, 0)], decay=decay)
