"""Parts of the engine benchmark in a process of their own: peak memory, and rivals that take gigabytes."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.engine.agreement import TOLERANCE, differences
from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.race import one_thread, race, tune_malloc
from benchmarks.engine.workloads import WIDE, Course
from benchmarks.harness import Figure, Results, Settings

# Gigabytes that must be free before a rival starts; a heap that keeps freed memory has holes.
RIVALS = {"hooks": 17.0, "functorch": 13.0, "ew": 17.0, "vmap": 13.0, "hooks_passes": 8.0}
MEMORY = {"memory_step": 1.5, "memory_dplis": 1.5, "memory_hooks": 12.0}
# Samples of the check; each takes 20 MB of gradient.
_CHECKED = 8
# K passes hold the sum of the per-sample gradients as well as those of the pass: 15 GB for 256 samples at once.
_PASSES_AT_ONCE = 64
_STATUS = Path("/proc/self/status")


def measure_memory(settings: Settings, results: Results) -> None:
    """Measure the peak memory of a step, of a DPLIS step, and in a full run of the hooks of Opacus."""
    _measure([*MEMORY][: 2 if settings.quick else None], settings, results)


def measure_wide(settings: Settings, results: Results) -> None:
    """Race the rivals that take gigabytes on the wide MLP."""
    _measure(RIVALS, settings, results)


def _measure(parts: Iterable[str], settings: Settings, results: Results) -> None:
    course = Course.of(settings)
    for part in parts:
        pattern = f"memory_mb.{part.removeprefix('memory_')}" if part in MEMORY else f"{part}_over_*.{WIDE.name}"
        if course.device != "cpu":
            results.leave_out(pattern, "measured on the CPU only")
            continue
        needed, free = (MEMORY | RIVALS)[part], _free_gigabytes()
        if not free >= needed:
            results.leave_out(pattern, f"needs {needed} GB of memory, and {free:.1f} GB were free")
            continue
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                results.figures |= pool.submit(measure_part, part, course.rounds, course.seconds).result()
            except BrokenProcessPool:
                results.leave_out(pattern, "its process was killed")


def measure_part(part: str, rounds: int, seconds: float) -> dict[str, Figure]:
    """Measure one part in this process."""
    one_thread()
    course = Course(quick=False, rounds=rounds, seconds=seconds)
    if part in MEMORY:
        return _memory(part, course)
    tune_malloc()
    return _rival(part, course)


def _memory(part: str, course: Course) -> dict[str, Figure]:
    """Return the peak of a few steps above the memory of the module and the records, with malloc as it comes."""
    arena = Arena.of(WIDE, course)
    arena.module()  # once, so that the memory that building one leaves behind is not counted
    before = _status_megabytes("VmRSS")
    steps = {
        "memory_step": lambda: arena.step_of_ours(),
        "memory_dplis": lambda: arena.step_of_ours("dplis", DPLIS),
        "memory_hooks": lambda: arena.step_of_rival("hooks"),
    }
    take = steps[part]()
    for _ in range(3):
        take()
    peak = _status_megabytes("VmHWM") - before
    return {f"memory_mb.{part.removeprefix('memory_')}": Figure(peak, "MB", note="batch 256, above model and data")}


def _rival(name: str, course: Course) -> dict[str, Figure]:
    """Return the time of a rival over that of our step, after a check that both compute the same sum."""
    arena = Arena.of(WIDE, course)
    found = differences(arena, [name], batch=_CHECKED)[name]
    if not found <= TOLERANCE:
        raise RuntimeError(f"{name} must agree with our step to {TOLERANCE:g} (got {found:.1e})")
    if name == "hooks_passes":
        arena, ours, parameters = replace(arena, passes_at_once=_PASSES_AT_ONCE), "dplis", DPLIS
        mine, note = arena.step_of_ours("dplis", DPLIS), f"in micro-batches of {_PASSES_AT_ONCE}"
    else:
        ours, parameters, mine, note = "step", None, arena.step_of_ours(), ""
    rival = arena.step_of_rival(name, parameters)
    timed = race({ours: mine, name: rival}, rounds=course.rounds, seconds=course.seconds)
    return {f"{name}_over_{ours}.{WIDE.name}": timed.ratio(name, ours, note=note)}


def _status_megabytes(key: str) -> float:
    """Return VmRSS (now) or VmHWM (the peak so far) of this process; the kernel counts in kB."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def _free_gigabytes() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return 0.0
