"""The check of a card: what its ledger supports is a yes, and what one of two accountants got wrong is a no."""

from __future__ import annotations

import copy
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from card_fakes import KINDS, MECHANISM, OTHER, SCORES, charged

from tuner.export.verification import verify_card
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.card import build_card, card_hash, card_text, issue_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections import caps, section
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import checks, second_opinion
from tuner.privacy.verify.accountant import loss
from tuner.privacy.verify.accountant.entries_recount import recount
from tuner.privacy.verify.checks import check_card
from tuner.privacy.verify.report import Check, Report

CURVES, PRV = cache(caps.claim_curve), second_opinion._prv


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that nobody forged are computed once; an honest card is checked with Opacus' PRV, the others without."""
    monkeypatch.setattr(caps, "claim_curve", CURVES)
    monkeypatch.setattr(second_opinion, "_prv", lambda *_: Check("PRV", ok=True, detail=""))


@pytest.fixture
def issued(ledger: Ledger, quick: None) -> dict[str, Any]:
    return issue_card(ledger, charged(ledger, "total_steps"))


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def forged(ledger: Ledger, card: dict[str, Any], *path: str, value: object) -> Report:
    """The report on a card with another value, whose hash the forger had recorded."""
    card = copy.deepcopy(card)
    place = card
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    ledger.record_card("first", card_hash(card), "forged")
    return check_card(card, ledger)


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_card_is_verified(ledger: Ledger, kind: str) -> None:
    card = issue_card(ledger, charged(ledger, kind))
    report = check_card(card_text(card), ledger, page=render_markdown(card))
    assert report.answer == "yes", str(report)
    names = {check.name for check in report.checks}
    assert {
        "card text", "ledger chain", "card hash", "ledger head", "card rendered anew", "data set's total, recounted",
        "every cap is on the card", "cap of training", "card page", "independent accountant, cap of training",
        "independent accountant, curve of training", "independent accountant, one run",
    } <= names  # fmt: skip
    assert ("independent accountant, cap of validation" in names) == ("validation" in KINDS[kind])
    assert ("exported run was charged" in names) == (kind in {"sealed", "sealed_validation"})
    prv = next((check.detail for check in report.checks if check.name == "not below Opacus' PRV"), None)
    assert (prv is not None) == (kind in {"total_steps", "validation", "user", "public", "blocks"})
    assert prv is None or "not run" not in prv


def test_a_card_that_the_ledger_never_issued_is_refused(ledger: Ledger, quick: None, tmp_path: Path) -> None:
    """Its numbers and words are right: only the comparison with the hashes of issued cards can tell."""
    facts = charged(ledger, "total_steps")
    card, path = build_card(facts, state=ledger.dataset_state("digits")), tmp_path / "privacy_card.json"
    path.write_text(card_text(card))
    path.with_suffix(".md").write_text(render_markdown(card))

    def verified() -> tuple[str, list[str]]:
        values, _ = verify_card(path, ledger.url)
        return values["answer"], [check["name"] for check in values["checks"] if not check["ok"]]

    assert verified() == ("no", ["card hash"])
    ledger.record_card("first", "0" * 64, "another card")
    assert verified() == ("no", ["card hash"])
    ledger.record_card("first", card_hash(card), "export")
    assert verified() == ("yes", []), "the control"
    ledger.reopen_search("first")
    ledger.reserve("first", "c", 10)
    assert verified() == ("yes", []), "the card is of its own entry"
    assert check_card(card_text(card), Ledger.open(f"sqlite:///{tmp_path}/other.db")).answer == "no"


@pytest.mark.parametrize("value", [2, "1", None])
def test_a_card_of_another_format_is_refused_by_its_code(ledger: Ledger, issued: dict[str, Any], value: object) -> None:
    assert "[card-format]" in str(forged(ledger, issued, "schema", value=value))


def test_a_last_digit_that_another_machine_rounds_otherwise_is_no_difference(
    ledger: Ledger, issued: dict[str, Any]
) -> None:
    value = issued["winner"]["single_run_epsilon"]
    assert forged(ledger, issued, "winner", "single_run_epsilon", value=value * (1 + 1e-11)).ok
    assert not forged(ledger, issued, "claim", "epsilon", value=4.0 * (1 + 1e-11)).ok, "not computed: exact"


@pytest.mark.parametrize("kind", KINDS)
def test_an_accountant_that_errs_twice_alike_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The card follows from the ledger and is wrong: only a second accountant can tell."""
    facts = charged(ledger, kind)
    filter = type(KINDS[kind]["filter"])
    real = filter.claim
    monkeypatch.setattr(filter, "claim", lambda self, delta: 0.99 * real(self, delta))
    report = check_card(issue_card(ledger, facts), ledger)
    assert "card rendered anew" not in failed(report)
    assert "independent accountant, cap of training" in failed(report)
    assert report.answer == "no"


def test_an_accountant_that_errs_in_the_curve_alone_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = caps.claim_curve
    monkeypatch.setattr(
        caps,
        "claim_curve",
        lambda *given: [
            {**row, "epsilon": row["epsilon"] * (0.98 if row["delta"] == 1e-7 else 1.0)} for row in real(*given)
        ],
    )
    report = check_card(issue_card(ledger, charged(ledger, "total_steps")), ledger)
    assert failed(report) == {"independent accountant, curve of training"}
    assert "δ = 1e-07" in str(report)


def test_an_accountant_that_errs_in_what_one_run_costs_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = section.epsilon
    monkeypatch.setattr(section, "epsilon", lambda *given: 0.9 * real(*given))
    report = check_card(issue_card(ledger, charged(ledger, "sealed")), ledger)
    assert failed(report) == {"independent accountant, one run"}


def test_opacus_notices_a_claim_that_is_too_low(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, real = charged(ledger, "total_steps"), TotalSteps.claim
    monkeypatch.setattr(TotalSteps, "claim", lambda self, delta: 0.95 * real(self, delta))
    assert "not below Opacus' PRV" in failed(check_card(issue_card(ledger, facts), ledger))


def test_a_claim_below_what_it_covers_is_found_by_the_second_accountant_too(
    ledger: Ledger, issued: dict[str, Any]
) -> None:
    """A card whose claim was lowered below what was spent: the ledger's claim bounds that, not the card's."""
    report = forged(ledger, issued, "claim", "epsilon", value=1.0)
    assert {"card rendered anew", "cap of training"} <= failed(report)
    assert "independent accountant, spent" not in failed(report)
    lower = forged(ledger, issued, "training_cap", "epsilon_at_cap", value=1.0)
    assert "independent accountant, cap of training" in failed(lower)
    total = forged(ledger, issued, "dataset_budget", "committed_epsilon", value=3.0)
    assert "data set's total, recounted" in failed(total)


def test_a_sealed_run_longer_than_any_that_was_charged_is_found_by_the_second_count(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(section, "_may_make", lambda _filter, _run: True)
        report = check_card(issue_card(ledger, replace(charged(ledger, "sealed"), winner_run=(MECHANISM, 121))), ledger)
    assert failed(report) == {"exported run was charged"}


def _cannot(*_: object, **__: object) -> None:
    raise OverflowError("math range error")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (loss, "_POINTS", 2**7),
        (second_opinion, "epsilon_ranges", _cannot),
        (second_opinion, "epsilon_ranges_of_steps", _cannot),
        (checks, "build_card", _cannot),
    ],
)
def test_what_is_too_large_for_an_accountant_is_not_confirmed(
    ledger: Ledger,
    issued: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    value: object,
) -> None:
    monkeypatch.setattr(second_opinion, "_prv", PRV)
    monkeypatch.setattr(module, name, value)
    report = check_card(issued, ledger)
    assert report.answer == "not confirmed"
    assert not report.ok


def test_a_report_without_checks_is_a_no() -> None:
    assert Report(()).answer == "no"
    assert not Report(()).ok
    assert Report((Check("a", ok=True, detail=""), Check("b", ok=None, detail=""))).answer == "not confirmed"
    assert Report((Check("a", ok=False, detail=""), Check("b", ok=None, detail=""))).answer == "no"


def test_it_never_raises(ledger: Ledger, issued: dict[str, Any]) -> None:
    plants: list[Callable[[dict[str, Any]], object]] = [
        lambda card: card["claim"].update(epsilon=10**400),
        lambda card: card["winner"].update(steps=10**400),
        lambda card: card["records"].update(public_size=10**400),
        lambda card: card["records"].update(public_size="many"),
        lambda card: card.update(spent=[]),
        lambda card: card.update(claim="ε = 1"),
    ]
    for plant in plants:
        card = copy.deepcopy(issued)
        plant(card)
        assert check_card(card, ledger).answer == "no"
    assert check_card(json.dumps(issued), ledger).answer == "no", "reformatted"
    assert check_card("{", ledger).answer == "no"


def test_a_changed_ledger_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    raw = sqlite3.connect(Path(ledger.url.removeprefix("sqlite:///")))
    raw.executescript("DROP TRIGGER entries_are_final;")
    raw.execute("UPDATE entries SET body = replace(body, '120', '121') WHERE kind = 'reserve' AND seq = 2")
    assert raw.total_changes == 1
    raw.commit()
    raw.close()
    report = check_card(card_text(issued), ledger)
    assert failed(report) == {"ledger chain"}
    assert "entry 2" in str(report)


def test_the_entries_are_counted_again_by_another_program(ledger: Ledger) -> None:
    charged(ledger, "validation")
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries("digits")]
    searches, epsilon, delta = recount(entries)
    assert searches["first"].steps("training") == [(0.05, 2.0, 180)]
    assert searches["first"].steps("validation") == [(1.0, 60.0, 8)]
    assert (float(epsilon), float(delta)) == (4.0, 1e-5)
    assert recount([*entries, _leased(821)])[0]["first"].steps("training") == [(0.05, 2.0, 1001)]


def _leased(
    steps: int, mechanism: SampledGaussian = MECHANISM, *, trial: str = "a", pool: str = "training"
) -> tuple[str, dict[str, Any]]:
    body = {"search": "first", "trial": trial, "steps": steps, "pool": pool, "mechanism": mechanism.body()}
    return "lease", body


@pytest.mark.parametrize(
    ("kind", "extra", "name"),
    [
        ("total_steps", _leased(821), "cap of training"),
        ("coupon_book", _leased(121), "cap of training"),
        ("fixed_order", _leased(10**6), "cap of training"),
        ("validation", _leased(33, SCORES, pool="validation"), "cap of validation"),
        ("sealed", ("begin", {"search": "first"}), "cap of training"),
        ("total_steps", ("open_search", None), "data set's total, recounted"),
        ("validation", _leased(1, OTHER), "card has its fields"),  # never reserved
        ("validation", _leased(1, trial="new"), "card has its fields"),
        ("validation", _leased(1, pool="validation"), "card has its fields"),
    ],
)
def test_rules_that_overlooked_an_entry_are_found_out(
    ledger: Ledger, quick: None, monkeypatch: pytest.MonkeyPatch, kind: str, extra: tuple[str, Any], name: str
) -> None:
    """One entry more than the ledger's own count knows of: only the second count can see it."""
    card = issue_card(ledger, charged(ledger, kind))
    if extra[1] is None:
        extra = (extra[0], {**next(e.data for e, _ in ledger.entries("digits")), "search": "unseen"})
    monkeypatch.setattr(second_opinion, "recount", lambda entries: recount([*entries, extra]))
    report = check_card(card, ledger)
    assert name in failed(report), str(report)
    assert report.answer == "no"


def test_importing_the_ledger_does_not_pay_for_the_accountant() -> None:
    script = (
        "import sys, tuner.privacy.ledger.ledger, tuner.privacy.ledger.search_budget\n"
        "import tuner.privacy.card.card, tuner.privacy.card.page\n"
        "print([m for m in ('dp_accounting', 'torch', 'opacus', 'ray', 'mlflow', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
