"""The benchmark of overhead: its trials train, and its clock sees what a sweep does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness import Results, Settings, judge
from benchmarks.harness.machine import python_output
from benchmarks.overhead.__main__ import BENCHMARK
from benchmarks.overhead.baselines import scores_of, training
from benchmarks.overhead.sweeps import _SWEEP, _growth
from tuner.api import load


def test_the_baseline_trains_what_the_sweep_trains(tmp_path: Path) -> None:
    (tmp_path / "trivial.yaml").write_text(_SWEEP.format(trials=2))
    plan = load(tmp_path / "trivial.yaml").plan()
    trained = training(0.5)
    spec = trained.spec
    assert (plan.method, plan.model, plan.dataset) == (spec.method, spec.model, spec.dataset.name)
    assert (plan.batch_size, plan.steps_per_trial) == (spec.batch_size, spec.steps)
    reports = list(scores_of(trained))
    assert tuple(step for step, _ in reports) == plan.rungs
    assert reports[0][1] != reports[-1][1]


def test_growth_ignores_the_first_quarter() -> None:
    assert _growth([10.0, 50.0, 51.0, 52.0]) == 2.0
    assert _growth([10.0, 50.0, 50.0, 90.0]) == 40.0, "the control: memory that grows until the end"


def test_what_is_not_measured_is_left_out_or_falls_short() -> None:
    names = {name for name, bar in BENCHMARK.bars.items() if not bar.quick}
    verdict = judge(Results(), BENCHMARK.bars, skipped=sorted(names))
    assert names == {"ray.wall_over_class_api", "ray.memory_growth_mb", "local.wall_over_optuna_loop"}
    assert verdict.falls_short
    assert Settings(quick=True).quick


@pytest.mark.slow
def test_the_clock_sees_every_trial(tmp_path: Path) -> None:
    (tmp_path / "trivial.yaml").write_text(_SWEEP.format(trials=2))
    words = ["-m", "benchmarks.overhead.program", "times.json", "run", "trivial.yaml", "--local", "--quiet"]
    python_output(tmp_path, words)
    seen = json.loads((tmp_path / "times.json").read_text())
    assert len(seen["started"]) == len(seen["ended"]) == len(seen["memory_mb"]) == 2
    assert seen["started"][0] < seen["ended"][0]
