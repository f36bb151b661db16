"""The plan: which cap, what noise, what fits whatever is chosen; and stored plans."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from itertools import product
from math import ceil
from typing import Any

import pytest
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.engine.schedules import noise_split
from tuner.errors import BudgetRefusedError, InputError, TunerError
from tuner.experiment import parse_experiment
from tuner.plan.modes import PublicData
from tuner.plan.plan import Plan, make_plan, plan_from
from tuner.plan.shapes import steps_per_trial
from tuner.privacy.accountant.calibration import best_order
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, max_steps
from tuner.privacy.accountant.selection import epsilon_selection
from tuner.report.plan_facts import plan_text, plan_warnings, release_facts, search_facts
from tuner.study.types import Ask
from tuner.sweep.settings import plan_hash

BASE = """\
name: planned
dataset: {name: digits}
trainable: {method: dp_sgd, batch_size: 128, epochs: 4}
privacy: {epsilon: 3.0, delta: 1e-5}
search: {trials: 6, rungs: 4, sampler: random, space: {learning_rate: default}}
"""
N = 1261  # of digits, after the validation split
MENU = "search.space={lr: default, batch_size: {choice: [32, 64, 128]}}"
RANGE = "search.space={lr: default, batch_size: {log_integer: [32, 256]}}"
LENGTHS = "search.space={lr: default, epochs: {uniform: [1, 4]}}"
NOISES = "search.space={lr: default, noise_multiplier: {log_uniform: [2, 8]}}"
SEALED = "privacy.accounting=selection"
SELECTION = (SEALED, "privacy.runs={law: negative_binomial, shape: 2}")
PUBLIC = ("privacy.accounting=public", "search.public={name: mine, path: mine.npz, public_size: 3000}")
PROTECTED = ("dataset.validation={protected: true, epsilon: 1.0}",)
EVERY: dict[str, tuple[str, ...]] = {
    "total steps": (),
    "a number": ("privacy.noise_multiplier=4",),
    "lengths": (LENGTHS,),
    "a menu": (MENU,),
    "a menu, a number": (MENU, "privacy.noise_multiplier=4"),
    "a range": (RANGE,),
    "a range, a number": (RANGE, "privacy.noise_multiplier=4"),
    "noises": (NOISES,),
    "sealed": (SEALED,),
    "sealed menu": (SEALED, MENU),
    "public": PUBLIC,
    "protected": PROTECTED,
}


def planned(*overrides: str) -> Plan:
    experiment = parse_experiment(BASE, overrides)
    return make_plan(experiment, experiment.dataset_request())


def values_of(plan: Plan) -> dict[str, Any]:
    return json.loads(json.dumps(plan.as_dict()))


def one_less(noise: float) -> float:
    """One less in the fifth digit."""
    digits = len(f"{noise:.5g}".partition(".")[2])
    return round(noise - 10.0**-digits, digits)


# -- one mechanism -----------------------------------------------------------------------------------------------------


def test_one_mechanism_is_a_cap_on_total_steps() -> None:
    plan = planned()
    steps = steps_per_trial(epochs=4, train_size=N, batch_size=128)
    assert (plan.cap, plan.step_cap, plan.steps_per_trial) == ("total_steps", 6 * steps, steps)
    assert plan.training_filter == TotalSteps(plan.mechanism, 6 * steps)
    assert plan.nominal.noise_multiplier == calibrate_noise(
        sample_rate=128 / N, steps=6 * steps, epsilon=3.0, delta=1e-5
    )
    assert plan.epsilon_planned == plan.epsilon_at_cap <= 3.0
    assert plan.cheapest() == ()
    assert plan.shape_of({"learning_rate": 0.1}).ask == Ask(steps, 128 / N, plan.nominal.noise_multiplier)


def test_trials_of_several_lengths_have_one_cap_that_holds_the_longest_of_all() -> None:
    fixed, plan = planned(), planned(LENGTHS)
    assert (plan.cap, plan.step_cap, plan.nominal) == ("total_steps", fixed.step_cap, fixed.nominal)
    short, long = plan.shape_of({"epochs": 1.0}), plan.shape_of({"epochs": 4.0})
    assert (short.steps, long.steps) == (10, 39)
    assert (short.rungs, long.rungs) == ((3, 5, 7, 10), (10, 20, 29, 39))
    assert plan.cheapest() == (short,)
    given_noise = planned(LENGTHS, "privacy.noise_multiplier=4", "search.trials=60")
    cap = max_steps(SampledGaussian(128 / N, 4.0), epsilon=3.0, delta=1e-5)
    assert (given_noise.step_cap, given_noise.trials_that_fit) == (cap, cap // 39)
    assert given_noise.trials_at_most == min(60, cap // 10)


# -- a menu ------------------------------------------------------------------------------------------------------------


def test_a_menu_is_a_coupon_book_whose_noise_is_the_least_for_equal_shares() -> None:
    plan = planned(MENU)
    book = plan.training_filter
    assert isinstance(book, CouponBook)
    shares = {batch: 2 * steps_per_trial(epochs=4, train_size=N, batch_size=batch) for batch in (32, 64, 128)}
    noise = plan.nominal.noise_multiplier
    assert dict(book.quotas) == {SampledGaussian(batch / N, noise): steps for batch, steps in shares.items()}
    assert book.claim(1e-5) <= 3.0
    tighter = CouponBook(tuple((SampledGaussian(batch / N, one_less(noise)), s) for batch, s in shares.items()))
    assert tighter.claim(1e-5) > 3.0
    assert (plan.step_cap, plan.trials_that_fit) == (sum(shares.values()), 6)


def test_the_plan_says_what_the_other_cap_would_need() -> None:
    plan = planned(MENU)
    rows = {row.cap: row for row in plan.alternatives}
    assert set(rows) == {"coupon_book", "fixed_order"}
    assert rows["coupon_book"].noise_multiplier == plan.nominal.noise_multiplier < rows["fixed_order"].noise_multiplier
    assert "this cap is tighter than fixed_order" in plan.cap_reason
    other = planned(MENU, "privacy.cap=fixed_order")
    assert other.nominal.noise_multiplier == rows["fixed_order"].noise_multiplier
    assert other.cap == "fixed_order"


def test_with_a_number_the_quotas_are_scaled_to_what_fits() -> None:
    plan = planned(MENU, "privacy.noise_multiplier=4")
    book = plan.training_filter
    assert isinstance(book, CouponBook)
    assert book.claim(1e-5) <= 3.0
    lengths = [steps_per_trial(epochs=4, train_size=N, batch_size=batch) for batch in (32, 64, 128)]
    factors = [steps / (2 * length) for (_, steps), length in zip(book.quotas, lengths, strict=True)]
    assert max(factors) == pytest.approx(min(factors), rel=0.02), "all by one factor"
    larger = CouponBook(tuple((mechanism, round(1.02 * steps)) for mechanism, steps in book.quotas))
    assert larger.claim(1e-5) > 3.0


def test_a_number_with_which_not_one_trial_fits_is_refused() -> None:
    for space in ("search.trials=1", LENGTHS, MENU, RANGE):
        with raises_code(BudgetRefusedError, "budget-too-small"):
            planned(space, "privacy.noise_multiplier=0.3", "privacy.epsilon=0.05")


# -- a fixed order -----------------------------------------------------------------------------------------------------


def test_a_range_is_a_filter_at_the_order_that_is_best_for_the_dearest() -> None:
    plan = planned(RANGE)
    filter = plan.training_filter
    assert isinstance(filter, FixedOrder)
    assert plan.step_cap is None
    assert filter.claim(1e-5) <= 3.0 * (1 + 1e-9)
    dearest = max(plan.choices.menu, key=lambda choice: choice.longest * filter.price(choice.mechanism))
    assert filter.order == best_order([(dearest.mechanism, 6 * dearest.longest)], epsilon=3.0, delta=1e-5)
    assert planned(RANGE, "privacy.cap=fixed_order", "privacy.order=5").training_filter.order == 5
    with raises_code(TunerError, "plan-has-no-mechanism"):
        _ = plan.mechanism


@settings(max_examples=40)
@given(st.lists(st.integers(32, 256), min_size=6, max_size=6))
def test_the_planned_trials_fit_whatever_batch_sizes_they_choose(batches: list[int]) -> None:
    plan = _ranged()
    filter, used = plan.training_filter, {}
    for batch in batches:
        shape = plan.shape_of({"batch_size": batch})
        mechanism = SampledGaussian(shape.sample_rate, shape.noise_multiplier)
        assert filter.left(used, mechanism) >= shape.steps
        used[mechanism] = used.get(mechanism, 0) + shape.steps


@cache
def _ranged() -> Plan:
    return planned(RANGE)


def test_searched_noise_has_no_number_and_says_how_many_fit() -> None:
    plan = planned(NOISES, "search.trials=400")
    assert (plan.cap, plan.noise_source) == ("fixed_order", "searched")
    filter = plan.training_filter
    quiet, loud = (plan.shape_of({"noise_multiplier": noise}) for noise in (2.0, 8.0))
    assert plan.trials_that_fit == filter.left({}, SampledGaussian(128 / N, 2.0)) // quiet.steps
    assert plan.trials_at_most == min(400, filter.left({}, SampledGaussian(128 / N, 8.0)) // loud.steps)
    assert plan.trials_that_fit < plan.trials_at_most
    assert plan.cheapest() == (loud,)
    assert plan_warnings(plan) == ()
    too_quiet = planned("search.space={lr: default, noise_multiplier: {uniform: [0.3, 8]}}")
    assert too_quiet.trials_that_fit == 0
    assert "Narrow the search space" in plan_warnings(too_quiet)[0]


def test_what_fits_whenever_anything_does_is_among_the_cheapest() -> None:
    for overrides in EVERY.values():
        plan = planned(*overrides)
        if not plan.priced:
            continue
        filter = plan.training_filter
        grids = {name: domain.grid(5) for name, domain in plan.choices.searched.items()}
        shapes = [plan.shape_of(dict(zip(grids, chosen, strict=True))) for chosen in product(*grids.values())]
        if isinstance(filter, Sealed):
            continue
        steps_left = [
            filter.left({}, SampledGaussian(shape.sample_rate, shape.noise_multiplier)) // shape.steps
            for shape in (*shapes, *plan.cheapest())
        ]
        assert max(steps_left[len(shapes) :]) == max(steps_left), overrides


# -- selection, public, protected scores -------------------------------------------------------------------------------


def test_a_sealed_search_is_priced_as_a_whole_and_its_noise_is_the_least() -> None:
    plan = planned(SEALED)
    sealed = plan.training_filter
    assert isinstance(sealed, Sealed)
    assert sealed.runs == ((plan.mechanism, plan.steps_per_trial),)
    assert plan.step_cap is None
    assert plan.epsilon_at_cap == sealed.claim(1e-5) <= 3.0
    louder = ((SampledGaussian(128 / N, one_less(plan.nominal.noise_multiplier)), plan.steps_per_trial),)
    assert epsilon_selection(sealed.law, louder, 1e-5, at_most=sealed.at_most) > 3.0
    assert plan.selection is not None
    assert 0 < plan.selection.truncation_share <= 0.0101
    assert plan.selection.price == pytest.approx(plan.epsilon_at_cap / plan.epsilon_trial)
    with raises_code(BudgetRefusedError, "budget-too-small"):
        planned(SEALED, f"privacy.noise_multiplier={0.9 * plan.nominal.noise_multiplier}")
    with raises_code(InputError, "epsilon-too-large"):
        planned(SEALED, "privacy.epsilon=700")


def test_a_sampler_that_looks_at_scores_costs_more_and_the_plan_says_how_much() -> None:
    plain, bounded = planned(SEALED), planned(SEALED, "search.sampler=bounded")
    assert bounded.nominal.noise_multiplier > plain.nominal.noise_multiplier
    assert bounded.training_filter.ratio == pytest.approx((0.9, 1.1))
    assert bounded.selection.price > bounded.selection.price_without_ratio
    assert plain.selection.price == plain.selection.price_without_ratio


def test_a_sealed_menu_is_priced_by_all_of_its_configurations_together() -> None:
    plan = planned(SEALED, MENU)
    sealed = plan.training_filter
    assert len(sealed.runs) == 3
    assert sealed.claim(1e-5) <= 3.0
    alone = [epsilon_selection(sealed.law, (run,), 1e-5, at_most=sealed.at_most) for run in sealed.runs]
    assert sealed.claim(1e-5) >= max(alone) * (1 - 1e-6)


def test_a_public_search_pays_for_one_run() -> None:
    plan = planned(*PUBLIC)
    assert plan.nominal.noise_multiplier == calibrate_noise(
        sample_rate=128 / N, steps=plan.steps_per_trial, epsilon=3.0, delta=1e-5
    )
    assert (plan.step_cap, plan.trials, plan.private_trials) == (plan.steps_per_trial, 6, 1)
    assert plan.public == PublicData(name="mine", train_size=2700, sample_rate=128 / 2700)
    with raises_code(BudgetRefusedError, "budget-too-small"):
        planned(*PUBLIC, "privacy.noise_multiplier=0.3")


def test_protected_scores_have_a_budget_and_a_standard_error() -> None:
    plan = planned(*PROTECTED)
    scores = plan.validation
    assert scores is not None
    releases = 6 * 4 + 1
    assert plan.validation_filter == TotalSteps(SampledGaussian(1.0, scores.noise), releases)
    assert epsilon(SampledGaussian(1.0, scores.noise), releases, 1e-5) <= 1.0
    assert epsilon(SampledGaussian(1.0, one_less(scores.noise)), releases, 1e-5) > 1.0
    assert plan.validation_claim == (1.0, 1e-5)
    assert scores.standard_error == scores.noise / scores.size
    assert plan.shape_of({}).releases == 4
    assert "standard error" in plan_warnings(plan)[0], "on 136 records the noise drowns everything"
    few = planned(*PROTECTED, "dataset.validation.noise=30")
    assert few.validation_filter.step_cap == max_steps(SampledGaussian(1.0, 30.0), epsilon=1.0, delta=1e-5)
    with raises_code(BudgetRefusedError, "validation-budget-too-small"):
        planned(*PROTECTED, "dataset.validation.noise=0.5")


# -- fewer whole runs than trials -----------------------------------------------------------------------------------


def test_full_runs_set_the_noise_and_the_cap() -> None:
    plan, whole = planned("search.full_runs=2.5"), planned()
    steps = ceil(2.5 * plan.steps_per_trial)
    assert plan.training_filter == TotalSteps(plan.nominal, steps)
    assert plan.nominal.noise_multiplier < whole.nominal.noise_multiplier
    assert epsilon(plan.nominal, steps, plan.delta) <= plan.epsilon
    assert epsilon(SampledGaussian(plan.nominal.sample_rate, one_less(plan.nominal.noise_multiplier)), steps,
                   plan.delta) > plan.epsilon  # fmt: skip
    assert (plan.full_runs, plan.trials) == (2.5, 6)


def test_the_number_of_scores_is_that_of_the_planned_steps() -> None:
    plan = planned(*PROTECTED, "search.full_runs=2.5")
    assert plan.validation is not None
    assert plan.planned_scores == plan.validation.releases - 1 == 10, "four rungs a run, equally spaced"


def test_too_few_whole_runs_are_refused_and_auto_takes_what_is_recommended() -> None:
    with raises_code(InputError, "full-runs-too-small"):
        planned("search.full_runs=2.2")  # 1 + 5/4
    plan = planned("search.full_runs=auto")
    assert plan.rung_wise is not None
    assert 2.25 <= plan.rung_wise.recommended == plan.full_runs < 6
    assert plan.rung_wise.reached[-1] >= 1
    assert plan_from(json.loads(json.dumps(plan.as_dict())), trials=6) == plan
    assert planned("search.full_runs=6").training_filter == planned().training_filter


def test_the_two_releases_of_a_step_with_probes_are_named() -> None:
    """The cap is that of the same search with another schedule, because a step is charged as one mechanism."""
    gen = ("search.space={schedule: gen, ema_decay: default}", "privacy.noise_multiplier=4")
    experiment = parse_experiment(BASE, gen)
    plan = make_plan(experiment, experiment.dataset_request())
    facts = dict(release_facts(experiment, plan))
    split = noise_split(plan.nominal.noise_multiplier, probe_share=0.019)
    assert {f"{split.gradient:.4g}", f"{split.probe:.4g}", f"{plan.nominal.noise_multiplier:.4g}"} <= set(
        facts["a step of gen"].replace(",", "").replace(";", "").split()
    )
    assert {"noisy probes", "clipping"} <= set(facts)
    other = parse_experiment(BASE, ("search.space={ema_decay: default}", "privacy.noise_multiplier=4"))
    assert make_plan(other, other.dataset_request()).training_filter == plan.training_filter
    assert release_facts(other, plan) == ()


# -- what is shown and stored ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_a_plan_of_every_kind_is_shown_stored_and_read_again(kind: str) -> None:
    plan = planned(*EVERY[kind])
    assert plan.epsilon_at_cap <= plan.epsilon * (1 + 1e-9)
    again = plan_from(values_of(plan), trials=plan.trials)
    assert again == plan
    assert plan_hash(again) == plan_hash(plan)
    assert plan_hash(plan_from(values_of(plan), trials=plan.trials + 1)) == plan_hash(plan)
    text = plan_text(plan, source="e.yaml", claim="")
    assert {"trains", "batch", "noise", "cap"} <= set(dict(text.facts))
    assert "The guarantee of ONE search will be its cap: ε = 3 at δ = 1e-05" in text.sentence
    assert ("validation and test scores" in text.sentence) == (plan.validation is None)


def test_a_plan_names_what_is_searched_with_its_ranges() -> None:
    space = "search.space={lr: {log_uniform: [0.03125, 2]}, batch_size: {choice: [32, 64]}}"
    found = dict(search_facts(parse_experiment(BASE, (space,))))["searched"]
    assert found == "learning_rate 0.03125 to 2; batch_size 32 or 64 (changes the ε of a trial)"
    large = ("trainable.method=dplis", "search.space={lr: 1, smoothing_samples: {log_integer: [1, 20000]}}")
    assert dict(search_facts(parse_experiment(BASE, large)))["searched"] == "smoothing_samples 1 to 20000"
    one = "search={trials: 1, space: {lr: 0.5, max_grad_norm: 2}}"
    found = dict(search_facts(parse_experiment(BASE, (one,))))["searched"]
    assert found == "nothing: one configuration (learning_rate 0.5, max_grad_norm 2)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("privacy.epsilon=1e-6",),
        ("privacy.epsilon=1e6",),
        ("privacy.noise_multiplier=1e6",),
        (SEALED, "search.trials=3", "privacy.runs={law: negative_binomial, shape: 1e6}"),
    ],
)
def test_values_at_the_edge_of_the_accountants_are_planned(overrides: tuple[str, ...]) -> None:
    plan = planned(*overrides)
    assert plan.epsilon_at_cap <= plan.epsilon


# -- stored plans ------------------------------------------------------------------------------------------------------


def test_a_stored_plan_with_missing_unknown_or_contradicting_values_is_refused() -> None:
    experiment = parse_experiment(BASE)
    stored = values_of(make_plan(experiment, experiment.dataset_request()))
    lacking = {key: value for key, value in stored.items() if key != "rungs"}
    wrong = ({"extra": 1}, {"step_cap": 10**6}, {"public": {"size": 1}}, {"accounting": "other"})
    for values in (lacking, *(stored | each for each in wrong)):
        with raises_code(TunerError, "plan-unreadable"):
            plan_from(values, trials=3)


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys; from tuner.experiment import parse_experiment; from tuner.plan.plan import make_plan;"
        f"e = parse_experiment({BASE!r}); make_plan(e, e.dataset_request());"
        "print({'torch', 'ray', 'mlflow', 'optuna'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
