"""Objective perturbation: exact densities of all small data sets, the solver's share, the law of the linear term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product
from math import exp, sqrt

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import ndtr, softmax
from training_fakes import keyed

from trainables.convex import noise
from trainables.convex.logistic import minimum, problem_of
from trainables.convex.noise import gaussian_privacy, objective_noise
from trainables.convex.objective import objective_perturbation

Records = tuple[tuple[float, int], ...]
CLIP, TOLERANCE = 1.5, 1e-9


def profile(mu: float, epsilon: float) -> float:
    """δ(ε) of the Gaussian mechanism."""
    return float(ndtr(mu / 2 - epsilon / mu) - exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def density(records: Records, points: np.ndarray, basis: np.ndarray, *, tilt: float, regulariser: float) -> np.ndarray:
    """Density of the exact minimum at basis.T @ points, for inputs that are numbers. By the change of variables b → θ.

    θ has one entry a class. Its part along (1, …, 1) has the same law for all records and is left out.
    """
    theta = basis.T @ points  # (k, points)
    field = regulariser * points
    hessian = np.broadcast_to(regulariser * np.eye(len(points)), (points.shape[1], len(points), len(points))).copy()
    for x, label in records:
        p = softmax(theta * x, axis=0)
        off = p - np.eye(len(theta))[:, [label]]
        field = field + basis @ off * x
        curved = np.einsum("ip,ij->pij", p, np.eye(len(theta))) - np.einsum("ip,jp->pij", p, p)
        hessian += x**2 * np.einsum("ai,pij,bj->pab", basis, curved, basis)
    return np.asarray(stats.norm.pdf(field / tilt).prod(0) / tilt ** len(points) * np.linalg.det(hessian))


def neighbours(size: int, labels: int) -> Iterator[tuple[Records, Records]]:
    """Every data set of up to `size` records of the inputs −1, 0.5 and 1, and with one record of norm 1 more."""
    domain = list(product((-1.0, 0.5, 1.0), range(labels)))
    for n in range(size + 1):
        for records in combinations_with_replacement(domain, n):
            for label in range(labels):
                yield records, (*records, (1.0, label))


def worst(classes: int, size: int, *, tilt: float, regulariser: float, steps: int, claim: float) -> float:
    """Largest H_ε of two neighbours over the claimed profile."""
    basis = np.linalg.qr(np.column_stack([np.ones(classes), np.eye(classes)[:, 1:]]))[0][:, 1:].T
    axis = np.linspace(-1.0, 1.0, steps) * (7 * tilt + 2 * (size + 1)) / regulariser
    points = np.stack(np.meshgrid(*[axis] * (classes - 1))).reshape(classes - 1, -1)
    cell, found = (axis[1] - axis[0]) ** (classes - 1), 0.0
    for one, other in neighbours(size, classes):
        p, q = (cell * density(each, points, basis, tilt=tilt, regulariser=regulariser) for each in (one, other))
        assert abs(p.sum() - 1) < 1e-4 > abs(q.sum() - 1)
        for epsilon in (0.0, 0.05, 0.3, 1.0):
            allowed = profile(claim, epsilon)
            if allowed > 1e-6:
                moved = max(np.maximum(a - exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
                found = max(found, float(moved / allowed))
    return found


@pytest.mark.parametrize(
    ("classes", "size", "steps", "tilt", "regulariser"),
    [(2, 2, 4001, 0.3, 0.5), (2, 2, 4001, 3.0, 0.05), (2, 1, 30001, 7.0, 0.02), (3, 1, 121, 0.5, 0.3)],
)
def test_no_data_set_and_record_exceed_the_gaussian_claim(
    classes: int, size: int, steps: int, tilt: float, regulariser: float
) -> None:
    curvature = noise._curvature(1.0, classes=classes, regulariser=regulariser)
    claim = gaussian_privacy(shift=1 / tilt, curvature=curvature, classes=classes)
    assert worst(classes, size, tilt=tilt, regulariser=regulariser, steps=steps, claim=claim) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("tilt", "regulariser", "claim"),
    [
        (7.0, 0.02, lambda: gaussian_privacy(shift=1 / 7.0, curvature=0.0, classes=2)),
        (0.25, 1.0, lambda: gaussian_privacy(shift=0.4 / 0.25, curvature=np.log1p(0.5), classes=2)),
    ],
    ids=["determinant left out", "less than half of the shift"],
)
def test_a_claim_without_one_of_its_two_parts_is_exceeded(
    tilt: float, regulariser: float, claim: Callable[[], float]
) -> None:
    assert worst(2, 1, tilt=tilt, regulariser=regulariser, steps=30001, claim=claim()) > 1.05


@pytest.mark.parametrize(("classes", "noise_multiplier", "decay"), [(2, 4.0, 1e-4), (2, 0.5, 0.1), (5, 60.0, 1e-3)])
def test_the_two_parts_together_cost_what_is_charged(classes: int, noise_multiplier: float, decay: float) -> None:
    """And λ is raised where the noise needs it, so that no choice of λ is refused or unsafe."""
    found = objective_noise(
        clip=CLIP, classes=classes, normaliser=500, weight_decay=decay, noise_multiplier=noise_multiplier,
        tolerance=TOLERANCE,
    )  # fmt: skip
    assert found.weight_decay >= decay
    length = sqrt(CLIP**2 + 1)
    curvature = (classes - 1) * np.log1p(length**2 / (classes * 500 * found.weight_decay))
    exact = gaussian_privacy(shift=length / found.tilt, curvature=curvature, classes=classes)
    solver = 2 * TOLERANCE / found.weight_decay / found.output
    assert exact**2 + solver**2 == pytest.approx(noise_multiplier**-2, rel=1e-6)
    assert solver > 0


def test_for_two_classes_the_common_mass_is_the_closed_form() -> None:
    for shift in (0.01, 0.5, 3.0):
        values = np.exp(-(noise._POINTS**2) / 2) / sqrt(2 * np.pi) * ndtr(-noise._POINTS - shift)
        step = noise._POINTS[1] - noise._POINTS[0]
        assert noise._overlap(shift, 2) == pytest.approx(2 * values.sum() * step, abs=1e-11)


def test_the_linear_term_has_the_law_that_is_claimed_and_the_solver_is_covered() -> None:
    """The gradient of the unperturbed objective at the minimum is −b/m. Less noise is noticed."""
    x, y = torch.tensor([[1.0, 0.2], [-0.4, 1.0]]), torch.tensor([0, 1])
    problem = problem_of(x, y, classes=2, clip=CLIP, normaliser=4, weight_decay=3.0)
    asked = objective_noise(
        clip=CLIP, classes=2, normaliser=4, weight_decay=3.0, noise_multiplier=1.5, tolerance=TOLERANCE
    )
    assert asked.weight_decay == 3.0
    drawn = [
        objective_perturbation(problem, clip=CLIP, noise_multiplier=1.5, tolerance=TOLERANCE, generator=keyed(1 + key))
        for key in range(100)
    ]
    values = torch.cat([problem.gradient(theta) * 4 for theta in drawn]).numpy()
    assert stats.kstest(values / asked.tilt, "norm").pvalue > 1e-4
    assert stats.kstest(values / (0.7 * asked.tilt), "norm").pvalue < 1e-3
    still = problem.perturbed(torch.ones(6, dtype=torch.float64), weight_decay=3.0)
    # Wherever a solver stops within a coarse tolerance, it is at most that over λ from the minimum.
    exact, stopped = minimum(still, tolerance=1e-10), minimum(still, tolerance=0.5)
    assert 0 < float((exact - stopped).norm()) <= 0.5 / 3.0


def test_without_noise_it_is_the_minimum() -> None:
    x, y = torch.tensor([[1.0, 0.2], [-0.4, 1.0]]), torch.tensor([0, 1])
    problem = problem_of(x, y, classes=2, clip=CLIP, normaliser=2, weight_decay=0.1)
    found = objective_perturbation(problem, clip=CLIP, noise_multiplier=0.0, tolerance=TOLERANCE)
    assert torch.equal(found, minimum(problem, tolerance=TOLERANCE))
