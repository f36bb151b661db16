"""Blocks of a growing table: a search counts with its whole claim on each block that it uses, and on no other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from errors_helper import raises_code
from ledgers import MECHANISM, SEALED, chained, file_of, lease, opening, took

from tuner.errors import BudgetRefusedError, LedgerCorruptError, LedgerError
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.ledger import rules
from tuner.privacy.ledger.history import search_lines
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import read_dataset
from tuner.privacy.ledger.rules import checked_state_after
from tuner.privacy.verify.accountant.entries_recount import recount

OCTOBER, NOVEMBER, DECEMBER = "sales/2026-10", "sales/2026-11", "sales/2026-12"
SEARCH: dict[str, Any] = {"filter": TotalSteps(MECHANISM, 10), "epsilon": 2.0, "delta": 1e-5}


def committed(ledger: Ledger) -> list[float]:
    return [ledger.dataset_state(name).committed_epsilon for name in (OCTOBER, NOVEMBER, DECEMBER)]


@pytest.fixture
def capped(ledger: Ledger) -> Ledger:
    """Caps for two searches on October and for one on November."""
    ledger.set_cap(OCTOBER, 4.0, 1e-4)
    ledger.set_cap(NOVEMBER, 2.0, 1e-4)
    return ledger


def both(ledger: Ledger, name: str = "both", **more: Any) -> None:  # noqa: ANN401 - as open_search
    ledger.open_search(OCTOBER, name, blocks=[NOVEMBER], **{**SEARCH, **more})


def test_a_search_counts_whole_on_each_of_its_blocks_and_gives_all_back(capped: Ledger) -> None:
    both(capped)
    assert committed(capped) == [2.0, 2.0, 0.0]
    capped.close_search("both")
    assert committed(capped) == [0.0, 0.0, 0.0], "it took no step"
    capped.reopen_search("both")
    assert committed(capped) == [2.0, 2.0, 0.0]
    took(capped, "both", 4)
    capped.settle("both", "a", 4)
    capped.close_search("both")
    assert committed(capped) == committed(Ledger.open(capped.url)) == [2.0, 2.0, 0.0], "it took steps"
    capped.reopen_search("both")
    took(capped, "both", 1, "b")
    capped.verify_chain()
    for name, epsilon in ((OCTOBER, 2.0), (NOVEMBER, 2.0)):  # the verifier's own count, of each chain by itself
        assert float(recount([(entry.kind, entry.data) for entry, _ in capped.entries(name)])[1]) == epsilon
    assert read_dataset(capped.dataset_state(NOVEMBER)).epsilon == 2.0, "its steps are elsewhere, so its claim is read"
    assert "charged to search both" in search_lines(capped.dataset_state(NOVEMBER))[0].mode


def test_the_officer_of_each_block_reads_the_purpose_and_the_contact(ledger: Ledger) -> None:
    both(ledger, details={"purpose": "triage of letters", "contact": "ann@example.org", "method": "dp_sgd"})
    ledger.open_search(NOVEMBER, "silent", **SEARCH)
    for name in (OCTOBER, NOVEMBER):
        line = search_lines(ledger.dataset_state(name))[0]
        assert (line.purpose, line.contact) == ("triage of letters", "ann@example.org")
    silent = search_lines(ledger.dataset_state(NOVEMBER))[1]
    assert (silent.purpose, silent.contact) == ("", "")


def test_if_one_block_refuses_nothing_is_opened_or_reopened(capped: Ledger) -> None:
    both(capped)
    seqs = [capped.dataset_state(name).seq for name in (OCTOBER, NOVEMBER)]
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded") as refused:
        both(capped, "second")
    assert NOVEMBER in str(refused.value)
    assert [capped.dataset_state(name).seq for name in (OCTOBER, NOVEMBER)] == seqs
    capped.open_search(OCTOBER, "second", **SEARCH)  # October has room
    capped.close_search("both")
    capped.open_search(NOVEMBER, "third", **SEARCH)
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        capped.reopen_search("both")
    assert committed(capped) == [2.0, 2.0, 0.0]
    with raises_code(LedgerError, "search-not-open"):
        capped.reserve("both", "a", 1)


def test_a_share_and_a_lowered_cap_of_any_block_bind(capped: Ledger) -> None:
    capped.grant(NOVEMBER, "somebody", 1.0, 1e-5)
    with raises_code(BudgetRefusedError, "no-share"):
        both(capped)
    capped.revoke(NOVEMBER, "somebody")
    capped.grant(NOVEMBER, capped.user(), 2.0, 1e-5)
    both(capped)
    capped.reserve("both", "a", 1)
    capped.set_cap(NOVEMBER, 1.0, 1e-4)
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        capped.reserve("both", "b", 1)
    lease(capped, "both", "a", 1)  # what was reserved may be taken
    assert committed(capped) == [2.0, 2.0, 0.0]


def test_a_sealed_search_begins_on_all_blocks_at_once(ledger: Ledger) -> None:
    ledger.open_search(OCTOBER, "s", blocks=[NOVEMBER, DECEMBER], filter=SEALED, epsilon=4.0, delta=1e-5)
    ledger.begin_sealed("s", "0" * 64)
    ledger.close_search("s")
    assert committed(ledger) == [4.0, 4.0, 4.0]
    times = {entry.time for name in (OCTOBER, NOVEMBER, DECEMBER) for entry, _ in ledger.entries(name)}
    assert len(times) == 1, "the day on which it was opened"


def test_no_step_is_charged_without_the_claim_on_every_block(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    both(ledger)
    ledger.reserve("both", "a", 2)
    with monkeypatch.context() as patch:
        patch.setattr("tuner.privacy.ledger.ledger._begin_mirrors", lambda *_: None)
        with raises_code(LedgerError, "block-not-charged"):
            lease(ledger, "both", "a", 1)
        patch.setattr(rules, "require_mirrors", lambda *_: None)
        lease(ledger, "both", "a", 1)  # the control: the rule taken out
    with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):  # and every reader notices
        Ledger.open(ledger.url).search_state("both")


TOGETHER: dict[str, Any] = {"fingerprint": "both", "block_fingerprints": ["october", "november"]}


@pytest.mark.parametrize("known", ["both", "october", "november"])
def test_the_records_of_each_block_and_of_all_are_known(ledger: Ledger, known: str) -> None:
    ledger.open_search(OCTOBER, "earlier", **SEARCH, fingerprint="october")
    both(ledger, **TOGETHER)
    for reader in (ledger, Ledger.open(ledger.url)):
        with raises_code(BudgetRefusedError, "records-known-private"):
            reader.enter_public("leak", known)
        with raises_code(BudgetRefusedError, "records-not-admitted"):
            reader.open_search("copy", "s", **SEARCH, fingerprint=known)
    ledger.open_search(NOVEMBER, "later", **SEARCH, fingerprint="november")
    ledger.enter_public("leak", "december")


@pytest.mark.parametrize("known", ["both", "october", "november"])
def test_a_search_on_blocks_refuses_records_that_another_name_has(ledger: Ledger, known: str) -> None:
    ledger.open_search("copy", "s", **SEARCH, fingerprint=known)
    with raises_code(BudgetRefusedError, "records-not-admitted"):
        both(ledger, **TOGETHER)
    assert committed(ledger) == [0.0, 0.0, 0.0]


def test_a_mirror_charges_nothing_by_itself(ledger: Ledger) -> None:
    both(ledger)
    uses: tuple[Callable[[], object], ...] = (
        lambda: ledger.reserve("both/2026-11", "a", 1),
        lambda: ledger.lease("both/2026-11", "a", 1, MECHANISM),
    )
    for use in uses:
        with raises_code(LedgerError, "block-mirror"):
            use()


def test_a_table_is_searched_whole_or_by_blocks(ledger: Ledger) -> None:
    both(ledger)
    with raises_code(BudgetRefusedError, "blocks-differ"):
        ledger.open_search("sales", "whole", **SEARCH)
    ledger.open_search("customers", "whole", **SEARCH)
    with raises_code(BudgetRefusedError, "blocks-differ"):
        ledger.open_search("customers/2026-10", "part", **SEARCH)
    ledger.open_search(DECEMBER, "part", **SEARCH)


def test_the_claim_on_a_block_cannot_be_smaller() -> None:
    """A chain by hand: the mirror claims less than the search."""
    mine = opening(blocks=[NOVEMBER], fingerprint="f")
    for epsilon in (4.0, 3.9):
        mirror = opening(search="s/2026-11", mirror_of="s", epsilon=epsilon)
        asked = {"search": "s", "trial": "a", "steps": 1, "pool": "training", "mechanism": MECHANISM.body()}
        states: dict[str, Any] = {}
        for dataset, rows in (
            (NOVEMBER, [mirror, ("begin", {"search": "s/2026-11"})]),
            (OCTOBER, [mine, ("reserve", asked)]),
        ):
            for entry in chained(rows, dataset=dataset):
                states[dataset] = checked_state_after(states, entry)
        last = chained([mine, ("reserve", asked), ("lease", asked)], dataset=OCTOBER)[-1]
        if epsilon == 4.0:
            assert checked_state_after(states, last).searches[0].leased_steps == 1
        else:
            with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):
                checked_state_after(states, last)


@pytest.mark.parametrize(("capped_name", "other"), [("sales", NOVEMBER), (NOVEMBER, "sales")])
def test_a_cap_of_the_table_or_of_a_block_is_not_passed_by_the_other(
    ledger: Ledger, capped_name: str, other: str
) -> None:
    ledger.set_cap(capped_name, 1.0, 1e-4)
    for use in (lambda: ledger.open_search(other, "s", **SEARCH), lambda: ledger.set_cap(other, 9.0, 1e-4)):
        with raises_code(BudgetRefusedError, "blocks-differ"):
            use()


def test_own_records_under_a_new_block_are_refused_until_the_owner_enters_it(ledger: Ledger) -> None:
    own = {"details": {"own": {}, "split": 3}}
    both(ledger, **own)
    assert ledger.dataset_state(NOVEMBER).searches[0].details == own["details"]
    for blocks in ((), (NOVEMBER,)):
        with raises_code(BudgetRefusedError, "records-not-admitted"):
            ledger.open_search(DECEMBER, "new", blocks=blocks, **SEARCH, **own)
    with raises_code(BudgetRefusedError, "records-not-admitted"):
        ledger.open_search(OCTOBER, "new", blocks=[DECEMBER], **SEARCH, **own)
    ledger.set_cap(DECEMBER, 9.0, 1e-4)
    ledger.open_search(OCTOBER, "new", blocks=[DECEMBER], **SEARCH, **own)


def test_a_search_is_closed_although_a_further_block_is_damaged(capped: Ledger) -> None:
    """Nothing can be written to that block, so the claim stays committed there. Whoever uses it is told the damage."""
    both(capped)
    damage(capped, NOVEMBER)
    again = Ledger.open(capped.url)
    for use in (lambda: took(again, "both", 1), lambda: again.states_of([OCTOBER, NOVEMBER])):
        with raises_code(LedgerCorruptError, "ledger-damaged") as raised:
            use()
        assert NOVEMBER in str(raised.value)
    again.close_search("both")
    assert again.dataset_state(OCTOBER).committed_epsilon == 0.0
    again.open_search(OCTOBER, "next", **SEARCH)
    with raises_code(LedgerCorruptError, "ledger-damaged"):
        again.reopen_search("both")
    damage(capped, NOVEMBER, repaired=True)
    repaired = Ledger.open(capped.url)
    assert committed(repaired) == [2.0, 2.0, 0.0]
    repaired.close_search("both")
    assert committed(repaired) == [2.0, 0.0, 0.0], "closed there too after the repair"


def damage(ledger: Ledger, dataset: str, *, repaired: bool = False) -> None:
    """Make the recorded last entry of a data set another one, past the program; or the right one again."""
    with closing(sqlite3.connect(file_of(ledger))) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE heads SET seq = seq + ? WHERE dataset = ?", (-1 if repaired else 1, dataset))
        raw.commit()


def test_a_trial_that_raises_before_its_first_lease_forfeits_on_all_blocks(ledger: Ledger) -> None:
    both(ledger)
    ledger.reserve("both", "a", 4)
    ledger.settle("both", "a", 4, leases=[("training", 4)])
    ledger.close_search("both")
    assert committed(ledger) == [2.0, 2.0, 0.0], "it charged steps"
