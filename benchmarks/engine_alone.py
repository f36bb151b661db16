"""What the engine benchmark measures in a process of its own: peak memory, and rivals that take gigabytes.

python -m benchmarks.engine_alone memory_step|memory_dplis
python -m benchmarks.engine_alone hooks|functorch|ew|vmap|hooks_passes
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from benchmarks.engine_agreement import TOLERANCE, differences
from benchmarks.engine_arena import DPLIS
from benchmarks.engine_bars import WORKLOADS
from benchmarks.engine_measure import Figure, one_thread, race, tune_malloc
from benchmarks.engine_sections import Results, Settings

__all__ = ["ALONE", "MEMORY", "main", "measure_alone"]

_WIDE = next(workload for workload in WORKLOADS if workload.wide)
MEMORY: Final = ("memory_step", "memory_dplis")
# What must be free before a rival is started, in gigabytes; a heap that keeps what is freed has holes in it.
ALONE: Final = {
    "memory_hooks": 12.0,
    "hooks": 17.0,
    "functorch": 13.0,
    "ew": 17.0,
    "vmap": 13.0,
    "hooks_passes": 8.0,
}
# Samples of the check; each writes 20 MB of gradient.
_CHECKED = 8
# K passes hold the sum of the per-sample gradients beside those of the pass: 15 GB for 256 samples, so fewer at once.
_PASSES_AT_ONCE = 64
_MEGABYTE = 2**20
_STATUS = Path("/proc/self/status")


def measure_alone(what: str, settings: Settings, results: Results) -> None:
    """Runs one part in a child, so that its memory is its own and is given back."""
    needed = ALONE.get(what, 1.5)
    free = _free_gigabytes()
    if not free >= needed:
        results.remarks.append(f"{what} on {_WIDE.name} was left out: it needs {needed} GB, {free:.1f} were free")
        return
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine_alone", what, str(settings.rounds), str(settings.seconds)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        results.remarks.append(f"{what} on {_WIDE.name} ended with status {child.returncode} and was left out")
        return
    figures = json.loads(child.stdout.splitlines()[-1])
    results.figures |= {name: Figure(**figure) for name, figure in figures.items()}


def main(arguments: Sequence[str]) -> int:
    """Measures one part and prints its figures as one JSON object."""
    what, rounds, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    one_thread()
    settings = Settings(quick=False, rounds=rounds, seconds=seconds)
    figures = _memory(what, settings) if what.startswith("memory_") else _rival(what, settings)
    print(json.dumps({name: asdict(figure) for name, figure in figures.items()}))
    return 0


def _memory(what: str, settings: Settings) -> dict[str, Figure]:
    """The peak of a few steps above what the module and the records take, with malloc as it comes."""
    arena = settings.arena(_WIDE)
    arena.module()  # once, so that what building one leaves behind is not the step's
    before = _status_megabytes("VmRSS")
    steps = {
        "memory_step": lambda: arena.step_of_ours(),
        "memory_dplis": lambda: arena.step_of_ours("dplis", DPLIS),
        "memory_hooks": lambda: arena.step_of_rival("hooks"),
    }
    take = steps[what]()
    for _ in range(3):
        take()
    name = "memory_mb." + what.removeprefix("memory_")
    return {name: Figure(_status_megabytes("VmHWM") - before, unit="MB", note="batch 256, peak above model and data")}


def _rival(what: str, settings: Settings) -> dict[str, Figure]:
    tune_malloc()
    found = differences(settings.arena(_WIDE), [what], batch=_CHECKED)[what]
    if not found <= TOLERANCE:
        raise RuntimeError(
            f"{what} must compute what our step computes to {TOLERANCE:g} before it is timed; {found:.1e}"
        )
    if what == "hooks_passes":
        arena = replace(settings.arena(_WIDE), passes_at_once=_PASSES_AT_ONCE)
        contenders = {"dplis": arena.step_of_ours("dplis", DPLIS), what: arena.step_of_rival(what, DPLIS)}
        timed = race(contenders, rounds=settings.rounds, seconds=settings.seconds)
        note = f"in micro-batches of {_PASSES_AT_ONCE}"
        return {f"hooks_passes_over_dplis.{_WIDE.name}": timed.ratio(what, "dplis", note=note)}
    arena = settings.arena(_WIDE)
    timed = race(
        {"step": arena.step_of_ours(), what: arena.step_of_rival(what)},
        rounds=settings.rounds,
        seconds=settings.seconds,
    )
    return {f"{what}_over_step.{_WIDE.name}": timed.ratio(what, "step")}


def _status_megabytes(key: str) -> float:
    """VmRSS (now) or VmHWM (the peak so far) of this process; the kernel counts in kB."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1]) / _MEGABYTE


def _free_gigabytes() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
