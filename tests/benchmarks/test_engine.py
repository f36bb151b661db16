"""The engine benchmark: its clockwork, and that everything that is timed computes the same; no time is asserted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks.engine.agreement import TOLERANCE, differences
from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.choices import other_ways
from benchmarks.engine.contenders import PrivateContender
from benchmarks.engine.race import Race, fit_line, race
from benchmarks.engine.steps import measure_workload
from benchmarks.engine.workloads import LINE_BARS, LINES, STEP_BARS, WORKLOADS, Course, Workload
from benchmarks.harness import Results, judge

LOGISTIC, MLP, _, CNN = WORKLOADS[:4]
TINY = Course(quick=False, batch=6, rounds=3, seconds=0.0, records=48, workloads=(LOGISTIC, CNN))


def hooks_warn(test: Callable[..., None]) -> Callable[..., None]:
    """Opacus sets hooks on a first layer, whose input needs no gradient, and writes gradients channels-first."""
    for message in ("Full backward hook is firing", "grad and param do not obey"):
        test = pytest.mark.filterwarnings(f"ignore:{message}")(test)
    return test


def test_one_point_far_from_the_line_is_not_linear_however_much_the_line_explains() -> None:
    straight, curved = fit_line([(x, 3 * x + 1) for x in range(1, 6)]), fit_line([(x, x**4) for x in range(1, 6)])
    assert (straight.slope, straight.intercept, straight.r_squared) == pytest.approx((3, 1, 1))
    assert curved.r_squared < 0.99
    line = fit_line([(1, 2.0), (2, 2.0), (5, 5.0), (10, 10.0), (20, 20.0)])
    results = Results()
    for what in ("r_squared", "deviation"):
        results.count(f"linear_in_k.{LINES[0]}.{what}", getattr(line, what))
    bars = {name: bar for name, bar in LINE_BARS.items() if name in results.figures}
    assert judge(results, bars).falls_short == (f"linear_in_k.{LINES[0]}.deviation",)
    with pytest.raises(ValueError, match="two different x"):
        fit_line([(2, 1.0), (2, 3.0)])


def test_a_ratio_is_taken_round_by_round() -> None:
    # Another process doubled every time of the second round; the ratio does not change.
    times = {"a": [2.0, 4.0, 2.0], "b": [1.0, 2.0, 1.0]}
    figure = Race(cpu=times, wall=times).ratio("a", "b", factor=10)
    assert (figure.lower, figure.value, figure.upper, figure.wall) == (20, 20, 20, 20)


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    timed = race({name: partial(calls.append, name) for name in "abc"}, rounds=4, seconds=60.0)
    turns = [name for place, name in enumerate(calls) if place == 0 or calls[place - 1] != name]
    assert "".join(turns) == "abc" * 5  # one round to warm up, then four
    assert {len(times) for times in timed.cpu.values()} == {4}
    assert len(race({"a": lambda: None}, rounds=50, seconds=0.0).wall["a"]) == 3, "fewer rounds have no quartiles"


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
