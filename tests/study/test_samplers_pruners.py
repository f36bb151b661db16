"""Samplers and pruners by name: what is made, what is refused, the grid, and seeds after a resume."""

from __future__ import annotations

import optuna
import pytest
from driver_fakes import driver_of, random_study, run_through
from errors_helper import raises_code
from sweep_fakes import RUNGS, STEPS, FakeSpace, score

from tuner.errors import InputError
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.grid import GridPointSampler, grid_points
from tuner.study.samplers.make import SamplerRequest, make_sampler
from tuner.study.types import Suggestion

GRID: dict[str, list[object]] = {
    "learning_rate": [0.1, 0.5],
    "smoothing_radius": [0.0, 10.0, 20.0],
    "schedule": ["constant", "inverse_time"],
    "schedule.inverse_time.decay": [1.0, 2.0],
}


class Gridded(FakeSpace):
    """A space with a grid of its own."""

    def grid(self, points: int) -> dict[str, list[object]]:
        return GRID


def driven(sampler: optuna.samplers.BaseSampler, trials: int, study: optuna.Study | None = None) -> optuna.Study:
    study = study or random_study()
    study.sampler = sampler
    driver = driver_of(study, trials=trials)
    while isinstance(trial := driver.next(), Suggestion):
        run_through(driver, None, trial, score=score(trial.parameters, STEPS))
    study.set_user_attr("stopped", trial.reason.value)
    return study


def next_seed(before: int) -> int:
    request = SamplerRequest(
        name="tpe", options={}, seed=1, trials_before=before, space=None, secret=False, unimodality=None
    )
    return request.next_seed


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_a_resumed_sampler_does_not_begin_again(name: str) -> None:
    study = driven(make_sampler(name, seed=1), trials=4)
    driven(make_sampler(name, seed=1, trials_before=4), trials=8, study=study)
    assert len({t.params["learning_rate"] for t in study.trials}) == 8
    assert next_seed(0) == 1
    assert len({next_seed(before) for before in range(100)}) == 100


def test_a_grid_has_every_active_point_once_and_then_ends() -> None:
    sampler = make_sampler("grid", seed=1, space=Gridded())
    assert isinstance(sampler, GridPointSampler)
    # constant: 2 rates x 3 radii; inverse_time: the same, times 2 decays
    assert sampler.points == 2 * 3 + 2 * 3 * 2
    study = driven(sampler, trials=100)
    points = {tuple(sorted(t.params.items())) for t in study.trials}
    assert len(points) == len(study.trials) == 18
    assert study.user_attrs["stopped"] == "grid exhausted"


def test_the_order_of_a_grid_is_shuffled_by_the_seed() -> None:
    first, second = (
        [trial.params for trial in driven(make_sampler("grid", seed=seed, space=Gridded()), trials=18).trials]
        for seed in (1, 2)
    )
    plain = grid_points(FakeSpace(), GRID)
    assert sorted(map(str, first)) == sorted(map(str, plain))
    assert first not in (second, plain)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("sobol", {}, "sampler-unknown"),
        ("tpe", {"n_startup": 3}, "option-invalid"),
        ("tpe", {"multivariate": False, "group": True}, "search-option-invalid"),
        ("grid", {"points": 0}, "option-invalid"),
        ("unimodal", {"tolerance": float("nan")}, "option-invalid"),
        ("unimodal", {"others": "grid"}, "option-invalid"),
        ("unimodal", {"sure": 1.0}, "option-invalid"),
        ("unimodal", {"at_once": 0}, "option-invalid"),
        ("unimodal", {"starts": [1]}, "option-invalid"),
        ("unimodal", {}, "unimodal-parameter-missing"),
    ],
)
def test_a_wrong_sampler_is_refused(name: str, options: dict[str, object], code: str) -> None:
    with raises_code(InputError, code):
        make_sampler(name, options, seed=0, space=Gridded())


def test_a_grid_without_a_space_or_without_values_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_code(InputError, "grid-values-missing"):
        make_sampler("grid", seed=0)
    with raises_code(InputError, "grid-values-missing"):
        grid_points(FakeSpace(), {"learning_rate": [0.1]})
    monkeypatch.setattr("tuner.study.samplers.grid._GRID_LIMIT", 17)
    with raises_code(InputError, "grid-too-large"):
        make_sampler("grid", seed=0, space=Gridded())


def test_resources_are_counted_in_steps_between_the_first_and_the_last_rung() -> None:
    halving = make_pruner("asha", rung_steps=RUNGS)
    assert halving._min_resource == RUNGS[0]
    band = make_pruner("hyperband", rung_steps=RUNGS)
    assert (band._min_resource, band._max_resource) == (RUNGS[0], RUNGS[-1])
    assert make_pruner("asha", {"min_resource": 7}, rung_steps=RUNGS)._min_resource == 7


def test_a_patient_pruner_wraps_another() -> None:
    for inner, kind in (({"name": "asha", "reduction_factor": 2}, "SuccessiveHalving"), ("median", "Median")):
        patient = make_pruner("patient", {"patience": 1, "wrapped_pruner": inner}, rung_steps=RUNGS)
        assert type(patient._wrapped_pruner).__name__ == f"{kind}Pruner"


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("medium", {}, "pruner-unknown"),
        ("median", {"patience": 2}, "option-invalid"),
        ("percentile", {"percentile": 200.0}, "search-option-invalid"),
        ("patient", {"patience": -1}, "search-option-invalid"),
        ("patient", {"patience": 1, "wrapped_pruner": 3}, "option-invalid"),
        ("patient", {"patience": 1, "wrapped_pruner": "unimodal"}, "unimodal-parameter-missing"),
        ("unimodal", {}, "unimodal-parameter-missing"),
        ("unimodal", {"risk": 0}, "option-invalid"),
        ("unimodal", {"strict": 1}, "option-invalid"),
        ("unimodal", {"fallback": 3}, "option-invalid"),
        ("unimodal", {"fallback": "unimodal"}, "option-invalid"),
        ("unimodal", {"fallback": "percentile"}, "option-invalid"),
    ],
)
def test_a_wrong_pruner_is_refused(name: str, options: dict[str, object], code: str) -> None:
    with raises_code(InputError, code):
        make_pruner(name, options)
