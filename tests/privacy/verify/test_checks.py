"""The check of a card: what its ledger supports is a yes, and what one of two accountants got wrong is a no."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from card_fakes import KINDS, MECHANISM, OTHER, SCORES, charged
from ledgers import lease

from tuner.errors import VerificationError
from tuner.privacy.accountant.filters import CouponBook, Sealed
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.card.card import card_hash, card_text, issue_card, parse_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections import caps, section
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import checks, second_opinion
from tuner.privacy.verify.accountant import loss
from tuner.privacy.verify.accountant.entries_recount import recount
from tuner.privacy.verify.checks import check_card
from tuner.privacy.verify.report import Check, Report


@pytest.fixture
def issued(ledger: Ledger) -> dict[str, Any]:
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
        "card text",
        "ledger chain",
        "card hash",
        "ledger head",
        "card rendered anew",
        "data set's total, recounted",
        "every pool is on the card",
        "cap of training",
        "independent accountant, cap of training",
        "independent accountant, curve of training",
        "independent accountant, one run",
        "card page",
    } <= names
    assert ("independent accountant, cap of validation" in names) == (kind == "validation")
    assert ("exported run was charged" in names) == (kind == "sealed")
    prv = next((check.detail for check in report.checks if check.name == "not below Opacus' PRV"), None)
    assert (prv is not None) == (kind in {"total_steps", "validation", "user", "public"})
    assert prv is None or "not run" not in prv


def test_it_still_holds_when_the_search_continues(ledger: Ledger, issued: dict[str, Any]) -> None:
    ledger.reopen_search("first")
    ledger.reserve("first", "c", 10)
    lease(ledger, "first", "c", 10)
    assert check_card(card_text(issued), ledger).ok


def test_every_changed_digit_of_the_card_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    text = card_text(issued)
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for at in digits[:: max(1, len(digits) // 40)]:
        changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
        try:
            card = parse_card(changed)
        except VerificationError:
            continue
        assert card_hash(card) != card_hash(issued)
    assert "card hash" in failed(check_card(text.replace('"epsilon": 4.0', '"epsilon": 3.0', 1), ledger))


@pytest.mark.parametrize(
    ("path", "value", "found", "wanted"),
    [
        (("claim", "delta"), 1e-6, "1e-06", "1e-05"),
        (("claim", "epsilon"), 3.0, "3", "4"),
        (("training_cap", "filter", "step_cap"), 999, "999", "1000"),
        (("spent", "leased_steps"), 170, "170", "180"),
        (("dataset_budget", "user"), "nobody", "'nobody'", ""),
    ],
)
def test_it_names_the_value_and_what_it_should_be(
    ledger: Ledger, issued: dict[str, Any], path: tuple[str, ...], value: object, found: str, wanted: str
) -> None:
    report = forged(ledger, issued, *path, value=value)
    (check,) = (check for check in report.checks if check.name == "card rendered anew")
    assert check.ok is False
    assert f"{'.'.join(path)} is {found} and should be {wanted}" in check.detail


@pytest.mark.parametrize("value", [2, "1", None])
def test_a_card_of_another_format_is_refused_by_its_code(ledger: Ledger, issued: dict[str, Any], value: object) -> None:
    assert "[card-format]" in str(forged(ledger, issued, "schema", value=value))


def test_numbers_that_look_alike_are_told_with_every_digit(ledger: Ledger, issued: dict[str, Any]) -> None:
    value = issued["winner"]["single_run_epsilon"]
    report = forged(ledger, issued, "winner", "single_run_epsilon", value=value * (1 + 1e-8))
    assert f"is {value * (1 + 1e-8)!r} and should be {value!r}" in str(report)


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


def test_a_law_that_was_priced_as_another_is_found_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = charged(ledger, "sealed")
    cheaper = RunLaw(name="logarithmic", mean=10.0)
    real = Sealed.claim
    monkeypatch.setattr(Sealed, "claim", lambda self, delta: real(replace(self, law=cheaper, at_most=4000), delta))
    report = check_card(issue_card(ledger, facts), ledger)
    assert "independent accountant, cap of training" in failed(report)
    assert report.answer == "no"


def test_a_forgotten_coupon_is_found_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = charged(ledger, "coupon_book")
    real = CouponBook.claim
    monkeypatch.setattr(CouponBook, "claim", lambda self, delta: real(CouponBook(self.quotas[1:]), delta))
    report = check_card(issue_card(ledger, facts), ledger)
    assert "independent accountant, cap of training" in failed(report)


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


def test_what_is_too_large_for_it_is_not_confirmed(
    ledger: Ledger, issued: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "_POINTS", 2**7)
    report = check_card(issued, ledger)
    assert report.answer == "not confirmed"
    assert not report.ok
    assert "independent accountant, cap of training" in failed(report)


def _cannot(*_: object, **__: object) -> None:
    raise OverflowError("math range error")


@pytest.mark.parametrize(
    ("module", "name"),
    [(second_opinion, "epsilon_ranges"), (second_opinion, "epsilon_ranges_of_steps"), (checks, "build_card")],
)
def test_what_an_accountant_cannot_compute_is_not_judged(
    ledger: Ledger, issued: dict[str, Any], monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    monkeypatch.setattr(module, name, _cannot)
    report = check_card(issued, ledger)
    assert report.answer == "not confirmed"
    assert "OverflowError" in str(report)


def test_a_report_without_checks_is_a_no() -> None:
    assert Report(()).answer == "no"
    assert not Report(()).ok
    assert Report((Check("a", ok=True, detail=""), Check("b", ok=None, detail=""))).answer == "not confirmed"
    assert Report((Check("a", ok=False, detail=""), Check("b", ok=None, detail=""))).answer == "no"


@pytest.mark.parametrize(
    "plant",
    [
        lambda card: card["claim"].update(epsilon=10**400),
        lambda card: card["winner"].update(steps=10**400),
        lambda card: card["records"].update(public_size=10**400),
        lambda card: card["records"].update(public_size="many"),
        lambda card: card.update(spent=[]),
        lambda card: card.update(claim="ε = 1"),
    ],
)
def test_it_never_raises(ledger: Ledger, issued: dict[str, Any], plant: Callable[[dict[str, Any]], None]) -> None:
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


def test_another_ledger_is_refused(issued: dict[str, Any], tmp_path: Path) -> None:
    assert check_card(card_text(issued), Ledger.open(f"sqlite:///{tmp_path}/other.db")).answer == "no"


def test_the_answer_is_in_words_and_every_digit_is_kept_for_programs(ledger: Ledger, issued: dict[str, Any]) -> None:
    report = check_card(card_text(issued), ledger)
    assert not re.search(r"\d\.\d{7}", re.sub(r"[0-9a-f]{64}", "", str(report)))
    cap = next(check for check in report.checks if check.name == "independent accountant, cap of training")
    assert re.search(r"\d\.\d{7}", cap.exact or "")


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
    "lease_entry",
    [_leased(1, OTHER), _leased(1, trial="new"), _leased(1, pool="validation")],
    ids=["another mechanism", "another trial", "another pool"],
)
def test_a_lease_of_a_mechanism_that_was_not_reserved_is_found_by_the_second_count(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, lease_entry: tuple[str, dict[str, Any]]
) -> None:
    card = issue_card(ledger, charged(ledger, "validation"))
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries("digits")]
    with pytest.raises(ValueError, match=r"'(a|new)'"):
        recount([*entries, lease_entry])
    monkeypatch.setattr(second_opinion, "recount", lambda entries: recount([*entries, lease_entry]))
    assert check_card(card, ledger).answer == "no"


@pytest.mark.parametrize(
    ("kind", "extra", "name"),
    [
        ("total_steps", _leased(821), "cap of training"),
        ("coupon_book", _leased(121), "cap of training"),
        ("fixed_order", _leased(10**6), "cap of training"),
        ("validation", _leased(33, SCORES, pool="validation"), "cap of validation"),
        ("sealed", ("begin", {"search": "first"}), "cap of training"),
        ("total_steps", ("open_search", None), "data set's total, recounted"),
    ],
)
def test_rules_that_overlooked_an_entry_are_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str, extra: tuple[str, Any], name: str
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
