"""The races of each workload: whole steps of ours, of plain SGD and of the rivals."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.engine.agreement import TOLERANCE, differences
from benchmarks.engine.arena import DPLIS, NAIVE_SAMPLES, Arena
from benchmarks.engine.parts import measure_smoothing
from benchmarks.engine.race import Contender, Race
from benchmarks.engine.workloads import Course
from benchmarks.harness import Results, Settings

_DECAY: dict[str, object] = {"weight_decay": 0.01, "weight_decay_mode": "before_clipping"}
# Samples of the check; the wide MLP takes 20 MB of gradient a sample.
_CHECKED, _CHECKED_WIDE = 32, 8


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


def measure_workload(arena: Arena, course: Course, results: Results) -> None:
    """Check the contenders of one workload against each other, then race them."""
    workload = arena.workload
    rivals = ["ghost"] if workload.wide else ["hooks", "ghost"]
    if not course.quick and not workload.wide:
        rivals += ["functorch", "ew", "vmap"]
    checked = [*rivals, "naive", "naive_passes"]
    if not workload.wide and not (course.quick and workload.model == "four_conv_cnn"):
        checked.append("hooks_passes")
    agreed = _check(arena, checked, results)
    plain = _plain_steps(arena, [name for name in rivals if name in agreed], course, results)
    if plain is None:
        return
    _smoothed_steps(arena, _baseline(plain), course, results)
    if "hooks_passes" in agreed:
        _passes(arena, course, results)
    if "naive" in agreed:
        _naive(arena, course, results)
    if "naive_passes" in agreed and not course.quick:
        _naive_passes(arena, course, results)


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
    contenders["open_noise"] = arena.step_with_open_noise()
    contenders["weight_decay"] = arena.step_of_ours("dp_weight_decay", _DECAY)
    contenders |= {rival: arena.step_of_rival(rival) for rival in rivals}
    if images and "hooks" in contenders and not course.quick:
        contenders["hooks_nhwc"] = arena.step_of_rival("hooks_nhwc")
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
    for rival in (each for each in contenders if each in ("hooks_nhwc", *rivals)):
        results.figures[f"{rival}_over_step.{name}"] = timed.ratio(rival, "step")
    return timed


def _baseline(timed: Race) -> str:
    """Return the faster of the two layouts of plain SGD, so that ours gains nothing from a choice that anyone has."""
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


def _passes(arena: Arena, course: Course, results: Results) -> None:
    """Race K passes of hooks with our DPLIS step."""
    name = f"hooks_passes_over_dplis.{arena.workload.name}"
    contenders = {
        "dplis": arena.step_of_ours("dplis", DPLIS),
        "hooks_passes": arena.step_of_rival("hooks_passes", DPLIS),
    }
    timed = course.race(contenders, results, name)
    if timed is not None:
        results.figures[name] = timed.ratio("hooks_passes", "dplis")


def _naive(arena: Arena, course: Course, results: Results) -> None:
    """Race the loop over samples, on a few of them, with our step."""
    name = f"naive_over_step.{arena.workload.name}"
    timed = course.race({"step": arena.step_of_ours(), "naive": arena.step_of_rival("naive")}, results, name)
    if timed is not None:
        results.figures[name] = timed.ratio("naive", "step", factor=_scale(arena), note=_scaled(arena))


def _naive_passes(arena: Arena, course: Course, results: Results) -> None:
    """Race K loops over samples, on a few of them, with our DPLIS step."""
    name = f"naive_passes_over_dplis.{arena.workload.name}"
    contenders = {"dplis": arena.step_of_ours("dplis", DPLIS), "naive": arena.step_of_rival("naive", DPLIS)}
    timed = course.race(contenders, results, name)
    if timed is not None:
        results.figures[name] = timed.ratio("naive", "dplis", factor=_scale(arena), note=_scaled(arena))


def _scale(arena: Arena) -> float:
    return arena.batch / NAIVE_SAMPLES


def _scaled(arena: Arena) -> str:
    return f"{NAIVE_SAMPLES} samples, scaled to {arena.batch}"
