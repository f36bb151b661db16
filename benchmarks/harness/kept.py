"""Results of long measurements, kept on disk so that a killed run continues where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Run = TypeVar("Run", bound="DataclassInstance")
Outcome = TypeVar("Outcome", bound="DataclassInstance")


class Kept(Generic[Run, Outcome]):
    """A file of finished runs, one line of JSON each.

    Args:
        path: the file; its folder is created with the first result.
        run: dataclass that identifies a run.
        outcome: dataclass of a result; `complete` sets its field `seconds`.
    """

    def __init__(self, path: Path, run: type[Run], outcome: type[Outcome]) -> None:
        self.path = path
        self._run = run
        self._outcome = outcome

    def read(self) -> dict[Run, Outcome]:
        """Return all results; an incomplete line, which a crash leaves behind, is ignored."""
        known: dict[Run, Outcome] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            known[self._run(**_tuples(row["run"]))] = self._outcome(**_tuples(row["outcome"]))
        return known

    def append(self, run: Run, outcome: Outcome) -> None:
        """Add one result; after an incomplete line it starts a new line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
            file.write(json.dumps({"run": asdict(run), "outcome": asdict(outcome)}).encode() + b"\n")

    def complete(self, wanted: Iterable[Run], perform: Callable[[Run], Outcome], *, jobs: int) -> dict[Run, Outcome]:
        """Perform the wanted runs that are missing, keep each as it finishes, and return all results.

        Args:
            wanted: runs, in the order in which they start.
            perform: performs one run; picklable when `jobs` is above 1.
            jobs: processes that run at a time.
        """
        known, ordered = self.read(), list(dict.fromkeys(wanted))
        tasks = [(perform, run) for run in ordered if run not in known]
        print(f"{len(ordered) - len(tasks)} of {len(ordered)} runs are known in {self.path}", flush=True)
        if jobs == 1 or len(tasks) < 2:
            self._keep(map(_timed, tasks))
        else:
            with get_context("spawn").Pool(min(jobs, len(tasks))) as pool:
                self._keep(pool.imap_unordered(_timed, tasks))
        return self.read()

    def _keep(self, finished: Iterable[tuple[Run, Outcome]]) -> None:
        for run, outcome in finished:
            self.append(run, outcome)
            print(f"{run}: {outcome}", flush=True)


def _timed(task: tuple[Callable[[Any], Any], Any]) -> tuple[Any, Any]:
    perform, run = task
    started = time.perf_counter()
    outcome = perform(run)
    return run, replace(outcome, seconds=round(time.perf_counter() - started, 1))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with tuples in place of the lists that JSON makes of them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
