"""`tune doctor --drill`: a small public sweep is disturbed and resumed, and its books must agree.

The sweep trains on scikit-learn's digits, which are public, and charges a ledger of its own, which is removed with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.drill.books import Reconciliation
from tuner.drill.sweep import STEPS, TRIALS, WORKER, DrillSweep
from tuner.errors import TunerError

__all__ = ["Drilled", "run_drill"]

_PATIENCE = 600.0  # seconds for each part; a cluster may be slow to start workers


@dataclass(frozen=True)
class Drilled:
    """What the drill did, what the books say afterwards, and what does not agree."""

    done: tuple[str, ...]
    books: Reconciliation
    problems: tuple[str, ...]

    def values(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {"done": self.done, **self.books.values(), "problems": self.problems, "ok": not self.problems}

    def text(self) -> str:
        """Return what the books say as text."""
        books, repeated = self.books, self.books.drawn - TRIALS * STEPS
        rows = (
            ("trials", ", ".join(f"{count} {state.lower()}" for state, count in books.trials.items())),
            ("steps leased", f"{books.leased}, of which {books.unused} were lost before their noise was drawn"),
            ("noise draws", f"{books.drawn}, of which {max(repeated, 0)} repeat steps of a lost worker or driver"),
            ("not charged", f"{books.uncharged} draws"),
            ("records", f"{books.recorded} written, {books.tracked} in MLflow"),
            ("missing", f"{books.missing} records"),
            ("doubled", f"{books.doubled} records"),
        )
        lines = [f"  {name:<14} {what}" for name, what in rows]
        lines += [f"BAD  {problem}" for problem in self.problems]
        agreed = "ok   the ledger, the noise draws, the trials and MLflow agree"
        return "\n".join([*lines, *([] if self.problems else [agreed])])


def run_drill(*, address: str | None, storage: str, data_dir: str | None, say: Callable[[str], None]) -> Drilled:
    """Run the drill on this machine, or on the cluster at `address`, whose machines must share `storage`.

    Raises:
        TunerError: the sweep could not be started, or did not end after its resume.
    """
    parent = Path(storage).absolute() if address else Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="drill-", dir=parent))
    sweep = DrillSweep(folder, address=address, data_dir=data_dir)
    try:
        return _drill(sweep, say)
    except RuntimeError as error:
        raise TunerError("drill-failed", f"The drill could not be completed: {error}.") from error
    finally:
        if sweep.running:
            sweep.kill()
        sweep.settle()
        shutil.rmtree(folder, ignore_errors=True)


def _drill(sweep: DrillSweep, say: Callable[[str], None]) -> Drilled:
    done: list[str] = []

    def note(line: str) -> None:
        done.append(line)
        say(line)

    sweep.start()
    say(f"starting a sweep of {TRIALS} trials on digits, with a ledger of its own …")
    sweep.wait_for_draws(STEPS // 2, seconds=_PATIENCE)
    if sweep.address is None:
        os.kill(_first_worker(sweep), signal.SIGKILL)
    else:
        sweep.end_a_worker(seconds=_PATIENCE)
    note(f"a worker was killed after {sweep.drawn} noise draws")
    note("no node was killed, because " + ("there is only this one" if sweep.address is None else "others may use it"))
    sweep.wait_for_draws(2 * STEPS, seconds=_PATIENCE)
    sweep.kill()
    note(f"the driver was killed after {sweep.drawn} noise draws, and the sweep was resumed")
    sweep.start()
    code = sweep.wait(seconds=_PATIENCE)
    if code != 0 or sweep.sync() != 0:
        raise RuntimeError(f"the resumed sweep did not end ({sweep.message})")
    books = sweep.reconcile()
    return Drilled(tuple(done), books, tuple(books.problems(trials=TRIALS)))


def _first_worker(sweep: DrillSweep) -> int:
    workers = sweep.processes(WORKER)
    if not workers:
        raise RuntimeError("no worker was found")
    return workers[0].id
