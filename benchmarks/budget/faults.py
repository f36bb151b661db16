"""Faults in the middle of a sweep: it must stop with an error, and no charge may be lost.

Each fault is caused in one `tune run --local` on scikit-learn's digits, in a process of its own. When the sweep has
charged a few leases, the process is stopped, so that the content of the ledger is known, and the fault is caused. Then
the process continues, and must end. The fault is repaired (space, permissions, the bytes), and `tune resume` must
finish the sweep. The ledger must cover all noise draws, which `benchmarks.budget.program` counts.
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

from benchmarks.harness import Results, Settings, Table, at_most
from benchmarks.harness.machine import child_environment
from tuner.drill.draws import draws_begun, gaps, leased_steps, read_draws
from tuner.errors import LedgerError
from tuner.privacy.ledger.ledger import Ledger

_FILE = """schema: 1
name: fault
dataset: {name: digits}
trainable: {method: dp_sgd, model: logistic_regression, batch_size: 64, epochs: 101.5}   # 2 000 steps
privacy: {epsilon: 500, noise_multiplier: 4.0}   # a large budget: the count is tested
search:
  trials: 2
  sampler: random
  rungs: 4
  space: {learning_rate: {log_uniform: [0.05, 1.0]}}
ledger: "sqlite:///books/ledger.db"
"""
_PATIENCE = 120.0
_SHOWN = 110  # letters of a message
_ONE_FAULT, _REST = 25.0, 100.0  # seconds of one fault, and seconds that a quick run keeps for the storm


@dataclass
class Scene:
    """A sweep in which a fault is caused; its ledger is in a folder of its own."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def books(self) -> Path:
        """The folder of the ledger."""
        return self.folder / "books"

    @property
    def ledger(self) -> Path:
        """The file of the ledger."""
        return self.books / "ledger.db"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the sweep between two writes of the ledger, so that its file is complete."""
        for _ in range(200):
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
            waiting = self.ledger.with_name("ledger.db-wal")
            if not waiting.exists() or not waiting.stat().st_size:
                break
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.013)
        else:
            raise RuntimeError("the sweep was never stopped between two writes of its ledger")
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def _nothing() -> None:
    """Repair nothing."""


def _full_disk(scene: Scene) -> Callable[[], None]:
    """Stop every file of the program from growing beyond the size of the ledger: a full disk, as its writes see it."""
    size = scene.ledger.stat().st_size
    resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (size, size))
    return _nothing


def _full_mount(scene: Scene) -> Callable[[], None]:
    """Fill the small disk of the ledger to the last byte."""
    filler = scene.books / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler.unlink


def _read_only(scene: Scene) -> Callable[[], None]:
    """Remove the right to write the ledger and its folder; root may always write, so for root the disk refuses."""
    if os.getuid() == 0:
        # A disk with an open file cannot be remounted, but a bind mount over the folder can be read-only.
        _run("mount", "--bind", str(scene.books), str(scene.books))
        _run("mount", "-o", "remount,ro,bind", str(scene.books))
        return lambda: _run("umount", str(scene.books))
    scene.ledger.chmod(0o444)
    scene.books.chmod(0o555)

    def repair() -> None:
        scene.books.chmod(0o755)
        scene.ledger.chmod(0o644)

    return repair


def _truncated(scene: Scene) -> Callable[[], None]:
    """Remove the second half of the ledger's file."""
    whole = scene.ledger.read_bytes()
    os.truncate(scene.ledger, len(whole) // 2)
    return lambda: _overwrite(scene.ledger, 0, whole)


def _flipped_byte(scene: Scene) -> Callable[[], None]:
    """Flip one bit of a charged lease: 100 steps become 300."""
    whole = scene.ledger.read_bytes()
    at = whole.index(b'"steps":100') + len(b'"steps":')
    flipped = bytes([whole[at] ^ 2])
    _overwrite(scene.ledger, at, flipped)

    def repair() -> None:
        # The sweep may have charged more before it noticed, so only this byte is restored.
        if scene.ledger.read_bytes()[at : at + 1] != flipped:
            raise RuntimeError("the flipped byte has moved and cannot be restored")
        _overwrite(scene.ledger, at, whole[at : at + 1])

    return repair


FAULTS: dict[str, Callable[[Scene], Callable[[], None]]] = {
    "full_disk": _full_disk,
    "full_mount": _full_mount,
    "read_only": _read_only,
    "truncated": _truncated,
    "flipped_byte": _flipped_byte,
}
"""Each causes a fault while the sweep is held, and returns its repair. `full_mount`, and for root `read_only` too, need
the right to mount a disk."""

BARS = {f"faults.{fault}": at_most(0) for fault in FAULTS}
"""The number of problems after each fault."""


def measure(settings: Settings, results: Results) -> None:
    """Cause every fault once and note the problems."""
    from tuner.recorder.mlflow_store import connect

    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as inside:
        database = Path(inside) / "mlflow.db"
        for name in FAULTS:
            if not settings.time_for(_ONE_FAULT + _REST):
                results.leave_out(f"faults.{name}", "--quick has no time left")
                continue
            if not database.exists():
                connect(f"sqlite:///{database}")  # an empty database takes seconds to create, and none to copy
            found = _one(name, database)
            if found is None:
                results.leave_out(f"faults.{name}", "this user may not mount a disk")
                continue
            row, problems = found
            rows.append((name, *row))
            results.count(f"faults.{name}", len(problems), note="; ".join(problems))
    columns = ("fault", "exit code", "message, first line", "leased, drawn when it stopped", "after repair and resume")
    results.tables["Faults in the middle of a sweep"] = Table(columns, tuple(rows))


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
    """Run a sweep, cause the fault, repair it and resume; return the row of the table and the problems."""
    problems = []
    scene = Scene(folder, _begin(folder, "output", "run", "fault.yaml"))
    try:
        # A page that is still written to is rewritten with the correct bit, so the flip waits for an older page.
        _wait_for_draws(scene, 1_500 if name == "flipped_byte" else 500)
        with scene.held():
            known = _head(scene.ledger)
            repair = FAULTS[name](scene)
        code: int | None = scene.process.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        problems.append(f"it still ran after {_PATIENCE:.0f} s")
        code = None
    finally:
        scene.process.kill()
        scene.process.wait()
    message = _message(folder / "output")
    repair()
    stopped = _state(scene)
    if code in (0, None) or not message.startswith("error:"):
        problems.append(f"it must stop with an error (exit code {code}: {message!r})")
    again = _begin(folder, "output again", "resume", "fault").wait(timeout=2 * _PATIENCE)
    if again != 0:
        problems.append(f"it must resume after the repair (exit code {again}: {_message(folder / 'output again')})")
    ended = _state(scene)
    problems += [f"when it stopped: {problem}" for problem in stopped[2]]
    problems += [f"at its end: {problem}" for problem in ended[2]]
    if _head(scene.ledger, known[0]) != known:
        problems.append("a charge from before the fault is missing in the ledger")
    shown = message.removeprefix("error: ").partition(". ")[0].replace(str(folder), "")[:_SHOWN]
    return (code, shown, f"{stopped[0]}, {stopped[1]}", f"{ended[0]}, {ended[1]}"), problems


def _begin(folder: Path, output: str, *words: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "benchmarks.budget.program", "--draws", "draws", *words, "--local", "--quiet"]
    with (folder / output).open("ab") as file:
        return subprocess.Popen(
            program,
            cwd=folder,
            env=child_environment({"HOME": str(folder), "TMPDIR": str(folder)}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def _wait_for_draws(scene: Scene, draws: int) -> None:
    until = time.monotonic() + _PATIENCE
    while draws_begun(read_draws(scene.folder / "draws")) < draws:
        if scene.process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the sweep ended before its fault: {_message(scene.folder / 'output')}")
        time.sleep(0.02)


def _message(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "")


def _head(ledger: Path, seq: int | None = None) -> tuple[int, str]:
    """Check the whole chain; return number and hash of the last entry, or of entry `seq`."""
    try:
        opened = Ledger.open(f"sqlite:///{ledger}", create=False)
        opened.verify_chain()
        state = opened.dataset_state("digits") if seq is None else opened.state_at("digits", seq)
    except LedgerError as error:
        return -1, str(error)
    return state.seq, state.head


def _state(scene: Scene) -> tuple[int, int, list[str]]:
    """Return the steps leased, the noise drawn, and a sentence for each trial that drew more than it leased."""
    draws = read_draws(scene.folder / "draws")
    try:
        leased = leased_steps(f"sqlite:///{scene.ledger}")
    except LedgerError as error:
        return 0, draws_begun(draws), [str(error)]
    missed = [gap for gap in gaps(leased, draws, draws) if gap.below > 0]
    problems = [f"trial {gap.trial} drew {gap.below} times more than it is charged" for gap in missed]
    return sum(leased.values()), draws_begun(draws), problems


def _overwrite(path: Path, at: int, content: bytes) -> None:
    """Write into the same file: a replaced file would be noticed as such, which is another fault."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def _mount(place: Path) -> bool:
    """Mount a disk of three megabytes; return False when this user may not."""
    words = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
