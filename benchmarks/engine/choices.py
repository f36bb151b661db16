"""The engine's choices by shape against the other way, one at a time, on a whole step.

For each shape of a layer: factors and Gram matrices, or explicit per-sample gradients. For stacks of linear layers
under DPLIS: the number of perturbed points that share a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from unittest.mock import patch

from torch import Tensor

from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.contenders import Ours
from benchmarks.engine.race import Contender
from benchmarks.engine.workloads import Course
from benchmarks.harness import Results, Settings
from trainables.engine.layers import collecting
from trainables.engine.layers.outer import prefer_factors
from trainables.engine.linear import LinearStackSource

Way = Callable[[], AbstractContextManager[object]]
"""Returns a context in which the engine makes one choice the other way."""

# A choice is wrong when the other way takes less than this share of its time; a smaller difference is noise.
_WRONG = 0.93
# The other way is not tried if the Gram matrices of all positions of a batch take more bytes than this.
_MOST_BYTES = 2**30
# Large enough for the ratio, and small enough for bad choices.
_BATCH = 64


def measure(settings: Settings, results: Results) -> None:
    """Measure the choices on every workload, in a plain step and in a DPLIS step."""
    course = Course.of(settings)
    for workload in course.workloads:
        arena = Arena.of(workload, course, batch=min(_BATCH, course.batch))
        for points, ours in ((1, arena.ours()), (10, arena.ours("dplis", DPLIS))):
            measure_choices(arena, ours, course, results, points=points)


def measure_choices(arena: Arena, ours: Ours, course: Course, results: Results, *, points: int) -> None:
    """Measure the time of the other way over the time of each choice; below 1 the other way is faster."""
    ways = other_ways(ours, *arena.gathered(arena.batch), points=points)
    if not ways:
        return
    take = partial(ours.take, arena.inputs, arena.targets)
    contenders: dict[str, Contender] = {"chosen": take}
    contenders |= {name: partial(_within, way, take) for name, way in ways.items()}
    timed = course.race(contenders, results, f"other_way.{arena.workload.name}.*")
    if timed is None:
        return
    for name in ways:
        figure = timed.ratio(name, "chosen")
        results.figures[f"other_way.{arena.workload.name}.k{points}.{name}"] = figure
        if not figure.value >= _WRONG:
            results.remarks.append(f"on {arena.workload.name}, K = {points}, {name} would be faster than the choice")


def other_ways(ours: Ours, inputs: Tensor, targets: Tensor, *, points: int) -> dict[str, Way]:
    """Return contexts in which one choice is reversed, by name; the step computes the same sum in all of them.

    Args:
        ours: the step.
        inputs: a batch, on which the choices are looked up, shape (B, *input_shape).
        targets: labels, shape (B,).
        points: number of points of the step.
    """
    asked: dict[tuple[int, ...], bool] = {}

    def noted(*shape: int) -> bool:
        asked[shape] = prefer_factors(*shape)
        return asked[shape]

    with patch.object(collecting, "prefer_factors", noted):
        ours.private_gradient(inputs, targets)
    ways: dict[str, Way] = {}
    for shape, factored in asked.items():
        positions, width, outputs = shape
        # With one position there is no choice: the norm of an outer product is the product of the norms.
        if positions > 1 and (factored or 8 * len(targets) * positions**2 <= _MOST_BYTES):
            name = f"{width} to {outputs} at {positions} positions {'explicit' if factored else 'in factors'}"
            ways[name] = partial(patch.object, collecting, "prefer_factors", partial(_flipped, shape))
    if isinstance(ours.source, LinearStackSource) and points > 1:
        chosen = min(ours.source.stack_bytes // (ours.theta.numel() * ours.theta.element_size()), points)
        for at_once in {1, points} - {max(chosen, 1)}:
            name = f"{at_once} points a pass"
            ways[name] = partial(patch.object, LinearStackSource, "points_at_once", lambda *_, n=at_once: n)
    return ways


def _flipped(shape: tuple[int, ...], *asked: int) -> bool:
    """Return the engine's choice for a shape, or the opposite for the one that is flipped."""
    return prefer_factors(*asked) != (asked == shape)


def _within(way: Way, take: Contender) -> object:
    with way():
        return take()
