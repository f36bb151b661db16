"""What every paper's module provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.harness import Bar, Results, Settings

__all__ = ["Paper"]


class Report(Protocol):
    """Adds the tables and figures of what is kept in a folder."""

    def __call__(self, out: Path, results: Results, *, quick: bool) -> None:
        """Add them; `quick` reads the results of quick runs."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper: the measurements behind its tables, and the tables.

    Attributes:
        title: the paper, as a heading.
        about: what is compared, what was chosen how, and what differs; Markdown.
        measure: performs what is missing and keeps it.
        report: adds the tables and figures of what is kept.
        datasets: returns the names of the data sets that must be present.
        bars: bars by the name of their figure.
    """

    title: str
    about: str
    measure: Callable[[Settings], None]
    report: Report
    datasets: Callable[[Settings], Iterable[str]]
    bars: Mapping[str, Bar] = field(default_factory=dict)
