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
        path: of the file; its folder is created with the first result.
        run: the dataclass that identifies a run.
        outcome: the dataclass of its result; its field `seconds` is filled in here.
    """

    def __init__(self, path: Path, run: type[Run], outcome: type[Outcome]) -> None:
        self.path = path
        self._run = run
        self._outcome = outcome

    def read(self) -> dict[Run, Outcome]:
        """Return all results; a line that a crash cut short is ignored."""
        known: dict[Run, Outcome] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            known[self._run(**_tuples(row["run"]))] = self._outcome(**_tuples(row["outcome"]))
        return known

    def append(self, run: Run, outcome: Outcome) -> None:
        """Add one result; after a line that a crash cut short it starts a new line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
            file.write(json.dumps({"run": asdict(run), "outcome": asdict(outcome)}).encode() + b"\n")

    def complete(
        self,
        wanted: Iterable[Run],
        perform: Callable[[Run], Outcome],
        *,
        jobs: int,
        shown: Callable[[Run, Outcome], str],
    ) -> dict[Run, Outcome]:
        """Perform the wanted runs that are missing, keep each as it finishes, and return all results.

        Args:
            wanted: in the order in which they start.
            perform: performs one run; picklable when `jobs` is above 1.
            jobs: processes, of one thread each.
            shown: one line about a run that finished.
        """
        known, ordered = self.read(), list(dict.fromkeys(wanted))
        missing = [run for run in ordered if run not in known]
        print(f"{len(ordered) - len(missing)} of {len(ordered)} runs are known in {self.path}", flush=True)
        tasks = [(perform, run) for run in missing]
        if jobs == 1 or len(tasks) < 2:
            finished = map(_timed, tasks)
            self._keep(finished, shown)
        else:
            with get_context("spawn").Pool(min(jobs, len(tasks))) as pool:
                self._keep(pool.imap_unordered(_timed, tasks), shown)
        return self.read()

    def _keep(self, finished: Iterable[tuple[Run, Outcome]], shown: Callable[[Run, Outcome], str]) -> None:
        for run, outcome in finished:
            self.append(run, outcome)
            print(shown(run, outcome), flush=True)


def _timed(task: tuple[Callable[[Any], Any], Any]) -> tuple[Any, Any]:
    perform, run = task
    started = time.perf_counter()
    outcome = perform(run)
    return run, replace(outcome, seconds=round(time.perf_counter() - started, 1))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with lists as tuples, which JSON cannot tell apart."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
