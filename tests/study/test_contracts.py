"""What every sampler and every pruner of the tables must keep, whatever the study is."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from search_spaces.domains import Scalar, Suggest
from tuner.study import names, protocols
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.suggest import OptunaSuggest
from tuner.study.unimodal.options import Along, Unimodality
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

RUNGS = (25, 50, 100)
NEEDED: dict[str, dict[str, Any]] = {
    "percentile": {"percentile": 25.0}, "patient": {"patience": 1}, "threshold": {"lower": -1e9}
}  # fmt: skip
ONE = Unimodality(parameters=(Along("radius", ("rate",)),), last_step=100, tolerance=0.01)
TWO = Unimodality(
    parameters=(Along("samples", starts=(4, 16)), Along("radius", ("rate",))), last_step=100, tolerance=0.01
)
GRID: dict[str, list[object]] = {
    "rate": [0.1, 0.5], "samples": [1, 4, 16], "kind": ["a", "b"], "radius": [0.0, 10.0], "decay": [1.0]
}  # fmt: skip
RESUMES = ("grid", "unimodal", "surrogate")
"""Samplers whose proposals follow from the study and the trial's number alone."""
SAMPLERS = [*((name, ONE) for name in names.SAMPLERS), ("unimodal", TWO)]
PRUNERS = [*((name, ONE) for name in names.PRUNERS), ("unimodal", TWO)]


class Mixed:
    """Every kind of domain, one of them conditional."""

    def grid(self, points: int) -> dict[str, list[object]]:
        return GRID

    def sample(self, suggest: Suggest) -> dict[str, Scalar]:
        values: dict[str, Scalar] = {
            "rate": suggest.uniform("rate", 0.01, 1.0, log=True),
            "kind": suggest.choice("kind", ("a", "b")),
        }
        if values["kind"] == "b":
            values["decay"] = suggest.uniform("decay", 0.5, 3.0, log=False)
        return values | {
            "samples": suggest.integer("samples", 1, 64, log=True),
            "radius": suggest.uniform("radius", 0.0, 50.0, log=False),
        }


def sampler_of(name: str, about: Unimodality, *, before: int = 0, seed: int = 1) -> BaseSampler:
    options: dict[str, object] = {"others": "random"} if name == "unimodal" else {}
    if name in ("tpe", "gp"):
        options = {"n_startup_trials": 3}
    return make_sampler(
        name, options, seed=seed, trials_before=before, space=Mixed(), unimodality=about
    )  # fmt: skip


def pruner_of(name: str, about: Unimodality, **more: object) -> BasePruner:
    return make_pruner(name, {**NEEDED.get(name, {}), **more}, rung_steps=RUNGS, unimodality=about)


def study_of(sampler: BaseSampler | None = None, pruner: BasePruner | None = None, mode: str = "maximize") -> Study:
    return optuna.create_study(
        direction=mode, sampler=sampler or optuna.samplers.RandomSampler(seed=0),
        pruner=pruner or optuna.pruners.NopPruner(),
    )  # fmt: skip


def score(parameters: dict[str, Any], step: int) -> float:
    return -((float(parameters["radius"]) - 20) ** 2) / 1000 - 1 / step + 0.01 * float(parameters["rate"])


def drive(study: Study, trials: int, *, sign: float = 1.0) -> list[dict[str, Any]]:
    while len(study.trials) < trials:
        trial = study.ask()
        parameters = Mixed().sample(OptunaSuggest(trial))
        for step in RUNGS:
            trial.report(sign * score(parameters, step), step)
            if step < RUNGS[-1] and trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                break
        else:
            study.tell(trial, sign * score(parameters, RUNGS[-1]))
    return [trial.params for trial in study.trials]


# -- the driver's questions --------------------------------------------------------------------------------------------


def is_of_optuna(thing: object) -> bool:
    return type(thing).__module__.startswith("optuna.")


@pytest.mark.parametrize(("name", "about"), SAMPLERS)
def test_a_sampler_is_optunas_or_answers_the_driver_itself(name: str, about: Unimodality) -> None:
    sampler = sampler_of(name, about)
    assert isinstance(sampler, protocols.StudySampler) != is_of_optuna(sampler)
    assert (protocols.sampler_of(study_of(sampler)) is sampler) != is_of_optuna(sampler)


@pytest.mark.parametrize(("name", "about"), PRUNERS)
def test_a_pruner_is_optunas_or_answers_the_driver_itself(name: str, about: Unimodality) -> None:
    pruner = pruner_of(name, about)
    assert isinstance(pruner, protocols.StudyPruner) != is_of_optuna(pruner)
    assert (protocols.pruner_of(study_of(pruner=pruner)) is pruner) != is_of_optuna(pruner)


def test_those_of_one_parameter_answer_too_and_a_plain_sampler_has_default_answers() -> None:
    assert isinstance(UnimodalSampler("R", tolerance=0.01), protocols.StudySampler)
    assert isinstance(UnimodalPruner("R", tolerance=0.01), protocols.StudyPruner)
    study = study_of()
    sampler, pruner = protocols.sampler_of(study), protocols.pruner_of(study)
    assert (sampler.points, sampler.draws_whole) == (None, False)
    assert (sampler.waits(study), sampler.is_over(study), sampler.best(study)) == (False, False, None)
    assert sampler.ranked(study) == sampler.curve_models() == pruner.curve_models() == ()
    trial = study.ask()
    assert pruner.why(study, study.trials[trial.number]) == ""


# -- samplers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "about"), SAMPLERS)
def test_a_value_lies_in_its_distribution(name: str, about: Unimodality) -> None:
    study = study_of(sampler_of(name, about))
    drive(study, 6)
    for trial in study.trials:
        assert ("decay" in trial.params) == (trial.params["kind"] == "b")
        for parameter, value in trial.params.items():
            domain = trial.distributions[parameter]
            assert domain._contains(domain.to_internal_repr(value)), (parameter, value)


@pytest.mark.parametrize(("name", "about"), SAMPLERS)
def test_the_same_study_and_seed_give_the_same_proposals(name: str, about: Unimodality) -> None:
    one, same, other = (drive(study_of(sampler_of(name, about, seed=seed)), 5) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(("name", "about"), [each for each in SAMPLERS if each[0] in RESUMES])
def test_a_resumed_search_proposes_as_one_that_was_not_interrupted(name: str, about: Unimodality) -> None:
    ours = [along.name for along in about.parameters] if name == "unimodal" else list(GRID)
    whole = study_of(sampler_of(name, about))
    drive(whole, 9)
    # What the other sampler proposes changes with a resume; the values before it are therefore taken over.
    for upto in (1, 4, 8):
        parts = study_of(sampler_of(name, about, before=upto))
        for trial in whole.trials[:upto]:
            parts.add_trial(trial)
        proposed = whole.trials[upto].params
        parts.enqueue_trial({name: value for name, value in proposed.items() if name not in ours})
        assert Mixed().sample(OptunaSuggest(parts.ask())) == proposed


@pytest.mark.filterwarnings("ignore:.*trials run at a time")
@pytest.mark.parametrize(("name", "about"), SAMPLERS)
def test_odd_scores_failures_and_running_trials_stop_no_sampler(name: str, about: Unimodality) -> None:
    """The lowest score is that of a loss in single precision."""
    study = study_of(sampler_of(name, about))
    drive(study, 3)
    for value in (None, float("inf"), float("nan"), -3e38):
        trial = study.ask()
        Mixed().sample(OptunaSuggest(trial))
        if value is not None:  # without a score: excluded before its first step
            trial.report(value, RUNGS[0])
        study.tell(trial, state=TrialState.PRUNED)
        assert len(drive(study, len(study.trials) + 1)) > 4
    study.tell(study.ask(), state=TrialState.FAIL)
    Mixed().sample(OptunaSuggest(study.ask()))  # runs on
    study.ask()  # and one that has no values yet
    assert len(drive(study, 15)) == 15


# -- pruners -----------------------------------------------------------------------------------------------------------

DOMAINS = {"radius": FloatDistribution(0.0, 50.0), "samples": IntDistribution(1, 64, log=True),
           "rate": FloatDistribution(0.01, 1.0, log=True), "kind": CategoricalDistribution(("a", "b"))}  # fmt: skip
VALUES = {"radius": 40.0, "samples": 4, "rate": 0.1, "kind": "a"}


def add(study: Study, scores: dict[int, float], value: float | None, **values: object) -> None:
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    params = {**VALUES, **values}
    study.add_trial(
        create_trial(state=state, value=value, params=params, distributions=DOMAINS, intermediate_values=scores)
    )


def asked(study: Study, pruner: BasePruner, scores: dict[int, float], **values: object) -> bool:
    """Whether a trial with these scores would be pruned now."""
    study.pruner = pruner
    study.enqueue_trial({**VALUES, **values})
    trial = study.ask(DOMAINS)
    for step, each in scores.items():
        trial.report(each, step)
    pruned = trial.should_prune()
    study.tell(trial, state=TrialState.FAIL)
    return pruned


_BY_ITSELF = ("patient", "successive_halving", "hyperband")
"""These judge a trial by its own scores, or by who came first; they are given no cause."""


@pytest.mark.parametrize(("name", "about"), PRUNERS)
def test_nothing_is_pruned_before_anything_is_known(name: str, about: Unimodality) -> None:
    for scores in ({}, {25: 0.5}, {25: 0.5, 50: 0.4}):
        for mode in ("maximize", "minimize"):
            assert not asked(study_of(mode=mode), pruner_of(name, about), scores if name not in _BY_ITSELF else {})


@pytest.mark.parametrize("name", names.PRUNERS)
def test_only_a_pruner_that_compares_parameters_refuses_a_trial_before_its_first_step(name: str) -> None:
    study = study_of()
    for radius in (10.0, 15.0, 20.0, 25.0, 30.0, 18.0, 22.0, 45.0):
        scores = {step: score({**VALUES, "radius": radius}, step) for step in RUNGS}
        add(study, scores, scores[100], radius=radius)
    assert asked(study, pruner_of(name, ONE), {}, radius=50.0) == (name == "unimodal")
    assert not asked(study, pruner_of(name, ONE), {}, radius=20.0)


@pytest.mark.filterwarnings("ignore:The intermediate values of")
@pytest.mark.filterwarnings("ignore:The best trial has no intermediate values")
@pytest.mark.filterwarnings("ignore:WilcoxonPruner finds steps")
@pytest.mark.filterwarnings("ignore:Precision loss occurred")
@pytest.mark.parametrize("mode", ["maximize", "minimize"])
@pytest.mark.parametrize(("name", "about"), PRUNERS)
def test_no_study_makes_a_pruner_raise(name: str, about: Unimodality, mode: str) -> None:
    nan = float("nan")
    studies: list[list[tuple[dict[int, float], float | None]]] = [
        [],
        [({}, 0.5)],
        [({25: 0.5}, None)],
        [({25: nan}, None), ({25: nan, 50: 0.2}, None)],
        [({25: 0.5, 50: 0.5, 100: 0.5}, 0.5)] * 4,
        [({100: 0.5}, 0.5), ({25: 0.1}, None), ({}, None)],
    ]
    for trials in studies:
        study = study_of(mode=mode)
        for scores, value in trials:
            add(study, scores, value)
        pruner = pruner_of(name, about)
        for scores in ({}, {25: 0.3}, {25: nan}, {25: 0.3, 50: nan, 100: 0.1}, {100: 0.2}):
            assert asked(study, pruner, scores) in (True, False)
    study = study_of(mode=mode)
    study.pruner = pruner_of(name, about)
    assert study.ask().should_prune() in (True, False), "a trial without any value"


# The bounds of `threshold` are of the score itself, which has no mirror.
UNMIRRORED = ("wilcoxon", "hyperband", "threshold")


@pytest.mark.parametrize(("name", "about"), [each for each in PRUNERS if each[0] not in UNMIRRORED])
def test_what_is_minimised_is_pruned_as_its_mirror_is(name: str, about: Unimodality) -> None:
    def decisions(sign: float) -> list[str]:
        study = study_of(pruner=pruner_of(name, about), mode="maximize" if sign > 0 else "minimize")
        drive(study, 8, sign=sign)
        return [trial.state.name for trial in study.trials]

    assert decisions(1.0) == decisions(-1.0)
