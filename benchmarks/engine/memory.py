"""Peak memory of steps on the wide MLP, each in its own process."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.race import one_thread
from benchmarks.engine.workloads import WIDE, Course
from benchmarks.harness import Figure, Results, Settings
from benchmarks.harness.machine import ROOT, python_output

# Gigabytes that must be free before a step is measured.
_NEEDED = {"step": 1.5, "dplis": 1.5, "hooks": 12.0}


def measure(settings: Settings, results: Results) -> None:
    """Measure the peak memory of our step, our DPLIS step and, in a full run, Opacus' hooks."""
    for name, needed in _NEEDED.items():
        if settings.quick and name == "hooks":
            continue
        figure, free = f"memory_mb.{name}", _kilobytes("/proc/meminfo", "MemAvailable") / 2**20
        if settings.own.device != "cpu":
            results.leave_out(figure, "measured on the CPU only")
            continue
        if not free >= needed:
            results.leave_out(figure, f"needs {needed} GB of memory, and {free:.1f} GB were free")
            continue
        # A plain process: what a spawned one imports with the main module would change the peak by 20 MB.
        words = ["-c", f"from benchmarks.engine.memory import peak; print(peak({name!r}))"]
        found = float(python_output(ROOT, words))
        results.figures[figure] = Figure(found, "MB", note="batch 256, above model and data")


def peak(name: str) -> float:
    """Return the peak of a few steps above the memory of the module and the records, in MB, with malloc as it comes."""
    one_thread()
    arena = Arena.of(WIDE, Course(quick=False))
    arena.module()  # once, so that memory that building a module leaves behind is not counted
    before = _kilobytes("/proc/self/status", "VmRSS")
    if name == "hooks":
        take = arena.step_of_rival(name)
    else:
        take = arena.step_of_ours("dplis", DPLIS) if name == "dplis" else arena.step_of_ours()
    for _ in range(3):
        take()
    return (_kilobytes("/proc/self/status", "VmHWM") - before) / 1024


def _kilobytes(file: str, key: str) -> int:
    """Return a number from a file of the kernel, which counts in kB; 0 without such a line."""
    lines = Path(file).read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(key)), 0)
