"""The workloads of the engine benchmark and the bars of their figures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from benchmarks.engine.race import Contender, Race, one_thread, race
from benchmarks.harness import Bar, Results, Settings, at_least, at_most
from trainables.memory import keep_freed_memory

Family = Literal["logistic", "mlp", "cnn"]


@dataclass(frozen=True)
class Workload:
    """A model on records of a data set's shape."""

    name: str
    model: str  # a key of trainables.models.MODELS
    input_shape: tuple[int, ...]
    records: int  # the number of training records of the data set
    family: Family  # decides the bars
    hooks_limit: float  # lower limit for the time of Opacus' hooks over the time of our step
    quick: bool = True  # whether `--quick` measures the workload

    @property
    def wide(self) -> bool:
        """Whether the per-sample gradients of a batch of 256 take gigabytes; no rival that writes them is timed."""
        return self.model == "mlp_1536_128"


_MNIST = ((1, 28, 28), 60_000)
_CIFAR10 = ((3, 32, 32), 50_000)

WORKLOADS: tuple[Workload, ...] = (
    Workload("logistic_mnist", "logistic_regression", *_MNIST, "logistic", 3.5),
    Workload("mlp_mnist", "mlp_512_128", *_MNIST, "mlp", 12.0),
    Workload("mlp_cifar10", "mlp_1536_128", *_CIFAR10, "mlp", 12.0),
    Workload("tutorial_cnn_mnist", "tutorial_cnn", *_MNIST, "cnn", 2.0),
    Workload("tutorial_cnn_cifar10", "tutorial_cnn", *_CIFAR10, "cnn", 2.0, quick=False),
    Workload("four_conv_cnn_cifar10", "four_conv_cnn", *_CIFAR10, "cnn", 1.5),
)
WIDE = next(workload for workload in WORKLOADS if workload.wide)

LINES = ("mlp_mnist", "tutorial_cnn_mnist")
"""Names of the workloads whose cost is measured against K and against the batch."""

_STEP: Mapping[Family, float] = {"logistic": 1.45, "mlp": 1.45, "cnn": 1.75}
_DPLIS: Mapping[Family, float] = {"logistic": 0.6, "mlp": 1.1, "cnn": 1.25}
_DPLIS_HOOKS: Mapping[Family, float] = {"logistic": 20.0, "mlp": 15.0, "cnn": 2.5}
_SMOOTHING: Mapping[Family, float] = {"mlp": 0.10, "cnn": 0.03}


def _bars_of(workload: Workload) -> Iterable[tuple[str, Bar]]:
    name, family, quick = workload.name, workload.family, workload.quick
    yield f"step_over_non_private.{name}", at_most(_STEP[family], quick=quick)
    yield f"ghost_over_step.{name}", at_least(1.4, quick=quick)
    yield f"dplis_over_ten_non_private.{name}", at_most(_DPLIS[family], quick=quick)
    if not workload.wide:
        # K passes of the four convolutions take several seconds, so only the full run measures them.
        passes = quick and workload.model != "four_conv_cnn"
        yield f"hooks_over_step.{name}", at_least(workload.hooks_limit, quick=quick)
        yield f"hooks_passes_over_dplis.{name}", at_least(_DPLIS_HOOKS[family], quick=passes)
    yield f"weight_decay_over_step.{name}", at_most(1.15, quick=quick)
    if family in _SMOOTHING:
        for scope in ("layer", "model"):
            yield f"laplacian_{scope}_share.{name}", at_most(_SMOOTHING[family], quick=quick)


STEP_BARS = dict(bar for workload in WORKLOADS for bar in _bars_of(workload))
PART_BARS = {
    "secure_noise_over_torch.float32": at_most(2.0),
    "secure_noise_over_torch.float64": at_most(2.0),
    "draw_and_gather_ms.mnist": at_most(0.4),
    "draw_and_gather_ms.cifar10": at_most(0.4),
}
MEMORY_BARS = {"memory_mb.step": at_most(150.0), "memory_mb.dplis": at_most(150.0)}
LINE_BARS = {
    # The line explains nearly everything, and no point is far from it. The second limit is our own choice.
    f"linear_in_{what}.{name}.{judged}": bar
    for what in ("k", "batch")
    for name in LINES
    for judged, bar in (("r_squared", at_least(0.99)), ("deviation", at_most(0.15)))
}


@dataclass(frozen=True, kw_only=True)
class Course:
    """The extent of a run: workloads, sizes, rounds and the time limit."""

    quick: bool
    device: str = "cpu"
    seed: int = 0
    batch: int = 256  # expected size
    rounds: int = 15  # of a race, at most
    seconds: float = 40.0  # of a race, about
    records: int | None = None  # number of records in place of the workload's own
    workloads: tuple[Workload, ...] = WORKLOADS
    deadline: float = float("inf")  # value of `time.perf_counter` after which no race starts

    @classmethod
    def of(cls, settings: Settings) -> Course:
        """Return the course that the options ask for, and prepare this process for it."""
        _prepare_process()
        rounds, seconds = (7, 5.0) if settings.quick else (15, 40.0)
        chosen = tuple(workload for workload in WORKLOADS if workload.quick or not settings.quick)
        return cls(
            quick=settings.quick,
            device=settings.own.device,
            seed=settings.seed,
            rounds=rounds,
            seconds=seconds,
            workloads=chosen,
            deadline=settings.deadline,
        )

    def race(self, contenders: Mapping[str, Contender], results: Results, pattern: str) -> Race | None:
        """Race the contenders; when no time is left, leave out the bars of the pattern and return None."""
        if time.perf_counter() > self.deadline:
            results.leave_out(pattern, "no time was left")
            return None
        return race(contenders, rounds=self.rounds, seconds=self.seconds, device=self.device)


@cache
def _prepare_process() -> None:
    one_thread()
    keep_freed_memory()  # for every contender, as the trials do
