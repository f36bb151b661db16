"""Does one trial fill the GPU? Our clipped sum beside a vmap step: alone, as a CUDA graph, and as many trials at once.

The vmap step is written with torch.func, so that a second vmap, over the parameters of many trials, and a capture go
through it; our own step asks in between which gradients are finite, and neither can follow it there. What the two
would give is told against OUR sum, which is what they would replace, and the vmap step alone is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from benchmarks.engine_arena import Arena
from benchmarks.engine_bars import Workload
from benchmarks.engine_contenders import VmapStep
from benchmarks.engine_sections import Results, Settings

__all__ = ["compare_with_ours", "fills_the_gpu", "vectorised_trials"]

_TRIALS = 16


def fills_the_gpu(workload: Workload, settings: Settings, results: Results) -> None:
    """Adds what two ways to fill the GPU would give; without one, says that nothing was measured."""
    if settings.device != "cuda" or not torch.cuda.is_available():
        results.remarks.append(f"does {workload.name} fill a GPU: not measured, there is none")
        return
    arena = settings.arena(workload)
    inputs, targets = arena.gathered(arena.batch)
    replay = _captured(arena, inputs, targets, results)
    compare_with_ours(arena, inputs, targets, settings, results, replay=replay)


def compare_with_ours(
    arena: Arena,
    inputs: Tensor,
    targets: Tensor,
    settings: Settings,
    results: Results,
    *,
    replay: Callable[[], object] | None,
) -> None:
    """Races our clipped sum of one batch with the vmap step's, and reports how much less time each way of it takes.

    Args:
        arena: the workload.
        inputs: one batch, shape (B, *input_shape).
        targets: shape (B,).
        settings: of the race.
        results: where the figures go; a gain above 1 is in favour of the vmap step.
        replay: the vmap step's CUDA graph, None where there is none.
    """
    name, ours = arena.workload.name, arena.ours()
    points = ours.points(torch.Generator().manual_seed(settings.seed))
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.clipped_sum(inputs, targets, points=points),
        "vmap step": vectorised_trials(arena, inputs, targets, trials=1),
        "vmap steps": vectorised_trials(arena, inputs, targets, trials=_TRIALS),
    }
    if replay is not None:
        contenders["vmap step, graph"] = replay
    timed = results.race(contenders, settings, what=f"filling a GPU with {name}")
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
    """A call that computes the clipped sums of many trials by the vmap step, with their parameters stacked.

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
    """The replay of a CUDA graph of the vmap step's sum, or None where it cannot be captured."""
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
        results.remarks.append(f"no CUDA graph of the vmap step on {arena.workload.name}: {str(error).splitlines()[0]}")
        return None
    return graph.replay
