"""The races of each workload: whole steps of ours, of plain SGD and of the rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from benchmarks.engine.agreement import TOLERANCE, differences
from benchmarks.engine.arena import DPLIS, NAIVE_SAMPLES, Arena
from benchmarks.engine.contenders import OpenNoise
from benchmarks.engine.parts import measure_smoothing
from benchmarks.engine.race import Contender, Race
from benchmarks.engine.workloads import WORKLOADS, Course
from benchmarks.harness import Figure, Results, Settings, Table
from benchmarks.harness.report import digits, spread

_DECAY: dict[str, object] = {"weight_decay": 0.01, "weight_decay_mode": "before_clipping"}
# Samples of the check; the wide MLP takes 20 MB of gradient a sample.
_CHECKED, _CHECKED_WIDE = 32, 8

TABLES: Mapping[str, Mapping[str, str]] = {
    "A private step: milliseconds, in non-private steps, and how many times longer the others take": {
        "non-private ms": "non_private_ms",
        "step ms": "step_ms",
        "in non-private": "step_over_non_private",
        "the same with torch's noise": "open_noise_over_non_private",
        "hooks": "hooks_over_step",
        "hooks, channels-last": "hooks_nhwc_over_step",
        "ghost": "ghost_over_step",
        "vmap(grad)": "vmap_over_step",
        "naive loop": "naive_over_step",
    },
    "DPLIS, K = 10, R = 10, mean": {
        "ms": "dplis_ms",
        "in ten non-private steps": "dplis_over_ten_non_private",
        "in our own steps": "dplis_over_step",
        "K passes of hooks": "hooks_passes_over_dplis",
    },
    "Parts, as shares of our own step": {
        "step with weight decay": "weight_decay_over_step",
        "smoothing, layer": "laplacian_layer_share",
        "smoothing, model": "laplacian_model_share",
        "smoothing, model, ms": "laplacian_model_ms",
    },
}
"""Title of a table with a row for each workload → its headings, each with the prefix of its figures."""


def measure(settings: Settings, results: Results) -> None:
    """Measure every workload."""
    course = Course.of(settings)
    for workload in course.workloads:
        if not settings.time_for(0):
            results.leave_out(f"*.{workload.name}", "no time was left")
            continue
        arena = Arena.of(workload, course)
        measure_workload(arena, course, results)
        if workload.family != "logistic":
            measure_smoothing(arena, course, results)
    _add_tables(results)


def measure_workload(arena: Arena, course: Course, results: Results) -> None:
    """Check the contenders of one workload against each other, then race them."""
    workload = arena.workload
    rivals = ["ghost"] if workload.wide else ["hooks", "ghost"]
    if not course.quick and not workload.wide:
        rivals.append("vmap")
    checked = [*rivals, "naive"]
    if not workload.wide and not (course.quick and workload.model == "four_conv_cnn"):
        checked.append("hooks_passes")
    agreed = _check(arena, checked, results)
    plain = _plain_steps(arena, [name for name in rivals if name in agreed], course, results)
    if plain is None:
        return
    _smoothed_steps(arena, _baseline(plain), course, results)
    if "hooks_passes" in agreed:
        _pair(arena, "hooks_passes", "dplis", course, results)
    if "naive" in agreed:
        _pair(arena, "naive", "step", course, results)


def _check(arena: Arena, rivals: Sequence[str], results: Results) -> set[str]:
    """Return the rivals that agree with us; the bars of the others are left out."""
    workload = arena.workload
    found: dict[str, float] = {}
    for rival in rivals:
        try:
            found |= differences(arena, [rival], batch=_CHECKED_WIDE if workload.wide else _CHECKED)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            reason = f"{rival} does not support {workload.name}: {str(error).splitlines()[0]}"
            results.leave_out(f"{rival}_over_*.{workload.name}", reason)
    wrong = {name for name, difference in found.items() if not difference <= TOLERANCE}
    for name in wrong:
        results.leave_out(f"{name}_over_*.{workload.name}", f"{name} disagrees with our step by {found[name]:.1e}")
    if found:
        results.count(f"largest_difference.{workload.name}", max(found.values()))
    return set(found) - wrong


def _plain_steps(arena: Arena, rivals: Sequence[str], course: Course, results: Results) -> Race | None:
    name, images = arena.workload.name, arena.workload.family == "cnn"
    contenders: dict[str, Contender] = {"non_private": arena.step_of_non_private()}
    if images:
        contenders["non_private_nhwc"] = arena.step_of_non_private(torch.channels_last)
    contenders["step"] = arena.step_of_ours()
    contenders["open_noise"] = arena.step_of_ours(secret=OpenNoise())
    contenders["weight_decay"] = arena.step_of_ours("dp_weight_decay", _DECAY)
    if images and "hooks" in rivals and not course.quick:
        rivals = [*rivals, "hooks_nhwc"]
    contenders |= {rival: arena.step_of_rival(rival) for rival in rivals}
    timed = course.race(contenders, results, f"*.{name}")
    if timed is None:
        return None
    baseline = _baseline(timed)
    results.figures |= {
        f"non_private_ms.{name}": timed.milliseconds(baseline),
        f"step_ms.{name}": timed.milliseconds("step"),
        f"step_over_non_private.{name}": timed.ratio("step", baseline),
        f"weight_decay_over_step.{name}": timed.ratio("weight_decay", "step"),
        f"open_noise_over_non_private.{name}": timed.ratio("open_noise", baseline),
    }
    for rival in rivals:
        results.figures[f"{rival}_over_step.{name}"] = timed.ratio(rival, "step")
    return timed


def _baseline(timed: Race) -> str:
    """Return the faster of the two layouts of plain SGD, because anyone can choose it."""
    return timed.fastest([name for name in ("non_private", "non_private_nhwc") if name in timed.cpu])


def _smoothed_steps(arena: Arena, baseline: str, course: Course, results: Results) -> None:
    name = arena.workload.name
    memory_format = torch.channels_last if baseline == "non_private_nhwc" else torch.contiguous_format
    contenders = {
        "non_private": arena.step_of_non_private(memory_format),
        "step": arena.step_of_ours(),
        "dplis": arena.step_of_ours("dplis", DPLIS),
    }
    timed = course.race(contenders, results, f"*.{name}")
    if timed is not None:
        results.figures |= {
            f"dplis_ms.{name}": timed.milliseconds("dplis"),
            f"dplis_over_ten_non_private.{name}": timed.ratio("dplis", "non_private", factor=0.1),
            f"dplis_over_step.{name}": timed.ratio("dplis", "step"),
        }


def _pair(arena: Arena, rival: str, ours: str, course: Course, results: Results) -> None:
    """Race a slow rival with our step or our DPLIS step; `naive` takes few samples, and is scaled to the batch."""
    name = f"{rival}_over_{ours}.{arena.workload.name}"
    mine = arena.step_of_ours("dplis", DPLIS) if ours == "dplis" else arena.step_of_ours()
    timed = course.race({ours: mine, rival: arena.step_of_rival(rival)}, results, name)
    if timed is None:
        return
    if rival == "naive":
        note = f"{NAIVE_SAMPLES} samples, scaled to {arena.batch}"
        results.figures[name] = timed.ratio(rival, ours, factor=arena.batch / NAIVE_SAMPLES, note=note)
    else:
        results.figures[name] = timed.ratio(rival, ours)


def _add_tables(results: Results) -> None:
    for title, columns in TABLES.items():
        rows = []
        for workload in WORKLOADS:
            found = [results.figures.get(f"{prefix}.{workload.name}") for prefix in columns.values()]
            if any(found):
                rows.append((workload.name, *map(_cell, found)))
        results.tables[title] = Table(("", *columns), tuple(rows))


def _cell(figure: Figure | None) -> str:
    return "–" if figure is None else f"{digits(figure.value)}{spread(figure)}"
