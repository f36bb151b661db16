"""The driver's questions to samplers and pruners: ours answer them, and Optuna's have default answers."""

from __future__ import annotations

import optuna
import pytest
from sweep_fakes import FakeSpace

from tuner.study import names
from tuner.study.protocols import StudyPruner, StudySampler, pruner_of, sampler_of
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.unimodal.options import Along, Unimodality
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

ABOUT = Unimodality(parameters=(Along("R"),), last_step=100, tolerance=0.01)
NEEDED: dict[str, dict[str, object]] = {
    "percentile": {"percentile": 50.0},
    "patient": {"patience": 1},
    "threshold": {"lower": 0.0},
}


class GridSpace(FakeSpace):
    """Space with one value of each parameter for a grid."""

    def grid(self, _points: int) -> dict[str, list[object]]:
        return {"learning_rate": [0.1], "schedule": ["constant"], "smoothing_radius": [1.0]}


def is_of_optuna(thing: object) -> bool:
    return type(thing).__module__.startswith("optuna.")


@pytest.mark.parametrize("name", names.SAMPLERS)
def test_a_sampler_is_optunas_or_answers_the_driver_itself(name: str) -> None:
    sampler = make_sampler(name, seed=0, space=GridSpace(), unimodality=ABOUT)
    assert isinstance(sampler, StudySampler) != is_of_optuna(sampler)
    study = optuna.create_study(sampler=sampler)
    assert (sampler_of(study) is sampler) != is_of_optuna(sampler)


@pytest.mark.parametrize("name", names.PRUNERS)
def test_a_pruner_is_optunas_or_answers_the_driver_itself(name: str) -> None:
    pruner = make_pruner(name, NEEDED.get(name), rung_steps=(50, 100), unimodality=ABOUT)
    assert isinstance(pruner, StudyPruner) != is_of_optuna(pruner)
    study = optuna.create_study(pruner=pruner)
    assert (pruner_of(study) is pruner) != is_of_optuna(pruner)


def test_those_of_one_parameter_answer_too() -> None:
    assert isinstance(UnimodalSampler("R", tolerance=0.01), StudySampler)
    assert isinstance(UnimodalPruner("R", tolerance=0.01), StudyPruner)


def test_the_default_answers_are_those_of_a_plain_sampler() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.MedianPruner())
    sampler, pruner = sampler_of(study), pruner_of(study)
    assert (sampler.points, sampler.draws_whole, sampler.wants_left) == (None, False, False)
    assert not sampler.waits(study)
    assert not sampler.is_over(study)
    assert (sampler.best(study), sampler.ranked(study), sampler.curve_models()) == (None, (), ())
    trial = study.ask()
    assert pruner.why(study, study.trials[trial.number]) == ""
    assert pruner.curve_models() == ()
