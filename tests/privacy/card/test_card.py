"""The privacy card: that it says everything that a reader needs, in every mode, and nothing that is not so."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, inf, nan
from typing import Any

import pytest
from card_fakes import FACTS, KINDS, MECHANISM, OTHER, PUBLIC, SCORES, IssuedCards, charged, open_first
from errors_helper import raises_code
from ledgers import lease

from tuner.errors import InputError, VerificationError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.card import build_card, card_hash, card_text, issue_card, parse_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.checks import check_card


@pytest.fixture
def cards(issued_cards: IssuedCards) -> dict[str, dict[str, Any]]:
    return {kind: card for kind, (_, card) in issued_cards.items()}


PATHS = """
    setting released kept_from_analysts claim.views claim.mode claim.unit claim.adjacency claim.accounting assumptions
    data_accesses.this_search data_accesses.earlier_searches records.preprocessing records.records_per_user
    records.public_size_is_public claim.model_and_tuning claim.tuning_alone claim.model_alone training_cap.curve
    training_cap.epsilon_at_cap training_cap.filter spent.label claim.law_of_the_number_of_runs validation_cap
    validation.source validation.split validation.protected winner.sample_rate winner.noise_multiplier winner.steps
    winner.single_run_epsilon configuration.max_grad_norm configuration.sampler randomness.generator versions
    ledger.head_hash ledger.head_seq not_proved dataset_budget.user dataset_budget.share dataset_budget.rule
    dataset_budget.cap
"""
"""What every card says. None, False and an empty list say "none": no share, no bound, no earlier search."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_there_in_every_mode(cards: dict[str, dict[str, Any]], kind: str) -> None:
    for path in PATHS.split():
        value: Any = cards[kind]
        for key in path.split("."):
            assert key in value, path
            value = value[key]
        assert value or value is None or value is False or value == [], path


@pytest.mark.parametrize("kind", KINDS)
def test_the_cap_is_told_as_it_is_and_its_curve_is_many_claims(cards: dict[str, dict[str, Any]], kind: str) -> None:
    filter, cap = KINDS[kind]["filter"], cards[kind]["training_cap"]
    assert cap["filter"] == filter.body()
    rows = cap["curve"]
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
    law = card["claim"]["law_of_the_number_of_runs"]
    assert (law["name"], law["mean"], law["at_most"]) == ("geometric", 10.0, 400)
    tail = (1 - 1 / 10) ** 400
    assert law["probability_of_more"] == pytest.approx(tail, rel=1e-6)
    assert law["delta_of_truncation"] == pytest.approx((1 + exp(4.0)) * tail, rel=1e-6)
    assert any("drawn independently from a fixed distribution" in row["assumption"] for row in card["assumptions"])
    # Its place in the ledger is the same whatever was drawn: cap set, opened, begun; nothing marks its end.
    assert card["ledger"]["head_seq"] == 3
    assert card["winner"]["single_run_epsilon"] == accounting.epsilon(MECHANISM, 120, 1e-5)
    # The control: the words are looked for in a card that has them.
    for word in ('"leased_steps"', '"trials"', '"trial": "a"'):
        assert word in card_text(cards["total_steps"])
    assert cards["total_steps"]["spent"]["trials"] == 2


@pytest.mark.parametrize("share", [0.1, "much"])
def test_the_card_names_both_releases_of_a_step_with_probes(ledger: Ledger, share: object) -> None:
    """A searched share is the winner's own. One that is none, which only a forged card has, makes no release."""
    open_first(ledger, **KINDS["total_steps"], details={"probe_share": {"log_uniform": [0.01, 0.2]}})
    ledger.reserve("first", "a", 120, mechanism=MECHANISM)
    lease(ledger, "first", "a", 120)
    ledger.close_search("first")
    card = issue_card(ledger, replace(FACTS, parameters={"schedule": "gen", "schedule.gen.probe_share": share}))
    noises = [release["noise_multiplier"] for release in card["winner"]["releases"]]
    if share == 0.1:
        gradient, probes = noises
        assert gradient == pytest.approx(MECHANISM.noise_multiplier / 0.9**0.5)
        assert (gradient**-2 + probes**-2) ** -0.5 == pytest.approx(card["winner"]["noise_multiplier"])
        assert check_card(card_text(card), ledger, page=render_markdown(card)).ok
    else:
        assert noises == [MECHANISM.noise_multiplier]
    assert "two Gaussian releases" in card["training_cap"]["mechanism"]
    assert "loss probes" in str(card["assumptions"])


def test_other_searches_have_one_release_a_step(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["total_steps"]
    assert [each["noise_multiplier"] for each in card["winner"]["releases"]] == [MECHANISM.noise_multiplier]
    assert "two Gaussian releases" not in card["training_cap"]["mechanism"]
    assert "loss probes" not in str(card["assumptions"])


def test_the_card_of_a_sampler_that_learns_does_not_say_that_runs_are_independent(ledger: Ledger) -> None:
    learning = replace(KINDS["sealed"]["filter"], ratio=(0.5, 2.0))
    open_first(ledger, **(KINDS["sealed"] | {"filter": learning, "epsilon": learning.claim(1e-5)}))
    ledger.begin_sealed("first", "0" * 64)
    card = issue_card(ledger, replace(FACTS, winner="winner", winner_run=(MECHANISM, 120), sampler="bounded"))
    page = render_markdown(card)
    assert "independent runs" not in page
    assert "runs were independent" not in page
    (drawn,) = [row for row in card["assumptions"] if "fixed distribution" in row["assumption"]]
    assert "between 0.5 and 2 times" in drawn["assumption"]


def test_a_sealed_winner_must_be_a_run_that_the_search_may_make(ledger: Ledger) -> None:
    open_first(ledger, **KINDS["sealed"])
    facts = replace(FACTS, winner="winner", winner_run=(MECHANISM, 120), sampler="random")
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, facts)  # it never began
    ledger.begin_sealed("first", "0" * 64)
    other_noise, other_rate = SampledGaussian(0.05, 1.0), SampledGaussian(0.02, 2.0)
    for run in (None, (MECHANISM, 121), (MECHANISM, 0), (other_noise, 120), (other_rate, 120)):
        with raises_code(VerificationError, "card-run-not-charged"):
            issue_card(ledger, replace(facts, winner_run=run))
    other = replace(facts, winner_run=(OTHER, 200), public_size=1300)
    assert issue_card(ledger, other)["winner"]["steps"] == 200
    # The ledger has the longest run of a mechanism alone, which costs as much as any shorter one.
    card = issue_card(ledger, replace(facts, winner_run=(MECHANISM, 1)))
    assert card["winner"]["steps"] == 1
    assert check_card(card_text(card), ledger, page=render_markdown(card)).ok


def test_protected_scores_are_covered_and_told(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["validation"]
    cap = card["validation_cap"]
    assert card["claim"]["covers"]["validation"] is True
    assert card["claim"]["unit"] == "one record, whether it is used for training or for validation"
    assert (card["training_cap"]["protects"], cap["protects"]) == ("one training record", "one validation record")
    assert (cap["epsilon"], cap["delta"], cap["noise"]) == (0.6, 1e-6, [60.0])
    assert cap["epsilon_at_cap"] == accounting.epsilon(SCORES, 40, 1e-6)
    assert card["spent"]["released_scores"] == 8
    assert card["validation"]["protected"] is True
    uncovered = {row["assumption"] for row in card["assumptions"] if row["status"] == "not covered"}
    assert uncovered == {"other uses of these records, outside this ledger", "test records"}
    without = cards["total_steps"]  # the control
    assert without["validation_cap"] is None
    assert without["claim"]["covers"]["validation"] is False
    assert without["claim"]["unit"] == "one training record"


def test_a_user_is_told_with_the_bound_of_what_one_gives(issued_cards: IssuedCards) -> None:
    card = issued_cards["user"][1]
    unit = "one user with all of that user's records, whether they are used for training or for validation"
    assert card["claim"]["unit"] == unit
    assert card["claim"]["adjacency"] == "add_or_remove_one_user"
    assert card["records"]["records_per_user"] == 16
    assert any("at most 16 records of a user" in row["why"] for row in card["assumptions"])
    for kind, bound in (("user", None), ("total_steps", 16)):
        with raises_code(InputError, "card-contribution-bound"):
            issue_card(issued_cards[kind][0], replace(FACTS, records_per_user=bound))


def test_a_search_on_public_data_costs_nothing_and_is_an_assumption(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["public"]
    said, claim = card["public_search"], card["claim"]
    assert claim["mode"] == "public"
    assert said == {**said, **PUBLIC, "epsilon": 0.0}
    assert (claim["tuning_alone"]["epsilon"], claim["tuning_alone"]["delta"]) == (0.0, 0.0)
    assert claim["tuning_alone"]["status"].startswith("assumed")
    assert claim["model_alone"]["epsilon"] == claim["epsilon"] == 2.0
    rows = {(row["assumption"], row["status"]) for row in card["assumptions"]}
    assert ("the records of the search are public", "assumed") in rows
    assert "curves" not in card["released"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_card_says(cards: dict[str, dict[str, Any]], kind: str) -> None:
    card = cards[kind]
    rows = card["assumptions"]
    assert {row["status"].split(":")[0] for row in rows} == {"holds", "assumed", "not covered"}
    assert all(":" in row["status"] for row in rows if row["status"].startswith("holds")), "and on what that rests"
    assert all(row["why"] for row in rows)
    assert "checkpoint" not in card["released"] + card["claim"]["statement"]
    assert "operator only" in card["kept_from_analysts"]
    if kind != "public":
        assert card["public_search"] is None
        assert card["claim"]["tuning_alone"]["epsilon"] == card["claim"]["epsilon"]
        assert card["claim"]["model_alone"]["status"].startswith("NOT a guarantee")


OF_CODE = (
    "one record changes the sum of clipped gradients by at most C",
    "before clipping, each sample is computed without the other samples",
    "no record decides how a trial ends",
)


@pytest.mark.parametrize("code", [{"model": "their_models:net"}, {"method": "their_method"}, {"model": None}])
def test_the_card_does_not_vouch_for_code_that_is_not_ours(ledger: Ledger, code: dict[str, Any]) -> None:
    """And a card that does is found, whatever hashes are recorded."""

    def statuses(card: dict[str, Any]) -> set[str]:
        return {row["status"] for row in card["assumptions"] if row["assumption"] in OF_CODE}

    open_first(ledger, filter=TotalSteps(MECHANISM, 1000), epsilon=4.0, details=code)
    ledger.reserve("first", "a", 120, mechanism=MECHANISM)
    lease(ledger, "first", "a", 120)
    ledger.settle("first", "a", 120)
    card = issue_card(ledger, FACTS)
    assert statuses(card) == {"assumed"}
    (weights,) = [row for row in card["assumptions"] if "initial weights" in row["assumption"]]
    assert weights["status"] == "assumed"
    assert str(next(iter(code.values()))) in weights["why"]
    assert check_card(card_text(card), ledger, page=render_markdown(card)).ok
    for row in card["assumptions"]:
        if row["assumption"] in OF_CODE:
            row["status"] = "holds: enforced by the engine, tested"
    ledger.record_card("first", card_hash(card), "export")
    failed = [check.name for check in check_card(card_text(card), ledger).checks if check.ok is False]
    assert failed == ["card rendered anew"]


@pytest.mark.parametrize("device", [{}, {"device": "cuda"}])
def test_the_card_says_that_rounding_on_a_gpu_is_assumed(ledger: Ledger, device: dict[str, Any]) -> None:
    open_first(ledger, filter=TotalSteps(MECHANISM, 1000), epsilon=4.0, details=device)
    ledger.reserve("first", "a", 120, mechanism=MECHANISM)
    lease(ledger, "first", "a", 120)
    ledger.settle("first", "a", 120)
    rows = [row for row in issue_card(ledger, FACTS)["assumptions"] if "GPU" in row["assumption"]]
    assert [row["status"] for row in rows] == ["assumed"] * len(device)


def test_the_card_vouches_for_the_models_that_come_with_it(cards: dict[str, dict[str, Any]]) -> None:
    for card in cards.values():
        found = [row["status"] for row in card["assumptions"] if row["assumption"] in OF_CODE]
        assert len(found) >= 2
        assert set(found) == {"holds: enforced by the engine, tested"}


def test_the_user_the_share_and_the_cap_are_told(ledger: Ledger) -> None:
    facts = charged(ledger, "total_steps")
    assert issue_card(ledger, facts)["dataset_budget"]["within_cap"] is None
    for epsilon, within in ((4.0, True), (3.9, False)):
        ledger.set_cap("digits", epsilon, 1e-5)
        assert issue_card(ledger, facts)["dataset_budget"]["within_cap"] is within
    ledger.set_cap("digits", 10.0, 1e-3)
    ledger.grant("digits", ledger.user(), 6.0, 1e-4)
    budget = issue_card(ledger, facts)["dataset_budget"]
    assert budget["user"] == ledger.user()
    assert budget["share"] == {"epsilon": 6.0, "delta": 1e-4}
    assert budget["committed_by_user"] == {"epsilon": 4.0, "delta": 1e-5}
    assert budget["cap"] == {"epsilon": 10.0, "delta": 1e-3, "order": None}


def test_an_order_of_the_cap_is_told(ledger: Ledger) -> None:
    ledger.set_cap("digits", 10.0, 1e-3, order=8.0)
    budget = issue_card(ledger, charged(ledger, "total_steps"))["dataset_budget"]
    assert budget["cap"] == {"epsilon": 10.0, "delta": 1e-3, "order": 8.0}
    assert "Rényi divergence of order 8" in budget["rule"]
    assert budget["within_cap"] is True


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


def test_a_study_with_a_seed_gets_no_card(ledger: Ledger) -> None:
    charged(ledger, "total_steps")
    with raises_code(InputError, "card-not-private"):
        issue_card(ledger, replace(FACTS, private=False))


def test_a_winner_without_charged_steps_gets_no_card(ledger: Ledger) -> None:
    charged(ledger, "total_steps")
    with raises_code(VerificationError, "card-search-unknown"):
        build_card(replace(FACTS, search="z"), state=ledger.dataset_state("digits"))
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="c"))
    ledger.reopen_search("first")
    ledger.reserve("first", "c", 10)
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="c"))
    ledger.settle("first", "c", 0)
    with raises_code(VerificationError, "card-run-not-charged"):
        issue_card(ledger, replace(FACTS, winner="c"))
    assert issue_card(ledger, FACTS)["winner"]["steps"] == 120


BAD_WORDS: list[dict[str, Any]] = [
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
]


def test_an_own_word_that_does_not_fit_never_enters_a_card(ledger: Ledger) -> None:
    charged(ledger, "total_steps")
    state = ledger.dataset_state("digits")
    for bad in BAD_WORDS:
        with raises_code(VerificationError, "card-own-words"):
            build_card(replace(FACTS, **bad), state=state)
    with raises_code(VerificationError, "card-public-size"):
        build_card(replace(FACTS, public_size=1285), state=state)
    parameters = {"smoothing_samples": {"promote": [1, 3]}}  # the control: one that rises within a trial
    card = build_card(replace(FACTS, parameters=parameters), state=state)
    assert card["configuration"]["parameters"] == parameters
    assert card["configuration"]["batch_size_expected"] == 64


def test_what_the_ledger_knows_is_not_taken_from_the_exporter(ledger: Ledger) -> None:
    split = {"set": "digits", "fraction": 0.2, "seed": 5}
    open_first(ledger, details={"method": "dpsgd", "model": "resnet", "split": split}, **KINDS["total_steps"])
    ledger.reserve("first", "a", 10)
    lease(ledger, "first", "a", 10)
    card = issue_card(ledger, FACTS)
    assert (card["configuration"]["method"], card["configuration"]["model"]) == ("dpsgd", "resnet")
    assert card["validation"]["key"] == split


def test_a_card_is_one_text(cards: dict[str, dict[str, Any]]) -> None:
    card = cards["total_steps"]
    assert parse_card(card_text(card)) == card
    for text in (json.dumps(card), "{", card_text(card) + " "):
        with raises_code(VerificationError, "card-text-changed"):
            parse_card(text)
