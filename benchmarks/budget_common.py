"""What the sections of the budget benchmark share: how much is measured, and what was found."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engine_measure import Figure

__all__ = ["ROOT", "Results", "Settings", "Table", "child_environment", "count"]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Table:
    """Rows under the same columns.

    Attributes:
        columns: headings.
        rows: one value a column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured, and where.

    Attributes:
        quick: within five minutes.
        seed: of everything that is not secret: the moments of the storm, the cases of brute force.
        data_dir: folder with the data sets; None is the program's own rule.
        out: folder in which what takes long is kept, so that a run that was cut off goes on.
        jobs: processes that train at a time.
        ledger: of the storm, by URL; None is an SQLite file.
        deadline: clock (time.perf_counter) at which a quick run must be done.
    """

    quick: bool
    seed: int = 0
    data_dir: str | None = None
    out: Path = Path("runs/budget")
    jobs: int = 1
    ledger: str | None = None
    deadline: float = float("inf")

    def time_for(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return time.perf_counter() + seconds < self.deadline


@dataclass
class Results:
    """What was measured so far.

    Attributes:
        figures: by the name that a bar knows them by.
        tables: by title.
        remarks: sentences that a reader of the figures needs.
    """

    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def count(number: float, *, unit: str = "", note: str = "") -> Figure:
    """A figure that has no spread: it was counted."""
    return Figure(float(number), unit=unit, note=note)


def child_environment(more: Mapping[str, str] | None = None, *, paths: Sequence[Path] = (ROOT,)) -> dict[str, str]:
    """The environment of a process that must find this checkout, and take one thread.

    Args:
        more: variables to set.
        paths: put before what the environment has in PYTHONPATH.
    """
    found = filter(None, [*map(str, paths), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DP_TUNER_")}
    if "DP_TUNER_DATA" in os.environ:
        environment["DP_TUNER_DATA"] = os.environ["DP_TUNER_DATA"]
    environment |= {"PYTHONPATH": os.pathsep.join(found), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return environment | dict(more or {})
