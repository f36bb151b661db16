"""The process of the curve, against a covariance that is written out pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.study.unimodal.inference.posterior import fit
from tuner.study.unimodal.inference.records import ALONE, Record

AMPLITUDE, LENGTH, RATIO, TOLERANCE = 5.0, 0.3, 0.4, 0.01

Score = tuple[float, float, int]
"""Place, fraction and number of the trial."""


def covariance(one: Score, other: Score, *, same: bool) -> float:
    """Of two scores in tolerances, by the formula of the module and nothing else."""
    (x, t, trial), (u, s, another) = one, other
    root = math.sqrt(5) * abs(x - u) / LENGTH
    curve = AMPLITUDE**2 * (1 + root + root**2 / 3) * math.exp(-root)
    curve *= math.exp(-0.5 * (math.log(t / s) / 0.8) ** 2) * math.sqrt(t * s)
    luck = 0.0
    if trial == another:
        luck = (RATIO * AMPLITUDE) ** 2 * (1 + math.exp(-2 * abs(math.log(t / s))) + same) / 3
    mean = (30 * AMPLITUDE) ** 2 * (t == s)
    return curve + luck + mean


def matrix(rows: list[Score]) -> np.ndarray:
    return np.array(
        [[covariance(a, b, same=i == j) for j, b in enumerate(rows)] for i, a in enumerate(rows)], dtype=float
    ) + 1e-6 * AMPLITUDE**2 * np.eye(len(rows))


ENDED: list[Score] = [(place, t, n) for n, place in enumerate((0.1, 0.35, 0.5, 0.7, 0.9)) for t in (0.2, 0.6, 1.0)]


@pytest.fixture
def one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """One point of the grid of hyper-parameters, so that everything has a closed form."""
    for name, value in (("LENGTHS", (LENGTH,)), ("RATIOS", (RATIO,)), ("AMPLITUDES", np.array([AMPLITUDE]))):
        monkeypatch.setattr(f"tuner.study.unimodal.inference.posterior.{name}", value)


@pytest.mark.usefixtures("one_point")
def test_the_curve_is_that_of_the_joint_normal() -> None:
    scores = np.linalg.cholesky(matrix(ENDED)) @ np.random.default_rng(1).standard_normal(len(ENDED))
    scores = np.maximum(scores, scores.max() - 10)
    means = {t: scores[[row for row, each in enumerate(ENDED) if each[1] == t]].mean() for t in (0.2, 0.6, 1.0)}
    weights = np.linalg.solve(matrix(ENDED), scores - np.array([means[t] for _, t, _ in ENDED]))
    grid = np.array([0.0, 0.33, 0.8])
    # A run that nobody has seen has no luck yet; what is common to a rung is no part of the curve.
    curve = [
        sum(
            weight * (covariance((place, 1.0, -1), row, same=False) - (30 * AMPLITUDE) ** 2 * (row[1] == 1))
            for weight, row in zip(weights, ENDED, strict=True)
        )
        for place in grid
    ]
    rows = zip(ENDED, scores, strict=True)
    posterior = fit([Record(place, t, TOLERANCE * float(y), trial) for (place, t, trial), y in rows], TOLERANCE)
    np.testing.assert_allclose(posterior.mean(grid, [ALONE])[0], TOLERANCE * np.array(curve), rtol=0, atol=1e-9)
    drawn = posterior.draws(grid, [ALONE], 4000)[:, 0]
    np.testing.assert_allclose(drawn.mean(0), TOLERANCE * np.array(curve), rtol=0, atol=0.1 * AMPLITUDE * TOLERANCE)
    cross = np.array(
        [[covariance((place, 1.0, -1), row, same=False) - (30 * AMPLITUDE) ** 2 * (row[1] == 1) for row in ENDED]
         for place in grid]
    )  # fmt: skip
    own = [[covariance((a, 1.0, -1), (b, 1.0, -2), same=False) - (30 * AMPLITUDE) ** 2 for b in grid] for a in grid]
    spread = np.sqrt(np.diag(np.array(own) - cross @ np.linalg.solve(matrix(ENDED), cross.T)))
    np.testing.assert_allclose(drawn.std(0), TOLERANCE * spread, rtol=0.05)
