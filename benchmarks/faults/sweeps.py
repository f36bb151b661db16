"""Real sweeps of four short trials on Ray, each with one fault in its middle.

Each fault is caused in one `tune run` on scikit-learn's digits when its first trials have checkpoints. Where the sweep
ends with an error, the fault is repaired and `tune resume` must finish it. Then its books are compared by
`tuner.drill`: all trials accounted for, MLflow complete and not doubled, the ledger at or above the count of draws.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import stages
from benchmarks.harness import Results, Settings, Table, at_least, at_most
from tuner.drill.sweep import CHARGE_ACTOR, RAYLET, TRIALS, WORKER, DrillSweep

_PATIENCE = 300.0  # seconds for a sweep to end
_ONE_FAULT = 100.0  # seconds of one fault, in a quick run
_CLOSING = 20.0  # seconds of a quick run that remain for killing a sweep and comparing its books
_TWO_CHECKPOINTS = 480  # draws after which they have two
_SHOWN = 90  # letters of a message

Repair = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """A fault in a sweep.

    Attributes:
        cause: causes it and returns its repair, which is called when the sweep has ended.
        stage: makes what the sweep needs besides its folder, and returns options of `DrillSweep`.
        code: the exit code that it must have, or None if any will do.
        says: words that the message must have.
        quick: whether `--quick` causes it.
        after: noise draws after which it is caused. By default two trials of 100 steps a rung have one checkpoint each.
    """

    cause: Callable[[DrillSweep], Repair]
    stage: Callable[[Path], AbstractContextManager[Mapping[str, Any]]] = stages.plain
    code: int | None = None
    says: str = ""
    quick: bool = False
    after: int = 260


def _nothing() -> None:
    """Repair nothing."""


def _send(sweep: DrillSweep, title: str, number: signal.Signals) -> Repair:
    victims = sweep.processes(title)
    if not victims:
        raise RuntimeError(f"no process {title} to disturb")
    os.kill(victims[0].id, number)
    return _nothing


def _driver(sweep: DrillSweep) -> Repair:
    sweep.kill()
    return _nothing


def _terminated(sweep: DrillSweep) -> Repair:
    sweep.process.send_signal(signal.SIGTERM)
    return _nothing


def _tracker(number: signal.Signals, seconds: float = 0.0) -> Callable[[DrillSweep], Repair]:
    """Return a cause that sends a signal to the MLflow server; it answers again after `seconds`, or when repaired."""

    def cause(sweep: DrillSweep) -> Repair:
        server = stages.Tracker.of(sweep.folder)
        server.send(number)
        begun = time.monotonic()

        def repair() -> None:
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
            server.revive()

        return repair

    return cause


def _damaged(change: Callable[[bytes], bytes]) -> Callable[[DrillSweep], Repair]:
    """Return a cause that kills the driver and changes the newest checkpoint of every trial."""

    def cause(sweep: DrillSweep) -> Repair:
        sweep.kill()
        for folder in (sweep.sweep / "trials").glob("*/checkpoint"):
            newest = max(folder.glob("step-*.pt"), default=None)
            if newest is not None:
                newest.write_bytes(change(newest.read_bytes()))
        return _nothing

    return cause


def _flipped(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _full_disk(sweep: DrillSweep) -> Repair:
    filler = sweep.folder / "runs" / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler.unlink


def _read_only(sweep: DrillSweep) -> Repair:
    """Let the disk of the ledger refuse writes, as a failing disk does that its system mounts again read-only."""
    books = str(sweep.folder / "books")
    subprocess.run(["mount", "-o", "remount,ro", books], check=False, capture_output=True)
    if os.access(books, os.W_OK):  # files are open there for writing
        subprocess.run(["mount", "--bind", books, books], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", books], check=True)
        return lambda: _run("umount", books)
    return lambda: _run("mount", "-o", "remount,rw", books)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


FAULTS: dict[str, Fault] = {
    "driver_killed": Fault(_driver, code=-signal.SIGKILL, quick=True),
    "worker_killed": Fault(lambda sweep: _send(sweep, WORKER, signal.SIGKILL), code=0, quick=True),
    "charge_actor_killed": Fault(lambda sweep: _send(sweep, CHARGE_ACTOR, signal.SIGKILL), code=0, quick=True),
    "raylet_killed": Fault(lambda sweep: _send(sweep, RAYLET, signal.SIGKILL), code=1, says="ray-gone"),
    "terminated": Fault(_terminated, code=128 + signal.SIGTERM, says="resume", quick=True),
    "checkpoint_flipped": Fault(_damaged(_flipped), code=-signal.SIGKILL, quick=True, after=_TWO_CHECKPOINTS),
    "checkpoint_truncated": Fault(_damaged(_half), code=-signal.SIGKILL, after=_TWO_CHECKPOINTS),
    "disk_full": Fault(_full_disk, stages.small_storage, code=1, says="full"),
    "ledger_read_only": Fault(_read_only, stages.own_books),
    "mlflow_killed": Fault(_tracker(signal.SIGKILL), stages.tracker, code=0),
    "mlflow_stopped": Fault(_tracker(signal.SIGSTOP, 60.0), stages.tracker, code=0),
    "postgres_restarted": Fault(stages.restart_postgres, stages.postgres),
    "node_killed": Fault(stages.kill_node, stages.two_nodes, code=0),
    "worker_hung": Fault(lambda sweep: _send(sweep, WORKER, signal.SIGSTOP), stages.impatient, code=0),
}

BARS = {
    "sweeps.count": at_least(60, quick=False),
    **{f"sweeps.{name}": at_most(0, quick=fault.quick) for name, fault in FAULTS.items()},
}
"""The number of sweeps, and the number of problems after each fault."""

_REPEATS = 5  # sweeps with each fault, if nothing else is asked for

_COLUMNS = ("fault", "ended", "message", "resumes", "trials", "leased, drawn", "records, in MLflow", "s", "problems")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this section."""
    parser.add_argument("--faults", nargs="+", choices=tuple(FAULTS), metavar="FAULT", help="cause these faults only")
    parser.add_argument("--repeats", type=int, metavar="N", help=f"sweeps with each fault; {_REPEATS} by default")


def measure(settings: Settings, results: Results) -> None:
    """Cause every fault once and compare the books; the table grows with each."""
    rows: list[tuple[object, ...]] = []
    wanted = settings.own.faults or list(FAULTS)
    repeats = 1 if settings.quick else settings.own.repeats or _REPEATS
    with tempfile.TemporaryDirectory() as inside:
        database = Path(inside) / "mlflow.db"
        for name, fault in FAULTS.items():
            if name not in wanted:
                results.leave_out(f"sweeps.{name}", "not asked for")
                continue
            if settings.quick and not (fault.quick and settings.time_for(_ONE_FAULT)):
                results.leave_out(f"sweeps.{name}", "left out by --quick" if not fault.quick else "no time left")
                continue
            _create(database)
            all_problems: list[str] = []
            for _ in range(repeats):
                try:
                    row, problems = _one(fault, database, settings.deadline)
                except stages.CannotStageError as error:
                    results.leave_out(f"sweeps.{name}", str(error))
                    break
                except Exception as error:  # noqa: BLE001 - the other faults are caused
                    if not settings.time_for(_CLOSING):
                        results.leave_out(f"sweeps.{name}", f"the time was up while it ran ({error})")
                        break
                    row, problems = ("",) * 7, [f"{type(error).__name__}: {error}"]
                rows.append((name, *row, "; ".join(problems) or "none"))
                print(*rows[-1], sep=" | ", flush=True)
                all_problems += problems
                results.count(f"sweeps.{name}", len(all_problems), note="; ".join(all_problems))
                results.count("sweeps.count", len(rows))
                results.tables["Faults in the middle of a sweep"] = Table(_COLUMNS, tuple(rows))


def _create(database: Path) -> None:
    """Create an empty store of MLflow, which takes seconds; a copy of it takes none."""
    from tuner.recorder.mlflow_store import connect

    if not database.exists():
        connect(f"sqlite:///{database}")


def _one(fault: Fault, database: Path, deadline: float) -> tuple[tuple[object, ...], list[str]]:
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))
    shutil.copy(database, folder / "mlflow.db")
    try:
        with fault.stage(folder) as options:
            sweep = DrillSweep(folder, **options)
            try:
                return _play(fault, sweep, deadline)
            finally:
                if sweep.running:
                    sweep.kill()
                sweep.settle()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _play(fault: Fault, sweep: DrillSweep, deadline: float) -> tuple[tuple[object, ...], list[str]]:
    """Start a sweep, cause the fault, repair it and resume; return the row of the table and the problems."""
    begun, problems = time.perf_counter(), []

    def patience() -> float:
        """Return for how many seconds to wait."""
        return min(_PATIENCE, max(0.0, deadline - _CLOSING - time.perf_counter()))

    def awaited() -> int | None:
        """Return the exit code, or None after `_PATIENCE`."""
        code = sweep.wait(seconds=patience())
        if code is None and not patience():
            raise TimeoutError("it had not ended")
        return code

    sweep.start()
    sweep.wait_for_draws(fault.after, seconds=patience())
    repair = fault.cause(sweep)
    code = ended = awaited()
    said = sweep.message
    repair()
    if ended is None:
        problems.append(f"it still ran after {time.perf_counter() - begun:.0f} s")
    elif fault.code is not None and ended != fault.code:
        problems.append(f"it ended with {ended}, not {fault.code}")
    if fault.says and fault.says not in said:
        problems.append(f"its message does not say {fault.says!r}")
    resumes = 0
    while code != 0 and resumes < 2:
        resumes += 1
        sweep.start()
        code = awaited()
    if code != 0:
        problems.append(f"it did not resume ({code}: {sweep.message})")
    if sweep.sync() != 0:
        problems.append(f"its records were not sent: {sweep.message}")
    books = sweep.reconcile()
    problems += books.problems(trials=TRIALS)
    shown = said.removeprefix("error: ").partition(". ")[0].replace(str(sweep.folder), "")[:_SHOWN]
    states = ", ".join(f"{count} {state}" for state, count in books.trials.items())
    row = (ended, shown if ended and ended > 0 else "", resumes, states, f"{books.leased}, {books.drawn}")
    return (*row, f"{books.recorded}, {books.tracked}", round(time.perf_counter() - begun)), problems
