"""Entries of a release: charged when it is opened, stored once, and by hand in no other order."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import NOISY, SEALED, VOTED, lease, open_search

from tuner.errors import BudgetRefusedError, LedgerError
from tuner.privacy.ledger.history import search_lines
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.accountant.entries_recount import recount

CLAIM = NOISY.claim(1e-5)
SHA = "ab" * 32


def opened(ledger: Ledger, name: str = "r") -> None:
    open_search(ledger, name, epsilon=CLAIM, filter=NOISY)


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry, _ in ledger.entries("digits")]


def test_it_is_charged_when_it_is_opened_and_stored_once(ledger: Ledger) -> None:
    opened(ledger)
    state = ledger.search_state("r")
    assert (state.begun, state.status, state.stored) == (True, "closed", None)
    assert ledger.dataset_state("digits").committed_epsilon == CLAIM
    ledger.close_search("r")
    assert ledger.search_state("r").counts, "closing gives nothing back"
    ledger.store_release("r", SHA)
    assert ledger.search_state("r").stored == SHA
    with pytest.raises(LedgerError, match="release-stored"):
        ledger.store_release("r", "cd" * 32)
    assert kinds(ledger) == ["open_search", "release", "stored"]
    assert [line.mode for line in search_lines(ledger.dataset_state("digits"))] == ["release"]


def test_voted_labels_are_charged_like_a_release(ledger: Ledger) -> None:
    claim = VOTED.claim(1e-5)
    open_search(ledger, "v", epsilon=claim, filter=VOTED)
    assert (ledger.search_state("v").begun, ledger.search_state("v").status) == (True, "closed")
    assert ledger.dataset_state("digits").committed_epsilon == claim
    assert ledger.search_state("v").filter == VOTED
    ledger.store_release("v", SHA)
    assert kinds(ledger) == ["open_search", "release", "stored"]
    assert [line.mode for line in search_lines(ledger.dataset_state("digits"))] == ["votes"]
    with pytest.raises(BudgetRefusedError, match="filter-exceeds-claim"):
        open_search(ledger, "w", epsilon=claim * 0.999, filter=VOTED)


def test_a_cap_refuses_a_second_release_and_nothing_is_written(ledger: Ledger) -> None:
    ledger.set_cap("digits", 1.5 * CLAIM, 1e-4)
    opened(ledger)
    with pytest.raises(BudgetRefusedError, match="dataset-cap-exceeded"):
        opened(ledger, "s")
    assert kinds(ledger) == ["cap", "open_search", "release"]


def test_a_claim_below_the_filter_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusedError, match="filter-exceeds-claim"):
        open_search(ledger, "r", epsilon=CLAIM * 0.999, filter=NOISY)


def test_other_searches_have_no_release_and_a_release_no_steps(ledger: Ledger) -> None:
    opened(ledger)
    open_search(ledger, "steps")
    open_search(ledger, "sealed", epsilon=50.0, filter=SEALED)
    ledger.begin_sealed("sealed", "0" * 64)
    for name in ("steps", "sealed"):
        with pytest.raises(LedgerError, match="release-stored"):
            ledger.store_release(name, SHA)
    with pytest.raises(LedgerError):
        ledger.begin_sealed("r", "0" * 64)
    with pytest.raises(LedgerError, match="sealed-charged-whole"):
        ledger.reserve("r", "a", 1)
    with pytest.raises(LedgerError, match="sealed-charged-whole"):
        lease(ledger, "r", "a", 1)


@pytest.mark.parametrize(("kind", "body"), [("release", {}), ("stored", {"sha256": "xy"}), ("begin", {})])
def test_an_entry_by_hand_in_another_order_is_refused(ledger: Ledger, kind: str, body: dict[str, str]) -> None:
    opened(ledger)
    with pytest.raises((LedgerError, ValueError)), ledger._chain.write() as write:
        write("digits", kind, {"search": "r", **body})
    assert kinds(ledger) == ["open_search", "release"]


def test_the_second_count_counts_it_once(ledger: Ledger, tmp_path: Path) -> None:
    opened(ledger)
    ledger.store_release("r", SHA)
    chain = [(entry.kind, entry.data) for entry, _ in ledger.entries("digits")]
    found, epsilon, _ = recount(chain)
    assert (found["r"].begun, found["r"].stored, float(epsilon)) == (1, [SHA], CLAIM)
    assert recount([chain[0]])[0]["r"].begun == 0
    assert ledger.release_folder == tmp_path / "runs" / "ledger.db.releases"
