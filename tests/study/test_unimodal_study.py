"""Our sampler and pruner in plain Optuna studies: what they must keep whatever the study is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf, nan

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial
from radius_studies import DOMAIN, RUNGS, beliefs_of, made, pruner, sampler, score, study_of

from tuner.study.protocols import StudyPruner
from tuner.study.rung_wise import paused_as
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.view import axis_of

RULES = Rules(axis=ParameterAxis(0.0, 100.0), tolerance=0.2)
KNOWN = (10.0, 30.0, 60.0, 20.0, 45.0)


def known_study(order: Sequence[int] = range(len(KNOWN))) -> Study:
    trials = [made(number, radius) for number, radius in enumerate(KNOWN)]
    return study_of(trials[number] for number in order)


def judged(study: Study, rule: StudyPruner, radius: float, upto: int) -> tuple[bool, str]:
    """Whether a trial with scores at this many rungs is stopped, and why."""
    study.enqueue_trial({"R": radius})
    trial = study.ask({"R": DOMAIN})
    for step in RUNGS[:upto]:
        trial.report(score(radius, step), step)
    frozen = study.trials[-1]
    found = rule.prune(study, frozen), rule.why(study, frozen)
    study.tell(trial, state=TrialState.FAIL)
    return found


def decides(study: Study, rule: StudyPruner, radius: float, upto: int) -> bool:
    return judged(study, rule, radius, upto)[0]


def test_reasons_are_about_scores_and_parameters_alone() -> None:
    known, many = known_study(), study_of(made(number, 30.0 + 25 * (number % 3)) for number in range(24))
    for study, rule, radius, upto, reason in (
        (known, pruner(), 1.0, 1, "R = 1 is near the best only with probability"),
        (many, pruner(strict=True), 100.0, 0, "R = 100 is outside the range of the best value"),
        (study_of([]), pruner(), 30.0, 0, ""),
    ):
        assert judged(study, rule, radius, upto)[1].startswith(reason)


def test_a_trial_far_from_the_top_is_stopped_and_one_at_the_top_is_not() -> None:
    study = known_study()
    assert decides(study, pruner(), 1.0, 1)
    assert not decides(study, pruner(), 29.0, 1)
    assert not decides(study, pruner(), 29.0, 3)
    study.add_trial(made(5, 2.0))
    assert decides(study, pruner(), 1.0, 0), "before its first step"
    assert not decides(study, pruner(), 33.0, 0)


def test_early_only_what_lies_left_of_the_best_is_stopped() -> None:
    """The optimum moves right while training goes on: with two complete trials, R = 60 is too early to judge."""
    study, sure = study_of([made(0, 10.0), made(1, 30.0)]), pruner(risk=0.4)
    assert decides(study, sure, 0.0, 2)
    assert not decides(study, sure, 60.0, 2)
    assert decides(study, pruner(risk=0.4, enough=2), 60.0, 2), "the control: the same place with both sides allowed"


def test_a_trial_that_learns_nothing_is_stopped_even_if_it_is_one_of_the_first() -> None:
    study = study_of([made(0, 30.0)])
    for scores, stopped in (((-9.0, -8.9), True), ((-9.0, -3.0), False)):
        study.enqueue_trial({"R": 60.0})
        trial = study.ask({"R": DOMAIN})
        for step, value in zip(RUNGS, scores, strict=False):
            trial.report(value, step)
        assert pruner().prune(study, study.trials[-1]) is stopped
        assert ("hardly rises" in pruner().why(study, study.trials[-1])) is stopped
        study.tell(trial, state=TrialState.FAIL)


def test_the_end_of_the_axis_is_tried_when_the_scores_point_there() -> None:
    """R = 0, no smoothing, is proposed exactly."""
    for first, second, end in ((1.0, -1.0, 0.0), (-1.0, 1.0, 100.0)):
        trials = [
            create_trial(
                value=value, params={"R": radius}, distributions={"R": DOMAIN}, intermediate_values={27: value}
            )
            for radius, value in ((10.0, first), (30.0, second))
        ]
        study = study_of(trials)
        assert sampler().sample_independent(study, _asked(study), "R", DOMAIN) == pytest.approx(end)


def test_until_three_trials_are_complete_none_starts_beside_another_but_the_first_two() -> None:
    rule, waited = sampler(at_once=2), []
    study = optuna.create_study(direction="maximize", sampler=rule)
    running: list[optuna.Trial] = []
    for ends in (0, 0, 1, 1, 0, 1, 0, 0):
        for trial in running[:ends]:
            study.tell(trial, score(trial.suggest_float("R", 0.0, 100.0), 27))
        del running[:ends]
        waited.append(rule.waits(study))
        if not waited[-1]:
            running.append(study.ask({"R": DOMAIN}))
    assert waited == [False, False, True, False, True, False, False, True]


def test_plain_optuna_is_told_that_it_does_not_wait() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler(at_once=2))
    study.ask()
    study.ask()
    with pytest.warns(UserWarning, match="3 trials run at a time"):
        study.ask()


def test_the_order_in_which_trials_finished_does_not_matter() -> None:
    order = list(range(len(KNOWN)))
    random.Random(0).shuffle(order)
    ours, theirs = known_study(), known_study(order)
    for radius in (0.0, 2.0, 8.0, 25.0, 80.0):
        for upto in (0, 3):
            assert decides(ours, pruner(), radius, upto) == decides(theirs, pruner(), radius, upto)
    proposals = [sampler(seed=5).sample_independent(study, _asked(study), "R", DOMAIN) for study in (ours, theirs)]
    assert proposals[0] == proposals[1]


def _asked(study: Study) -> FrozenTrial:
    study.ask()
    return study.trials[-1]


def drive(study: Study, trials: int) -> list[tuple[float, str]]:
    """Trials one after the other, from wherever the study stands."""
    while len(study.trials) < trials:
        trial = study.ask()
        radius = trial.suggest_float("R", 0.0, 100.0)
        for step in RUNGS:
            trial.report(score(radius, step) + 0.05 * np.sin(97 * radius + step), step)
            if step < 27 and trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                break
        else:
            study.tell(trial, score(radius, 27) + 0.05 * np.sin(97 * radius + 27))
    return [(trial.params["R"], trial.state.name) for trial in study.trials]


def test_a_resumed_study_decides_as_one_that_was_not_interrupted() -> None:
    storage = optuna.storages.InMemoryStorage()

    def opened(name: str) -> Study:
        return optuna.create_study(
            study_name=name, storage=storage, direction="maximize", load_if_exists=True,
            sampler=sampler(seed=3), pruner=pruner(),
        )  # fmt: skip

    whole = drive(opened("whole"), 8)
    for upto in (2, 5, 8):
        parts = drive(opened("parts"), upto)  # a fresh sampler and pruner each time
    assert parts == whole
    assert len(whole) == 8


def test_a_trial_that_was_paused_and_goes_on_is_judged_by_all_its_scores() -> None:
    """While it is paused, it is shown as complete with its last score. That is not its final score, and not kept."""
    study, rule = known_study(), pruner()
    study.enqueue_trial({"R": 33.0})
    trial = study.ask({"R": DOMAIN})
    trial.report(score(33.0, 3), 3)
    with paused_as(study, TrialState.COMPLETE, running=True):
        paused = rule.beliefs(study)
    trial.report(score(33.0, 9) - 5.0, 9)
    again, fresh = rule.beliefs(study), pruner().beliefs(study)
    assert again is not None
    assert paused is not None
    assert fresh is not None
    assert again.seen == fresh.seen
    assert len(again.seen.records) == len(paused.seen.records) + 1
    assert [each.trial for each in paused.seen.standing("paused")] == [len(KNOWN)]


def test_a_parameter_that_is_no_number_is_left_alone() -> None:
    assert axis_of(CategoricalDistribution((1, 2))) is None
    study = optuna.create_study(direction="maximize", sampler=sampler(), pruner=pruner())
    trial = study.ask({"R": CategoricalDistribution(("a", "b"))})
    trial.report(1.0, 3)
    assert not trial.should_prune()


WRONG = [("parameter", ""), ("risk", nan), ("sure", 1.5), ("draws", 0), ("at_once", 0), ("starts", ())]
WRONG += [("starts", (nan,)), ("tolerance", 0.0), ("tolerance", nan), ("tolerance", inf), ("last_step", 0)]


@pytest.mark.parametrize(("rule", "value"), WRONG)
def test_a_rule_that_cannot_be_is_refused_at_once(rule: str, value: object) -> None:
    with pytest.raises(ValueError, match=rule):
        UnimodalPruner(**{"parameter": "R", "tolerance": 0.2, "last_step": 27, rule: value})


def test_a_start_that_failed_is_made_up_for() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler())
    first, second = study.ask(), study.ask()
    asked = [trial.suggest_float("R", 0.0, 100.0) for trial in (first, second)]
    study.tell(first, state=TrialState.FAIL)
    again = study.ask().suggest_float("R", 0.0, 100.0)
    thirds = [float(np.expm1(share * np.log1p(100.0))) for share in (1 / 3, 2 / 3)]
    assert asked == pytest.approx(thirds)
    assert again == pytest.approx(thirds[0])


def peaks(second: float) -> Beliefs:
    """After trials at nineteen places: a hill, and another one of the given height at the left end."""
    places = np.linspace(0.05, 0.95, 19)
    heights = -30.0 * (places - 0.7) ** 2 + second * np.exp(-0.5 * ((places - 0.15) / 0.12) ** 2)
    return beliefs_of(places, heights + np.random.default_rng(8).normal(0, 0.1, places.size), RULES)


def test_between_two_tops_a_trial_is_stopped_and_at_the_higher_one_it_is_not() -> None:
    two = peaks(10.0)
    best = max(two.seen.records, key=lambda record: record.score)
    assert best.place < 0.4, "the second top is the higher one"
    assert two.near(best.place) > 0.2
    assert two.excluded(0.45), "the control: between the two"
