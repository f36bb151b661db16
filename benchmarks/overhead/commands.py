"""CPU time of the commands that people wait for."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Figure, Results, Settings, Table, at_most
from benchmarks.harness.machine import child_environment, python_output

BARS = {
    "commands.cpu_s.validate": at_most(0.5),
    "commands.cpu_s.status": at_most(0.5),
    "commands.cpu_s.plan": at_most(3.0),
}
"""Limits of issue 18. For `validate` and `plan`, the figure is that of the slowest shipped file."""

_QUICK_FILES = ("digits_dplis", "mnist_dplis", "cifar10_composed")

_NO_FILE_NEEDED = ("state_union_records", "state_union_users")
"""Shipped files that start from a file of public weights, which this benchmark does not have."""

_SWEEP = """schema: 1
name: small
dataset: {name: digits}
trainable: {method: dp_sgd, model: logistic_regression, batch_size: 128, epochs: 1}
privacy: {epsilon: 8.0, delta: 1.0e-5}
search: {trials: 4, space: {learning_rate: {log_uniform: [0.1, 1.0]}}}
"""


def datasets(_settings: Settings) -> tuple[str, ...]:
    """Return the data set of the small sweep, which scikit-learn ships."""
    return ("digits",)


def measure(settings: Settings, results: Results) -> None:
    """Run every command in a new process."""
    repeats = 1 if settings.quick else 3
    with tempfile.TemporaryDirectory(prefix="overhead-") as inside:
        folder = Path(inside)
        (folder / "small.yaml").write_text(_SWEEP)
        python_output(folder, ["-m", "tuner", "run", "small.yaml", "--local", "--quiet"])
        for name, words in (
            ("help", ["--help"]),
            ("ls", ["ls"]),
            ("status", ["status"]),
            ("show", ["show", "small"]),
            ("report", ["report", "small"]),
        ):
            results.figures[f"commands.cpu_s.{name}"] = _seconds(folder, words, repeats=repeats)
        _shipped(folder, results, quick=settings.quick, repeats=repeats)


def _shipped(folder: Path, results: Results, *, quick: bool, repeats: int) -> None:
    """Run `validate` and `plan` on the shipped files."""
    from tuner.experiment.shipped_files import shipped

    files = [each for each in sorted(shipped()) if each not in _NO_FILE_NEEDED]
    if quick:
        results.remarks.append(f"commands: --quick leaves out all shipped files but {', '.join(_QUICK_FILES)}")
        files = [each for each in files if each in _QUICK_FILES]
    rows = []
    for file in files:
        validate = _seconds(folder, ["validate", file], repeats=repeats)
        rows.append((file, validate, _seconds(folder, ["plan", file], repeats=repeats)))
    results.tables["CPU seconds of shipped files"] = Table(
        ("file", "validate", "plan"), tuple((file, f"{a.value:.2f}", f"{b.value:.2f}") for file, a, b in rows)
    )
    for place, name in ((1, "validate"), (2, "plan")):
        slowest = max(rows, key=lambda row: row[place].value)  # type: ignore[union-attr]
        found: Figure = slowest[place]  # type: ignore[assignment]
        results.figures[f"commands.cpu_s.{name}"] = Figure(
            found.value, "s", found.lower, found.upper, found.wall, note=f"the slowest: {slowest[0]}"
        )


def _seconds(folder: Path, words: Sequence[str], *, repeats: int) -> Figure:
    """Return the median CPU time of `tune` with these words, and its wall time.

    A first run is not counted. It leaves the compiled modules, which an installed program has, unlike a checkout.
    """
    environment = child_environment() | {"COLUMNS": os.environ.get("COLUMNS", "100")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    cpu, wall = [], []
    for _ in range(repeats + 1):
        before, started = _cpu_of_children(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"tune {' '.join(words)} failed: {(done.stdout + done.stderr)[-500:]}")
        cpu.append(_cpu_of_children() - before)
        wall.append(time.perf_counter() - started)
    return Figure.median_of(cpu[1:], "s", wall=wall[1:])


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
