"""Prior probability that a curve of the process is unimodal."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.regression import project

__all__ = ["unimodal_mass"]

Array = NDArray[np.float64]

_DRAWS: Final = 4_000


def unimodal_mass(amplitudes: Array, lengths: Array, grid: Array) -> Array:
    """Return the mean weight of a curve from the prior; it falls with the distance from the nearest unimodal curve.

    Args:
        amplitudes: in tolerances, shape (draws,).
        lengths: of the Matérn 5/2 kernel, shape (draws,).
        grid: places.
    """
    made = {
        pair: _mass(*pair, grid.size) for pair in dict.fromkeys(zip(amplitudes.tolist(), lengths.tolist(), strict=True))
    }
    return np.array([made[pair] for pair in zip(amplitudes.tolist(), lengths.tolist(), strict=True)])


@lru_cache(maxsize=256)
def _mass(amplitude: float, length: float, points: int) -> float:
    grid = np.linspace(0.0, 1.0, points)
    scaled = np.sqrt(5.0) * np.abs(grid[:, None] - grid[None, :]) / length
    covariance = (1 + scaled + scaled**2 / 3) * np.exp(-scaled) + 1e-6 * np.eye(points)
    curves = amplitude * np.random.default_rng(0).standard_normal((_DRAWS, points)) @ np.linalg.cholesky(covariance).T
    wrong = np.abs(curves - project(curves)).max(1)
    return max(float(np.exp(-0.5 * (wrong / 0.5) ** 2).mean()), 1 / _DRAWS)
