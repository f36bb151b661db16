"""The privacy card: what it says, and that `verify` says no to one changed digit."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from math import exp, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InputError, VerificationError
from tuner.privacy import accounting
from tuner.privacy.card import CardFacts, build_card, card_hash, card_text, issue_card, parse_card
from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Ledger
from tuner.privacy.markdown import render_markdown
from tuner.privacy.verify import Report, verify

MECHANISM = SampledGaussian(0.05, 2.0)
FACTS = CardFacts(
    search="first",
    winner="a",
    method="dplis",
    model="logistic_regression",
    parameters={"learning_rate": 0.1 + 0.2},
    batch_size=64,
    max_grad_norm=1.0,
    public_size=1280,
    sampler="tpe",
    pruner="none",
    validation={"source": "held-out training records", "fraction": 0.1, "split": "keyed hash of the index"},
    scores={"validation_accuracy": 0.91},
    random_generator="AES-256-CTR, seeded by the operating system",
    versions={"dp-accounting": "0.6.0"},
    private=True,
)


@cache
def _card() -> dict[str, Any]:
    mechanism = {"mechanism": MECHANISM, "epsilon": 4.0, "delta": 1e-5}
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
        ledger.open_search("digits", "first", step_cap=1000, **mechanism)  # type: ignore[arg-type]
        ledger.reserve("first", "a", 10)
        ledger.lease("first", "a", 10)
        return issue_card(ledger, FACTS)


@pytest.fixture
def issued(ledger: Ledger, search: str) -> dict[str, Any]:
    ledger.open_search("digits", "other", mechanism=SampledGaussian(0.02, 3.0), epsilon=1.0, delta=1e-6, step_cap=10)
    for trial, steps in (("a", 120), ("b", 60)):
        ledger.reserve(search, trial, 120)
        ledger.lease(search, trial, steps)
        ledger.settle(search, trial, steps)
    return issue_card(ledger, FACTS)


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def test_an_honest_card_is_verified_by_four_accountants(ledger: Ledger, issued: dict[str, Any]) -> None:
    report = verify(card_text(issued), ledger, markdown=render_markdown(issued))
    assert report.ok, str(report)
    names = {check.name for check in report.checks}
    assert {"same accountant", "finer PLD", "not above RDP", "not below Opacus' PRV", "card page"} <= names
    prv = next(check for check in report.checks if check.name == "not below Opacus' PRV")
    assert "not run" not in prv.detail


def test_it_still_holds_after_the_ledger_went_on(ledger: Ledger, issued: dict[str, Any]) -> None:
    ledger.reserve("first", "c", 10)
    ledger.lease("first", "c", 10)
    assert verify(card_text(issued), ledger).ok


def test_the_numbers_are_those_of_the_accountant(issued: dict[str, Any]) -> None:
    assert issued["claim"]["epsilon"] == 4.0
    assert issued["claim"]["epsilon_at_step_cap"] == accounting.epsilon(MECHANISM, 1000, 1e-5)
    assert issued["spent"]["epsilon_spent"] == accounting.epsilon(MECHANISM, 180, 1e-5)
    assert issued["winner"]["single_run_epsilon"] == accounting.epsilon(MECHANISM, 120, 1e-5)
    assert issued["dataset_budget"]["committed_epsilon"] == 5.0
    assert [other["search"] for other in issued["dataset_budget"]["other_searches"]] == ["other"]


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
        "NOT a guarantee for a tuned model",
        "formally verified",
        "add_or_remove_one",
        "earlier_searches",
    ):
        assert phrase in text, phrase
    rows = issued["assumptions"]
    assert {row["status"].split(":")[0] for row in rows} == {"holds", "assumed", "not covered"}
    # What holds says on what that rests.
    assert all(":" in row["status"] for row in rows if row["status"].startswith("holds"))


def test_checkpoint_files_are_never_said_to_be_shown(issued: dict[str, Any]) -> None:
    assert "checkpoint" not in issued["released"]
    assert "checkpoint" not in issued["claim"]["statement"]
    assert "operator only" in issued["kept_from_analysts"]


def test_the_page_opens_with_the_claim_its_limits_and_its_meaning(issued: dict[str, Any]) -> None:
    first = [line for line in render_markdown(issued).splitlines() if line][:4]
    assert first[0] == "# Privacy card: first"
    assert first[1].startswith("**ε = 4, δ = 1e-05: differential privacy for the training records")
    assert first[2].startswith("**Not covered:**")
    assert "validation and test records" in first[2]
    assert first[3] == "## What this means"


def test_the_page_follows_from_the_card_alone(issued: dict[str, Any]) -> None:
    """A card that was read has its fields in another order than one that was made."""
    assert render_markdown(parse_card(card_text(issued))) == render_markdown(issued)


def test_the_meaning_is_in_plain_words_and_true(issued: dict[str, Any]) -> None:
    page = render_markdown(issued)
    meaning = page[page.index("## What this means") : page.index("## The numbers")]
    for phrase in ("one training record", "cap of the whole search", "at most 1000 training steps", "180 steps in 2"):
        assert phrase in meaning, phrase
    assert issued["released"] in meaning
    assert issued["kept_from_analysts"] in meaning
    factor = float(re.findall(r"e\^ε, here ([\d.]+)\.", meaning)[0])
    assert exp(4.0) <= factor <= exp(4.0) * 1.01
    right = float(re.findall(r"right in at most ([\d.]+) %", meaning)[0]) / 100
    assert (exp(4.0) + 1e-5) / (1 + exp(4.0)) <= right <= (exp(4.0) + 1e-5) / (1 + exp(4.0)) + 1e-4
    assert "1 in 100000." in meaning


@pytest.mark.parametrize(("epsilon", "factor"), [(0.1, "1.11"), (8.0, "2981"), (900.0, "more than 100000")])
def test_the_meaning_of_any_epsilon(issued: dict[str, Any], epsilon: float, factor: str) -> None:
    issued["claim"]["epsilon"] = epsilon
    assert f"e^ε, here {factor}." in render_markdown(issued)


@pytest.mark.parametrize("epsilon", [nan, -1e9, 0.0, 1e999])
def test_a_claim_that_is_none_is_not_rendered(issued: dict[str, Any], epsilon: float) -> None:
    issued["claim"]["epsilon"] = epsilon
    with pytest.raises(ValueError, match="finite"):
        render_markdown(issued)


@given(value=st.floats(min_value=1e-9, max_value=1e9))
def test_no_figure_of_the_table_reads_as_less_than_it_is(value: float) -> None:
    card = copy.deepcopy(_card())
    card["spent"]["epsilon_spent"] = value
    (shown,) = re.findall(r"\| spent \| (\S+) \|", render_markdown(card))
    assert value <= float(shown) <= value * 1.00101
    assert len(shown.split("e")[0].replace(".", "").strip("0")) <= 4


def test_the_page_has_no_json(issued: dict[str, Any]) -> None:
    page = render_markdown(issued)
    assert not set(page) & set("{}[]")
    assert "_" not in "".join(re.findall(r"^- ([^:]*):", page, flags=re.MULTILINE)).replace("sample_rate", "").replace(
        "noise_multiplier", ""
    )


def test_more_committed_than_the_cap_is_said(ledger: Ledger, issued: dict[str, Any]) -> None:
    assert "Over the cap" not in render_markdown(issued)
    ledger.set_cap("digits", 5.0, 1.1e-5)
    assert "Over the cap" not in render_markdown(issue_card(ledger, FACTS))
    ledger.set_cap("digits", 4.5, 1e-3)
    page = render_markdown(issue_card(ledger, FACTS))
    assert "have committed ε = 5, δ = 1.1e-05 together, more than the cap" in page
    assert "ε = 4.5, δ = 0.001." in page


def test_other_validation_splits_are_said(ledger: Ledger, issued: dict[str, Any]) -> None:
    assert "splits differ" not in render_markdown(issued)
    split = {"set": "digits", "fraction": 0.2, "seed": 3}
    mechanism = SampledGaussian(0.02, 3.0)
    ledger.open_search(
        "digits", "third", mechanism=mechanism, epsilon=1.0, delta=1e-6, step_cap=10, details={"split": split}
    )
    page = render_markdown(issue_card(ledger, FACTS))
    (line,) = (line for line in page.splitlines() if line.startswith("**Validation splits differ.**"))
    assert "not recorded" in line
    assert "set digits, fraction 0.2, seed 3" in line
    assert "only records that trained in every one" in line


def test_the_page_says_everything_the_json_says(issued: dict[str, Any]) -> None:
    page = render_markdown(issued)

    def leaves(value: object) -> list[object]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]

    issued["claim"]["statement"] = issued["claim"]["statement"].removeprefix("(4.0, 1e-05)-")
    issued["dataset_budget"].pop("validation_splits")  # in words, tested above
    for leaf in leaves(issued):
        if isinstance(leaf, str | float):
            assert (leaf if isinstance(leaf, str) else repr(leaf)) in page


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
    at = text.index('"epsilon": 4.0')
    report = verify(text[:at] + '"epsilon": 3.0' + text[at + 14 :], ledger)
    assert not report.ok
    assert "card hash" in failed(report)
    assert "claim.epsilon is 3.0 and should be 4.0" in str(report)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("claim", "step_cap"), 999, "claim.step_cap is 999 and should be 1000"),
        (("claim", "delta"), 1e-6, "claim.delta is 1e-06 and should be 1e-05"),
        (("mechanism", "noise_multiplier"), 2.1, "mechanism.noise_multiplier is 2.1 and should be 2.0"),
        (("winner", "single_run_epsilon"), 0.5, "winner.single_run_epsilon is 0.5 and should be"),
        (("spent", "leased_steps"), 170, "spent.leased_steps is 170 and should be 180"),
        (("claim", "epsilon_at_step_cap"), 1.0, "finer PLD"),
        (("ledger", "head_hash"), "0" * 64, "ledger head"),
        (("winner", "trial"), "zzz", "must have leased steps"),
    ],
)
def test_it_says_which_number_and_what_it_should_be(
    ledger: Ledger, issued: dict[str, Any], path: tuple[str, str], value: object, said: str
) -> None:
    card = copy.deepcopy(issued)
    card[path[0]][path[1]] = value
    ledger.record_card("first", card_hash(card), "forged")  # even when the forger had its hash recorded
    report = verify(card, ledger)
    assert not report.ok
    assert said in str(report)


@pytest.mark.parametrize("section", ["claim", "winner", "ledger", "mechanism"])
def test_a_missing_section_is_a_no_not_a_crash(ledger: Ledger, issued: dict[str, Any], section: str) -> None:
    card = {name: value for name, value in issued.items() if name != section}
    assert not verify(card, ledger).ok


def test_a_changed_ledger_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    raw = sqlite3.connect(Path(ledger.url.removeprefix("sqlite:///")))
    raw.executescript("DROP TRIGGER entries_are_final;")
    raw.execute("UPDATE entries SET body = replace(body, '120', '121') WHERE kind = 'reserve' AND seq = 3")
    assert raw.total_changes == 1
    raw.commit()
    raw.close()
    report = verify(card_text(issued), ledger)
    assert failed(report) == {"ledger chain"}
    assert "entry 3" in str(report)


def test_another_ledger_is_refused(issued: dict[str, Any], tmp_path: Path) -> None:
    assert not verify(card_text(issued), Ledger.open(f"sqlite:///{tmp_path}/other.db")).ok


def test_a_changed_page_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    report = verify(
        card_text(issued), ledger, markdown=render_markdown(issued).replace("| **claimed** | 4 ", "| **claimed** | 1 ")
    )
    assert failed(report) == {"card page"}


def test_a_reformatted_card_is_refused(ledger: Ledger, issued: dict[str, Any]) -> None:
    assert not verify(json.dumps(issued), ledger).ok
    assert not verify("{", ledger).ok


def test_a_study_with_a_seed_gets_no_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="private: false"):
        issue_card(ledger, replace(FACTS, private=False))


def test_a_winner_without_steps_gets_no_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    with pytest.raises(VerificationError, match="has none"):
        build_card(replace(FACTS, winner="z"), state=ledger.dataset_state("digits"))


def test_nan_never_enters_a_card(ledger: Ledger, issued: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="finite"):
        build_card(replace(FACTS, scores={"validation_accuracy": nan}), state=ledger.dataset_state("digits"))


def test_importing_the_ledger_does_not_pay_for_the_accountant() -> None:
    script = (
        "import sys, tuner.privacy.ledger, tuner.privacy.budget, tuner.privacy.card, tuner.privacy.verify\n"
        "print([m for m in ('dp_accounting', 'torch', 'opacus', 'ray', 'mlflow', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
