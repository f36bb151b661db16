"""Does one trial fill the GPU? CUDA graphs of a step, and many trials as one through vmap over their parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from benchmarks.engine_arena import Arena
from benchmarks.engine_bars import Workload
from benchmarks.engine_contenders import VmapStep
from benchmarks.engine_measure import race
from benchmarks.engine_sections import Results, Settings

__all__ = ["fills_the_gpu", "vectorised_trials"]

_TRIALS = 16


def fills_the_gpu(workload: Workload, settings: Settings, results: Results) -> None:
    """Adds what two ways to fill the GPU would give; without one, says that nothing was measured."""
    if settings.device != "cuda" or not torch.cuda.is_available():
        results.remarks.append(f"does {workload.name} fill a GPU: not measured, there is none")
        return
    arena = settings.arena(workload)
    inputs, targets = arena.gathered(arena.batch)
    one, many = (
        vectorised_trials(arena, inputs, targets, trials=1),
        vectorised_trials(arena, inputs, targets, trials=_TRIALS),
    )
    contenders: dict[str, Callable[[], object]] = {"one": one, "many": many}
    replay = _captured(arena, inputs, targets, results)
    if replay is not None:
        contenders["graph"] = replay
    timed = race(contenders, rounds=settings.rounds, seconds=settings.seconds, device="cuda")
    results.figures[f"vectorised_trials_gain.{workload.name}"] = timed.ratio(
        "one", "many", factor=_TRIALS, note=f"{_TRIALS} trials at once against one after the other, clipped sums alone"
    )
    if replay is not None:
        results.figures[f"cuda_graph_gain.{workload.name}"] = timed.ratio("one", "graph", note="clipped sums alone")


def vectorised_trials(arena: Arena, inputs: Tensor, targets: Tensor, *, trials: int) -> Callable[[], Tensor]:
    """A call that computes the clipped sums of many trials, whose parameters are stacked.

    Args:
        arena: the workload.
        inputs: one batch, which all trials share; shape (B, *input_shape).
        targets: shape (B,).
        trials: how many.

    Returns:
        A call whose result has shape (trials, d).
    """
    step = arena.rival("vmap")
    assert isinstance(step, VmapStep)
    thetas = torch.stack([step.theta] * trials)
    together = vmap(step.clipped_sum_at, in_dims=(0, None, None))
    return lambda: together(thetas, inputs, targets)


def _captured(arena: Arena, inputs: Tensor, targets: Tensor, results: Results) -> Callable[[], object] | None:
    """The replay of a CUDA graph of the same sums, or None where they cannot be captured."""
    call = vectorised_trials(arena, inputs, targets, trials=1)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(3):  # a capture wants everything allocated and chosen before
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        results.remarks.append(f"no CUDA graph of {arena.workload.name}: {str(error).splitlines()[0]}")
        return None
    return graph.replay
