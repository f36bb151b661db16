"""Whether one trial fills the GPU: our clipped sum against a vmap step, alone, as a CUDA graph, and for many trials.

The vmap step is written with torch.func, so that it can be captured and mapped again over the parameters of many
trials. Our own step cannot: it tests on the way which gradients are finite. The gains are relative to OUR sum, which
the vmap step would replace, and to the vmap step alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from benchmarks.engine.arena import Arena
from benchmarks.engine.contenders import VmapStep
from benchmarks.engine.workloads import LINES, Course
from benchmarks.harness import Results, Settings

_TRIALS = 16


def measure(settings: Settings, results: Results) -> None:
    """Measure what two ways to fill the GPU would gain; without a GPU, say that nothing was measured."""
    course = Course.of(settings)
    if course.device != "cuda":
        results.remarks.append("gpu: not measured, because --device is cpu")
        return
    for workload in course.workloads:
        if workload.name in LINES:
            arena = Arena.of(workload, course)
            inputs, targets = arena.gathered(arena.batch)
            replay = _captured(arena, inputs, targets, results)
            compare_with_ours(arena, inputs, targets, course, results, replay=replay)


def compare_with_ours(
    arena: Arena,
    inputs: Tensor,
    targets: Tensor,
    course: Course,
    results: Results,
    *,
    replay: Callable[[], object] | None,
) -> None:
    """Race our clipped sum of one batch with that of the vmap step, and note the gains of its variants.

    Args:
        arena: the workload.
        inputs: one batch, shape (B, *input_shape).
        targets: shape (B,).
        course: of the race.
        results: a gain above 1 is in favour of the vmap step.
        replay: the CUDA graph of the vmap step, or None.
    """
    name, ours = arena.workload.name, arena.ours()
    points = ours.points(torch.Generator().manual_seed(course.seed))
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.clipped_sum(inputs, targets, points=points),
        "vmap step": vectorised_trials(arena, inputs, targets, trials=1),
        "vmap steps": vectorised_trials(arena, inputs, targets, trials=_TRIALS),
    }
    if replay is not None:
        contenders["vmap step, graph"] = replay
    timed = course.race(contenders, results, f"vmap_step*.{name}")
    if timed is None:
        return
    note = "clipped sums alone, vmap step against ours"
    results.figures |= {
        f"vmap_step_over_ours.{name}": timed.ratio("vmap step", "ours", note=note),
        f"vmap_step_trials_gain.{name}": timed.ratio(
            "ours", "vmap steps", factor=_TRIALS, note=f"{note}; {_TRIALS} trials at once, ours one after the other"
        ),
        f"vmap_step_trials_gain_over_itself.{name}": timed.ratio(
            "vmap step", "vmap steps", factor=_TRIALS, note=f"{_TRIALS} vmap steps at once, and one after the other"
        ),
    }
    if replay is not None:
        results.figures[f"vmap_step_graph_gain.{name}"] = timed.ratio("ours", "vmap step, graph", note=note)
        results.figures[f"vmap_step_graph_gain_over_itself.{name}"] = timed.ratio("vmap step", "vmap step, graph")


def vectorised_trials(arena: Arena, inputs: Tensor, targets: Tensor, *, trials: int) -> Callable[[], Tensor]:
    """Return a call that computes the clipped sums of many trials by the vmap step, with their parameters stacked.

    Args:
        arena: the workload.
        inputs: one batch, shared by all trials; shape (B, *input_shape).
        targets: shape (B,).
        trials: their number.

    Returns:
        A call whose result has shape (trials, d).
    """
    step = arena.rival("vmap")
    assert isinstance(step, VmapStep)
    thetas = torch.stack([step.theta] * trials)
    together = vmap(step.clipped_sum_at, in_dims=(0, None, None))
    return lambda: together(thetas, inputs, targets)


def _captured(arena: Arena, inputs: Tensor, targets: Tensor, results: Results) -> Callable[[], object] | None:
    """Return the replay of a CUDA graph of the vmap step, or None when it cannot be captured."""
    call = vectorised_trials(arena, inputs, targets, trials=1)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(3):  # a capture needs everything allocated and chosen before
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        results.remarks.append(f"no CUDA graph of the vmap step on {arena.workload.name}: {str(error).splitlines()[0]}")
        return None
    return graph.replay
