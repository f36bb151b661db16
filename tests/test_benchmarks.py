"""The engine benchmark's machinery: its bars, its judge, its clockwork and its checks; no timing is asserted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import isnan, nan
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import engine
from benchmarks.engine_agreement import TOLERANCE, differences
from benchmarks.engine_arena import DPLIS, Arena
from benchmarks.engine_bars import BARS, LINES, WORKLOADS, Bar, Workload, judge
from benchmarks.engine_choices import measure_choices, other_ways
from benchmarks.engine_contenders import PrivateContender, VmapStep
from benchmarks.engine_gpu import compare_with_ours, vectorised_trials
from benchmarks.engine_measure import Figure, Line, Race, figure_of, fit_line, race
from benchmarks.engine_parts import measure_draws, measure_lines, measure_noise, measure_smoothing
from benchmarks.engine_report import as_json, as_svg, as_text
from benchmarks.engine_sections import Results, Settings, measure_workload
from trainables.engine.sums import LARGE, SMALL

LOGISTIC, MLP, _, CNN = WORKLOADS[:4]
TINY = Settings(quick=False, batch=6, rounds=3, seconds=0.0, records=48, workloads=(LOGISTIC, CNN))


def hooks_warn(test: Callable[..., None]) -> Callable[..., None]:
    """Opacus sets hooks on a first layer, whose input needs no gradient, and writes gradients channels-first."""
    for message in ("Full backward hook is firing", "grad and param do not obey"):
        test = pytest.mark.filterwarnings(f"ignore:{message}")(test)
    return test


# What must be shown, as it was asked for: prefix -> limit by model.
ASKED = {
    "step_over_non_private": {"logistic": 1.45, "mlp": 1.45, "tutorial_cnn": 1.75, "four_conv": 1.75},
    "hooks_over_step": {"logistic": 3.5, "mlp": 12, "tutorial_cnn": 2, "four_conv": 1.5},
    "ghost_over_step": {"logistic": 1.4, "mlp": 1.4, "tutorial_cnn": 1.4, "four_conv": 1.4},
    "dplis_over_ten_non_private": {"logistic": 0.6, "mlp": 1.1, "tutorial_cnn": 1.25, "four_conv": 1.25},
    "hooks_passes_over_dplis": {"logistic": 20, "mlp": 15, "tutorial_cnn": 2.5, "four_conv": 2.5},
    "weight_decay_over_step": {"logistic": 1.15, "mlp": 1.15, "tutorial_cnn": 1.15, "four_conv": 1.15},
    "laplacian_layer_share": {"mlp": 0.1, "tutorial_cnn": 0.03, "four_conv": 0.03},
    "laplacian_model_share": {"mlp": 0.1, "tutorial_cnn": 0.03, "four_conv": 0.03},
}
OTHERS = {
    "secure_noise_over_torch.float32": 2,
    "secure_noise_over_torch.float64": 2,
    "draw_and_gather_ms.mnist": 0.4,
    "draw_and_gather_ms.cifar10": 0.4,
    "memory_mb.step": 150,
    "memory_mb.dplis": 150,
}


def test_every_bar_that_was_asked_for_is_there_and_no_other() -> None:
    asked = {
        f"{prefix}.{workload.name}": limit
        for prefix, limits in ASKED.items()
        for workload in WORKLOADS
        for model, limit in limits.items()
        if workload.name.startswith(model)
    }
    linear = {bar.name for bar in BARS if bar.name.startswith("linear_in_")}
    assert {bar.name: bar.limit for bar in BARS if bar.name not in linear} == asked | OTHERS
    lines = [f"linear_in_{what}.{name}" for what in ("k", "batch") for name in LINES]
    assert linear == {f"{line}.{judged}" for line in lines for judged in ("r_squared", "deviation")}
    assert len({bar.name for bar in BARS}) == len(BARS)


def test_more_is_better_exactly_where_others_are_compared_with_us() -> None:
    for bar in BARS:
        at_least = bar.name.startswith(("hooks_", "ghost_")) or bar.name.endswith(".r_squared")
        assert bar.direction == ("at least" if at_least else "at most"), bar.name


def _at_the_limits() -> dict[str, Figure]:
    return {bar.name: Figure(bar.limit) for bar in BARS}


def test_nothing_falls_short_when_every_figure_stands_at_its_limit() -> None:
    verdict = judge(_at_the_limits())
    assert verdict.falls_short == ()
    assert verdict.left_out == ()


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.name)
def test_one_figure_on_the_wrong_side_is_named_and_no_other(bar: Bar) -> None:
    factor = 1.01 if bar.direction == "at most" else 0.99
    assert judge(_at_the_limits() | {bar.name: Figure(factor * bar.limit)}).falls_short == (bar.name,)
    assert judge(_at_the_limits() | {bar.name: Figure(nan)}).falls_short == (bar.name,)


def test_a_bar_without_a_figure_is_left_out_and_does_not_fall_short() -> None:
    figures = _at_the_limits()
    del figures[BARS[3].name]
    verdict = judge(figures)
    assert verdict.left_out == (BARS[3].name,)
    assert verdict.falls_short == ()


@given(
    slope=st.floats(-100, 100),
    intercept=st.floats(1000, 2000),
    xs=st.lists(st.integers(-5, 5), min_size=2, max_size=9, unique=True),
)
def test_points_on_a_line_give_that_line(slope: float, intercept: float, xs: list[int]) -> None:
    line = fit_line([(x, slope * x + intercept) for x in xs])
    assert line.slope == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert line.intercept == pytest.approx(intercept, rel=1e-6)
    assert line.deviation <= 1e-9


def test_a_curve_is_not_taken_for_a_line() -> None:
    straight, curved = fit_line([(x, 3 * x + 1) for x in range(1, 6)]), fit_line([(x, x**4) for x in range(1, 6)])
    assert straight.r_squared == pytest.approx(1.0)
    assert curved.r_squared < 0.99
    assert curved.deviation > 0.5


def test_one_point_far_from_the_line_is_not_linear_however_much_the_line_explains() -> None:
    line = fit_line([(1, 2.0), (2, 2.0), (5, 5.0), (10, 10.0), (20, 20.0)])
    found = {f"linear_in_k.{LINES[0]}.{what}": Figure(getattr(line, what)) for what in ("r_squared", "deviation")}
    assert judge(found).falls_short == (f"linear_in_k.{LINES[0]}.deviation",)


def test_a_line_needs_two_different_places() -> None:
    with pytest.raises(ValueError, match="two different x"):
        fit_line([(2, 1.0), (2, 3.0)])


def test_a_figure_is_a_median_with_quartiles_and_a_nan_makes_it_nan() -> None:
    figure = figure_of([5.0, 1.0, 2.0, 4.0, 3.0], unit="ms")
    assert (figure.lower, figure.median, figure.upper) == (2.0, 3.0, 4.0)
    assert isnan(figure_of([7.0], unit="ms").lower)
    assert isnan(figure_of([1.0, nan], unit="ms").median)
    assert isnan(figure_of([], unit="ms").median)


def test_a_ratio_is_taken_round_by_round() -> None:
    # A neighbour doubled everything in the second round: the ratio does not see it.
    times = {"a": [2.0, 4.0, 2.0], "b": [1.0, 2.0, 1.0]}
    figure = Race(cpu=times, wall=times).ratio("a", "b", factor=10)
    assert (figure.lower, figure.median, figure.upper, figure.wall) == (20, 20, 20, 20)


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    timed = race({name: partial(calls.append, name) for name in "abc"}, rounds=4, seconds=60.0)
    turns = [name for place, name in enumerate(calls) if place == 0 or calls[place - 1] != name]
    assert "".join(turns) == "abc" * 5  # one round of warming up, then four
    assert {name: len(times) for name, times in timed.cpu.items()} == {"a": 4, "b": 4, "c": 4}


def test_a_race_out_of_time_still_has_quartiles() -> None:
    timed = race({"a": lambda: None}, rounds=50, seconds=0.0)
    assert len(timed.wall["a"]) == 3


@hooks_warn
@pytest.mark.parametrize("workload", [LOGISTIC, MLP, CNN], ids=lambda workload: workload.name)
def test_every_private_contender_computes_what_we_compute(workload: Workload) -> None:
    arena = TINY.arena(workload)
    rivals = ["hooks", "functorch", "ew", "ghost", "vmap", "naive", "naive_passes", "hooks_passes"]
    found = differences(arena, rivals, batch=5)
    assert list(found) == rivals
    assert max(found.values()) <= TOLERANCE


@hooks_warn
def test_passes_in_micro_batches_are_the_same() -> None:
    arena = replace(TINY.arena(LOGISTIC), passes_at_once=2)
    assert max(differences(arena, ["hooks_passes"], batch=5).values()) <= TOLERANCE


@hooks_warn
def test_a_contender_that_clips_otherwise_is_found_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Arena.rival

    def dishonest(arena: Arena, name: str, parameters: dict[str, object] | None = None) -> PrivateContender:
        clips_more = replace(arena, max_grad_norm=0.9 * arena.max_grad_norm) if name == "ghost" else arena
        return honest(clips_more, name, parameters)

    monkeypatch.setattr(Arena, "rival", dishonest)
    results = Results()
    measure_workload(LOGISTIC, replace(TINY, quick=True), results)
    assert f"ghost_over_step.{LOGISTIC.name}" not in results.figures
    assert f"hooks_over_step.{LOGISTIC.name}" in results.figures
    assert any("ghost disagrees" in remark for remark in results.remarks)


@hooks_warn
def test_hooks_passes_are_not_k_times_as_many_samples() -> None:
    # What Opacus does when its own gradients accumulate, and why the passes are written by hand.
    arena = TINY.arena(LOGISTIC)
    apart = replace(arena, noise_multiplier=1e-8, max_grad_norm=1e-3)
    inputs, targets = apart.gathered(5)
    smoothing: dict[str, object] = {"smoothing_radius": 0.0, "smoothing_samples": 3, "smoothing_reduction": "sum"}
    summed = apart.rival("hooks_passes", smoothing).private_gradient(inputs, targets)
    tripled = 3 * apart.rival("hooks").private_gradient(inputs, targets)
    assert float((summed - tripled).norm()) > 0.5 * float(summed.norm())


@pytest.mark.slow
@hooks_warn
def test_a_quick_run_measures_the_bars_it_promises_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[str] = []
    monkeypatch.setattr(engine, "measure_alone", lambda what, _settings, _results: alone.append(what))
    results = engine.measure(replace(TINY, quick=True))
    verdict = judge(results.figures)
    assert alone == ["memory_step", "memory_dplis"]
    ours = tuple(f".{workload.name}" for workload in TINY.workloads)
    promised = {bar.name for bar in BARS if bar.quick and bar.name.endswith((*ours, ".float32", ".float64", ".mnist"))}
    assert promised <= set(results.figures)
    assert promised.isdisjoint(verdict.left_out)
    assert {bar.name for bar in BARS if not bar.quick} <= set(verdict.left_out)
    assert all(name in as_text(results, verdict, {}) for name in verdict.left_out)


@pytest.mark.slow
@hooks_warn
def test_a_full_run_adds_the_other_rivals_the_lines_and_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "measure_alone", lambda *_: None)
    results = engine.measure(replace(TINY, records=160))
    for rival in ("functorch", "ew", "vmap", "naive"):
        assert f"{rival}_over_step.{CNN.name}" in results.figures
    assert f"naive_passes_over_dplis.{LOGISTIC.name}" in results.figures
    assert {f"k.{CNN.name}", f"batch.{CNN.name}"} <= set(results.lines)
    assert any(name.startswith(f"other_way.{CNN.name}.k10.") for name in results.figures)
    assert any("not measured" in remark for remark in results.remarks)  # the GPU


def test_many_trials_at_once_are_each_what_they_are_alone() -> None:
    arena = TINY.arena(CNN)
    inputs, targets = arena.gathered(5)
    step = arena.rival("vmap")
    assert isinstance(step, VmapStep)
    alone = step.clipped_sum(inputs, targets)
    together = vectorised_trials(arena, inputs, targets, trials=3)()
    assert together.shape == (3, len(alone))
    torch.testing.assert_close(together, alone.expand(3, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [6, 600], ids=["float32 blocks", "float64"])
def test_our_clipped_sum_is_that_of_the_vmap_step_which_it_races(batch: int) -> None:
    arena = replace(TINY, records=600).arena(CNN, batch=batch)
    inputs, targets = arena.gathered(5)
    ours, step = arena.ours(), arena.rival("vmap")
    assert isinstance(step, VmapStep)
    found = ours.clipped_sum(inputs, targets, points=ours.points(torch.Generator()))
    assert found.dtype == (torch.float32 if batch == 6 else torch.float64)
    torch.testing.assert_close(found.float(), step.clipped_sum(inputs, targets), rtol=1e-4, atol=1e-5)


def test_what_a_gpu_would_gain_is_told_against_our_own_sum() -> None:
    arena, results = TINY.arena(LOGISTIC), Results()
    waits = partial(time.sleep, 0.001)
    compare_with_ours(arena, *arena.gathered(5), TINY, results, replay=waits)
    gains = {f"vmap_step_{way}_gain{over}" for way in ("trials", "graph") for over in ("", "_over_itself")}
    assert set(results.figures) == {f"{name}.{LOGISTIC.name}" for name in {"vmap_step_over_ours", *gains}}
    without = Results()
    compare_with_ours(arena, *arena.gathered(5), TINY, without, replay=None)
    assert not any("graph" in name for name in without.figures)


@pytest.mark.parametrize("workload", [MLP, CNN], ids=lambda workload: workload.name)
@pytest.mark.parametrize("smoothed", [False, True], ids=["plain", "smoothed"])
def test_the_other_ways_are_other_ways_to_the_same_sum(workload: Workload, *, smoothed: bool) -> None:
    arena = TINY.arena(workload)
    inputs, targets = arena.gathered(5)
    ours = arena.ours("dplis", DPLIS) if smoothed else arena.ours()
    points = ours.points(torch.Generator().manual_seed(0))
    chosen = ours.clipped_sum(inputs, targets, points=points)
    ways = other_ways(ours.source, points, inputs, targets)
    # One point of a stack of linear layers leaves nothing to choose.
    assert bool(ways) == (workload is CNN or smoothed)
    for source in ways.values():
        found = ours.clipped_sum(inputs, targets, points=points, source=source)
        assert float((found - chosen).norm()) <= TOLERANCE * float(chosen.norm())


def test_a_convolution_is_measured_the_other_way() -> None:
    arena = TINY.arena(CNN)
    ours = arena.ours()
    ways = other_ways(ours.source, ours.points(torch.Generator()), *arena.gathered(5))
    (place,) = [name for name in ways if name.startswith("0.weight")]
    assert place == "0.weight in factors"


def test_after_the_deadline_nothing_is_begun() -> None:
    late, results = replace(TINY, deadline=0.0), Results()
    measure_workload(LOGISTIC, late, results)
    measure_noise(late, results)
    measure_draws(LOGISTIC, late, results)
    measure_smoothing(CNN, late, results)
    measure_lines(CNN, late, results)
    measure_choices(CNN, late, results)
    assert results.figures == {}
    assert judge(results.figures).left_out == tuple(bar.name for bar in BARS)
    assert results.remarks


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Figure]]:
    """A `main` that measures nothing: what it prints is about the figures given."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(engine, "tune_malloc", lambda: True)
    figures: dict[str, Figure] = {}
    monkeypatch.setattr(engine, "measure", lambda _settings: Results(figures=figures))
    yield figures
    torch.set_num_threads(threads)


def test_the_last_line_is_one_json_object_and_the_status_says_whether_all_bars_hold(
    planted: dict[str, Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    planted.update(_at_the_limits())
    assert engine.main(["--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["falls_short"] == []
    assert shown["left_out"] == []
    assert set(shown["figures"]) == {bar.name for bar in BARS}


def test_what_falls_short_is_in_the_text_in_the_json_and_in_the_status(
    planted: dict[str, Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    planted.update(_at_the_limits())
    planted[BARS[0].name] = Figure(nan)
    del planted[BARS[1].name]
    assert engine.main(["--quick", "--json"]) == 1
    *text, last = capsys.readouterr().out.splitlines()
    shown = json.loads(last)
    assert (shown["falls_short"], shown["left_out"]) == ([BARS[0].name], [BARS[1].name])
    assert shown["figures"][BARS[0].name]["median"] is None
    assert any(line.startswith("falls short:") and BARS[0].name in line for line in text)
    assert any(line.startswith("left out:") and BARS[1].name in line for line in text)


@pytest.mark.parametrize("arguments", [[], ["--quick"]], ids=["full", "quick"])
def test_plots_without_lines_are_not_passed_over_in_silence(
    planted: dict[str, Figure], capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    planted.update(_at_the_limits())
    folder = tmp_path / "plots"
    assert engine.main([*arguments, "--json", "--plots", str(folder)]) == 0
    *text, last = capsys.readouterr().out.splitlines()
    assert not folder.exists()
    for name in ("engine_cost_k.svg", "engine_cost_batch.svg"):
        assert f"{folder / name} was not written" in text
        assert f"{folder / name} was not written" in json.loads(last)["remarks"]


def test_plots_are_written_and_what_they_lack_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    line = fit_line([(64, 2.0), (128, 4.1), (256, 7.9)])
    lines = {f"batch.{name}": line for name in LINES} | {f"k.{LINES[0]}": line}
    monkeypatch.setattr(engine, "tune_malloc", lambda: True)
    monkeypatch.setattr(engine, "measure", lambda _settings: Results(figures=_at_the_limits(), lines=lines))
    assert engine.main(["--plots", str(tmp_path)]) == 0
    torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"engine_cost_k.svg", "engine_cost_batch.svg"}
    assert f"not in engine_cost_k.svg, since it was not measured: {LINES[1]}" in shown
    assert "not in engine_cost_batch.svg" not in shown
    # Where the sums change from float32 to float64 stands beside the line that crosses it.
    drawn = (tmp_path / "engine_cost_batch.svg").read_text()
    assert str(SMALL.largest_batch) in drawn
    assert str(LARGE.largest_batch) in drawn


def test_json_holds_no_number_that_is_none() -> None:
    results = Results(figures={"x": Figure(1.0)}, lines={"k.x": Line(1.0, nan, 1.0, 0.0, ((1.0, 2.0),))})
    assert "NaN" not in as_json(results, judge(results.figures), {})


def test_a_plot_has_every_point() -> None:
    line = fit_line([(1, 2.0), (2, 4.1), (5, 9.9)])
    drawn = as_svg({"a": line, "b": line}, label="K", note="a small line")
    assert "a small line" in drawn
    assert drawn.count("<circle") == 6
    assert drawn.startswith("<svg")
