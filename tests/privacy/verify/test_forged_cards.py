"""Forged cards: every leaf, key and list of an issued card of every mode, and every paragraph of its page."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from card_fakes import DETAILS, KINDS, IssuedCards, charged

from benchmarks.audit import forging
from benchmarks.audit.forging import SENTENCE, all_forged, forged
from trainables.score_error import ScoreError
from tuner.privacy.card.card import card_text, issue_card
from tuner.privacy.card.curve import render_svg
from tuner.privacy.card.own_words import EXPORTED, OWN_WORDS
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections import caps
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import checks
from tuner.privacy.verify.checks import check_card
from tuner.privacy.verify.report import Check, Report

OWN = {
    "configuration.max_grad_norm": 7.0,
    "configuration.parameters": {"learning_rate": 0.7, "epochs": 3, "optimiser": "plain"},
    "configuration.sampler": "grid",
    "configuration.pruner": "median",
    "scores": {"test_accuracy": 0.98},  # the standard error on the card follows from a validation accuracy
    "versions": {"dp-accounting": "9.9.9", "torch": "3.0.0+cpu"},
    "exported_files": {"model.safetensors": "b" * 64, "experiment.yaml": "c" * 64},
}
"""The operator's own words with other values that the ledger cannot refute."""
TIED = {
    "claim.search",
    "winner.trial",
    "records.public_size",
    "records.public_size_is_public",
    "records.records_per_user",
    "records.preprocessing",
}
"""Own words that another value of the card or the ledger follows from: a change of one alone is found."""


@pytest.fixture
def forger() -> Iterator[None]:
    """The forger has recorded every hash. What is slow is left out or read once: rendering anew must find all."""
    with forging.forger():
        yield


QUICK = ("validation", "blocks")
EVERY_KIND = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in KINDS]


def unfound(report: Report) -> bool:
    return report.answer != "no"


@pytest.mark.usefixtures("forger")
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_forged_card_is_found_but_for_the_operators_own_words(issued_cards: IssuedCards, kind: str) -> None:
    ledger, card = issued_cards[kind]
    assert check_card(card_text(card), ledger, page=render_markdown(card)).ok, "the control"
    count: Counter[bool] = Counter()
    for path, forgery, other in all_forged(card):
        passed = unfound(check_card(other, ledger))
        own = any(f"{path}.".startswith(f"{word}.") for word in OWN)
        assert own or not passed, (path, forgery)
        count[passed] += 1
    assert count[False] > 400
    assert count[True] < 30


@pytest.mark.usefixtures("forger")
@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_own_words_are_these(issued_cards: IssuedCards, kind: str) -> None:
    """The limit of every check: what the ledger cannot know, the operator may say wrongly."""
    ledger, card = issued_cards[kind]
    for word, value in OWN.items():

        def say(place: dict[str, Any], key: str, value: Any = value) -> None:  # noqa: ANN401 - any leaf of a card
            place[key] = {**place[key], **value} if isinstance(value, dict) else value

        assert check_card(forged(card, tuple(word.split(".")), say), ledger).ok, word
    assert {each.path for each in OWN_WORDS} == OWN.keys() | TIED


@pytest.mark.usefixtures("forger")
@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_in_the_page_is_found(issued_cards: IssuedCards, kind: str) -> None:
    ledger, card = issued_cards[kind]
    lines = render_markdown(card).split("\n")
    for at in range(0, len(lines), 7):
        for page in (
            [*lines[:at], SENTENCE, *lines[at:]],
            [*lines[:at], f"{lines[at]} {SENTENCE}", *lines[at + 1 :]],
            lines[:at] + lines[at + 1 :],
        ):
            report = check_card(card, ledger, page="\n".join(page))
            assert [check.name for check in report.checks if not check.ok] == ["card page"], (at, lines[at])


@pytest.mark.usefixtures("forger")
def test_a_batch_and_a_size_of_the_same_rate_are_the_operators_word(
    issued_cards: IssuedCards,
) -> None:
    """Two changes together: the ledger has the rate alone."""
    ledger, card = issued_cards["total_steps"]
    for size, batch, answer in ((2560, 128, "yes"), (2560, 64, "no"), (1285, 64, "no"), (10**400, 64, "no")):
        other = copy.deepcopy(card)
        other["records"]["public_size"], other["configuration"]["batch_size_expected"] = size, batch
        if size < 10**15 and (error := ScoreError.of_split(size, DETAILS["split"]["fraction"])) is not None:
            own = other["scores"]["validation_accuracy"]
            other["scores"]["validation_accuracy_standard_error"] = error.of(own)
        assert check_card(other, ledger).answer == answer, (size, batch)


@pytest.mark.usefixtures("forger")
def test_a_card_is_for_the_files_that_were_exported_with_it(issued_cards: IssuedCards) -> None:
    ledger, card = issued_cards["total_steps"]
    hashes = dict.fromkeys(EXPORTED, "a" * 64)
    for found, same in (({}, True), (hashes, True), ({"model.safetensors": "b" * 64}, False)):
        report = check_card(card, ledger, files=found)
        of_file = {check.name: check for check in report.checks if check.name.startswith("file ")}
        assert report.ok == of_file["file model.safetensors"].ok == same
        # The card lists no experiment file: that is said, and is not a no.
        assert of_file["file experiment.yaml"].ok
        assert "not compared" in of_file["file experiment.yaml"].detail


@pytest.mark.usefixtures("forger")
def test_a_picture_with_another_number_is_found_and_another_drawing_is_not_confirmed(
    issued_cards: IssuedCards,
) -> None:
    ledger, card = issued_cards["validation"]
    picture = render_svg(card)

    def checked(text: str) -> Check:
        report = check_card(card, ledger, picture=text)
        (check,) = (check for check in report.checks if check.name == "card picture")
        assert report.answer == {True: "yes", False: "no", None: "not confirmed"}[check.ok]
        return check

    assert checked(picture).ok
    for says, lie in (
        ("ε = 4.0, δ = 1e-05</text>", "ε = 0.4, δ = 1e-05</text>"),
        ("ε = 4.0, δ = 1e-05. training", "ε = 0.4, δ = 1e-05. training"),
        ("ε = 3.69985 at δ = 1e-05,", "ε = 0.69985 at δ = 1e-05,"),
    ):
        assert picture.count(says) == 1
        assert checked(picture.replace(says, lie)).ok is False, says
    covered = picture.replace("</svg>", '<rect width="999" height="999"/><text>ε = 0.01</text></svg>')
    for drawn in (picture.replace('d="M ', 'd="M 1', 1), covered):
        assert drawn != picture
        assert checked(drawn).ok is None
        assert "not confirmed" in checked(drawn).detail


def test_what_the_forger_leaves_out_is_part_of_every_check(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the fixture `forger`."""
    card = issue_card(ledger, charged(ledger, "total_steps"))
    slow: list[tuple[Any, str]] = [
        (checks, "check_recorded"), (checks, "second_opinion"), (checks, "build_card"), (caps, "claim_curve"),
        (ledger, "verify_chain"), (ledger, "entries"),
    ]  # fmt: skip
    spies = [Mock(wraps=getattr(module, name)) for module, name in slow]
    for (module, name), spy in zip(slow, spies, strict=True):
        monkeypatch.setattr(module, name, spy)
    assert check_card(card_text(card), ledger, page=render_markdown(card)).ok
    assert [spy.call_count for spy in spies] == [1, 1, 1, 1, 1, 1]
