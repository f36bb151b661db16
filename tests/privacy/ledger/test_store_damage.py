"""What somebody does to the tables of a ledger is noticed, in SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from errors_helper import raises_code
from ledgers import TRAINING_STEPS, lease
from store_backdoors import Backdoor

from tuner.errors import BudgetRefusedError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.ledger import Ledger


def test_sql_cannot_rewrite_history_by_accident(door: Backdoor, used: Ledger) -> None:
    for change in (
        "UPDATE entries SET seq = 9",
        "DELETE FROM entries",
        "UPDATE meta SET ledger = 'x'",
        "DELETE FROM meta",
    ):
        with pytest.raises(Exception, match=r"append-only|keeps its id"):
            door.sql(change)
    used.verify_chain()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '60', '10') WHERE kind = 'lease'",
        "UPDATE entries SET time = replace(time, '20', '19') WHERE seq = 2",
        "UPDATE entries SET seq = 9 WHERE seq = 4",
        "UPDATE entries SET kind = 'settle' WHERE kind = 'lease'",
        "UPDATE entries SET dataset = 'other' WHERE seq = 1",
        "UPDATE entries SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE seq = 2",
        "UPDATE entries SET previous = hash WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 4",
        "DELETE FROM entries WHERE seq = 2",
        "DELETE FROM entries",
        "UPDATE heads SET seq = 3",
        "DELETE FROM heads",
        "DROP TABLE heads",
        "DROP TABLE meta",
        "DELETE FROM meta",
    ],
)
def test_any_change_is_noticed_on_opening_and_by_verify(door: Backdoor, used: Ledger, change: str) -> None:
    door.unguard()
    door.sql(change)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(door.url).search_state("first")
    with pytest.raises(LedgerCorruptError):
        used.verify_chain()


DAMAGE = [
    "UPDATE entries SET body = replace(body, '60', '10') WHERE kind = 'lease'",
    "UPDATE entries SET body = 'no JSON' WHERE kind = 'lease'",
    "UPDATE entries SET dataset = 'other' WHERE seq = 1 AND dataset = 'digits'",
    "DELETE FROM entries WHERE seq = 4",
    "DELETE FROM heads WHERE dataset = 'digits'",
]


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_data_set_is_refused_by_itself_and_its_records_and_names_stay_taken(
    door: Backdoor, used: Ledger, change: str
) -> None:
    used.set_cap("mnist", 8.0, 1e-4)
    for dataset, name in (("digits", "second"), ("mnist", "third")):
        used.open_search(dataset, name, filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, fingerprint=f"sha256:{dataset}")
    door.unguard()
    door.sql(change)
    door.guard()
    again = Ledger.open(door.url)
    assert list(again.damage()) == (["digits", "other"] if "'other'" in change else ["digits"])
    assert set(again.datasets()) == {"digits", "mnist", *again.damage()}
    for use in (
        lambda: again.dataset_state("digits"),
        lambda: again.search_state("first"),
        lambda: again.search_state("second"),
        lambda: again.reserve("second", "b", 1),
        lambda: again.set_cap("digits", 9.0, 1e-4),
        lambda: again.verify_chain("digits"),
        again.verify_chain,
    ):
        with pytest.raises(LedgerCorruptError):
            use()
    assert "digits" in again.verify_chain("mnist")
    assert again.states()["digits"].is_private, "of a damaged data set nothing can be excluded"
    lease_and_close(again, "third")
    assert again.has_search("second")
    search: dict[str, Any] = {"filter": TRAINING_STEPS, "epsilon": 4.0, "delta": 1e-5}
    with raises_code(BudgetRefusedError, "records-not-admitted"):
        again.open_search("elsewhere", "fourth", fingerprint="sha256:digits", **search)
    with raises_code(LedgerError, "search-name-taken"):
        again.open_search("elsewhere", "second", **search)
    again.open_search("elsewhere", "fourth", fingerprint="sha256:elsewhere", **search)  # the control


def lease_and_close(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "b", 1)
    lease(ledger, search, "b", 1)
    ledger.close_search(search)


def test_a_damaged_data_set_cannot_lay_claim_to_anothers_records(door: Backdoor, used: Ledger) -> None:
    search: dict[str, Any] = {"filter": TRAINING_STEPS, "epsilon": 4.0, "delta": 1e-5}
    used.open_search("digits", "second", fingerprint="sha256:1", **search)
    used.open_search("evil", "mine", fingerprint="sha256:2", **search)
    door.unguard()
    door.sql("UPDATE entries SET body = replace(body, 'sha256:2', 'sha256:1') WHERE dataset = 'evil'")
    door.guard()
    again = Ledger.open(door.url)
    assert list(again.damage()) == ["evil"]
    again.open_search("digits", "third", fingerprint="sha256:1", **search)


def test_losing_the_tail_with_its_head_is_noticed_by_who_saw_it(door: Backdoor, used: Ledger) -> None:
    door.unguard()
    door.sql("DELETE FROM entries WHERE seq = 4")
    door.sql("UPDATE heads SET seq = 3, hash = (SELECT hash FROM entries WHERE seq = 3)")
    for use in (lambda: used.search_state("first"), used.verify_chain, lambda: used.reserve("first", "b", 1)):
        with pytest.raises(LedgerCorruptError):
            use()


def test_another_ledger_in_its_place_stops_who_used_it(door: Backdoor, used: Ledger) -> None:
    door.unguard()
    door.sql("UPDATE meta SET ledger = 'another'")
    uses: tuple[Callable[[], object], ...] = (
        lambda: used.search_state("first"),
        lambda: used.reserve("first", "b", 1),
        used.verify_chain,
    )
    for use in uses:
        with raises_code(LedgerError, "ledger-replaced"):
            use()
    assert Ledger.open(door.url).search_state("first").leased_steps == 60
