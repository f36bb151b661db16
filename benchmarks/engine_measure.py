"""How the engine benchmark measures: contenders in turn, CPU and wall time, paired ratios with their quartiles."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite, nan

import torch

__all__ = ["Figure", "Line", "Race", "figure_of", "fit_line", "one_thread", "race", "synchronise", "tune_malloc"]

Contender = Callable[[], object]
"""Takes one step of whatever is timed."""

# What one turn of a contender should last, so that the clock's grain and the cold caches of a turn's start are small.
_TURN_SECONDS = 0.04
_MOST_STEPS_A_TURN = 100
# Rounds that are run even when the time is up: fewer have no quartiles.
_LEAST_ROUNDS = 3

# mallopt's names in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        median: of all rounds; what a bar judges.
        lower: first quartile.
        upper: third quartile.
        unit: 'x' for a ratio, else 'ms', 'MB' or ''.
        wall: the same median by the wall clock, where the figure is one of CPU time.
        note: what a reader must know to read it.
    """

    median: float
    lower: float = nan
    upper: float = nan
    unit: str = "x"
    wall: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Race:
    """Seconds per step of each contender, one entry a round: the rounds of all contenders belong together."""

    cpu: Mapping[str, Sequence[float]]
    wall: Mapping[str, Sequence[float]]

    def ratio(self, above: str, below: str, *, factor: float = 1.0, note: str = "") -> Figure:
        """`factor` times the time of `above` over the time of `below`, round by round.

        Pairs of one round share what the machine did at that moment, which a ratio of two medians would not.
        """
        return figure_of(
            [factor * a / b for a, b in zip(self.cpu[above], self.cpu[below], strict=True)],
            unit="x",
            wall=[factor * a / b for a, b in zip(self.wall[above], self.wall[below], strict=True)],
            note=note,
        )

    def milliseconds(self, name: str, *, note: str = "") -> Figure:
        """Time of one step."""
        wall = [1e3 * seconds for seconds in self.wall[name]]
        return figure_of([1e3 * seconds for seconds in self.cpu[name]], unit="ms", wall=wall, note=note)

    def fastest(self, names: Sequence[str]) -> str:
        """Which of them has the least median."""
        return min(names, key=lambda name: statistics.median(self.cpu[name]))


@dataclass(frozen=True)
class Line:
    """A least-squares line through measured points.

    Attributes:
        slope: of it.
        intercept: of it.
        r_squared: share of the variance that it explains.
        deviation: largest distance of a point from it, as a share of the line's value there.
        points: what it was fitted to.
    """

    slope: float
    intercept: float
    r_squared: float
    deviation: float
    points: tuple[tuple[float, float], ...] = field(repr=False)


def figure_of(values: Sequence[float], *, unit: str, wall: Sequence[float] | None = None, note: str = "") -> Figure:
    """Median and quartiles; one value has no quartiles, and a value that is no number makes the whole one NaN."""
    if not values or not all(isfinite(value) for value in values):
        return Figure(nan, unit=unit, note=note)
    lower, upper = nan, nan
    if len(values) > 1:
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(
        statistics.median(values), lower, upper, unit, None if wall is None else statistics.median(wall), note
    )


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """The least-squares line y = slope · x + intercept.

    Args:
        points: (x, y), of at least two different x.

    Raises:
        ValueError: all x are the same, so that no line is the best.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(set(xs)) < 2:
        raise ValueError(f"a line needs at least two different x; got {sorted(set(xs))}: measure another size")
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(ys)
    spread = sum((y - mean) ** 2 for y in ys)
    left = sum((y - slope * x - intercept) ** 2 for x, y in points)
    deviation = max(abs(y / (slope * x + intercept) - 1) for x, y in points)
    return Line(slope, intercept, 1.0 - left / spread if spread else 1.0, deviation, tuple(points))


def race(contenders: Mapping[str, Contender], *, rounds: int, seconds: float, device: str = "cpu") -> Race:
    """Times the contenders in turn, A B C A B C ..., so that what slows the machine slows all of them.

    Args:
        contenders: by name; each call is one step.
        rounds: how many, when the time allows.
        seconds: after which no round is begun, once there are three.
        device: 'cpu', or 'cuda', which is waited for at the ends of each turn.
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
            # A GPU works while its process waits: there CPU time says nothing, and both columns are wall time.
            cpu[name].append((passed if device == "cuda" else spent) / steps[name])
            wall[name].append(passed / steps[name])
    return Race(cpu, wall)


def _timed(contender: Contender, steps: int, device: str) -> tuple[float, float]:
    synchronise(device)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        contender()
    synchronise(device)
    return time.process_time() - cpu, time.perf_counter() - wall


def synchronise(device: str) -> None:
    """Waits until the GPU has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def one_thread() -> None:
    """One thread for all of torch's work: two threads on two busy cores measure the neighbours."""
    torch.set_num_threads(1)


def tune_malloc() -> bool:
    """Tells glibc to keep freed memory, for every contender alike; whether it agreed.

    By default it maps every large tensor anew, and the kernel zeroes the pages again in each step: that would be
    measured, most of all for those who write per-sample gradients out.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_MMAP_THRESHOLD, 2**30))
    agreed = [mallopt(name, value) == 1 for name, value in settings]
    return all(agreed)
