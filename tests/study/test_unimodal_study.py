"""Our sampler and pruner in plain Optuna studies: what they must keep whatever the study is."""

from __future__ import annotations

import random

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.records import Record, Seen, Standing
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler
from tuner.study.unimodal.view import axis_of

RUNGS = (3, 9, 18, 27)
DOMAIN = FloatDistribution(0.0, 100.0)


def score(radius: float, step: int) -> float:
    """A hill at R = 30 that grows with training."""
    return (step / 27) ** 0.5 * (2.0 - 4.0 * (np.log1p(radius) - np.log1p(30.0)) ** 2)


def finished(number: int, radius: float, state: TrialState = TrialState.COMPLETE, upto: int = 4) -> FrozenTrial:
    noise = np.random.default_rng(number).normal(0, 0.05, len(RUNGS))
    seen = {step: score(radius, step) + float(noise[i]) for i, step in enumerate(RUNGS[:upto])}
    value = seen[27] if state is TrialState.COMPLETE else None
    return create_trial(
        state=state, value=value, params={"R": radius}, distributions={"R": DOMAIN}, intermediate_values=seen
    )


def study(trials: list[FrozenTrial], direction: str = "maximize") -> Study:
    made = optuna.create_study(direction=direction, sampler=RandomSampler(seed=0), pruner=optuna.pruners.NopPruner())
    for trial in trials:
        made.add_trial(trial)
    return made


KNOWN = [(10.0, 4), (30.0, 4), (60.0, 4), (20.0, 4), (45.0, 4)]


def sampler(**more: object) -> UnimodalSampler:
    return UnimodalSampler("R", tolerance=0.2, last_step=27, base=RandomSampler(seed=1), **more)  # type: ignore[arg-type]


def pruner(**more: object) -> UnimodalPruner:
    return UnimodalPruner("R", tolerance=0.2, last_step=27, **more)  # type: ignore[arg-type]


def known_study(order: list[int] | None = None) -> Study:
    trials = [finished(i, radius, upto=upto) for i, (radius, upto) in enumerate(KNOWN)]
    return study([trials[i] for i in order or range(len(trials))])


def running(made: Study, radius: float, upto: int) -> optuna.Trial:
    trial = made.ask()
    made._storage.set_trial_param(trial._trial_id, "R", radius, DOMAIN)
    for step in RUNGS[:upto]:
        trial.report(score(radius, step), step)
    return trial


def decides(made: Study, rule: BasePruner, radius: float, upto: int) -> bool:
    trial = running(made, radius, upto)
    found = rule.prune(made, made._storage.get_trial(trial._trial_id))
    made.tell(trial, state=TrialState.FAIL)
    return found


def test_a_trial_far_from_the_top_is_stopped_and_one_at_the_top_is_not() -> None:
    made = known_study()
    assert decides(made, pruner(), 1.0, 1)
    assert not decides(made, pruner(), 29.0, 1)
    assert not decides(made, pruner(), 29.0, 3)


def test_a_trial_that_is_excluded_is_refused_before_its_first_step() -> None:
    made = known_study()
    made.add_trial(finished(5, 2.0))
    assert decides(made, pruner(), 1.0, 0)
    assert not decides(made, pruner(), 33.0, 0)


def test_the_first_trials_are_never_stopped() -> None:
    made = study([])
    first, second = running(made, 10.0, 3), running(made, 30.0, 3)
    for trial in (first, second):
        assert not pruner(risk=0.999).prune(made, made._storage.get_trial(trial._trial_id))


def test_early_only_what_lies_left_of_the_best_is_stopped() -> None:
    """The optimum moves right while training goes on: with two complete trials, R = 100 is too early to judge."""
    made = study([finished(0, 10.0), finished(1, 30.0)])
    sure = pruner(risk=0.4)
    assert decides(made, sure, 0.0, 2)
    assert not decides(made, sure, 100.0, 2)
    assert decides(made, pruner(risk=0.4, enough=2), 100.0, 2), "the control: the same place with both sides allowed"


@pytest.mark.parametrize("seed", range(2))
def test_the_order_in_which_trials_finished_does_not_matter(seed: int) -> None:
    order = list(range(len(KNOWN)))
    random.Random(seed).shuffle(order)
    ours, theirs = known_study(), known_study(order)
    for radius in (0.0, 2.0, 8.0, 25.0, 80.0):
        for upto in (0, 1, 3):
            assert decides(ours, pruner(), radius, upto) == decides(theirs, pruner(), radius, upto)
    proposals = [sampler(seed=5).sample_independent(made, _asked(made), "R", DOMAIN) for made in (ours, theirs)]
    assert proposals[0] == proposals[1]


def _asked(made: Study) -> FrozenTrial:
    return made._storage.get_trial(made.ask()._trial_id)


def drive(made: Study, trials: int) -> list[tuple[float, str]]:
    """Trials one after the other, from wherever the study stands."""
    while len(made.trials) < trials:
        trial = made.ask()
        radius = trial.suggest_float("R", 0.0, 100.0)
        for step in RUNGS:
            trial.report(score(radius, step) + 0.05 * np.sin(97 * radius + step), step)
            if step < 27 and trial.should_prune():
                made.tell(trial, state=TrialState.PRUNED)
                break
        else:
            made.tell(trial, score(radius, 27) + 0.05 * np.sin(97 * radius + 27))
    return [(trial.params["R"], trial.state.name) for trial in made.trials]


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


def test_other_parameters_come_from_the_other_sampler_and_ours_from_ours() -> None:
    made = optuna.create_study(direction="maximize", sampler=sampler(starts=(7.0, 70.0)))
    trial = made.ask()
    assert trial.suggest_float("R", 0.0, 100.0) == pytest.approx(7.0)
    assert trial.suggest_categorical("schedule", ["cosine", "flat"]) in ("cosine", "flat")
    assert 0.01 <= trial.suggest_float("learning_rate", 0.01, 1.0, log=True) <= 1.0
    assert made.ask().suggest_float("R", 0.0, 100.0) == pytest.approx(70.0)


def test_a_value_is_always_one_that_its_distribution_holds() -> None:
    for distribution in (
        IntDistribution(0, 100),
        FloatDistribution(0.0, 1.0, step=0.25),
        IntDistribution(1, 64, log=True),
    ):
        made = optuna.create_study(direction="maximize", sampler=sampler())
        for _ in range(6):
            trial = made.ask({"R": distribution})
            assert distribution._contains(distribution.to_internal_repr(trial.params["R"]))
            made.tell(trial, float(trial.params["R"]))


def test_a_parameter_that_is_no_number_is_left_alone() -> None:
    assert axis_of(CategoricalDistribution((1, 2))) is None
    made = optuna.create_study(direction="maximize", sampler=sampler(), pruner=pruner())
    trial = made.ask({"R": CategoricalDistribution(("a", "b"))})
    trial.report(1.0, 3)
    assert not trial.should_prune()


@pytest.mark.parametrize(
    ("rule", "value"),
    [("share", 1.0), ("risk", float("nan")), ("sure", 1.5), ("draws", 0), ("at_once", 0), ("starts", ()),
     ("starts", (float("nan"),)), ("runs", -0.1), ("runs", 1.0), ("tolerance", 0.0), ("tolerance", float("nan")),
     ("tolerance", float("inf")), ("last_step", 0)],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused_at_once(rule: str, value: object) -> None:
    with pytest.raises(ValueError, match=rule):
        UnimodalPruner("R", **{"tolerance": 0.2, "last_step": 27, rule: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parameter"):
        UnimodalSampler("", tolerance=1.0)


def test_a_start_that_failed_is_made_up_for() -> None:
    made = optuna.create_study(direction="maximize", sampler=sampler())
    first, second = made.ask(), made.ask()
    asked = [trial.suggest_float("R", 0.0, 100.0) for trial in (first, second)]
    made.tell(first, state=TrialState.FAIL)
    again = made.ask().suggest_float("R", 0.0, 100.0)
    assert asked == pytest.approx([10.0, 30.0])
    assert again == pytest.approx(10.0)


def peaks(second: float) -> Seen:
    """Complete trials at nineteen places: a hill, and another one of the given height at the left end."""
    places = np.linspace(0.05, 0.95, 19)
    heights = -30.0 * (places - 0.7) ** 2 + second * np.exp(-0.5 * ((places - 0.15) / 0.12) ** 2)
    noise = np.random.default_rng(8).normal(0, 0.1, places.size)
    records = [
        Record(float(p), 1.0, float(h + e), i) for i, (p, h, e) in enumerate(zip(places, heights, noise, strict=True))
    ]
    return Seen.of(records, [Standing(record.place, record.trial, "complete") for record in records])


def test_a_second_top_lowers_the_probability_that_there_is_one() -> None:
    rules = Rules(axis=ParameterAxis(0.0, 100.0), tolerance=0.2)
    assert Beliefs(Seen((), ()), rules).one_top == rules.share
    assert Beliefs(peaks(0.0), rules).one_top > rules.share
    two = Beliefs(peaks(10.0), rules)
    assert two.one_top < 0.05
    best = max(two.seen.records, key=lambda record: record.score)
    assert best.place < 0.4, "the second top is the higher one"
    assert two.near(best.place) > 0.2
    assert two.excluded(0.45), "the control: between the two"
