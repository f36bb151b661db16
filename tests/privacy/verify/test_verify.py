"""`verify`: yes to what the ledger bears out, no to one changed digit or one planted wrong claim, whatever the mode."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from card_fakes import KINDS, charged
from ledgers import lease

from tuner.errors import VerificationError
from tuner.privacy.accountant.filters import CouponBook, Sealed
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.card import curve
from tuner.privacy.card import sections as card_sections
from tuner.privacy.card.card import card_hash, card_text, issue_card, parse_card
from tuner.privacy.card.curve import render_svg
from tuner.privacy.card.page import render_markdown
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import verify as verifying
from tuner.privacy.verify.accountant import loss as independent_loss
from tuner.privacy.verify.accountant.entries_recount import recount
from tuner.privacy.verify.verify import Check, Report, verify

STEP = {"sample_rate": 0.05, "noise_multiplier": 2.0}
SCORE = {"sample_rate": 1.0, "noise_multiplier": 60.0}


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
    return verify(card, ledger)


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_card_is_verified(ledger: Ledger, kind: str) -> None:
    card = issue_card(ledger, charged(ledger, kind))
    report = verify(card_text(card), ledger, markdown=render_markdown(card), svg=render_svg(card))
    assert report.ok, str(report)
    assert report.answer == "yes"
    assert str(report).endswith("yes: the card follows from its ledger")
    names = {check.name for check in report.checks}
    assert {
        "card text",
        "ledger chain",
        "card hash",
        "ledger head",
        "numbers from the ledger",
        "data set's total, recounted",
        "cap of training",
        "independent accountant, cap of training",
        "independent accountant, curve of training",
        "independent accountant, one run",
        "card page",
        "card curve",
    } <= names
    assert ("independent accountant, cap of validation" in names) == (kind == "validation")
    assert ("not below Opacus' PRV" in names) == (kind in {"total_steps", "validation", "user", "public"})


def test_opacus_is_one_more_opinion(ledger: Ledger, issued: dict[str, Any]) -> None:
    prv = next(check for check in verify(issued, ledger).checks if check.name == "not below Opacus' PRV")
    assert "not run" not in prv.detail


def test_it_still_holds_after_the_ledger_went_on(ledger: Ledger, issued: dict[str, Any]) -> None:
    ledger.reopen_search("first")
    ledger.reserve("first", "c", 10)
    lease(ledger, "first", "c", 10)
    assert verify(card_text(issued), ledger).ok


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
    report = verify(text.replace('"epsilon": 4.0', '"epsilon": 3.0', 1), ledger)
    assert not report.ok
    assert "card hash" in failed(report)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("claim", "delta"), 1e-6, "claim.delta is 1e-06 and should be 1e-05"),
        (("claim", "epsilon"), 3.0, "claim.epsilon is 3 and should be 4"),
        (("training_cap", "filter", "step_cap"), 999, "filter.step_cap is 999 and should be 1000"),
        (("training_cap", "filter", "noise_multiplier"), 2.1, "noise_multiplier is 2.1 and should be 2"),
        (("training_cap", "epsilon_at_cap"), 1.0, "less is claimed than holds"),
        (("winner", "single_run_epsilon"), 0.5, "winner.single_run_epsilon is 0.5 and should be"),
        (("winner", "trial"), "zzz", "must have leased steps"),
        (("spent", "leased_steps"), 170, "spent.leased_steps is 170 and should be 180"),
        (
            ("dataset_budget", "committed_epsilon"),
            3.0,
            "says that ε = 3, δ = 1e-05 is committed; counted again it is ε = 4, δ = 1e-05",
        ),
        (("dataset_budget", "user"), "nobody", "dataset_budget.user is 'nobody'"),
        (("ledger", "head_hash"), "0" * 64, "ledger head"),
        (("schema",), 2, "format of a card must be 1 (got 2)"),
        (("schema",), "1", "format of a card must be 1 (got '1')"),
    ],
)
def test_it_says_which_number_and_what_it_should_be(
    ledger: Ledger, issued: dict[str, Any], path: tuple[str, ...], value: object, said: str
) -> None:
    report = forged(ledger, issued, *path, value=value)
    assert report.answer == "no"
    assert said in str(report)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("sealed", ("winner", "steps"), 119),
        ("sealed", ("winner", "noise_multiplier"), 3.0),
        ("sealed", ("claim", "law_of_the_number_of_runs", "name"), "logarithmic"),
        ("sealed", ("claim", "mode"), "composition"),
        ("coupon_book", ("training_cap", "filter", "coupons"), []),
        ("fixed_order", ("training_cap", "filter", "order"), 9.0),
        ("validation", ("validation_cap", "noise"), [600.0]),
        ("validation", ("validation_cap",), None),
        ("validation", ("validation_cap", "epsilon_at_cap"), 0.1),
        ("user", ("claim", "unit"), "one training record"),
        ("public", ("public_search", "dataset"), "another"),
        ("public", ("public_search",), None),
    ],
)
def test_a_forged_field_of_any_mode_is_a_no(ledger: Ledger, kind: str, path: tuple[str, ...], value: object) -> None:
    card = issue_card(ledger, charged(ledger, kind))
    assert forged(ledger, card, *path, value=value).answer == "no"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [0.99, 0.5])
def test_an_accountant_that_errs_twice_alike_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str, factor: float
) -> None:
    """What only an accountant of its own can tell: the numbers follow from the ledger, and are wrong."""
    facts = charged(ledger, kind)
    filter = type(KINDS[kind]["filter"])
    real = filter.claim
    monkeypatch.setattr(filter, "claim", lambda self, delta: factor * real(self, delta))
    card = issue_card(ledger, facts)
    report = verify(card, ledger)
    assert "numbers from the ledger" not in failed(report)
    assert "independent accountant, cap of training" in failed(report)
    assert report.answer == "no"


def test_an_accountant_that_errs_in_the_curve_alone_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = curve.curve_of
    monkeypatch.setattr(
        card_sections,
        "curve_of",
        lambda *given: [
            {**row, "epsilon": row["epsilon"] * (0.98 if row["delta"] == 1e-7 else 1.0)} for row in real(*given)
        ],
    )
    report = verify(issue_card(ledger, charged(ledger, "total_steps")), ledger)
    assert failed(report) == {"independent accountant, curve of training"}
    assert "first at δ = 1e-07" in str(report)


def test_an_accountant_that_errs_in_what_one_run_costs_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = card_sections.epsilon
    monkeypatch.setattr(card_sections, "epsilon", lambda *given: 0.9 * real(*given))
    report = verify(issue_card(ledger, charged(ledger, "sealed")), ledger)
    assert failed(report) == {"independent accountant, one run"}


def test_a_law_that_was_priced_as_another_is_found_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = charged(ledger, "sealed")
    cheaper = RunLaw(name="logarithmic", mean=10.0)
    real = Sealed.claim
    monkeypatch.setattr(Sealed, "claim", lambda self, delta: real(replace(self, law=cheaper, at_most=4000), delta))
    report = verify(issue_card(ledger, facts), ledger)
    assert "independent accountant, cap of training" in failed(report)
    assert report.answer == "no"


def test_a_forgotten_coupon_is_found_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = charged(ledger, "coupon_book")
    real = CouponBook.claim
    monkeypatch.setattr(CouponBook, "claim", lambda self, delta: real(CouponBook(self.quotas[1:]), delta))
    report = verify(issue_card(ledger, facts), ledger)
    assert "independent accountant, cap of training" in failed(report)


def test_what_is_too_large_for_it_is_not_confirmed(
    ledger: Ledger, issued: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(issued, ledger).answer == "yes"
    monkeypatch.setattr(independent_loss, "_POINTS", 2**7)
    report = verify(issued, ledger)
    assert report.answer == "not confirmed"
    assert not report.ok
    assert "??  independent accountant, cap of training: not confirmed independently" in str(report)
    assert str(report).endswith("not all was recomputed")

    def refuse(*_: object) -> None:
        raise verifying.TooLargeError("no")

    monkeypatch.setattr(verifying, "brackets", refuse)
    monkeypatch.setattr(verifying, "brackets_of_steps", refuse)
    assert verify(issued, ledger).answer == "not confirmed"


def test_a_report_without_checks_is_a_no() -> None:
    assert Report(()).answer == "no"
    assert not Report(()).ok
    assert Report((Check("a", ok=True, detail=""), Check("b", ok=None, detail=""))).answer == "not confirmed"
    assert Report((Check("a", ok=False, detail=""), Check("b", ok=None, detail=""))).answer == "no"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "section", ["claim", "winner", "ledger", "training_cap", "validation_cap", "dataset_budget", "schema"]
)
def test_a_missing_section_is_a_no_not_a_crash(ledger: Ledger, kind: str, section: str) -> None:
    issued = issue_card(ledger, charged(ledger, kind))
    card = {name: value for name, value in issued.items() if name != section}
    assert verify(card, ledger).answer == "no"


def test_a_changed_ledger_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    raw = sqlite3.connect(Path(ledger.url.removeprefix("sqlite:///")))
    raw.executescript("DROP TRIGGER entries_are_final;")
    raw.execute("UPDATE entries SET body = replace(body, '120', '121') WHERE kind = 'reserve' AND seq = 2")
    assert raw.total_changes == 1
    raw.commit()
    raw.close()
    report = verify(card_text(issued), ledger)
    assert failed(report) == {"ledger chain"}
    assert "entry 2" in str(report)


def test_another_ledger_is_refused(issued: dict[str, Any], tmp_path: Path) -> None:
    assert verify(card_text(issued), Ledger.open(f"sqlite:///{tmp_path}/other.db")).answer == "no"


@pytest.mark.parametrize("kind", ["total_steps", "sealed"])
def test_a_changed_page_or_curve_is_refused(ledger: Ledger, kind: str) -> None:
    issued = issue_card(ledger, charged(ledger, kind))
    page, drawn = render_markdown(issued), render_svg(issued)
    text = card_text(issued)
    assert failed(verify(text, ledger, markdown=page.replace("| **claimed** | 4 ", "| **claimed** | 1 "))) == {
        "card page"
    }
    assert failed(verify(text, ledger, svg=drawn.replace("ε = 4.0", "ε = 1.0"))) == {"card curve"}
    assert verify(text, ledger, markdown=page, svg=drawn).ok


def test_a_changed_picture_is_told_in_a_line_that_can_be_read(ledger: Ledger, issued: dict[str, Any]) -> None:
    drawn = render_svg(issued)
    changed = drawn.replace("(logarithmic)", "(linear)")
    assert max(map(len, drawn.splitlines())) > 300, "or there is nothing to cut"
    (check,) = (c for c in verify(card_text(issued), ledger, svg=changed).checks if c.name == "card curve")
    assert len(check.detail) < 240
    assert "(linear)" in check.detail
    assert "(logarithmic)" in check.detail
    assert check.exact is not None
    assert len(check.exact) > len(check.detail)


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_in_words_and_every_digit_is_kept_for_programs(ledger: Ledger, kind: str) -> None:
    report = verify(card_text(issue_card(ledger, charged(ledger, kind))), ledger)
    text = re.sub(r"[0-9a-f]{64}", "", str(report))
    assert not re.search(r"\d\.\d{7}|\[|\('|time\(s\)|None|True|\d\.0\b", text), text
    cap = next(check for check in report.checks if check.name == "independent accountant, cap of training")
    assert re.search(r"\d\.\d{7}", cap.exact or "")
    if kind == "validation":
        (scores,) = (check for check in report.checks if check.name == "cap of validation")
        assert "8 scores are charged, of 40 allowed" in scores.detail
    if kind == "sealed":
        assert "charged once" in text


def test_what_was_spent_is_bounded_by_the_claim_of_the_ledger_not_of_the_card(
    ledger: Ledger, issued: dict[str, Any]
) -> None:
    """A card whose claim was lowered below what was spent must not say that it was found between 1 and 1."""
    report = forged(ledger, issued, "claim", "epsilon", value=1.0)
    spent = next(check for check in report.checks if check.name == "independent accountant, spent")
    low, high = map(float, re.findall(r"it lies between ([\d.]+) and ([\d.]+)", spent.detail)[0])
    assert 1.4 < low < high < 1.5
    assert f"the card says ε = {issued['spent']['epsilon_spent']:.6g}; computed without the card" in spent.detail


def test_numbers_that_look_alike_are_told_with_every_digit(ledger: Ledger, issued: dict[str, Any]) -> None:
    value = issued["winner"]["single_run_epsilon"]
    report = forged(ledger, issued, "winner", "single_run_epsilon", value=value * (1 + 1e-8))
    assert f"is {value * (1 + 1e-8)!r} and should be {value!r}" in str(report)


def test_a_reformatted_card_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    assert not verify(json.dumps(issued), ledger).ok
    assert not verify("{", ledger).ok


def test_the_entries_are_counted_again_by_another_program(ledger: Ledger) -> None:
    charged(ledger, "validation")
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries("digits")]
    searches, epsilon, delta = recount(entries)
    assert searches["first"].steps("training") == [(0.05, 2.0, 180)]
    assert searches["first"].steps("validation") == [(1.0, 60.0, 8)]
    assert (float(epsilon), float(delta)) == (4.0, 1e-5)
    more = [*entries, ("lease", {"search": "first", "trial": "a", "steps": 821, "pool": "training", "mechanism": STEP})]
    assert recount(more)[0]["first"].steps("training") == [(0.05, 2.0, 1001)]
    for trial, mechanism in (("new", STEP), ("a", SCORE)):
        said = {"search": "first", "trial": trial, "steps": 1, "pool": "training", "mechanism": mechanism}
        with pytest.raises(ValueError, match="did not reserve"):
            recount([*entries, ("lease", said)])


@pytest.mark.parametrize(
    ("kind", "extra", "name"),
    [
        (
            "total_steps",
            ("lease", {"search": "first", "trial": "a", "steps": 821, "pool": "training", "mechanism": STEP}),
            "cap of training",
        ),
        (
            "coupon_book",
            ("lease", {"search": "first", "trial": "a", "steps": 121, "pool": "training", "mechanism": STEP}),
            "cap of training",
        ),
        (
            "fixed_order",
            ("lease", {"search": "first", "trial": "a", "steps": 10**6, "pool": "training", "mechanism": STEP}),
            "cap of training",
        ),
        (
            "validation",
            ("lease", {"search": "first", "trial": "a", "steps": 33, "pool": "validation", "mechanism": SCORE}),
            "cap of validation",
        ),
        ("sealed", ("begin", {"search": "first"}), "cap of training"),
        ("total_steps", ("open_search", None), "data set's total, recounted"),
    ],
)
def test_a_fold_that_overlooked_an_entry_is_found_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str, extra: tuple[str, Any], name: str
) -> None:
    """One entry more than the ledger's own count knows of: only the second count can see it."""
    card = issue_card(ledger, charged(ledger, kind))
    if extra[1] is None:
        extra = (extra[0], {**next(e.data for e, _ in ledger.entries("digits")), "search": "unseen"})
    monkeypatch.setattr(verifying, "recount", lambda entries: recount([*entries, extra]))
    report = verify(card, ledger)
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
