"""Experiment files with the unimodal sampler and pruner: what they need, what they assume, what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import optuna
import pytest

from tuner.errors import ExperimentError
from tuner.experiment import Experiment, parse_experiment
from tuner.plan.plan import make_plan
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.study.unimodal.options import PERTURBATIONS, TOLERANCES, unimodal_parameters
from tuner.study.unimodal.pruner import UnimodalPruners
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers
from tuner.sweep.sweep_study import _perturbation, _pruner, _sampler, check_search

FILE = """\
name: a-search
dataset: {name: digits}
trainable: {method: dplis}
privacy: {epsilon: 8}
search:
  trials: 4
  sampler: unimodal
  space:
    R: {uniform: [0, 100]}
"""
RUNGS = (10, 20)


def of(*options: str, text: str = FILE) -> Experiment:
    return parse_experiment(text, options, source="e.yaml")


def problem_of(*options: str, text: str = FILE) -> tuple[str, str]:
    """The key and the code of the one problem."""
    with pytest.raises(ExperimentError) as caught:
        of(*options, text=text)
    (problem,) = caught.value.problems
    return problem.key, problem.code


# -- which parameter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sampler", "pruner"])
def test_the_radius_is_the_parameter_when_nothing_is_declared_and_the_resolved_file_says_so(kind: str) -> None:
    experiment = of("search.sampler=tpe", f"search.{kind}=unimodal")
    assert experiment.space.unimodal == ("smoothing_radius",)
    assert experiment.search.space["smoothing_radius"] == {"uniform": [0, 100], "unimodal": True}
    assert parse_experiment(experiment.to_yaml()) == experiment
    assert of("search.sampler=tpe").space.unimodal == (), "the control"


def test_a_declaration_goes_before_what_is_assumed() -> None:
    rate = "search.space={R: {uniform: [0, 100]}, lr: {log_uniform: [0.1, 1], unimodal: true}}"
    assert of(rate).space.unimodal == ("learning_rate",)
    both = "search.space={R: {uniform: [0, 9], unimodal: true}, lr: {log_uniform: [0.1, 1], unimodal: true}}"
    assert of(both).space.unimodal == ("smoothing_radius", "learning_rate")


def test_what_only_some_trials_have_cannot_be_the_parameter() -> None:
    decays = "{inverse_time: {decay: {uniform: [0.1, 2], unimodal: true}}}"
    sometimes = f"search.space={{R: 3.0, schedule: {{choice: [constant, {decays}]}}}}"
    assert problem_of(sometimes) == ("search.space", "unimodal-conditional")
    of(f"search.space={{R: 3.0, schedule: {decays}}}")  # the control: every trial has it


def test_noise_in_the_privacy_section_may_be_the_parameter() -> None:
    noise = ["search.space={R: 3.0}", "privacy.noise_multiplier={log_uniform: [1, 9], unimodal: true}"]
    experiment = of(*noise)
    assert experiment.space.unimodal == ("noise_multiplier",)
    assert parse_experiment(experiment.to_yaml()) == experiment
    plan = make_plan(experiment, experiment.dataset_request())
    assert plan.as_dict()["priced"] == {"noise_multiplier": {"log_uniform": [1, 9]}}
    key, _ = problem_of("privacy.noise_multiplier={choice: [1, 2], unimodal: true}")
    assert key == "privacy.noise_multiplier"


@pytest.mark.parametrize(
    "options",
    [
        ["search.space={R: 3.0, lr: default}"],
        ["search.space={R: {choice: [1, 2]}}"],
        ["search.space={}", "trainable.method=dp_sgd"],
        ["search.space={}", "search.trials=1"],
        ["search.sampler=tpe", "search.pruner=unimodal", "search.space={lr: default}"],
    ],
)
def test_without_such_a_parameter_it_is_refused(options: list[str]) -> None:
    kind = "pruner" if "search.pruner=unimodal" in options else "sampler"
    assert problem_of(*options) == (f"search.{kind}", "unimodal-parameter-missing")


@pytest.mark.parametrize("name", ["R", "smoothing_radius"])
def test_a_radius_declared_not_unimodal_is_not_assumed_to_be(name: str) -> None:
    space = f"search.space={{{name}: {{uniform: [0, 9], unimodal: false}}, lr: {{log_uniform: [0.1, 1]}}}}"
    assert problem_of(space) == (f"search.space.{name}", "unimodal-denied")
    other = of(space.replace("[0.1, 1]}", "[0.1, 1], unimodal: true}"))
    assert other.space.unimodal == ("learning_rate",)
    assert of(space, "search.sampler=tpe").space.unimodal == ()


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["stop", "replicate"])
def test_what_follows_when_it_is_sure_needs_the_sampler_that_can_tell(when: str) -> None:
    option = f"search.when_sure={when}"
    assert of(option).search.when_sure == when
    for others in (["search.sampler=tpe"], ["search.sampler=tpe", "search.pruner=unimodal"]):
        assert problem_of(option, *others) == ("search.when_sure", "when-sure-sampler")
    sealed = ("privacy.accounting=selection", "search.sampler=random")
    assert problem_of(option, *sealed) == ("search.when_sure", "when-sure-sealed")
    assert of("search.sampler=tpe").search.when_sure == "go_on"
    assert problem_of("search.when_sure=sometimes") == ("search.when_sure", "value-not-allowed")


# -- what is built -----------------------------------------------------------------------------------------------------


def rules_of(part: UnimodalSamplers | UnimodalPruners) -> list[tuple[str, float, tuple[str, ...]]]:
    return [(each.parameter, each.rules.tolerance, each.scales) for each in part.each]


def test_both_get_the_parameter_its_scales_and_a_tolerance() -> None:
    experiment = of("search.pruner=unimodal", "search.space={R: {uniform: [0, 9]}, lr: default, C: default}")
    sampler, pruner = _sampler(experiment, RUNGS, 0), _pruner(experiment, RUNGS)
    assert isinstance(sampler, UnimodalSamplers)
    assert isinstance(pruner, UnimodalPruners)
    expected = [("smoothing_radius", TOLERANCES["validation_accuracy"], ("learning_rate", "max_grad_norm"))]
    assert rules_of(sampler) == rules_of(pruner) == expected
    assert sampler.each[0]._last_step == pruner.each[0]._last_step == RUNGS[-1]
    check_search(experiment, RUNGS)
    loss = of("search.metric={name: validation_loss, mode: min}")
    assert rules_of(_sampler(loss, RUNGS, 0))[0][1] == TOLERANCES["validation_loss"]  # type: ignore[arg-type]


def test_a_tolerance_of_one_is_the_tolerance_of_both_and_two_are_refused() -> None:
    def told(*options: str) -> list[float]:
        experiment = of(*options)
        return [rules_of(part)[0][1] for part in (_sampler(experiment, RUNGS, 0), _pruner(experiment, RUNGS))]  # type: ignore[arg-type]

    assert told("search.sampler={name: unimodal, tolerance: 0.01}", "search.pruner=unimodal") == [0.01, 0.01]
    assert told("search.pruner={name: unimodal, tolerance: 0.03}") == [0.03, 0.03]
    both = ["search.sampler={name: unimodal, tolerance: 0.01}", "search.pruner={name: unimodal, tolerance: 0.03}"]
    assert problem_of(*both) == ("search.pruner.tolerance", "tolerance-conflict")
    assert told(both[0], both[1].replace("0.03", "0.01")) == [0.01, 0.01]
    of(both[0], "search.pruner=median")  # the control: another pruner has none


def test_several_share_the_risk_and_what_is_scaled_is_asked_for_last() -> None:
    both = "search.space={R: {uniform: [0, 9], unimodal: true}, lr: {log_uniform: [0.1, 1], unimodal: true}}"
    experiment = of(both, "search.pruner={name: unimodal, risk: 0.08}")
    pruner, sampler = _pruner(experiment, RUNGS), _sampler(experiment, RUNGS, 0)
    assert isinstance(pruner, UnimodalPruners)
    assert isinstance(sampler, UnimodalSamplers)
    assert [each.rules.risk for each in pruner.each] == [0.04, 0.04]
    assert [each.parameter for each in sampler.each] == ["learning_rate", "smoothing_radius"]
    assert sampler.each[1]._base is sampler.each[0]
    check_search(experiment, RUNGS)


@pytest.mark.parametrize(
    ("space", "unit", "starts"),
    [
        ("{R: {uniform: [0, 100]}}", PERTURBATIONS[0] / 10, (10.0, 30.0)),
        ("{R: {uniform: [0, 100]}}", PERTURBATIONS[0] / 2, (2.0, 6.0)),
        ("{R: {uniform: [0, 100]}}", PERTURBATIONS[0] / 50, None),
        ("{R: {uniform: [0, 100]}}", None, None),
        ("{R: 1.0, lr: {log_uniform: [0.01, 10], unimodal: true}}", 1.0, None),
    ],
)
def test_the_first_radii_are_in_units_of_the_perturbation(
    space: str, unit: float | None, starts: tuple[float, ...] | None
) -> None:
    (along,) = unimodal_parameters(of(f"search.space={space}").space, unit)
    assert along.starts == (None if starts is None else pytest.approx(starts))


def test_the_perturbation_of_a_search_is_that_of_its_settings() -> None:
    experiment = of("search.space={R: {uniform: [0, 9]}, lr: {log_uniform: [0.1, 10]}, C: 2.0}")
    plan = SimpleNamespace(private=True, batch_size=100, nominal=SampledGaussian(0.1, 3.0))
    assert _perturbation(experiment, plan) == pytest.approx(1.0 * 3.0 * 2.0 / 100)  # type: ignore[arg-type]
    assert _perturbation(experiment, None) is None


@pytest.mark.parametrize(
    ("low", "high", "log", "starts"), [(0.0, 1e-3, False, (1 / 3e3, 2 / 3e3)), (1.0, 27.0, True, (3.0, 9.0))]
)
def test_without_a_unit_they_are_at_thirds_of_any_axis(low: float, high: float, log: bool, starts: object) -> None:
    sampler = UnimodalSampler("x", tolerance=0.1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    found = [study.ask().suggest_float("x", low, high, log=log) for _ in range(2)]
    assert found == pytest.approx(starts, rel=1e-3)
