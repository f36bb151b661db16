"""The card of a search over blocks: a total for each block, held against that block's own chain by two accountants."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from card_fakes import DETAILS, FACTS, KINDS, MECHANISM, charged, set_caps
from errors_helper import raises_code
from ledgers import entry_of, file_of

from tuner.errors import VerificationError
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.card.card import build_card, card_hash, issue_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections import caps
from tuner.privacy.card.sections import ledger as section
from tuner.privacy.ledger.entries import GENESIS, canonical
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.verify import second_opinion
from tuner.privacy.verify.accountant.entries_recount import recount
from tuner.privacy.verify.checks import check_card
from tuner.privacy.verify.report import Check, Report

CURVES = cache(caps.claim_curve)
OCTOBER, NOVEMBER, MIRROR = "sales/2026-10", "sales/2026-11", "first/2026-11"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody forged is computed once, or not at all."""
    monkeypatch.setattr(caps, "claim_curve", CURVES)
    monkeypatch.setattr(second_opinion, "_prv", lambda *_: Check("PRV", ok=True, detail=""))


@pytest.fixture
def card(ledger: Ledger) -> dict[str, Any]:
    """A card of a search over both blocks. November has another search, a higher total and a void total too."""
    set_caps(ledger, "blocks")
    facts = charged(ledger, "blocks")
    ledger.open_search(NOVEMBER, "other", filter=TotalSteps(MECHANISM, 10), epsilon=2.0, delta=1e-5)
    ledger.void_total(NOVEMBER, use="public", why="a study", sweep="study-1")
    return issue_card(ledger, facts)


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def test_the_card_and_its_check_have_the_total_of_each_block(ledger: Ledger, card: dict[str, Any]) -> None:
    rows = card["dataset_budget"]["blocks"]
    totals = [(row["dataset"], row["searches"], row["committed_epsilon"], bool(row["void"])) for row in rows]
    assert totals == [(OCTOBER, 1, 4.0, False), (NOVEMBER, 2, 6.0, True)]
    assert all(row["cap"]["epsilon"] == 20.0 for row in rows)
    assert card["data_accesses"]["later_searches"] == ["other"]
    page = render_markdown(card)
    assert "The TOTAL of sales/2026-11 is VOID" in page
    assert f"| block {NOVEMBER} | 6 | 2e-05 |" in page
    ledger.open_search(NOVEMBER, "later", filter=TotalSteps(MECHANISM, 10), epsilon=2.0, delta=1e-5)
    report = check_card(card, ledger, page=page)
    assert report.ok, str(report)
    assert {
        "every block is on the card", f"ledger head of block {NOVEMBER}", f"claim on block {NOVEMBER}",
        f"total of block {NOVEMBER}, recounted", f"the total of block {NOVEMBER} today",
    } <= {check.name for check in report.checks}  # fmt: skip


def test_a_total_that_no_longer_holds_is_marked(ledger: Ledger, card: dict[str, Any]) -> None:
    def marked() -> set[str]:
        report = check_card(card, ledger)
        assert report.answer == "yes", "the card follows from its ledger"
        outdated = {check.name for check in report.checks if check.outdated}
        assert ("no longer holds: see !!" in str(report)) == bool(outdated)
        return outdated

    ledger.open_search(OCTOBER, "later", filter=TotalSteps(MECHANISM, 10), epsilon=2.0, delta=1e-5, details=DETAILS)
    assert marked() == set(), "more searches within the cap leave the card true"
    ledger.set_cap(OCTOBER, 21.0, card["dataset_budget"]["cap"]["delta"])
    assert marked() == {f"the total of block {OCTOBER} today"}, "November was void before"


@pytest.mark.parametrize("kind", ["sealed", "validation"])
def test_the_other_kinds_of_search_over_blocks_are_verified_too(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    over_blocks: Any = {**KINDS[kind], "dataset": OCTOBER, "blocks": (NOVEMBER,)}
    monkeypatch.setattr("card_fakes.KINDS", {kind: over_blocks})
    ledger.set_cap(NOVEMBER, 9.0, 1e-3, order=8.0)
    report = check_card(issue_card(ledger, charged(ledger, kind)), ledger)
    assert report.ok, str(report)


def test_no_card_is_built_of_some_blocks_alone(ledger: Ledger, card: dict[str, Any]) -> None:
    october, november = ledger.dataset_state(OCTOBER), ledger.dataset_state(NOVEMBER)
    build_card(FACTS, state=october, others=[november])
    before = next(state for entry, state in ledger.entries(NOVEMBER) if entry.kind == "open_search")
    for others in ([], [october], [november, november], [before]):
        with raises_code(VerificationError, "card-block-missing"):
            build_card(FACTS, state=october, others=others)


def test_a_card_that_leaves_out_a_block_is_found_by_both_accountants(ledger: Ledger, card: dict[str, Any]) -> None:
    first, second = card["dataset_budget"]["blocks"]
    for rows in (None, [first], [second], [second, first], [first, second, second]):
        forged = {**card, "dataset_budget": {**card["dataset_budget"], "blocks": rows}}
        ledger.record_card("first", card_hash(forged), "forged")
        assert {"card rendered anew", "every block is on the card"} <= failed(check_card(forged, ledger)), rows


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"committed_epsilon": 4.0}, "recounted"),
        ({"cap": None, "within_cap": None}, "its cap"),
        ({"cap": {"epsilon": 30.0, "delta": 1e-3, "order": None}}, "its cap"),
        ({"within_cap": False}, "its cap"),
        ({"void": []}, "void or not"),
    ],
)
def test_a_row_that_the_first_accountant_gets_wrong_is_found_by_the_second(
    ledger: Ledger, card: dict[str, Any], monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], name: str
) -> None:
    """Issued and rendered anew with the same fault."""
    real: Callable[[DatasetState], dict[str, Any]] = section._block
    monkeypatch.setattr(section, "_block", lambda state: real(state) | (wrong if state.dataset == NOVEMBER else {}))
    report = check_card(issue_card(ledger, FACTS), ledger)
    assert failed(report) == {f"total of block {NOVEMBER}, {name}"}


@pytest.mark.parametrize("kinds", [("begin",), ("open_search", "begin", "close_search")])
def test_rules_that_overlooked_a_block_are_found_out(
    ledger: Ledger, card: dict[str, Any], monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    """The mirror on November never began, or is gone: seen by the second count alone."""

    def seen(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:  # noqa: ANN401 - of `recount`
        return recount([row for row in rows if row[1].get("search") != MIRROR or row[0] not in kinds])

    monkeypatch.setattr(second_opinion, "recount", seen)
    found = failed(check_card(card, ledger))
    assert f"claim on block {NOVEMBER}" in found
    assert "card rendered anew" not in found


Edit = Callable[[str, dict[str, Any]], dict[str, Any] | None]
"""From the kind and the body of an entry to its forged body; None removes the entry."""

EDITS: dict[str, Edit] = {
    "no mirror": lambda _, body: None if body.get("search") == MIRROR else body,
    "not begun": lambda kind, body: None if kind == "begin" else body,
    "less": lambda _, body: {**body, "epsilon": 3.9} if body.get("search") == MIRROR and "epsilon" in body else body,
    "no other search": lambda _, body: None if body.get("search") == "other" else body,
    "not void": lambda kind, body: None if kind == "void" else body,
    "a higher cap": lambda kind, body: {**body, "epsilon": 40.0} if kind == "cap" else body,
    "nothing": lambda *_: None,
}


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("edit", EDITS)
def test_a_ledger_whose_second_block_was_edited_is_found(
    ledger: Ledger, card: dict[str, Any], edit: str, hashed: bool
) -> None:
    """Also by a forger who computes all hashes of that block anew. The first block's entries are as they were."""
    assert check_card(card, ledger).ok, "the control"
    rewrite(ledger, NOVEMBER, EDITS[edit], hashed=hashed)
    report = check_card(card, Ledger.open(ledger.url, create=False))
    assert report.answer == "no"
    assert hashed or failed(report) == {"ledger chain"}, "and it says where the fault is"


def rewrite(ledger: Ledger, dataset: str, edit: Edit, *, hashed: bool) -> None:
    """Edit the entries of a data set past the program. With `hashed`, its hashes and its recorded head hold."""
    entries = [entry for entry, _ in ledger.entries(dataset)]
    seq, head = 0, GENESIS
    with closing(sqlite3.connect(file_of(ledger))) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        for old in entries:
            body, where = edit(old.kind, old.data), (dataset, old.seq)
            if body is None:
                raw.execute("DELETE FROM entries WHERE dataset = ? AND seq = ?", where)
                continue
            seq += 1
            said = {"dataset": dataset, "time": old.time, "writer": old.writer}
            new = (
                entry_of(seq, old.kind, canonical(body), head, **said) if hashed else replace(old, body=canonical(body))
            )
            head = new.hash
            raw.execute(
                "UPDATE entries SET seq = ?, body = ?, previous = ?, hash = ? WHERE dataset = ? AND seq = ?",
                (new.seq, new.body, new.previous, new.hash, *where),
            )
        if hashed:
            raw.execute("DELETE FROM heads WHERE dataset = ?", (dataset,))
        if hashed and seq:
            raw.execute("INSERT INTO heads (dataset, seq, hash) VALUES (?, ?, ?)", (dataset, seq, head))
        raw.commit()
