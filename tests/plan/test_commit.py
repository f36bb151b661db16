"""The plan of a committed run: two noises that are calibrated together, their ratio, and what is refused."""

from __future__ import annotations

import json
from functools import cache
from math import erfc, exp, expm1, log, sqrt

import pytest
from errors_helper import raises_code

from tuner.errors import ExperimentError, InputError
from tuner.experiment import parse_experiment
from tuner.plan.commit import _search_noise
from tuner.plan.plan import Plan, make_plan, plan_from
from tuner.privacy.accountant.filters import CouponBook
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise
from tuner.report.plan_facts import plan_text
from tuner.sweep.settings import plan_hash

BASE = """\
name: planned
dataset: {name: digits}
trainable: {method: dp_sgd, batch_size: 128, epochs: 4}
privacy: {epsilon: 3.0, delta: 1e-5}
search: {trials: 6, rungs: 4, sampler: random, commit: 0.1, space: {learning_rate: default}}
"""
N, STEPS, SHORT = 1261, 39, 10


@cache
def planned(*overrides: str) -> Plan:
    experiment = parse_experiment(BASE, overrides)
    return make_plan(experiment, experiment.dataset_request())


def refused(*overrides: str) -> list[str]:
    with pytest.raises(ExperimentError) as error:
        parse_experiment(BASE, overrides)
    return [problem.code for problem in error.value.problems]


def squared_loss(mechanism: SampledGaussian, steps: int) -> float:
    return steps * expm1(mechanism.noise_multiplier**-2)


def test_both_noises_are_the_least_that_fit_and_the_trials_have_their_share() -> None:
    plan = planned()
    assert plan.commit is not None
    book = plan.training_filter
    search, run = plan.nominal, plan.commit.mechanism
    assert isinstance(book, CouponBook)
    assert dict(book.quotas) == {search: 6 * SHORT, run: STEPS}
    assert (plan.steps_per_trial, plan.commit.steps, plan.commit.search_steps) == (SHORT, STEPS, 6 * SHORT)
    assert book.claim(1e-5) == plan.epsilon_at_cap == plan.epsilon_planned <= 3.0
    share = squared_loss(search, 6 * SHORT) / (squared_loss(search, 6 * SHORT) + squared_loss(run, STEPS))
    assert share == pytest.approx(0.1, rel=1e-3)
    assert book.share({search: 6 * SHORT}, units=0) == pytest.approx(0.1, rel=1e-3), "the budget bar shows the share"
    less = SampledGaussian(run.sample_rate, run.noise_multiplier - 1e-4)
    assert CouponBook(((search, 6 * SHORT), (less, STEPS))).claim(1e-5) > 3.0
    alone = calibrate_noise(sample_rate=128 / N, steps=STEPS, epsilon=3.0, delta=1e-5)
    assert (plan.commit.noise_alone, alone < run.noise_multiplier < 1.1 * alone) == (alone, True)


def test_full_batches_are_exact_gaussians_of_whom_the_trials_have_the_share() -> None:
    plan = planned("trainable.batch_size=1261", "trainable.epochs=40", "search.commit={share: 0.3, length: 0.5}")
    assert plan.commit is not None
    search, run = plan.nominal.noise_multiplier, plan.commit.noise_multiplier
    mu = sqrt(6 * 20 / search**2 + 40 / run**2)

    def delta_of(epsilon: float) -> float:  # Balle & Wang 2018, of a Gaussian mechanism with sensitivity μ
        above = 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2))
        return above - exp(epsilon + log(0.5 * erfc((epsilon / mu + mu / 2) / sqrt(2))))

    assert delta_of(3.0) <= 1e-5, "the cap of the two quotas holds by the analytic formula"
    assert delta_of(2.99) > 1e-5, "and is not loose"
    assert (6 * 20 / search**2) / mu**2 == pytest.approx(0.3, rel=0.02)


def test_the_two_noises_differ_even_if_the_share_asks_for_one() -> None:
    plan = planned("search.commit={share: 0.5, length: 1.0}", "search.trials=1")
    assert plan.commit is not None
    assert plan.nominal.noise_multiplier > plan.commit.noise_multiplier
    assert len(plan.training_filter.mechanisms) == 2, "with one mechanism, trials could use the run's steps"
    assert plan.epsilon_at_cap <= 3.0
    for noise in (0.5, 1.0, 1.6345, 2.0, 9.96, 33.98, 250.0):  # some of them come out as they are, some a digit higher
        assert _search_noise(noise, 1.0) > noise


def test_a_stored_plan_is_the_same_and_more_trials_find_no_more_steps() -> None:
    plan = planned("dataset.validation={protected: true, epsilon: 1.0}", "search.commit={start: best_trial}")
    stored = json.loads(json.dumps(plan.as_dict()))
    again = plan_from(stored, trials=6)
    assert (again, plan_hash(again)) == (plan, plan_hash(plan))
    assert plan.commit is not None
    assert plan.commit.start == "best_trial"
    more = plan_from(stored, trials=9)
    assert (more.trials, more.trials_that_fit, more.training_filter) == (9, 6, plan.training_filter)
    assert plan_hash(more) == plan_hash(plan)
    run = plan.shape_of({}, committed=True)
    assert (run.steps, run.rungs, run.releases) == (39, (8, 20, 31, 39), 4)
    assert plan.shape_of({}).rungs == (2, 5, 8, 10)
    assert plan.validation is not None
    assert plan.validation.releases == 6 * 4 + 4 + 1


def test_the_plan_shows_both_noises_and_the_price() -> None:
    plan = planned()
    assert plan.commit is not None
    facts = dict(plan_text(plan, source="", claim="").facts)
    assert f"{plan.commit.noise_multiplier:g} (calibrated)" in facts["its noise"]
    assert f"more than the {plan.commit.noise_alone:g} of one run" in facts["its noise"]
    assert facts["noise"] == f"noise multiplier {plan.nominal.noise_multiplier:g} for the trials (calibrated)"
    assert facts["quotas"] == "60 steps for all trials, 39 for the committed run"


def test_what_is_not_proved_or_built_is_refused_once_with_its_reason() -> None:
    for share in ("0", "1", "-0.1", "1.5", ".nan"):
        assert refused(f"search.commit={share}") == ["value-out-of-range"], share
    assert refused("search.commit={share: 1.0}") == ["value-out-of-range"]
    assert refused("search.commit={length: 0}") == ["value-out-of-range"]
    assert refused("search.commit={length: 1.1}") == ["value-out-of-range"]
    assert refused("search.commit={start: middle}") == ["value-not-allowed"]
    assert refused("search.commit={from: scratch}") == ["key-unknown"]
    assert refused("privacy.accounting=selection") == ["commit-needs-composition"]
    assert refused("privacy.noise_multiplier=2") == ["commit-noise-given"]
    assert refused("search.full_runs=2") == ["commit-with-full-runs"]
    assert refused("privacy.cap=fixed_order") == ["commit-cap"]
    for priced in ("{epochs: {uniform: [1, 4]}}", "{batch_size: {choice: [64, 128]}}"):
        assert refused(f"search.space={priced}") == ["commit-priced-searched"], priced
    with raises_code(InputError, "commit-share-too-small"):
        planned("search.commit=1e-12")
    assert parse_experiment(BASE, ("search.commit=null",)).search.commit is None
