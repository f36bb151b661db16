"""Races between contenders that take turns, and paired ratios of their CPU times with quartiles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import torch

from benchmarks.harness import Figure

Contender = Callable[[], object]
"""A call is one step."""

# The duration of a turn, long against the resolution of the clock and the cold caches at its start.
_TURN_SECONDS = 0.04
_MOST_STEPS_A_TURN = 100
# Rounds that run even when the time is up, because fewer have no quartiles.
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Race:
    """Seconds per step of each contender, one entry a round."""

    cpu: Mapping[str, Sequence[float]]
    wall: Mapping[str, Sequence[float]]

    def ratio(self, above: str, below: str, *, factor: float = 1.0, note: str = "") -> Figure:
        """Return `factor` times the time of `above` over the time of `below`, round by round.

        A busy machine slows both times of a round alike, so it hardly changes their ratio.
        """
        return Figure.median_of(
            [factor * a / b for a, b in zip(self.cpu[above], self.cpu[below], strict=True)],
            "x",
            wall=[factor * a / b for a, b in zip(self.wall[above], self.wall[below], strict=True)],
            note=note,
        )

    def milliseconds(self, name: str, *, note: str = "") -> Figure:
        """Return the time of one step."""
        wall = [1e3 * seconds for seconds in self.wall[name]]
        return Figure.median_of([1e3 * seconds for seconds in self.cpu[name]], "ms", wall=wall, note=note)

    def fastest(self, names: Sequence[str]) -> str:
        """Return the contender with the lowest median."""
        return min(names, key=lambda name: statistics.median(self.cpu[name]))


@dataclass(frozen=True)
class Line:
    """A least-squares line through measured points."""

    slope: float
    intercept: float
    r_squared: float  # share of the variance that it explains
    deviation: float  # largest distance of a point from it, as a share of the line there
    points: tuple[tuple[float, float], ...] = field(repr=False)


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the least-squares line y = slope · x + intercept.

    Args:
        points: pairs (x, y) with at least two different x.

    Raises:
        ValueError: all x are equal.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(set(xs)) < 2:
        raise ValueError(f"a line needs at least two different x (got {sorted(set(xs))}). Measure another size.")
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(ys)
    spread = sum((y - mean) ** 2 for y in ys)
    left = sum((y - slope * x - intercept) ** 2 for x, y in points)
    deviation = max(abs(y / (slope * x + intercept) - 1) for x, y in points)
    return Line(slope, intercept, 1.0 - left / spread if spread else 1.0, deviation, tuple(points))


def race(contenders: Mapping[str, Contender], *, rounds: int, seconds: float, device: str = "cpu") -> Race:
    """Time the contenders in turn, A B C A B C ..., so that a slow machine slows all of them.

    Args:
        contenders: by name; each call is one step.
        rounds: number of rounds, if the time allows.
        seconds: time after which no round starts, once there are three.
        device: 'cpu', or 'cuda', which is synchronised at the ends of each turn.
    """
    steps: dict[str, int] = {}
    for name, contender in contenders.items():
        contender()  # the first call allocates, compiles and fills caches
        _, once = _timed(contender, 1, device)
        steps[name] = max(1, min(_MOST_STEPS_A_TURN, ceil(_TURN_SECONDS / max(once, 1e-7))))
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    started = time.perf_counter()
    for taken in range(rounds):
        if taken >= min(_LEAST_ROUNDS, rounds) and time.perf_counter() - started > seconds:
            break
        for name, contender in contenders.items():
            spent, passed = _timed(contender, steps[name], device)
            # A GPU works while its process waits, so on a GPU both columns are wall time.
            cpu[name].append((passed if device == "cuda" else spent) / steps[name])
            wall[name].append(passed / steps[name])
    return Race(cpu, wall)


def _timed(contender: Contender, steps: int, device: str) -> tuple[float, float]:
    _synchronise(device)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        contender()
    _synchronise(device)
    return time.process_time() - cpu, time.perf_counter() - wall


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def one_thread() -> None:
    """Use one thread: two threads on two busy cores would measure other processes."""
    torch.set_num_threads(1)
