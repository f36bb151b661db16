"""A contender of a few lines: a plain Gaussian process, without a shape, a bracket or a pruner.

It fits 30 hyper-parameter points, and places the next trial where it is most probably near the best on the curves on
which no other trial is. It starts at the same values and with the same stagger as ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.pruning.curves import DOMAIN, EPOCHS, RUNGS

Array = NDArray[np.float64]

_GRID = np.linspace(0.0, 1.0, 49)
_WIDTH = float(np.log1p(DOMAIN[1]))


def _matern(distance: Array) -> Array:
    scaled = np.sqrt(5) * distance
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))


class Lite:
    """The rule as a method of a simulated sweep.

    Args:
        seed: seed of ties.
        tolerance: in points.
        starts: first values of R.
        sure: probability at which the search would end.
    """

    def __init__(self, seed: int, *, tolerance: float, starts: tuple[float, ...], sure: float = 0.9) -> None:
        self._random, self._tolerance, self._sure = np.random.default_rng(seed), tolerance, sure
        self._starts = [float(np.log1p(start)) / _WIDTH for start in starts]
        self._records: list[tuple[float, float, float, int]] = []  # place, fraction, score, trial
        self._places: list[float] = []
        self._done: list[int] = []
        self._running: dict[int, float] = {}
        self._drawn: tuple[int, Array] = (-1, _GRID)

    def start(self) -> tuple[int, float] | None:
        """Return the number and R of a new trial, or None to wait."""
        number = len(self._places)
        if self._running and min(self._running.values()) < 0.6 and number >= len(self._starts):
            return None
        if number < len(self._starts):
            place = self._starts[number]
        elif not self._done:
            place = float(self._random.random())
        else:
            curves = self._curves()
            near = curves >= curves.max(1, keepdims=True) - self._tolerance
            at = [self._places[trial] for trial in self._running]
            if len(self._done) >= 3 and (best := self.keep()) is not None:
                at.append(self._places[best])
            served = near[:, [_point(place) for place in at]].any(1)
            chance = (near if served.all() else near & ~served[:, None]).mean(0)
            chance[near.mean(0) < min(0.05, near.mean(0).max())] = -1
            place = float(_GRID[self._random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])
        self._places.append(place)
        self._running[number] = 0.0
        return number, float(np.expm1(place * _WIDTH))

    def report(self, number: int, rung: int, score: float) -> bool:
        """Take a score; never prune."""
        fraction = RUNGS[rung] / EPOCHS
        self._records.append((self._places[number], fraction, score, number))
        self._running[number] = fraction
        if rung == len(RUNGS) - 1:
            self._done.append(number)
            del self._running[number]
        return False

    def drop(self, number: int) -> None:
        """Stop a running trial, because the search ends."""
        del self._running[number]

    def keep(self) -> int | None:
        """Return the complete trial with the highest mean curve."""
        if len(self._done) < 2:
            return self._done[0] if self._done else None
        mean = self._curves().mean(0)
        return max(self._done, key=lambda trial: float(np.interp(self._places[trial], _GRID, mean)))

    def enough(self) -> bool:
        """Return whether the kept trial is near the best with probability `sure`."""
        best = self.keep()
        if best is None or len(self._done) < 2:
            return False
        curves = self._curves()
        at = curves[:, _point(self._places[best])]
        return float(np.mean(at >= curves.max(1) - self._tolerance)) >= self._sure

    def _curves(self) -> Array:
        if self._drawn[0] != len(self._records):
            self._drawn = len(self._records), self._draw(300)
        return self._drawn[1]

    def _draw(self, count: int) -> Array:
        x, t, y, trial = np.array(self._records).T
        same = t[:, None] == t[None, :]
        y = y / self._tolerance
        y = np.maximum(y, np.array([y[row].max() for row in same]) - 15)  # cliffs
        y = y - np.array([y[row].mean() for row in same])
        log_t = np.log(t)
        gap = np.abs(log_t[:, None] - log_t[None, :])
        in_time = np.exp(-0.5 * (gap / 0.8) ** 2) * np.sqrt(np.outer(t, t))
        effect = (trial[:, None] == trial[None, :]) * (1 + np.exp(-2 * gap)) / 3 + np.eye(y.size) / 3
        found = []
        for length in (0.2, 0.4):
            curve = _matern(np.abs(x[:, None] - x[None, :]) / length) * in_time + 900 * same
            for size in (3.0, 8.0, 20.0, 50.0):
                for noise in (0.5, 1.0, 2.0, 4.0):
                    lower = np.linalg.cholesky(size**2 * curve + noise**2 * effect + 1e-6 * np.eye(y.size))
                    half = np.linalg.solve(lower, y)
                    evidence = -0.5 * half @ half - np.log(np.diag(lower)).sum() - 0.5 * np.log(size / 8) ** 2
                    evidence -= 0.5 * (np.log(noise) / 0.7) ** 2 + 0.5 * (np.log(length / 0.35) / 0.6) ** 2
                    found.append((float(evidence), length, size, lower, half))
        found = sorted(found, key=lambda each: -each[0])[:6]
        weights = np.exp(np.array([each[0] for each in found]) - found[0][0])
        weights /= weights.sum()
        random, draws = np.random.default_rng(0), []
        for weight, (_, length, size, lower, half) in zip(weights, found, strict=True):
            number = round(float(weight) * count)
            to_end = (np.exp(-0.5 * (log_t / 0.8) ** 2) * np.sqrt(t))[:, None]
            back = np.linalg.solve(lower, size**2 * _matern(np.abs(x[:, None] - _GRID[None, :]) / length) * to_end)
            rest = size**2 * _matern(np.abs(_GRID[:, None] - _GRID[None, :]) / length) - back.T @ back
            root = np.linalg.cholesky(rest + 1e-5 * size**2 * np.eye(_GRID.size))
            draws.append(back.T @ half + random.normal(size=(number, _GRID.size)) @ root.T)
        return np.asarray(np.concatenate(draws) * self._tolerance)


def _point(place: float) -> int:
    return int(np.abs(_GRID - place).argmin())
