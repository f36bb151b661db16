"""Does the engine choose right? Its choices by shape against the other way, one at a time, on the whole clipped sum.

Of each layer: factors and Gram matrices, or per-sample gradients written out. Of stacks of linear layers under DPLIS:
how many perturbed points share a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine_arena import DPLIS
from benchmarks.engine_bars import Workload
from benchmarks.engine_sections import Results, Settings
from trainables.engine.bookkeeping import BookkeepingSource, LayerGroup
from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Call, Collector, Decay, LayerGradients, Work
from trainables.engine.layers.outer import Factored, Geometry, WrittenOut
from trainables.engine.linear import LinearStackSource
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleSource

__all__ = ["measure_choices", "other_ways"]

# A choice is wrong when the other way would be so much faster; less is noise.
_WRONG = 0.93
# Gram matrices of all positions of a batch may take this much, in bytes, or the other way is not tried.
_MOST_BYTES = 2**30
# Batch of this section: large enough for the ratio, small enough for the ways that nobody would choose.
_BATCH = 64


def measure_choices(workload: Workload, settings: Settings, results: Results) -> None:
    """For each choice, the time of the other way over that of the chosen one; below 1 the other way is faster."""
    arena = settings.arena(workload, batch=min(_BATCH, settings.batch))
    inputs, targets = arena.gathered(arena.batch)
    for smoothed in (False, True):
        ours = arena.ours("dplis", DPLIS) if smoothed else arena.ours()
        points = ours.points(torch.Generator().manual_seed(settings.seed))
        ways = other_ways(ours.source, points, inputs, targets)
        contenders = {
            name: partial(ours.clipped_sum, inputs, targets, points=points, source=source)
            for name, source in {"chosen": ours.source, **ways}.items()
        }
        timed = results.race(contenders, settings, what=f"the choices on {workload.name}") if ways else None
        if timed is None:
            continue
        for name in ways:
            figure = timed.ratio(name, "chosen")
            results.figures[f"other_way.{workload.name}.k{len(points)}.{name}"] = figure
            if not figure.median >= _WRONG:
                results.remarks.append(f"on {workload.name}, K = {len(points)}, {name} would be faster than the choice")


def other_ways(source: PerSampleSource, points: Points, inputs: Tensor, targets: Tensor) -> dict[str, PerSampleSource]:
    """The source with one choice at a time made otherwise, by what it does then; all compute the same sums."""
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
        # With one position there is nothing to choose: the norm of an outer product is the product of the norms.
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
    """Makes the usual collector of a layer and notes what it decides.

    Attributes:
        geometry: None for a layer that has nothing to choose.
        factored: whether it kept factors.
        positions: of one sample, over all points whose factors are kept apart.
    """

    def __init__(self, group: LayerGroup) -> None:
        self._group = group
        self._collector: Any = None
        self.geometry: Geometry | None = None
        self.factored = False
        self.positions = 0

    def make(self, layer: nn.Module, work: Work) -> Collector:
        """Stands in the place of the collector."""
        self._collector, self._samples, self.positions = self._group.make(layer, work), work.samples, 0
        return self

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Counts positions."""
        weight = parameters.get("weight")
        if weight is not None:
            for call in calls:
                here = call.deltas.numel() // (self._samples * len(weight))
                # An input that is the same at all points has one position for all of them.
                self.positions = max(self.positions, here) if call.fixed else self.positions + here
        self._collector.add(calls, parameters)

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Looks at what came out."""
        gradients: LayerGradients = self._collector.finish(decay)
        if isinstance(self._collector, OuterCollector) and isinstance(gradients, Factored | WrittenOut):
            self.geometry, self.factored = gradients.geometry, isinstance(gradients, Factored)
        return gradients

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """As the collector says."""
        return int(self._collector.numbers(calls, parameters))
