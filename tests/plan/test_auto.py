"""`accounting: auto`: the choice follows from public facts and stored prices, and takes no search that may not pay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors_helper import raises_code

from search_spaces.prior import leaving_out
from trainables.data import DatasetRequest
from tuner.errors import ExperimentError, InputError, TunerError
from tuner.experiment import Experiment, parse_experiment
from tuner.plan.candidates import CANDIDATES, as_stored
from tuner.plan.comparison import Comparison, choose, compare
from tuner.plan.plan import Plan, make_plan
from tuner.plan.prices import (
    Expected,
    MeasuredSearch,
    Prices,
    Situation,
    best_arm,
    expected_gain,
    expected_price,
    read_prices,
    shipped_prices,
)
from tuner.report.plan_facts import plan_text

FILE = """\
name: planned
dataset: {name: digits}
trainable: {method: dp_sgd, batch_size: 128, epochs: 2}
privacy: {epsilon: 3.0, delta: 1e-5, accounting: auto}
search: {trials: 4, space: {learning_rate: {log_uniform: [0.1, 10]}, max_grad_norm: default}}
"""
BOTH = "search.space={learning_rate: default, max_grad_norm: default}"
AT = Situation(epsilon=1.0, trials=12, axes=2, family="linear", train_size=1000)
HARMLESS = {"commit": 0.0, "full_runs": 0.0, "composition": 0.0, "selection": 0.0, "gen": 0.0}


@pytest.fixture(autouse=True)
def _plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan each candidate once in all tests. A plan is a function of the experiment file."""

    def planned(experiment: Experiment, request: DatasetRequest) -> Plan:
        file = experiment.to_yaml()
        if file not in _PLANS:
            _PLANS[file] = make_plan(experiment, request)
        return _PLANS[file]

    monkeypatch.setattr("tuner.plan.comparison.make_plan", planned)


_PLANS: dict[str, Plan] = {}


def row(arm: str, price: float, dataset: str, **changes: object) -> MeasuredSearch:
    values: dict[str, Any] = {"epsilon": 1.0, "trials": 12, "axes": 2, "family": "linear", "train_size": 1000}
    return MeasuredSearch(**(values | {"arm": arm, "price": price, "dataset": dataset} | changes))


def measured(gains: dict[str, float], *, datasets: int = 12, **changes: object) -> Prices:
    """Prices in which each arm is better than no search by its gain, on every data set and near every setting."""
    rows = [
        row(arm, 2.0 + number / 10 - gain, f"set {number}", epsilon=epsilon, **changes)
        for number in range(datasets)
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)
        for arm, gain in {"prior": 0.0, **gains}.items()
    ]
    return Prices(provenance={}, searches=tuple(rows))


def chosen(prices: Prices, *overrides: str) -> tuple[Experiment, Plan, Comparison]:
    experiment = parse_experiment(FILE, overrides)
    return choose(experiment, experiment.dataset_request(), prices=prices)


def refusals(*overrides: str) -> dict[str, str]:
    return {each.candidate: each.refused for each in chosen(measured(HARMLESS), *overrides)[2].rows if each.refused}


# -- expected prices --------------------------------------------------------------------------------------------------


def test_rows_near_the_budget_decide_and_a_data_set_has_one_vote() -> None:
    rows = [row("commit", 1.0, name) for name in "abcd"] + [row("commit", 9.0, name, epsilon=1000.0) for name in "abcd"]
    near = expected_price(rows, "commit", AT)
    assert near is not None
    assert near.value == pytest.approx(1.0, abs=0.01)
    many = expected_price([*rows, *[row("commit", 5.0, "e")] * 100], "commit", AT)
    assert many is not None
    assert many.value == pytest.approx((4 * 1.0 + 5.0) / 5, abs=0.01)
    assert many.error > near.error


def test_the_error_grows_with_fewer_data_sets_not_with_fewer_rows() -> None:
    def error(datasets: int, repeats: int) -> float:
        rows = [row("commit", float(number % 2), f"{number}") for number in range(datasets)] * repeats
        found = expected_price(rows, "commit", AT)
        assert found is not None
        return found.error

    assert error(16, 1) == pytest.approx(error(16, 50))
    assert error(4, 50) > 1.5 * error(16, 1)


def test_what_two_arms_lose_alike_cancels_in_pairs() -> None:
    """Without pairs the scatter between data sets hides a gain of one point; with pairs it does not."""
    losses = [(f"set {number}", 10.0 * (number % 2)) for number in range(12)]
    mine = [row("commit", loss, name) for name, loss in losses]
    paired = expected_gain([*mine, *(row("prior", loss + 1, name) for name, loss in losses)], "commit", "prior", AT)
    others = [row("prior", loss + 1, name, train_size=1001) for name, loss in losses]
    apart = expected_gain([*mine, *others], "commit", "prior", AT)
    assert paired is not None
    assert apart is not None
    assert paired.value == pytest.approx(apart.value) == pytest.approx(1.0)
    assert paired.error < 0.3 < 1.0 < apart.error


def test_far_settings_have_no_expected_price_and_another_family_a_doubtful_one() -> None:
    rows = [row("commit", 1.0, f"{number}") for number in range(12)]
    for other in ({"epsilon": 100.0}, {"axes": 22}, {"train_size": 10**7}, {"classes": 1000}):
        assert expected_price(rows, "commit", Situation(**(asdict(AT) | other))) is None
    own = expected_price(rows, "commit", AT)
    foreign = expected_price(rows, "commit", Situation(**(asdict(AT) | {"family": "convolutional"})))
    assert own is not None
    assert own == expected_price(rows, "commit", Situation(**(asdict(AT) | {"classes": 2})))
    assert foreign is not None
    assert foreign.value == pytest.approx(own.value)
    assert foreign.error > 1.3 * own.error


GOOD = {"arm": "commit", "trials": 12, "axes": 2, "family": "linear", "train_size": 900,
        "dataset": "adult", "epsilon": 1.0, "price": 0.41}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"arm": "magic"}, {"epsilon": 0.0}, {"epsilon": "1"}, {"price": None}, {"family": "logistic"}, {"trials": 0},
     {"dataset": ""}, {"more": 1}, {"price": 101.0}],
)  # fmt: skip
def test_a_file_of_prices_with_one_wrong_value_is_refused(change: dict[str, object]) -> None:
    def text(values: object) -> str:
        return json.dumps({"provenance": {}, "searches": [values]})

    assert read_prices(text(GOOD)).searches[0].price == 0.41
    with raises_code(TunerError, "prices-unreadable"):
        read_prices(text({**GOOD, **change}))
    with raises_code(TunerError, "prices-unreadable"):
        read_prices(text({name: value for name, value in GOOD.items() if name not in change} or GOOD)[:-1])


def test_the_shipped_prices_say_where_they_come_from_and_have_the_baseline() -> None:
    prices = shipped_prices()
    assert prices.provenance
    assert {"prior", "commit"} <= {each.arm for each in prices.searches}


def test_with_the_shipped_prices_the_choice_is_not_worse_than_no_search_on_a_data_set_that_it_has_not_seen() -> None:
    found: dict[tuple[object, ...], dict[str, list[MeasuredSearch]]] = {}
    for each in shipped_prices().searches:
        found.setdefault(each.situation, {}).setdefault(each.arm, []).append(each)
    assert any(len(arms) > 2 for arms in found.values()), "searches and no search were measured together"
    paid: dict[str, list[tuple[float, float]]] = {}
    for arms in found.values():
        if "prior" not in arms:
            continue
        one, searched = arms["prior"][0], set(arms) - {"prior", "middle"}
        rows = [each for each in shipped_prices().searches if each.dataset != one.dataset]
        trials = max((each.trials for arm in searched for each in arms[arm]), default=1)
        facts = {name: getattr(one, name) for name in ("epsilon", "axes", "family", "train_size")}
        at = Situation(trials=trials, **facts)
        best = best_arm({arm: expected_gain(rows, arm, "prior", at) for arm in searched}) or "prior"
        prices = [sum(each.price for each in arms[arm]) / len(arms[arm]) for arm in (best, "prior")]
        paid.setdefault(one.dataset, []).append((prices[0], prices[1]))
    means = [np.mean(each, axis=0) for each in paid.values()]
    mine, without_search = np.mean(means, axis=0)
    assert mine <= without_search + 1e-9


def test_searches_with_few_classes_say_nothing_about_a_hundred_and_the_plan_says_so() -> None:
    """With a hundred classes, a data set has a ninth of its weight, so eight of them are too few."""
    few = measured({**HARMLESS, "commit": 2.0}, datasets=8)
    assert chosen(few)[2].best == "commit"
    many = ("dataset={name: cifar100_transfer}", "trainable.model=logistic_regression", "privacy.delta=1e-6")
    compared = chosen(few, *many)[2]
    assert compared.best == "prior"
    assert "too few similar data sets, and none with more than 10 classes" in compared.reason


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", ["commit", "full_runs", "composition", "selection"])
def test_the_stored_prices_flip_the_choice(best: str) -> None:
    experiment, plan, compared = chosen(measured({**HARMLESS, best: 2.0}))
    assert compared.best == best
    assert experiment.chosen_by_auto == compared.chosen
    assert [each.candidate for each in compared.rows if each.taken] == [best]
    concrete = parse_experiment(experiment.to_yaml())
    assert concrete == experiment, "the stored file is an ordinary one"
    assert make_plan(concrete, concrete.dataset_request()) == plan
    search = experiment.search
    assert (search.commit is not None) == (best == "commit")
    assert (search.full_runs is not None) == (best == "full_runs")
    assert experiment.mode.runs_hidden == (best == "selection")
    assert search.trials == 4


def test_no_search_is_taken_unless_a_gain_is_expected() -> None:
    for gain, best in ((0.0, "prior"), (-0.01, "prior"), (0.05, "commit")):
        experiment, plan, compared = chosen(measured({**HARMLESS, "commit": gain}))
        assert compared.best == best, gain
        if best == "prior":
            assert compared.reason.startswith("do not search")
            assert (experiment.search.trials, experiment.space.searched, plan.trials) == (1, (), 1)


def test_what_was_not_measured_is_not_chosen() -> None:
    _, _, compared = chosen(measured({"commit": 5.0}, train_size=10**9))
    assert compared.best == "prior"
    assert "too few similar data sets" in compared.reason
    assert {each.price for each in compared.rows} == {None}
    _, _, foreign = chosen(measured({"commit": 5.0}, family="convolutional"))
    assert foreign.best == "prior", "networks say nothing about linear models, nor these about networks"
    assert "we measured no linear model" in foreign.reason
    _, _, perceptron = chosen(measured({"commit": 5.0}), "trainable.model=mlp_64")
    assert perceptron.best == "prior", "perceptrons are networks too"
    _, _, adam = chosen(measured({"commit": 5.0}), "trainable.optimizer=adam")
    assert adam.best == "prior"
    _, _, scored = chosen(measured({"commit": 5.0}), "dataset.validation={protected: true, epsilon: 1.0}")
    assert scored.best == "prior"
    assert {each.candidate: each.unmeasured for each in scored.rows}["commit"] == "not measured with protected scores"
    numbers = (
        "dataset={name: regression_2d}",
        "trainable.task=regression",
        "search.metric={name: validation_loss, mode: min}",
    )
    _, _, regression = chosen(measured({"commit": 5.0}), *numbers)
    assert regression.best == "prior"
    assert {each.unmeasured for each in regression.rows if each.price is None} >= {"not measured for a regression"}
    assert {each.price for each in regression.rows} == {None}
    assert "guess" in regression.reason


def test_a_rate_that_nobody_measured_is_called_a_guess() -> None:
    own = "trainable.model=mine:build"
    assert "guess" in chosen(measured({}), own)[2].reason
    assert "guess" not in chosen(measured({}), own, "search.space={learning_rate: 0.5}")[2].reason
    assert "guess" not in chosen(measured({}))[2].reason, "control: a linear model was measured"


def test_the_rows_of_a_data_set_can_be_left_out() -> None:
    rows = measured({"commit": 0.0}).searches
    planted = tuple(row("commit", -99.0, "digits", epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0))
    own = tuple(row("prior", 2.0, "digits", epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0))
    prices = Prices(provenance={}, searches=(*rows, *planted, *own))

    def gain() -> Expected | None:
        return {each.candidate: each.gain for each in chosen(prices)[2].rows}["commit"]

    with_digits = gain()
    with leaving_out("digits"):
        without = gain()
    assert with_digits is not None
    assert without is not None
    assert without.value == pytest.approx(0.0)
    assert with_digits.value > 5


def test_gen_is_taken_only_where_its_probes_are_clear() -> None:
    prices = measured({"gen": 2.0})
    experiment, _, compared = chosen(prices, BOTH, "privacy.epsilon=8", "trainable.batch_size=1000")
    assert compared.best == "gen"
    space = dict(experiment.search.space)
    assert (space["clipping"], experiment.search.trials) == ("automatic", 1)
    _, _, noisy = chosen(prices, BOTH, "privacy.epsilon=0.3", "trainable.batch_size=16")
    rows = {each.candidate: each for each in noisy.rows}
    assert noisy.best == "prior"
    assert "too noisy" in rows["gen"].unmeasured


def test_one_run_has_recommended_values_within_the_space_of_the_file() -> None:
    experiment, _, _ = chosen(measured({}))
    values = experiment.search.space
    assert 0.1 <= values["learning_rate"] <= 10
    narrow, _, _ = chosen(measured({}), "search.space={learning_rate: {log_uniform: [20, 30]}, C: {choice: [7, 9]}}")
    assert (narrow.search.space["learning_rate"], narrow.search.space["max_grad_norm"]) == (20, 7)
    composed, _, _ = chosen(
        measured({}),
        "trainable.method=composed",
        "search.space={lr: default, R: {uniform: [2, 9]}, sigma: {uniform: [0, 3]}, K: {promote: [1, 3]}, "
        "schedule: {choice: [constant, {inverse_time: {decay: 2}}]}}".replace("sigma", "laplacian_sigma"),
    )
    space = composed.search.space
    assert (space["smoothing_radius"], space["laplacian_sigma"], space["schedule"]) == (2.0, 0.0, "constant")
    assert space["smoothing_samples"] == {"promote": [1, 3]}


def test_a_file_that_searches_nothing_is_one_run_of_its_values() -> None:
    experiment, plan, compared = chosen(measured(dict.fromkeys(HARMLESS, 9.0)), "search.space={learning_rate: 0.37}")
    assert (compared.best, experiment.search.space["learning_rate"], plan.trials) == ("prior", 0.37, 1)
    assert {each.refused for each in compared.rows if each.candidate == "commit"} == {"the file searches no parameter"}


def test_a_run_far_from_the_shipped_prior_has_no_price_to_be_beaten() -> None:
    prices = measured({**HARMLESS, "commit": 5.0})
    _, _, compared = chosen(prices, "search.space={learning_rate: {log_uniform: [0.0001, 0.001]}}")
    rows = {each.candidate: each for each in compared.rows}
    assert compared.best == "prior"
    assert rows["prior"].price is None
    assert "far from the recommended one" in rows["prior"].unmeasured


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "candidate", "why"),
    [
        ((), "gen", "searches learning_rate"),
        (("search.space.learning_rate=1.0",), "gen", "fixes learning_rate"),
        ((BOTH.replace("}", ", schedule: cosine}"),), "gen", "another schedule"),
        ((BOTH.replace("}", ", clipping: per_layer}"),), "gen", "another clipping"),
        ((), "proxy", "search.public"),
        (("search.trials=1",), "commit", "`search.trials` is 1"),
        (("dataset.validation={protected: true, epsilon: 1.0}",), "selection", "protected scores"),
        (("search.space={lr: default, batch_size: {choice: [64, 128]}}",), "commit", "same batch size"),
        (("search.space={lr: default, batch_size: {log_integer: [64, 128]}}",), "selection", "list of values"),
        (("search.space={lr: default, noise_multiplier: {choice: [2, 4]}}",), "commit", "noise in all trials"),
        (("search.space={schedule: gen, ema_decay: default}",), "composition", "no search was measured"),
    ],
)  # fmt: skip
def test_a_candidate_that_the_file_cannot_be_is_refused_by_name(
    overrides: tuple[str, ...], candidate: str, why: str
) -> None:
    found = refusals(*overrides)
    assert why in found[candidate]
    assert "prior" not in found


@pytest.mark.parametrize(
    ("override", "code", "key"),
    [
        ("privacy.private=false", "mode-needs-private", "privacy.private"),
        ("search.commit=0.1", "auto-decides", "search.commit"),
        ("search.full_runs=auto", "auto-decides", "search.full_runs"),
        ("privacy.noise_multiplier=2.0", "auto-decides", "privacy.noise_multiplier"),
        ("privacy.cap=fixed_order", "auto-decides", "privacy.cap"),
        ("privacy.runs={law: poisson}", "auto-decides", "privacy.runs"),
        ("chosen_by_auto={candidate: prior, reason: because}", "auto-decides", "chosen_by_auto"),
        ("privacy.accounting=outo", "value-not-allowed", "privacy.accounting"),
    ],
)
def test_what_contradicts_auto_is_one_error(override: str, code: str, key: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(FILE, (override,))
    assert [(each.code, each.key) for each in caught.value.problems] == [(code, key)]
    assert caught.value.exit_code == 2


def test_a_file_that_no_candidate_can_plan_has_the_error_of_one_run() -> None:
    with raises_code(InputError, "too-many-steps"):
        chosen(measured({}), "trainable.epochs=1e7", "trainable.batch_size=1261")


# -- public facts only ------------------------------------------------------------------------------------------------


def test_the_choice_is_the_same_for_other_records_with_the_same_public_facts(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    own = f"dataset={{name: mine, path: {path}, public_size: 500}}"
    wide = "search.space={learning_rate: {log_uniform: [0.1, 100]}, max_grad_norm: {log_uniform: [0.1, 10]}}"

    def write(size: int, key: int) -> None:
        draw = np.random.default_rng(key)
        arrays: dict[str, Any] = {}
        for part, count in (("train", size), ("test", 40)):
            arrays |= {f"x_{part}": draw.random((count, 12), dtype=np.float32) * key}
            arrays |= {f"y_{part}": np.arange(count) % 3}
        np.savez(path, **arrays)

    found = []
    for size, key in ((500, 1), (430, 70)):  # more records and larger inputs, behind one public size
        write(size, key)
        experiment, plan, compared = chosen(measured({**HARMLESS, "commit": 1.0}), own, wide)
        found.append((experiment.to_yaml(), plan.as_dict(), compared))
    assert found[0] == found[1]
    assert found[0][2].best == "commit", found[0][2].reason


# -- what is shown and stored -----------------------------------------------------------------------------------------


def test_a_resumed_file_keeps_the_choice_although_the_prices_changed() -> None:
    stored, _, _ = chosen(measured({**HARMLESS, "commit": 2.0}))
    wanted = parse_experiment(FILE)
    assert as_stored(wanted, stored) == stored
    now, _, _ = chosen(measured({**HARMLESS, "selection": 2.0}))
    assert now.privacy.accounting == "selection", "the control: made again, the choice would differ"
    other = parse_experiment(FILE, ("search.space={learning_rate: 1.0}",))
    with raises_code(InputError, "resume-changes-setting"):
        as_stored(other, stored)
    assert as_stored(stored, stored) is stored


def test_one_table_has_every_candidate_and_marks_what_is_taken() -> None:
    def lines(plan: Plan, compared: Comparison) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        text = plan_text(plan, source="e.yaml", claim="", comparison=compared)
        (table,) = text.tables
        return dict(text.facts), {cells[0]: cells[1:] for cells in table.rows}

    _, plan, compared = chosen(measured({**HARMLESS, "commit": 2.0}))
    facts, table = lines(plan, compared)
    assert len(table) == len(CANDIDATES)
    assert table["cheap search, one committed run"][-1] == "taken"
    assert "± " in table["cheap search, one committed run"][1]
    assert table["public proxy, one charged run"][1] == "refused"
    assert facts["auto takes"] == compared.reason
    own = parse_experiment(FILE, ("privacy.accounting=composition", "search.full_runs=3"))
    request = own.dataset_request()
    plan = make_plan(own, request)
    facts, table = lines(plan, compare(own, request, plan))
    assert table["4 trials share the steps of 3 whole runs"][0] == f"{plan.nominal.noise_multiplier:.4g}"
    assert table["4 trials share the steps of 3 whole runs"][-1].startswith("this file")
    assert "auto would take" in facts
    assert "auto takes" not in facts


@pytest.mark.parametrize("candidate", ["composition", "commit", "selection", "prior"])
def test_the_noise_of_a_candidate_is_that_of_the_same_file_written_by_hand(candidate: str) -> None:
    by_hand: dict[str, Sequence[str]] = {
        "composition": ("privacy.accounting=composition",),
        "commit": ("privacy.accounting=composition", "search.commit=0.05", "search.sampler=surrogate"),
        "selection": ("privacy.accounting=selection", "search.sampler=random"),
        "prior": ("privacy.accounting=composition", "search.trials=1"),
    }
    experiment = parse_experiment(FILE, by_hand[candidate])
    plan = make_plan(experiment, experiment.dataset_request())
    rows = {each.candidate: each for each in chosen(measured(HARMLESS))[2].rows}
    assert rows[candidate].noise_multiplier == (plan.commit or plan.nominal).noise_multiplier
