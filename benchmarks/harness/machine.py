"""This machine, and the environment of processes that a benchmark starts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""


def processor() -> str:
    """Return the number of cores and the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.processor()


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process that imports this checkout and uses one thread.

    Its default ledger is in the folder in which it runs, never in the user's home.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DP_TUNER_")}
    if "DP_TUNER_DATA" in os.environ:
        environment["DP_TUNER_DATA"] = os.environ["DP_TUNER_DATA"]
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment["XDG_DATA_HOME"] = "."
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return environment | dict(more or {})


def python_output(folder: Path, words: Sequence[str]) -> str:
    """Run this Python in a folder and return what it prints.

    Raises:
        RuntimeError: it ended with an error.
    """
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=child_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"python {' '.join(words)[:80]} failed: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout
