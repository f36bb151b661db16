"""Figures with their units, the bars that judge them, and the results of a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isfinite, nan, sqrt
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        value: count, median or mean; the number that a bar judges.
        unit: 'x' for a ratio, else 'ms', 's', 'MB', '%' or nothing.
        lower: first quartile, or the mean minus its standard error; NaN without a spread.
        upper: third quartile, or the mean plus its standard error.
        wall: median of the wall clock, if the value is CPU time.
        note: remark for the reader.
    """

    value: float
    unit: str = ""
    lower: float = nan
    upper: float = nan
    wall: float | None = None
    note: str = ""

    @classmethod
    def median_of(
        cls, values: Sequence[float], unit: str, *, wall: Sequence[float] | None = None, note: str = ""
    ) -> Figure:
        """Return the median with its quartiles; NaN when a value is missing or not finite."""
        if not values or not all(isfinite(value) for value in values):
            return cls(nan, unit, note=note)
        lower = upper = nan
        if len(values) > 1:
            lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(
            statistics.median(values), unit, lower, upper, statistics.median(wall) if wall is not None else None, note
        )

    @classmethod
    def mean_of(cls, values: Sequence[float], unit: str) -> Figure:
        """Return the mean with its standard error, which is NaN for one value and for a mean that is not finite."""
        mean = statistics.fmean(values)
        error = statistics.stdev(values) / sqrt(len(values)) if len(values) > 1 and isfinite(mean) else nan
        return cls(mean, unit, mean - error, mean + error, note=f"mean and one standard error, {len(values)} seeds")

    @property
    def error(self) -> float:
        """Half of the spread: the standard error of a mean."""
        return (self.upper - self.lower) / 2

    def plus_minus(self, digits: int = 2, *, sign: Literal["-", "+"] = "-") -> str:
        """Return the mean and its standard error as text, such as `91.23 ± 0.04`; `sign="+"` shows a plus sign too."""
        shown = f"{self.value:{sign}.{digits}f}"
        return shown if self.lower != self.lower else f"{shown} ± {self.error:.{digits}f}"


@dataclass(frozen=True)
class Bar:
    """A limit that a figure must keep.

    Attributes:
        direction: side of the limit on which the figure must be.
        limit: the limit.
        quick: whether `--quick` measures the figure.
    """

    direction: Literal["at most", "at least"]
    limit: float
    quick: bool = True

    def holds(self, figure: Figure) -> bool:
        """Return whether the value is on the right side; NaN never is."""
        return figure.value <= self.limit if self.direction == "at most" else figure.value >= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {self.limit:g}"


def at_most(limit: float, *, quick: bool = True) -> Bar:
    """Return an upper limit."""
    return Bar("at most", limit, quick)


def at_least(limit: float, *, quick: bool = True) -> Bar:
    """Return a lower limit."""
    return Bar("at least", limit, quick)


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass
class Results:
    """The results of a run.

    Attributes:
        figures: figures by name.
        tables: tables by title.
        remarks: sentences that a reader of the figures needs.
        left_out: pattern of the names of bars that were not measured → reason.
        failed: section that ended with an error → the error.
    """

    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def count(self, name: str, number: float, *, unit: str = "", note: str = "") -> None:
        """Add a figure without a spread."""
        self.figures[name] = Figure(float(number), unit, note=note)

    def leave_out(self, pattern: str, reason: str) -> None:
        """Note that the bars whose names match the pattern are not measured, and why."""
        self.left_out[pattern] = reason
        self.remarks.append(f"{pattern}: left out: {reason}")

    def reason_for(self, name: str) -> str | None:
        """Return why a bar was left out on purpose, or None."""
        return next((reason for pattern, reason in self.left_out.items() if fnmatchcase(name, pattern)), None)


@dataclass(frozen=True)
class Verdict:
    """The bars that do not hold with the sections that failed, and the bars that were left out on purpose."""

    falls_short: tuple[str, ...]
    left_out: tuple[str, ...]


def judge(results: Results, bars: Mapping[str, Bar], *, skipped: Iterable[str] = ()) -> Verdict:
    """Judge every bar: a figure that is NaN, or missing without a reason, falls short.

    Args:
        results: figures of the run.
        bars: bars by the name of their figure.
        skipped: names of bars that the options excluded.
    """
    excluded = set(skipped)
    falls_short, left_out = list(results.failed), []
    for name, bar in bars.items():
        figure = results.figures.get(name)
        if name in excluded or (figure is None and results.reason_for(name) is not None):
            left_out.append(name)
        elif figure is None or not bar.holds(figure):
            falls_short.append(name)
    return Verdict(tuple(falls_short), tuple(left_out))
