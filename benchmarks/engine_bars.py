"""What the private step must reach, as data: each bar by name, with its limit, and the judge of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from benchmarks.engine_measure import Figure

__all__ = ["BARS", "LINES", "WORKLOADS", "Bar", "Verdict", "Workload", "judge"]

Family = Literal["logistic", "mlp", "cnn"]
Direction = Literal["at most", "at least"]


@dataclass(frozen=True)
class Workload:
    """A model on records of a data set's shape.

    Attributes:
        name: of its figures.
        model: a key of trainables.models.MODELS.
        input_shape: of one record.
        records: as many as the data set has for training.
        family: which bars it has.
        hooks_limit: how many times faster than Opacus' hooks a step must be.
        quick: whether `--quick` measures it.
    """

    name: str
    model: str
    input_shape: tuple[int, ...]
    records: int
    family: Family
    hooks_limit: float
    quick: bool = True

    @property
    def wide(self) -> bool:
        """Whether per-sample gradients of a batch of 256 take gigabytes, so that they need a process of their own."""
        return self.model == "mlp_1536_128"

    @property
    def megabytes(self) -> float:
        """Of its records."""
        return 4e-6 * self.records * prod(self.input_shape)


@dataclass(frozen=True)
class Bar:
    """One thing that a run must show.

    Attributes:
        name: of the figure that is judged.
        limit: the bar.
        direction: on which side of the limit the figure must lie.
        quick: whether `--quick` measures it.
    """

    name: str
    limit: float
    direction: Direction
    quick: bool = True

    def holds(self, figure: Figure) -> bool:
        """Whether the median is on the right side; a NaN is on none."""
        return figure.median <= self.limit if self.direction == "at most" else figure.median >= self.limit


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run.

    Attributes:
        falls_short: names of the bars that were measured and do not hold.
        left_out: names of the bars that this run did not measure.
    """

    falls_short: tuple[str, ...]
    left_out: tuple[str, ...]


_MNIST: Final = ((1, 28, 28), 60_000)
_CIFAR10: Final = ((3, 32, 32), 50_000)

WORKLOADS: Final[tuple[Workload, ...]] = (
    Workload("logistic_mnist", "logistic_regression", *_MNIST, "logistic", 3.5),
    Workload("mlp_mnist", "mlp_512_128", *_MNIST, "mlp", 12.0),
    Workload("mlp_cifar10", "mlp_1536_128", *_CIFAR10, "mlp", 12.0),
    Workload("tutorial_cnn_mnist", "tutorial_cnn", *_MNIST, "cnn", 2.0),
    Workload("tutorial_cnn_cifar10", "tutorial_cnn", *_CIFAR10, "cnn", 2.0, quick=False),
    Workload("four_conv_cnn_cifar10", "four_conv_cnn", *_CIFAR10, "cnn", 1.5),
)

LINES: Final = ("mlp_mnist", "tutorial_cnn_mnist")
"""Names of the workloads whose cost is measured against K and against the batch."""

_STEP: Final[Mapping[Family, float]] = {"logistic": 1.45, "mlp": 1.45, "cnn": 1.75}
_DPLIS: Final[Mapping[Family, float]] = {"logistic": 0.6, "mlp": 1.1, "cnn": 1.25}
_DPLIS_HOOKS: Final[Mapping[Family, float]] = {"logistic": 20.0, "mlp": 15.0, "cnn": 2.5}
_SMOOTHING: Final[Mapping[Family, float]] = {"mlp": 0.10, "cnn": 0.03}


def _bars_of(workload: Workload) -> Iterable[Bar]:
    name, family, quick = workload.name, workload.family, workload.quick
    # Where the comparator takes gigabytes or several seconds a step, only the full run has it.
    slow_passes = workload.wide or workload.model == "four_conv_cnn"
    yield Bar(f"step_over_non_private.{name}", _STEP[family], "at most", quick)
    yield Bar(f"hooks_over_step.{name}", workload.hooks_limit, "at least", quick and not workload.wide)
    yield Bar(f"ghost_over_step.{name}", 1.4, "at least", quick)
    yield Bar(f"dplis_over_ten_non_private.{name}", _DPLIS[family], "at most", quick)
    yield Bar(f"hooks_passes_over_dplis.{name}", _DPLIS_HOOKS[family], "at least", quick and not slow_passes)
    yield Bar(f"weight_decay_over_step.{name}", 1.15, "at most", quick)
    if family in _SMOOTHING:
        for scope in ("layer", "model"):
            yield Bar(f"laplacian_{scope}_share.{name}", _SMOOTHING[family], "at most", quick)


BARS: Final[tuple[Bar, ...]] = (
    *(bar for workload in WORKLOADS for bar in _bars_of(workload)),
    Bar("secure_noise_over_torch.float32", 2.0, "at most"),
    Bar("secure_noise_over_torch.float64", 2.0, "at most"),
    Bar("draw_and_gather_ms.mnist", 0.4, "at most"),
    Bar("draw_and_gather_ms.cifar10", 0.4, "at most"),
    Bar("memory_mb.step", 150.0, "at most"),
    Bar("memory_mb.dplis", 150.0, "at most"),
    # Linear: the line explains nearly all, and no point is far from it; the second limit is our own choice.
    *(
        bar
        for what in ("k", "batch")
        for name in LINES
        for bar in (
            Bar(f"linear_in_{what}.{name}.r_squared", 0.99, "at least", quick=False),
            Bar(f"linear_in_{what}.{name}.deviation", 0.15, "at most", quick=False),
        )
    ),
)


def judge(figures: Mapping[str, Figure], bars: Sequence[Bar] = BARS) -> Verdict:
    """Which bars do not hold, and which have no figure."""
    return Verdict(
        falls_short=tuple(bar.name for bar in bars if bar.name in figures and not bar.holds(figures[bar.name])),
        left_out=tuple(bar.name for bar in bars if bar.name not in figures),
    )
