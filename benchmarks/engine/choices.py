"""The engine's choices by shape against the other way, one at a time, on the whole clipped sum.

For each layer: factors and Gram matrices, or materialised per-sample gradients. For stacks of linear layers under
DPLIS: the number of perturbed points that share a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.workloads import Course
from benchmarks.harness import Results, Settings
from trainables.engine.bookkeeping import BookkeepingSource, LayerGroup
from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Call, Collector, Decay, LayerGradients, Work
from trainables.engine.layers.outer import Factored, Geometry, WrittenOut
from trainables.engine.linear import LinearStackSource
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleSource

# A choice is wrong when the other way takes less than this share of its time; a smaller difference is noise.
_WRONG = 0.93
# The other way is not tried where Gram matrices of all positions of a batch take more bytes than this.
_MOST_BYTES = 2**30
# Large enough for the ratio, and small enough for bad choices.
_BATCH = 64


def measure(settings: Settings, results: Results) -> None:
    """Measure the choices on every workload."""
    course = Course.of(settings)
    for workload in course.workloads:
        measure_choices(Arena.of(workload, course, batch=min(_BATCH, course.batch)), course, results)


def measure_choices(arena: Arena, course: Course, results: Results) -> None:
    """Measure the time of the other way over that of each choice; below 1 the other way is faster."""
    name = arena.workload.name
    inputs, targets = arena.gathered(arena.batch)
    for smoothed in (False, True):
        ours = arena.ours("dplis", DPLIS) if smoothed else arena.ours()
        points = ours.points(torch.Generator().manual_seed(course.seed))
        ways = other_ways(ours.source, points, inputs, targets)
        contenders = {
            way: partial(ours.clipped_sum, inputs, targets, points=points, source=source)
            for way, source in {"chosen": ours.source, **ways}.items()
        }
        timed = course.race(contenders, results, f"other_way.{name}.*") if ways else None
        if timed is None:
            continue
        for way in ways:
            figure = timed.ratio(way, "chosen")
            results.figures[f"other_way.{name}.k{len(points)}.{way}"] = figure
            if not figure.value >= _WRONG:
                results.remarks.append(f"on {name}, K = {len(points)}, {way} would be faster than the choice")


def other_ways(source: PerSampleSource, points: Points, inputs: Tensor, targets: Tensor) -> dict[str, PerSampleSource]:
    """Return the source with one choice at a time reversed, by name; all of them compute the same sums."""
    if isinstance(source, LinearStackSource):
        count = len(points)
        widths = {"one point a pass": 1, "all points in one pass": count}
        of_a_point = points.centre.numel() * points.centre.element_size()
        chosen = source.points_at_once(points)
        return {
            name: replace(source, stack_bytes=width * of_a_point)
            for name, width in widths.items()
            if width != min(chosen, count)
        }
    if not isinstance(source, BookkeepingSource):
        return {}
    ways: dict[str, PerSampleSource] = {}
    for place, group in enumerate(source.layers):
        look = _Look(group)
        watched = (*source.layers[:place], replace(group, make=look.make), *source.layers[place + 1 :])
        list(replace(source, layers=watched).chunks(points, inputs[:1], targets[:1]))
        geometry = look.geometry
        # With one position there is no choice: the norm of an outer product is the product of the norms.
        if geometry is None or geometry.groups > 1 or look.positions == 1:
            continue
        if look.factored or 8 * len(targets) * look.positions**2 <= _MOST_BYTES:
            name = f"{group.names[geometry.weight]} {'written out' if look.factored else 'in factors'}"
            forced = replace(group, make=partial(_collector, geometry, factored=not look.factored))
            ways[name] = replace(source, layers=(*source.layers[:place], forced, *source.layers[place + 1 :]))
    return ways


def _collector(geometry: Geometry, _layer: nn.Module, work: Work, *, factored: bool) -> Collector:
    return OuterCollector(geometry, work, factored=factored)


class _Look:
    """The usual collector of a layer, with a note of its choice.

    Attributes:
        geometry: None for a layer without a choice.
        factored: whether it keeps factors.
        positions: of one sample, over all points whose factors are kept apart.
    """

    def __init__(self, group: LayerGroup) -> None:
        self._group = group
        self._collector: Any = None
        self.geometry: Geometry | None = None
        self.factored = False
        self.positions = 0

    def make(self, layer: nn.Module, work: Work) -> Collector:
        """Replace the collector."""
        self._collector, self._samples, self.positions = self._group.make(layer, work), work.samples, 0
        return self

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Count positions."""
        weight = parameters.get("weight")
        if weight is not None:
            for call in calls:
                here = call.deltas.numel() // (self._samples * len(weight))
                # An input that is equal at all points has one position for all of them.
                self.positions = max(self.positions, here) if call.fixed else self.positions + here
        self._collector.add(calls, parameters)

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Note the choice of the collector."""
        gradients: LayerGradients = self._collector.finish(decay)
        if isinstance(self._collector, OuterCollector) and isinstance(gradients, Factored | WrittenOut):
            self.geometry, self.factored = gradients.geometry, isinstance(gradients, Factored)
        return gradients

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Return the number of the collector."""
        return int(self._collector.numbers(calls, parameters))
