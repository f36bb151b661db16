"""The engine benchmark: its clockwork, and that everything that is timed computes the same; no time is asserted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from benchmarks.engine.agreement import TOLERANCE, differences
from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.choices import other_ways
from benchmarks.engine.contenders import PrivateContender
from benchmarks.engine.steps import measure_workload
from benchmarks.engine.workloads import STEP_BARS, WORKLOADS, Course, Workload
from benchmarks.harness import Results, judge

LOGISTIC, MLP, _, CNN = WORKLOADS[:4]
TINY = Course(quick=False, batch=6, rounds=3, seconds=0.0, records=48, workloads=(LOGISTIC, CNN))


def hooks_warn(test: Callable[..., None]) -> Callable[..., None]:
    """Opacus sets hooks on a first layer, whose input needs no gradient, and writes gradients channels-first."""
    for message in ("Full backward hook is firing", "grad and param do not obey"):
        test = pytest.mark.filterwarnings(f"ignore:{message}")(test)
    return test


@hooks_warn
@pytest.mark.parametrize("workload", [LOGISTIC, MLP, CNN], ids=lambda workload: workload.name)
def test_every_private_contender_computes_what_we_compute(workload: Workload) -> None:
    rivals = ["hooks", "ghost", "vmap", "naive", "hooks_passes"]
    found = differences(Arena.of(workload, TINY), rivals, batch=5)
    assert list(found) == rivals
    assert max(found.values()) <= TOLERANCE


@hooks_warn
def test_a_contender_that_clips_otherwise_is_found_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Arena.rival

    def dishonest(arena: Arena, name: str, smoothing: dict[str, object] = DPLIS) -> PrivateContender:
        clips_more = replace(arena, max_grad_norm=0.9 * arena.max_grad_norm) if name == "ghost" else arena
        return honest(clips_more, name, smoothing)

    monkeypatch.setattr(Arena, "rival", dishonest)
    results, course = Results(), replace(TINY, quick=True)
    measure_workload(Arena.of(LOGISTIC, course), course, results)
    bars = {name: bar for name, bar in STEP_BARS.items() if name.endswith(LOGISTIC.name)}
    assert judge(results, bars).left_out == (f"ghost_over_step.{LOGISTIC.name}",)
    assert set(bars) - set(results.figures) == {f"ghost_over_step.{LOGISTIC.name}"}


@pytest.mark.parametrize("workload", [MLP, CNN], ids=lambda workload: workload.name)
@pytest.mark.parametrize("smoothed", [False, True], ids=["plain", "smoothed"])
def test_the_other_ways_are_other_ways_to_the_same_sum(workload: Workload, *, smoothed: bool) -> None:
    arena = replace(Arena.of(workload, TINY), noise_multiplier=1e-8)
    batch = arena.gathered(5)

    def gradient() -> torch.Tensor:
        return (arena.ours("dplis", DPLIS) if smoothed else arena.ours()).private_gradient(*batch)

    chosen = gradient()
    ours = arena.ours("dplis", DPLIS) if smoothed else arena.ours()
    ways = other_ways(ours, *batch, points=10 if smoothed else 1)
    # One point of a stack of linear layers leaves no choice.
    assert bool(ways) == (workload is CNN or smoothed)
    for way in ways.values():
        with way():
            assert float((gradient() - chosen).norm()) <= TOLERANCE * float(chosen.norm())
