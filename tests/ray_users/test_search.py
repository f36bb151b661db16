"""Our samplers and pruners in anybody's Tuner."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from errors_helper import raises_code
from hill import Hill
from optuna.trial import TrialState

from tuner.errors import InputError
from tuner.ray_users.search import StudySearch
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler


def space() -> dict[str, Any]:
    from ray import tune

    return {"x": tune.uniform(-3.0, 3.0)}


def ready(**others: Any) -> StudySearch:  # noqa: ANN401 - arguments of StudySearch
    return StudySearch(space=space(), metric="score", mode="max", **others)


def told(search: StudySearch, trial: str, *scores: float, error: bool = False) -> None:
    """Report as Ray does: the scheduler first, then the searcher, and the last result twice."""
    result: dict[str, Any] = {}
    for step, score in enumerate(scores, start=1):
        result = {"score": score, "training_iteration": step}
        if not search.report(trial, result):
            break
        search.on_trial_result(trial, result)
    search.on_trial_complete(trial, result or None, error=error)


def states(search: StudySearch) -> list[TrialState]:
    return [trial.state for trial in search.study.trials]


@pytest.mark.usefixtures("ray_two_slots")
def test_the_unimodal_sampler_and_pruner_search_in_a_tuner(tmp_path: Path) -> None:
    from ray import tune

    search = StudySearch(
        UnimodalSampler("x", tolerance=0.05, last_step=4, starts=(-2.0, 2.0)),
        UnimodalPruner("x", tolerance=0.05, last_step=4, starts=(-2.0, 2.0)),
        last_step=4,
    )
    results = tune.Tuner(
        Hill,
        param_space=space(),
        tune_config=tune.TuneConfig(
            metric="score", mode="max", num_samples=14, search_alg=search, scheduler=search.scheduler(),
            reuse_actors=True, max_concurrent_trials=2,
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()  # fmt: skip
    assert results.num_errors == 0
    assert abs(results.get_best_result().config["x"] - 1) < 0.5
    assert set(states(search)) == {TrialState.COMPLETE, TrialState.PRUNED}
    # What is excluded before its first step is in the study, and Ray never ran it.
    ran = [trial for trial in search.study.trials if trial.intermediate_values]
    assert len(ran) == len(results)
    for trial in ran:
        reported = max(trial.intermediate_values)
        assert (trial.state is TrialState.COMPLETE) == (reported == 4)


def test_the_scheduler_stops_what_the_pruner_stops() -> None:
    search = ready(pruner=optuna.pruners.ThresholdPruner(lower=0.5))
    for name, score in (("good", 0.9), ("bad", 0.1)):
        search.suggest(name)
        told(search, name, score, score)
    assert states(search) == [TrialState.COMPLETE, TrialState.PRUNED]
    assert [len(trial.intermediate_values) for trial in search.study.trials] == [2, 1]


def test_what_ends_early_has_failed_or_is_pruned_and_never_complete() -> None:
    search = ready(last_step=3)
    ends: list[tuple[tuple[float, ...], bool]] = [
        ((0.1, 0.2, 0.3), False), ((0.1,), False), ((0.1,), True), ((), True), ((0.1, 0.2, math.nan), False),
    ]  # fmt: skip
    for number, (scores, error) in enumerate(ends):
        search.suggest(str(number))
        told(search, str(number), *scores, error=error)
    failed = [TrialState.FAIL] * 3
    assert states(search) == [TrialState.COMPLETE, TrialState.PRUNED, *failed]


def test_a_saved_search_continues_with_its_running_trials(tmp_path: Path) -> None:
    search = ready()
    search.suggest("done")
    told(search, "done", 0.5)
    search.suggest("running")
    search.save(str(tmp_path / "state"))
    again = StudySearch()
    again.restore(str(tmp_path / "state"))
    told(again, "running", 0.7)
    assert states(again) == [TrialState.COMPLETE] * 2
    assert again.study.best_value == 0.7


@pytest.mark.parametrize("last_step", [2, None])
def test_after_a_restore_a_trial_ends_as_ray_says_and_one_that_ray_has_forgotten_fails(
    tmp_path: Path, last_step: int | None
) -> None:
    search = ready(last_step=last_step)
    scheduler = search.scheduler()
    for name in ("running", "forgotten", "whole", "stopped", "failed"):
        search.suggest(name)
    search.save(str(tmp_path / "state"))
    search.restore(str(tmp_path / "state"))
    ends = {"running": ("RUNNING", 1), "whole": ("TERMINATED", 2), "stopped": ("TERMINATED", 1), "failed": ("ERROR", 2)}
    for name, (status, step) in ends.items():  # Ray's file is newer than the searcher's
        scheduler.on_trial_add(
            None,
            SimpleNamespace(
                trial_id=name,
                status=status,
                is_finished=lambda status=status: status != "RUNNING",
                last_result={"score": 0.5, "training_iteration": step},
            ),
        )
    search.suggest("next")
    fail, running = TrialState.FAIL, TrialState.RUNNING
    known = [TrialState.COMPLETE, TrialState.PRUNED] if last_step else [fail, fail]
    assert states(search) == [running, fail, *known, fail, running]


def test_a_searcher_without_a_space_or_a_metric_says_what_it_needs() -> None:
    for incomplete in (StudySearch(metric="score", mode="max"), StudySearch(space=space())):
        with raises_code(InputError, "ray-search-incomplete"):
            incomplete.suggest("first")


def test_a_tuner_with_another_direction_and_results_without_the_step_are_refused() -> None:
    search = StudySearch(metric="score", mode="min", space=space())
    for metric, mode in (("score", "max"), ("loss", "min")):
        with raises_code(InputError, "ray-searcher"):
            search.set_search_properties(metric, mode, {})
    assert search.set_search_properties("score", "min", {})
    search.suggest("first")
    for step in ({}, {"training_iteration": 0.5}):
        with raises_code(InputError, "ray-searcher"):
            search.on_trial_result("first", {"score": 0.1, **step})
    for wrong in ({"sampler": "tpe"}, {"pruner": "median"}, {"metric": ["a", "b"]}):
        with raises_code(InputError, "ray-searcher"):
            StudySearch(**wrong)
