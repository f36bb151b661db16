"""Faults in the middle of a sweep: it must stop with an error, or go on rightly, and nothing that was charged is lost.

Each fault is one `tune run --local` on scikit-learn's digits as a process of its own. When the sweep has charged a few
leases the fault is caused, with the process stopped for that moment, so that it is known what stood in the ledger.
Then the process goes on, and must end. What the fault took away is put back (space, the right to write, the bytes), and
`tune resume` must finish the sweep. Noise draws are counted by `benchmarks.budget_draws`; the ledger must hold them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.budget_common import Results, Settings, Table, child_environment, count
from benchmarks.budget_draws import read_draws

__all__ = ["FAULTS", "measure"]

_FILE = """schema: 1
name: fault
dataset: {name: digits}
trainable: {method: dp_sgd, model: logistic_regression, batch_size: 64, epochs: 101.5}   # 2 000 steps
privacy: {epsilon: 500, noise_multiplier: 4.0}   # as much as it needs; what is tested is the count
search:
  trials: 2
  sampler: random
  rungs: 4
  space: {learning_rate: {log_uniform: [0.05, 1.0]}}
ledger: "sqlite:///books/ledger.db"
"""
_PATIENCE = 120.0
_SHOWN = 110  # letters of a message
# What one fault takes, and what is left to the storm, in a quick run.
_ONE_FAULT, _REST = 25.0, 100.0
_YEAR = 365 * 86_400.0


@dataclass
class Scene:
    """A sweep in a folder, in which a fault is caused.

    Attributes:
        folder: where the program runs; the ledger stands in `books`.
        process: the sweep.
    """

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def books(self) -> Path:
        """The folder of the ledger."""
        return self.folder / "books"

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.books / "ledger.db"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The sweep stopped between two writes of the ledger: its file is all that there is."""
        for _ in range(200):
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
            waiting = self.ledger.with_name("ledger.db-wal")
            if not waiting.exists() or not waiting.stat().st_size:
                break
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.013)
        else:
            raise RuntimeError("the sweep was never found between two writes of its ledger")
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


Fault = Callable[[Scene], Callable[[], None]]
"""Causes a fault while the sweep is held, and answers what fixes it."""


def _full_disk(scene: Scene) -> Callable[[], None]:
    """No file of the program grows beyond the size that the ledger has now: a full disk, as its writes see it."""
    size = scene.ledger.stat().st_size
    resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (size, size))
    return _nothing


def _full_mount(scene: Scene) -> Callable[[], None]:
    """The ledger's own disk, a small one, is filled to the last byte."""
    filler = scene.books / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler.unlink


def _read_only(scene: Scene) -> Callable[[], None]:
    """Nobody may write the ledger or its folder any more; against root, who may write anything, the disk says so."""
    if os.getuid() == 0:
        # A disk with a file open for writing cannot be remounted; laid over itself, what is looked up is read-only.
        _run(["mount", "--bind", str(scene.books), str(scene.books)])
        _run(["mount", "-o", "remount,ro,bind", str(scene.books)])
        return lambda: _run(["umount", str(scene.books)])
    scene.ledger.chmod(0o444)
    scene.books.chmod(0o555)

    def fix() -> None:
        scene.books.chmod(0o755)
        scene.ledger.chmod(0o644)

    return fix


def _truncated(scene: Scene) -> Callable[[], None]:
    """The second half of the ledger's file is gone."""
    whole = scene.ledger.read_bytes()
    os.truncate(scene.ledger, len(whole) // 2)
    return lambda: _put(scene.ledger, 0, whole)


def _flipped_byte(scene: Scene) -> Callable[[], None]:
    """One bit of a lease that was charged: 100 steps become 300."""
    whole = scene.ledger.read_bytes()
    at = whole.index(b'"steps":100') + len(b'"steps":')
    flipped = bytes([whole[at] ^ 2])
    _put(scene.ledger, at, flipped)

    def fix() -> None:
        # The sweep may have charged more before it noticed: only this byte is put back.
        if scene.ledger.read_bytes()[at : at + 1] != flipped:
            raise RuntimeError("the byte that was flipped has moved; it cannot be put back")
        _put(scene.ledger, at, whole[at : at + 1])

    return fix


def _clock(scene: Scene) -> Callable[[], None]:
    """The clock goes back by a year, and later on by two."""
    (scene.folder / "jump").write_text(f"{-_YEAR}")
    return _nothing


FAULTS: dict[str, Fault] = {
    "full_disk": _full_disk,
    "full_mount": _full_mount,
    "read_only": _read_only,
    "truncated": _truncated,
    "flipped_byte": _flipped_byte,
    "clock": _clock,
}
"""By name; `full_mount`, and for root `read_only` too, needs the right to mount a disk."""


def measure(settings: Settings, results: Results) -> None:
    """Cause every fault once and note what became of it."""
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        database: Path | None = None
        for name in FAULTS:
            if not settings.time_for(_ONE_FAULT + _REST):
                results.remarks.append(f"faults: {name} was left out by --quick, for its minutes are used up")
                continue
            database = database or _tracking_database(Path(folder))
            outcome = _one(name, database)
            if outcome is None:
                results.remarks.append(f"faults: {name} was left out: this user may not mount a disk")
                continue
            row, problems = outcome
            rows.append(row)
            results.figures[f"faults.{name}"] = count(len(problems), note="; ".join(problems))
            results.remarks += [f"faults: {name}: {problem}" for problem in problems]
    results.tables["Faults in the middle of a sweep"] = Table(
        ("fault", "exit code", "message, first line", "leased, drawn when it stopped", "after the fix and resume"),
        tuple(rows),
    )


def _one(name: str, database: Path) -> tuple[tuple[object, ...], list[str]] | None:
    folder = Path(tempfile.mkdtemp(prefix="fault-"))
    mounted = name == "full_mount" or (name == "read_only" and os.getuid() == 0)
    try:
        (folder / "books").mkdir()
        if mounted and not _mount(folder / "books"):
            return None
        (folder / "runs").mkdir()
        shutil.copy(database, folder / "runs" / "mlflow.db")
        (folder / "fault.yaml").write_text(_FILE)
        return _play(name, folder)
    finally:
        if mounted:
            subprocess.run(["umount", str(folder / "books")], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _play(name: str, folder: Path) -> tuple[tuple[object, ...], list[str]]:
    problems = []
    with (folder / "said").open("wb") as said:
        process = _begin(folder, ["run", "fault.yaml", "--local", "--quiet"], said, clock=name == "clock")
        scene = Scene(folder, process)
        try:
            # A page that is still written to is written whole, from what the sweep remembers: the right bit with it.
            _wait_for_draws(scene, 1_500 if name == "flipped_byte" else 500)
            with scene.held():
                known = _head(scene.ledger)
                fix = FAULTS[name](scene)
            if name == "clock":
                _wait_for_draws(scene, 2_500)
                (folder / "jump").write_text(f"{_YEAR}")
            code = process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            problems.append(f"it went on for {_PATIENCE:.0f} s")
            code = None
        finally:
            process.kill()
            process.wait()
    message = _message(folder / "said")
    fix()
    stopped = _state(scene)
    if name != "clock":
        if code in (0, None):
            problems.append(f"it must stop with an error, exit code {code}")
        if not message.startswith("error:"):
            problems.append(f"it must say why, said {message!r}")
        with (folder / "said again").open("wb") as said:
            again = _begin(folder, ["resume", "fault", "--local", "--quiet"], said).wait(timeout=2 * _PATIENCE)
        if again != 0:
            problems.append(
                f"it must go on when the fault is fixed, exit code {again}: {_message(folder / 'said again')}"
            )
    elif code != 0:
        problems.append(f"a clock that jumps must change nothing, exit code {code}: {message}")
    ended = _state(scene)
    problems += [
        f"{when}: {problem}" for when, state in (("stopped", stopped), ("ended", ended)) for problem in state[2]
    ]
    if _head(scene.ledger, known[0]) != known:
        problems.append("what was charged before the fault is not in the ledger afterwards")
    shown = "–" if code == 0 else message.removeprefix("error: ").partition(". ")[0].replace(str(folder), "")[:_SHOWN]
    return (name, code, shown, f"{stopped[0]}, {stopped[1]}", f"{ended[0]}, {ended[1]}"), problems


def _begin(folder: Path, words: list[str], said: IO[bytes], *, clock: bool = False) -> subprocess.Popen[bytes]:
    module = ["benchmarks.budget_clock", str(folder / "jump")] if clock else ["benchmarks.budget_draws"]
    return subprocess.Popen(
        [sys.executable, "-m", *module, str(folder / "draws"), *words],
        cwd=folder,
        env=child_environment({"HOME": str(folder), "TMPDIR": str(folder)}),
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )


def _wait_for_draws(scene: Scene, draws: int) -> None:
    until = time.monotonic() + _PATIENCE
    while sum(attempt.done for trial in read_draws(scene.folder / "draws").values() for attempt in trial) < draws:
        if scene.process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the sweep must draw before its fault, it said: {_message(scene.folder / 'said')}")
        time.sleep(0.02)


def _message(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "")


def _head(ledger: Path, seq: int | None = None) -> tuple[int, str]:
    """Number and hash of the last entry, or of entry `seq`, with the whole chain checked."""
    from tuner.errors import LedgerError
    from tuner.privacy.ledger.ledger import Ledger

    try:
        opened = Ledger.open(f"sqlite:///{ledger}", create=False)
        opened.verify_chain()
        state = opened.dataset_state("digits") if seq is None else opened.state_at("digits", seq)
    except LedgerError as error:
        return -1, str(error)
    return state.seq, state.head


def _state(scene: Scene) -> tuple[int, int, list[str]]:
    """Steps leased, noise drawn, and what is wrong with that."""
    from tuner.errors import LedgerError
    from tuner.privacy.ledger.ledger import Ledger

    draws = read_draws(scene.folder / "draws")
    drawn = sum(attempt.begun for attempts in draws.values() for attempt in attempts)
    try:
        searches = Ledger.open(f"sqlite:///{scene.ledger}", create=False).dataset_state("digits").searches
    except LedgerError as error:
        return 0, drawn, [str(error)]
    leased = {name: trial.leased for search in searches for name, trial in search.trials.items()}
    below = [
        f"trial {name} drew {begun} times and is charged {leased.get(name, 0)}"
        for name, attempts in draws.items()
        if (begun := sum(attempt.begun for attempt in attempts)) > leased.get(name, 0)
    ]
    return sum(leased.values()), drawn, below


def _put(path: Path, at: int, content: bytes) -> None:
    """Into the same file: one that was replaced would be noticed as such, which is another fault."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def _mount(place: Path) -> bool:
    """A disk of three megabytes; False when this user may not."""
    words = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _tracking_database(folder: Path) -> Path:
    """An empty database of MLflow: making one takes seconds, copying it none."""
    from tuner.recorder.mlflow_store import connect

    connect(f"sqlite:///{folder}/mlflow.db")
    return folder / "mlflow.db"


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _nothing() -> None:
    return None
