"""What a plan says: no figure that another line contradicts, no mode that the file cannot have, no word unexplained."""

from __future__ import annotations

import pytest
from errors_helper import raises_code

from tuner.errors import ExperimentError
from tuner.experiment import parse_experiment
from tuner.plan.comparison import comparison
from tuner.plan.plan import Plan, make_plan
from tuner.report.plan_facts import plan_text
from tuner.runner.planning import seconds_in_words

BASE = """\
name: planned
dataset: {name: digits}
trainable: {method: dp_sgd, batch_size: 128, epochs: 4}
privacy: {epsilon: 3.0, delta: 1e-5}
search: {trials: 6, rungs: 4, sampler: random, space: {learning_rate: default}}
"""
MENU = "search.space={lr: default, batch_size: {choice: [32, 64, 128]}}"
PROTECTED = "dataset.validation={protected: true, epsilon: 1.0}"
SELECTION = ("privacy.accounting=selection", "privacy.runs={law: negative_binomial, shape: 2}")


def planned(*overrides: str) -> Plan:
    experiment = parse_experiment(BASE, overrides)
    return make_plan(experiment, experiment.dataset_request())


def facts(plan: Plan) -> dict[str, str]:
    return dict(plan_text(plan, source="e.yaml").facts)


def test_a_mode_that_the_file_cannot_have_is_not_offered() -> None:
    plan = planned(PROTECTED)
    with raises_code(ExperimentError, "sealed-scores-protected"):
        planned(PROTECTED, "privacy.accounting=selection")
    rows = {row.mode: row for row in comparison(plan)}
    assert rows["selection"].refused == "refused with protected scores"
    assert rows["selection"].noise_multiplier is None
    (table,) = plan_text(plan, source="e.yaml", comparison=comparison(plan)).tables
    assert ("selection", "refused with protected scores", "–", "–", "–") in table.rows
    assert not any(row.refused for row in comparison(planned()))


@pytest.mark.parametrize("overrides", [(MENU,), (MENU, "privacy.cap=fixed_order"), (PROTECTED,), SELECTION])
def test_the_mode_of_the_plan_has_the_noise_of_the_plan(overrides: tuple[str, ...]) -> None:
    """The comparison's own composition knows one kind of step, and its own law is the geometric one."""
    plan = planned(*overrides)
    row = next(row for row in comparison(plan) if row.mode == plan.accounting)
    assert row.noise_multiplier == plan.nominal.noise_multiplier
    if plan.selection is not None:
        assert row.runs_99 == plan.selection.quantiles["99"]
        assert row.expected_runs == plan.trials


def test_a_given_noise_is_not_taken_for_the_least_that_fits() -> None:
    plan = planned("privacy.noise_multiplier=9.0")
    (row,) = (row for row in comparison(plan) if row.mode == "composition")
    assert row.noise_multiplier is not None
    assert row.noise_multiplier < 9.0
    (table,) = plan_text(plan, source="e.yaml", comparison=comparison(plan)).tables
    assert table.header[1] == "least noise"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((), "24 scores and 1 in reserve for a restored trial within"),
        (("resources.concurrent_trials=3",), "24 scores and 3 in reserve for restored trials within"),
    ],
)
def test_scores_in_reserve_are_not_counted_as_planned(overrides: tuple[str, ...], said: str) -> None:
    assert facts(planned(PROTECTED, *overrides))["their budget"].startswith(said)


def test_fewer_scores_than_planned_are_told() -> None:
    plan = planned("dataset.validation={protected: true, epsilon: 1.0, noise: 10.0}")
    assert plan.validation is not None
    assert plan.validation.releases < 24
    told = facts(plan)["their budget"]
    assert told.startswith(f"{plan.validation.releases} of the 24 scores that are planned within")


def test_words_of_the_trade_are_explained_where_they_stand() -> None:
    assert "(its rungs, where it is scored)" in facts(planned())["steps"]
    menu = facts(planned(MENU))
    assert "reports (its rungs, where it is scored) at the same fractions" in menu["steps"]
    assert menu["cap"].startswith("coupon book (")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.01, "under a second"),
        (0.99, "under a second"),
        (1.2, "about 1 s"),
        (720, "about 12 min"),
        (12600, "about 3.5 h"),
    ],
)
def test_a_time_is_never_about_nothing(seconds: float, said: str) -> None:
    assert seconds_in_words(seconds) == said


def test_it_is_told_which_of_two_shapes_is_public() -> None:
    with pytest.raises(ExperimentError) as error:
        parse_experiment(BASE, ["privacy.accounting=public", "search.public={name: fashion_mnist}"])
    assert "(1, 28, 28) in 10 classes (public) and (1, 8, 8) in 10 classes (private)" in str(error.value)
