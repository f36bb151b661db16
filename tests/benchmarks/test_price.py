"""The price of search: its arms differ only as they say."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness import Results
from benchmarks.price import rule
from benchmarks.price.arms import Run, arms_of, experiment_file
from benchmarks.price.workloads import DELTA, HELD_OUT, WORKLOADS, Workload
from tuner.experiment import parse_experiment
from tuner.plan.prices import MeasuredSearch, Prices

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


def test_the_rule_of_auto_is_judged_on_each_data_set_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A committed run gains one point on five data sets and loses 20 on the sixth, which the rule does not foresee."""
    lost = dict.fromkeys("abcde", 1.0) | {"f": 22.0}
    rows = [
        MeasuredSearch(
            arm=arm, trials=8, axes=2, family="linear", train_size=9000, dataset=name, epsilon=1.0, price=price
        )
        for name, committed in lost.items()
        for arm, price in (("prior", 2.0), ("commit", committed), ("composition", 30.0), ("proxy", 0.0))
    ]
    monkeypatch.setattr(rule, "shipped_prices", lambda: Prices(provenance={}, searches=tuple(rows)))
    results = Results()
    rule.measure(None, results)  # type: ignore[arg-type]  # the stored searches are all that it reads
    found = {name: figure.value for name, figure in results.figures.items()}
    # Without f, a committed run seems to gain a point: the rule takes it on f. With f, it seems to lose: no search.
    assert found["rule.auto"] == pytest.approx((5 * 2.0 + 22.0) / 6)
    assert found["rule.never"] == 2.0
    assert found["rule.commit"] == pytest.approx((5 * 1.0 + 22.0) / 6)
    assert found["rule.best"] == pytest.approx((5 * 1.0 + 2.0) / 6), "public mode is no candidate without a proxy"
    assert found["rule.auto.minus_never"] == pytest.approx(20.0 / 6)
