"""`verify` holds the words of a card too: what is covered, assumed, not proved and kept follows from the search."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from card_fakes import FACTS, KINDS, MECHANISM, charged
from ledgers import lease

from tuner.privacy.card.card import card_hash, card_text, issue_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import verify as verifying
from tuner.privacy.verify.verify import Report, verify

COVERED = "covered: a score is the number of right answers, plus noise, and charged before it was drawn"


@pytest.fixture
def issued(ledger: Ledger) -> dict[str, Any]:
    return issue_card(ledger, charged(ledger, "total_steps"))


def forged(ledger: Ledger, card: dict[str, Any], *changes: tuple[str, object]) -> Report:
    """The report on a card with other values, whose hash the forger had recorded; None takes a field away."""
    card = copy.deepcopy(card)
    for path, value in changes:
        *sections, last = path.split(".")
        place = card
        for key in sections:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    ledger.record_card(card["claim"]["search"], card_hash(card), "forged")
    return verify(card_text(card), ledger, markdown=render_markdown(card))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("validation.protected", True),
        ("validation.guarantee", COVERED),
        ("scores.guarantee", "the validation score is noised and inside the guarantee"),
        ("scores.label", "the test set is protected"),
        ("scores.remark", "certified"),
        ("not_proved", []),
        ("released", "everything, checkpoints too"),
        ("kept_from_analysts", "nothing needs to be kept: checkpoints and noise may be published"),
        ("setting", "local: nobody is trusted"),
        ("randomness.floating_point_attack", "mitigated"),
        ("randomness.timing_side_channel", "step times are constant"),
        ("randomness.seeded", True),
        ("records.public_size", 128_000),
        ("records.public_size", 1285),
        ("configuration.batch_size_expected", 1),
        ("records.records_per_user", 16),
        ("assessment", "proved by a third party"),
    ],
)
def test_a_forged_word_is_named(ledger: Ledger, issued: dict[str, Any], path: str, value: object) -> None:
    report = forged(ledger, issued, (path, value))
    wrong = [check for check in report.checks if check.ok is False]
    assert report.answer == "no"
    assert [check.name for check in wrong] == ["words from the ledger"]
    assert path.rpartition(".")[2] in wrong[0].detail or "batch_size_expected" in wrong[0].detail


def test_a_card_with_another_batch_and_n_of_the_same_rate_is_the_operators_word(
    ledger: Ledger, issued: dict[str, Any]
) -> None:
    """The control, and the limit: the ledger has the rate alone (docs/guarantees.md)."""
    same = (("records.public_size", 2560), ("configuration.batch_size_expected", 128))
    assert forged(ledger, issued, *same).ok


def test_assumptions_that_do_not_hold_cannot_be_left_out(ledger: Ledger, issued: dict[str, Any]) -> None:
    kept = [row for row in issued["assumptions"] if row["status"].startswith("holds")]
    assert len(kept) < len(issued["assumptions"])
    assert forged(ledger, issued, ("assumptions", kept)).answer == "no"
    better = [{**row, "status": "holds: enforced by the engine, tested"} for row in issued["assumptions"]]
    assert forged(ledger, issued, ("assumptions", better)).answer == "no"


def test_a_card_names_the_method_the_model_and_the_split_of_its_search(ledger: Ledger) -> None:
    split = {"set": "digits", "fraction": 0.1, "seed": 0}
    details = {"method": "dplis", "model": "logistic_regression", "split": split}
    ledger.open_search("digits", "first", delta=1e-5, details=details, **KINDS["total_steps"])
    ledger.reserve("first", "a", 10)
    lease(ledger, "first", "a", 10)
    card = issue_card(ledger, replace(FACTS, validation={**FACTS.validation, "key": split}))
    assert verify(card, ledger).ok
    for path, value in (("configuration.model", "resnet"), ("configuration.method", "x"), ("validation.key.seed", 1)):
        assert forged(ledger, card, (path, value)).answer == "no", path


@pytest.mark.parametrize("beside", [{}, {"model.safetensors": "a" * 64}, {"model.safetensors": "b" * 64}])
def test_what_lies_beside_a_card_is_what_it_was_issued_for(ledger: Ledger, beside: dict[str, str]) -> None:
    card = issue_card(ledger, replace(charged(ledger, "total_steps"), files={"model.safetensors": "a" * 64}))
    report = verify(card_text(card), ledger, markdown=render_markdown(card), beside=beside)
    found = {check.name: check for check in report.checks}["file model.safetensors"]
    assert report.ok == found.ok == (beside.get("model.safetensors", "a" * 64) == "a" * 64)
    assert ("not beside the card" in found.detail) == (not beside)


def _cannot(*_: object, **__: object) -> None:
    raise OverflowError("math range error")


@pytest.mark.parametrize("name", ["brackets", "brackets_of_steps", "epsilon", "ledger_sections"])
def test_what_an_accountant_cannot_compute_is_not_judged(
    ledger: Ledger, issued: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(verifying, name, _cannot)
    report = verify(issued, ledger)
    assert report.answer == "not confirmed"
    assert "not judged" in str(report)


@pytest.mark.parametrize(
    "plant",
    [
        lambda card: card["claim"].update(epsilon=10**400),
        lambda card: card["winner"].update(steps=10**400),
        lambda card: card["records"].update(public_size=10**400),
        lambda card: card["records"].update(public_size="many"),
    ],
)
def test_it_never_raises(ledger: Ledger, issued: dict[str, Any], plant: Callable[[dict[str, Any]], None]) -> None:
    card = copy.deepcopy(issued)
    plant(card)
    ledger.record_card("first", card_hash(card), "forged")
    assert verify(card, ledger).answer == "no"


def test_a_sealed_run_longer_than_any_that_was_charged_is_found_by_the_second_count(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.privacy.card import sections as card_sections

    with monkeypatch.context() as patch:
        patch.setattr(card_sections, "_made", lambda _run, _runs: True)
        card = issue_card(ledger, replace(charged(ledger, "sealed"), winner_run=(MECHANISM, 121)))
        report = verify(card, ledger)
    assert [check.name for check in report.checks if check.ok is False] == ["exported run was charged"]
