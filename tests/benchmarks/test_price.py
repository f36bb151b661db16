"""The price of search: its arms differ only as they say."""

from __future__ import annotations

import json

import pytest

from benchmarks.price.arms import Run, arms_of, experiment_file
from benchmarks.price.workloads import DELTA, HELD_OUT, WORKLOADS, Workload
from tuner.experiment import parse_experiment

SEARCHES = ("composition", "selection", "proxy", "full_runs", "commit")
BUILT = {**WORKLOADS, **HELD_OUT}


@pytest.mark.parametrize(("name", "workload"), BUILT.items(), ids=list(BUILT))
def test_the_arms_differ_only_as_they_say(name: str, workload: Workload) -> None:
    told = {**{each: values[0] for each, values in workload.grid.items()}, **workload.fixed}
    dataset = {"name": workload.dataset, **({"path": "own.npz", "public_size": 9000} if workload.own_file else {})}
    experiments = {
        arm: parse_experiment(
            json.dumps(experiment_file(workload, Run(workload=name, arm=arm, epsilon=1.0, seed=2), told, dataset))
        )
        for arm in arms_of(workload)
        if arm != "auto"  # which arm it takes is decided by the plan
    }
    alone = experiments["middle"]
    for arm, experiment in experiments.items():
        assert experiment.search.trials == (workload.trials if arm in SEARCHES else 1)
        assert set(experiment.space.searched) == (set(workload.space) if arm in SEARCHES else set())
        assert (experiment.privacy.epsilon, experiment.privacy.delta, experiment.seed) == (1.0, DELTA, 2000)
        assert (experiment.trainable, experiment.dataset) == (alone.trainable, alone.dataset)
