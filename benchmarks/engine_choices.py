"""Does the engine choose right? Its choices by shape against the other way, one at a time, on the whole clipped sum.

Of each layer: factors and Gram matrices, or per-sample gradients written out. Of stacks of linear layers under DPLIS:
how many perturbed points share a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine_arena import DPLIS, Arena
from benchmarks.engine_bars import Workload
from benchmarks.engine_contenders import LEARNING_RATE
from benchmarks.engine_sections import Results, Settings
from trainables.engine.bookkeeping import BookkeepingSource, LayerGroup
from trainables.engine.clip import clipped_sum
from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Call, Collector, Decay, LayerGradients, Work
from trainables.engine.layers.outer import Factored, WrittenOut
from trainables.engine.linear import LinearStackSource
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleSource
from trainables.engine.sums import LARGE

__all__ = ["measure_choices"]

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
        noise_scale = LEARNING_RATE * arena.mechanism.noise_scale / arena.batch
        public = torch.Generator().manual_seed(settings.seed)
        points = ours.stages.objective.points(ours.theta, noise_scale=noise_scale, public=public)
        ways = _other_ways(ours.source, points, inputs, targets)
        task = _Task(points, inputs, targets, arena)
        contenders = {name: task.of(source) for name, source in {"chosen": ours.source, **ways}.items()}
        timed = results.race(contenders, settings, what=f"the choices on {workload.name}") if ways else None
        if timed is None:
            continue
        for name in ways:
            figure = timed.ratio(name, "chosen")
            results.figures[f"other_way.{workload.name}.k{len(points)}.{name}"] = figure
            if not figure.median >= _WRONG:
                results.remarks.append(f"on {workload.name}, K = {len(points)}, {name} would be faster than the choice")


@dataclass(frozen=True)
class _Task:
    """The clipped sum of one batch."""

    points: Points
    inputs: Tensor
    targets: Tensor
    arena: Arena

    def of(self, source: PerSampleSource) -> Callable[[], Tensor]:
        """A call that takes the sum from `source`."""
        return lambda: clipped_sum(
            source.chunks(self.points, self.inputs, self.targets),
            self.arena.max_grad_norm,
            like=self.points.centre,
            clipping="flat",
            block=LARGE.rows(len(self.targets)),
            samples=len(self.targets),
        )


def _other_ways(source: PerSampleSource, points: Points, inputs: Tensor, targets: Tensor) -> dict[str, PerSampleSource]:
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
        # With one position there is nothing to choose: the norm of an outer product is the product of the norms.
        if look.chose_factors or (look.chose_factors is False and 8 * len(targets) * look.positions**2 <= _MOST_BYTES):
            if look.positions == 1:
                continue
            name = f"{group.names['weight']} {'written out' if look.chose_factors else 'in factors'}"
            forced = replace(group, make=partial(_forced, group, factored=not look.chose_factors))
            ways[name] = replace(source, layers=(*source.layers[:place], forced, *source.layers[place + 1 :]))
    return ways


class _Look:
    """Makes the usual collector of a layer and notes what it decides.

    Attributes:
        chose_factors: None for a layer that has nothing to choose.
        positions: of one sample, over all points whose factors are kept apart.
    """

    def __init__(self, group: LayerGroup) -> None:
        self._group = group
        self._collector: Any = None
        self.chose_factors: bool | None = None
        self.positions = 0

    def make(self, layer: nn.Module, work: Work) -> Collector:
        """Stands in the place of the collector."""
        self._collector, self._samples, self.positions = self._group.make(layer, work), work.samples, 0
        self._one_point = work.points == 1
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
            self.chose_factors = isinstance(gradients, Factored)
        return gradients

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """As the collector says."""
        return int(self._collector.numbers(calls, parameters))


def _forced(group: LayerGroup, layer: nn.Module, work: Work, *, factored: bool) -> Collector:
    collector = group.make(layer, work)
    assert isinstance(collector, OuterCollector)
    collector._factored = factored  # no caller but this one has a reason to overrule the shapes
    return collector
