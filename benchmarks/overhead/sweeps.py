"""Sweeps of trivial trials, in turn with the same number of trials that nothing is around."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Figure, Results, Settings, at_most
from benchmarks.harness.machine import python_output

RAY_BARS = {
    "ray.wall_over_class_api": at_most(1.2, quick=False),
    "ray.first_trial_s": at_most(5.0),
    "ray.memory_growth_mb": at_most(20.0, quick=False),
}
LOCAL_BARS = {"local.wall_over_optuna_loop": at_most(1.5, quick=False)}
"""Limits of issue 17. A quick run has too few trials to judge the ratios: the start is most of its wall time."""

_SWEEP = """schema: 1
name: trivial
dataset: {{name: digits}}
trainable: {{method: dp_sgd, model: logistic_regression, batch_size: 128, epochs: 1}}
privacy: {{epsilon: 20.0, delta: 1.0e-5}}
search:
  trials: {trials}
  sampler: random
  pruner: none
  space: {{learning_rate: {{log_uniform: [0.1, 1.0]}}}}
resources: {{concurrent_trials: 2}}
"""
"""Ten steps a trial, of half a millisecond each: whatever takes longer is overhead."""


def measure_ray(settings: Settings, results: Results) -> None:
    """Compare a sweep on Ray with Ray's class API; measure when its first trial starts, and the driver's memory."""
    _compare("ray", "class_api", [], settings, results)


def measure_local(settings: Settings, results: Results) -> None:
    """Compare a sweep in one process with a loop of Optuna that logs to MLflow."""
    _compare("local", "optuna_loop", ["--local"], settings, results)


def _compare(section: str, baseline: str, options: list[str], settings: Settings, results: Results) -> None:
    trials = settings.own.trials or (30 if settings.quick else 200)
    rounds = settings.own.rounds or (1 if settings.quick else 3)
    ours, theirs, found, loads, processes = [], [], [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="overhead-") as inside:
            folder = Path(inside)
            (folder / "trivial.yaml").write_text(_SWEEP.format(trials=trials))
            loads.append(os.getloadavg()[0])
            begun = time.perf_counter()
            said = python_output(folder, ["-m", "benchmarks.overhead.baselines", baseline, str(trials)])
            processes.append(int(said.split()[-1]))
            theirs.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            words = ["-m", "benchmarks.overhead.program", "times.json", "run", "trivial.yaml", "--quiet", *options]
            python_output(folder, words)
            ours.append(time.perf_counter() - begun)
            found.append(json.loads((folder / "times.json").read_text()))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    note = f"{trials} trials, {rounds} rounds in turn; load {min(loads):.1f} to {max(loads):.1f}"
    results.figures[f"{section}.wall_over_{baseline}"] = Figure.median_of(ratios, "x", note=note)
    results.figures[f"{section}.processes.{baseline}"] = Figure.median_of(
        processes, "", note="more than two: Ray reused no actors, and the ratio says nothing"
    )
    results.figures[f"{section}.s_a_trial"] = Figure.median_of([each / trials for each in ours], "s")
    results.figures[f"{section}.s_a_trial.{baseline}"] = Figure.median_of([each / trials for each in theirs], "s")
    running = [(each["ended"][-1] - each["started"][0]) / trials for each in found]
    results.figures[f"{section}.s_a_trial.running"] = Figure.median_of(
        running, "s", note="from the start of the first trial to the end of the last"
    )
    if section == "ray":
        first = [each["reported"][0] - each["ray_up"] for each in found]
        results.figures["ray.first_trial_s"] = Figure.median_of(
            first, "s", note="from Ray being up to the first report, after two of ten steps"
        )
    growth = [_growth(each["memory_mb"]) for each in found]
    results.figures[f"{section}.memory_growth_mb"] = Figure.median_of(
        growth, "MB", note="of the driver, from a quarter of the trials to the last"
    )


def _growth(memory: list[float]) -> float:
    """Return by how many MB the memory grew after the first quarter of the trials."""
    return max(memory[len(memory) // 4 :]) - memory[len(memory) // 4]
