"""The privacy card: that it says everything that a reader needs, in every mode, and nothing that is not so."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, inf, nan
from typing import Any

import pytest
from card_fakes import DETAILS, FACTS, KINDS, MECHANISM, OTHER, PUBLIC, SCORES, charged, open_first
from errors_helper import raises_code

from tuner.errors import InputError, VerificationError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.card import build_card, card_text, issue_card, parse_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.checks import check_card


@pytest.fixture
def issued(ledger: Ledger) -> dict[str, Any]:
    ledger.open_search("digits", "other", filter=TotalSteps(SampledGaussian(0.02, 3.0), 10), epsilon=1.0, delta=1e-6)
    return issue_card(ledger, charged(ledger, "total_steps"))


def card_of(ledger: Ledger, kind: str) -> dict[str, Any]:
    return issue_card(ledger, charged(ledger, kind))


def test_the_numbers_are_those_of_the_accountant(issued: dict[str, Any]) -> None:
    assert issued["claim"]["epsilon"] == 4.0
    assert issued["training_cap"]["epsilon_at_cap"] == accounting.epsilon(MECHANISM, 1000, 1e-5)
    assert issued["spent"]["epsilon_spent"] == accounting.epsilon(MECHANISM, 180, 1e-5)
    assert issued["winner"]["single_run_epsilon"] == accounting.epsilon(MECHANISM, 120, 1e-5)
    assert issued["dataset_budget"]["committed_epsilon"] == 5.0
    assert [other["search"] for other in issued["dataset_budget"]["other_searches"]] == ["other"]


FIELDS = {
    "setting and who sees output": ("setting", "released", "kept_from_analysts", "claim.views"),
    "data accesses": ("data_accesses.this_search", "data_accesses.earlier_searches", "records.preprocessing"),
    "unit": ("claim.unit", "records.records_per_user"),
    "adjacency": ("claim.adjacency",),
    "accounting type and its assumptions": ("claim.accounting", "assumptions"),
    "ε and δ for model and tuning": ("claim.model_and_tuning", "claim.tuning_alone", "claim.model_alone"),
    "the whole curve": ("training_cap.curve",),
    "mode and view": ("claim.mode", "claim.views"),
    "the cap, and the amount spent": ("training_cap.epsilon_at_cap", "spent.label"),
    "the coupon list or the order": ("training_cap.filter",),
    "the law of K": ("claim.law_of_the_number_of_runs",),
    "validation source, split, noise": (
        "validation.source",
        "validation.split",
        "validation.protected",
        "validation_cap",
    ),
    "the winner's own": (
        "winner.sample_rate",
        "winner.noise_multiplier",
        "winner.steps",
        "winner.single_run_epsilon",
        "configuration.max_grad_norm",
    ),
    "random generator": ("randomness.generator",),
    "sampler": ("configuration.sampler",),
    "n public or not": ("records.public_size_is_public",),
    "library versions": ("versions",),
    "ledger hash": ("ledger.head_hash", "ledger.head_seq"),
    "claims that are not proved": ("not_proved",),
    "user and share": ("dataset_budget.user", "dataset_budget.share"),
    "rule of the data set": ("dataset_budget.rule", "dataset_budget.cap"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_there_in_every_mode(cards: dict[str, dict[str, Any]], kind: str) -> None:
    for path in (path for paths in FIELDS.values() for path in paths):
        value: Any = cards[kind]
        for key in path.split("."):
            assert key in value, path
            value = value[key]
        # None and an empty list say "none": no share, no bound, no earlier search.
        assert value is None or value == [] or value is False or value, path


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("cards")
    return {kind: card_of(Ledger.open(f"sqlite:///{folder}/{kind}.db"), kind) for kind in KINDS}


def test_the_caps_are_told_as_they_are(cards: dict[str, dict[str, Any]]) -> None:
    kinds = {kind: card["training_cap"]["filter"]["kind"] for kind, card in cards.items()}
    assert kinds["coupon_book"] == "coupon_book"
    assert kinds["fixed_order"] == "fixed_order"
    coupons = cards["coupon_book"]["training_cap"]["filter"]["coupons"]
    assert {(coupon["sample_rate"], coupon["noise_multiplier"], coupon["steps"]) for coupon in coupons} == {
        (0.05, 2.0, 300),
        (0.02, 1.5, 700),
    }
    assert cards["fixed_order"]["training_cap"]["filter"]["order"] == 8.0
    assert cards["fixed_order"]["claim"]["accounting"].startswith("a Rényi filter at one order")


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_many_claims(cards: dict[str, dict[str, Any]], kind: str) -> None:
    filter, rows = KINDS[kind]["filter"], cards[kind]["training_cap"]["curve"]
    assert len(rows) >= 9
    assert [row["delta"] for row in rows] == sorted((row["delta"] for row in rows), reverse=True)
    assert [row["epsilon"] for row in rows] == sorted(row["epsilon"] for row in rows)
    assert 1e-5 in [row["delta"] for row in rows]
    for row in rows[::4]:
        assert row["epsilon"] == filter.claim(row["delta"])


def test_a_sealed_search_tells_nothing_of_the_number_of_its_runs(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["sealed"]
    text = card_text(card)
    for word in ('"leased_steps"', '"trials"', '"trial": "a"', '"opened_time"', "+00:00"):
        assert word not in text, word
    assert card["claim"]["mode"] == "selection"
    assert card["spent"].keys() == {"label"}
    assert "would tell how many runs" in card["spent"]["label"]
    law = card["claim"]["law_of_the_number_of_runs"]
    assert (law["name"], law["mean"], law["at_most"]) == ("geometric", 10.0, 400)
    tail = (1 - 1 / 10) ** 400
    assert law["probability_of_more"] == pytest.approx(tail, rel=1e-6)
    assert law["delta_of_truncation"] == pytest.approx((1 + exp(4.0)) * tail, rel=1e-6)
    # Its place in the ledger is the same whatever was drawn: opened, begun; nothing marks its end.
    assert card["ledger"]["head_seq"] == 2
    assert card["winner"]["single_run_epsilon"] == accounting.epsilon(MECHANISM, 120, 1e-5)
    assert "NOT a guarantee" in card["winner"]["label"]
    assert "how many runs there were" in card["kept_from_analysts"]


def test_an_open_search_tells_how_many_trials_there_were(cards: dict[str, dict[str, Any]]) -> None:
    """The control of the test above: its words are looked for in a card that has them."""
    text = card_text(cards["total_steps"])
    for word in ('"leased_steps"', '"trials"', '"trial": "a"'):
        assert word in text
    assert cards["total_steps"]["spent"]["trials"] == 2


@pytest.mark.parametrize(
    "run",
    [None, (MECHANISM, 121), (MECHANISM, 0), (SampledGaussian(0.05, 1.0), 120), (SampledGaussian(0.02, 2.0), 120)],
)
def test_a_sealed_winner_must_be_a_run_that_the_search_may_make(
    ledger: Ledger, run: tuple[SampledGaussian, int] | None
) -> None:
    facts = charged(ledger, "sealed")
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(facts, winner_run=run))
    other = replace(facts, winner_run=(OTHER, 200), public_size=1300)
    assert issue_card(ledger, other)["winner"]["steps"] == 200


@pytest.mark.parametrize("steps", [1, 119, 120])
def test_a_sealed_winner_may_be_shorter_than_the_longest_run_of_its_mechanism(ledger: Ledger, steps: int) -> None:
    """The ledger has the longest run of a mechanism alone, which costs as much as any."""
    card = issue_card(ledger, replace(charged(ledger, "sealed"), winner_run=(MECHANISM, steps)))
    assert card["winner"]["steps"] == steps
    report = check_card(card_text(card), ledger, page=render_markdown(card))
    assert report.ok, str(report)
    assert "exported run was charged" in {check.name for check in report.checks}


def test_a_sealed_search_that_never_began_gets_no_card(ledger: Ledger) -> None:
    open_first(ledger, **KINDS["sealed"])
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="winner", winner_run=(MECHANISM, 120)))


def test_protected_scores_are_covered_and_told(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["validation"]
    cap = card["validation_cap"]
    assert card["claim"]["covers"]["validation"] is True
    assert "and for those that validate" in card["claim"]["statement"]
    assert (cap["epsilon"], cap["delta"], cap["noise"]) == (0.6, 1e-6, [60.0])
    assert cap["epsilon_at_cap"] == accounting.epsilon(SCORES, 40, 1e-6)
    assert "the larger of the two caps" in cap["joint"]
    assert card["spent"]["released_scores"] == 8
    assert card["validation"]["protected"] is True
    assert {row["assumption"] for row in card["assumptions"] if row["status"] == "not covered"} == {
        "earlier uses of these records outside this ledger",
        "test records",
    }


def test_open_scores_are_not_covered(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["total_steps"]
    assert card["validation_cap"] is None
    assert card["claim"]["covers"]["validation"] is False
    assert "validation records are outside it" in card["validation"]["guarantee"]


def test_a_user_is_told_with_the_bound_of_what_one_gives(cards: dict[str, dict[str, Any]], ledger: Ledger) -> None:
    card = cards["user"]
    assert "user" in card["claim"]["unit"]
    assert card["claim"]["adjacency"] == "add_or_remove_one_user"
    assert card["records"]["records_per_user"] == 16
    assert "users whose records train" in card["claim"]["statement"]
    assert any("at most 16 records of a user" in row["why"] for row in card["assumptions"])
    facts = charged(ledger, "user")
    with raises_code(InputError, "card-contribution-bound"):
        issue_card(ledger, replace(facts, records_per_user=None))


def test_a_record_has_no_contribution_bound(ledger: Ledger) -> None:
    facts = charged(ledger, "total_steps")
    with raises_code(InputError, "card-contribution-bound"):
        issue_card(ledger, replace(facts, records_per_user=16))


def test_a_search_on_public_data_costs_nothing_and_is_an_assumption(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["public"]
    said = card["public_search"]
    assert card["claim"]["mode"] == "public"
    assert {name: said[name] for name in PUBLIC} == PUBLIC
    assert said["epsilon"] == 0.0
    assert said["label"].startswith("ASSUMED, not proved")
    assert card["claim"]["tuning_alone"] == {
        "epsilon": 0.0,
        "delta": 0.0,
        "status": "assumed: searched on records declared public",
    }
    assert card["claim"]["model_alone"]["epsilon"] == card["claim"]["epsilon"] == 2.0
    assert ("what was searched on is public", "assumed") in {
        (row["assumption"], row["status"]) for row in card["assumptions"]
    }
    assert "curves" not in card["released"]


def test_no_other_mode_says_that_tuning_was_free(cards: dict[str, dict[str, Any]]) -> None:
    for kind, card in cards.items():
        if kind != "public":
            assert card["claim"]["tuning_alone"]["epsilon"] == card["claim"]["epsilon"]
            assert card["public_search"] is None
            assert card["claim"]["model_alone"]["status"].startswith("NOT a guarantee")


def test_it_says_what_is_not_covered(issued: dict[str, Any]) -> None:
    text = card_text(issued)
    for phrase in (
        "not covered: not mitigated in this version (Mironov 2012)",
        "not covered: step times",
        "validation records are outside it",
        "scores of validation and test are outside the guarantee",
        "a model in it may be shown, the file may not",
        "holds: enforced by the engine, tested",
        "holds: enforced by the ledger, tested",
        "ODOMETER, not a guarantee",
        "the guarantee is the cap",
        "NOT a guarantee for a tuned model",
        "formally verified",
        "add_or_remove_one",
        "earlier_searches",
    ):
        assert phrase in text, phrase


@pytest.mark.parametrize("kind", KINDS)
def test_every_assumption_says_whether_it_holds(cards: dict[str, dict[str, Any]], kind: str) -> None:
    rows = cards[kind]["assumptions"]
    assert {row["status"].split(":")[0] for row in rows} == {"holds", "assumed", "not covered"}
    # What holds says on what that rests.
    assert all(":" in row["status"] for row in rows if row["status"].startswith("holds"))
    assert all(row["why"] for row in rows)


def test_checkpoint_files_are_never_said_to_be_shown(cards: dict[str, dict[str, Any]]) -> None:
    for card in cards.values():
        assert "checkpoint" not in card["released"]
        assert "checkpoint" not in card["claim"]["statement"]
        assert "operator only" in card["kept_from_analysts"]


def test_the_user_the_share_and_the_rule_are_told(ledger: Ledger) -> None:
    ledger.set_cap("digits", 10.0, 1e-3, order=8.0)
    ledger.grant("digits", ledger.user(), 6.0, 1e-4)
    card = card_of(ledger, "total_steps")
    budget = card["dataset_budget"]
    assert budget["user"] == ledger.user()
    assert budget["share"] == {"epsilon": 6.0, "delta": 1e-4}
    assert budget["committed_by_user"] == {"epsilon": 4.0, "delta": 1e-5}
    assert budget["cap"] == {"epsilon": 10.0, "delta": 1e-3, "order": 8.0}
    assert "Rényi divergence of order 8" in budget["rule"]
    assert "half of its δ" in budget["rule"]
    assert budget["within_cap"] is True


def test_whether_it_is_within_the_cap_follows_the_rule(ledger: Ledger) -> None:
    facts = charged(ledger, "total_steps")
    assert issue_card(ledger, facts)["dataset_budget"]["within_cap"] is None
    for epsilon, within in ((4.0, True), (3.9, False)):
        ledger.set_cap("digits", epsilon, 1e-5)
        assert issue_card(ledger, facts)["dataset_budget"]["within_cap"] is within


def test_earlier_searches_are_named(ledger: Ledger) -> None:
    small = {"filter": TotalSteps(SampledGaussian(0.02, 3.0), 10), "epsilon": 1.0, "delta": 1e-6}
    ledger.open_search("digits", "before", **small)  # type: ignore[arg-type]
    ledger.open_search("digits", "untouched", **small)  # type: ignore[arg-type]
    ledger.close_search("untouched")
    facts = charged(ledger, "total_steps")
    ledger.open_search("digits", "after", **small)  # type: ignore[arg-type]
    accesses = issue_card(ledger, facts)["data_accesses"]
    assert accesses["earlier_searches"] == ["before"], "one that never touched a record is none"
    assert accesses["later_searches"] == ["after"]


def test_a_study_with_a_seed_gets_no_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    with raises_code(InputError, "card-not-private"):
        issue_card(ledger, replace(FACTS, private=False))


def test_a_winner_without_steps_gets_no_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    with raises_code(VerificationError, "card-run-not-charged"):
        build_card(replace(FACTS, winner="z"), state=ledger.dataset_state("digits"))
    with raises_code(VerificationError, "card-search-unknown"):
        build_card(replace(FACTS, search="z"), state=ledger.dataset_state("digits"))


def test_a_winner_that_reserved_and_leased_nothing_gets_no_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    ledger.reopen_search("first")
    ledger.reserve("first", "c", 10)
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="c"))
    ledger.settle("first", "c", 0)
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="c"))
    assert issue_card(ledger, FACTS)["winner"]["steps"] == 120


@pytest.mark.parametrize(
    "bad",
    [
        {"scores": {"validation_accuracy": nan}},
        {"scores": {"validation_accuracy": inf}},
        {"scores": {"quality": 1.0}},
        {"max_grad_norm": nan},
        {"versions": {"torch": "certified by the authority"}},
        {"parameters": {"learning_rate": nan}},
        {"parameters": {"smoothing_samples": {"promote": [1, "certified"]}}},
        {"parameters": {"smoothing_samples": {"promote": [1, 3], "note": "certified"}}},
        {"sampler": "tpe, which is certified"},
        {"files": {"model.safetensors": "abc"}},
    ],
)
def test_an_own_word_that_does_not_fit_never_enters_a_card(
    ledger: Ledger, issued: dict[str, Any], bad: dict[str, Any]
) -> None:
    with raises_code(VerificationError, "card-own-words"):
        build_card(replace(FACTS, **bad), state=ledger.dataset_state("digits"))


def test_a_card_takes_a_parameter_that_rises_within_a_trial(ledger: Ledger, issued: dict[str, Any]) -> None:
    parameters = {"smoothing_samples": {"promote": [1, 3]}}
    card = build_card(replace(FACTS, parameters=parameters), state=ledger.dataset_state("digits"))
    assert card["configuration"]["parameters"] == parameters


def test_a_public_size_that_is_not_that_of_the_rate_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    assert issued["configuration"]["batch_size_expected"] == 64
    with raises_code(VerificationError, "card-public-size"):
        build_card(replace(FACTS, public_size=1285), state=ledger.dataset_state("digits"))


def test_what_the_ledger_knows_is_not_taken_from_the_exporter(issued: dict[str, Any]) -> None:
    assert issued["configuration"]["method"] == DETAILS["method"]
    assert issued["configuration"]["model"] == DETAILS["model"]
    assert issued["validation"]["key"] == DETAILS["split"]


def test_a_card_is_one_text(issued: dict[str, Any]) -> None:
    assert parse_card(card_text(issued)) == issued
    for text in (json.dumps(issued), "{", card_text(issued) + " "):
        with raises_code(VerificationError, "card-text-changed"):
            parse_card(text)
