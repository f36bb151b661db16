"""One division into users over all searches of a data set, compared over files that differ, in every store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st
from ledgers import TRAINING_STEPS, child, division_of, said_by, took
from store_backdoors import Backdoor, PostgresBackdoor, SqliteBackdoor

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError
from tuner.privacy.ledger import ledger as ledgers
from tuner.privacy.ledger.division import Division, basis, compatible
from tuner.privacy.ledger.ledger import Ledger

Owners = Mapping[int, list[str]]
"""The users of each record. Records are numbers."""


@pytest.fixture(params=["sqlite", "postgresql"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Backdoor:
    if request.param == "sqlite":
        return SqliteBackdoor(tmp_path)
    return PostgresBackdoor(request.getfixturevalue("postgres"))


def opened(ledger: Ledger, name: str, owners: Owners | Division) -> None:
    how = owners if isinstance(owners, Division) else division_of(owners)
    ledger.open_search(
        "digits", name, filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, unit="user", division=how, fingerprint=name
    )


TWENTY: Owners = {record: [f"user {record // 20}"] for record in range(400)}
"""The first search of the attack: twenty users of twenty records."""
EACH_ONE: Owners = {record: [f"user {record}"] for record in range(399)}
"""The second: one record is left out, so that the file has another checksum, and each of the others is a user."""

# The attack, and other files.


def test_a_file_that_differs_in_one_record_is_not_divided_anew(door: Backdoor, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(door.url)
    opened(ledger, "first", TWENTY)
    with raises_code(BudgetRefusedError, "users-differ") as refused:
        opened(Ledger.open(door.url), "second", EACH_ONE)
    assert not any(char.isdigit() for char in str(refused.value)), "it names neither a record nor a user"
    assert [search.search for search in ledger.dataset_state("digits").searches] == ["first"]
    assert door.sql("SELECT search FROM divisions") == [("first",)]
    # The control: without the comparison both are admitted.
    monkeypatch.setattr(ledgers, "require_compatible", lambda *_: None)
    opened(ledger, "second", EACH_ONE)
    assert ledger.dataset_state("digits").committed.searches == 2


OTHERS: dict[str, tuple[Owners, bool]] = {
    "the same": (TWENTY, True),
    "some of its records": ({record: TWENTY[record] for record in range(0, 400, 7)}, True),
    "more records and users": ({**TWENTY, 400: ["user 3"], 401: ["new"]}, True),
    "no record in common": ({record: ["user 1"] for record in range(400, 440)}, True),
    "one more user with an equal record": ({**TWENTY, 5: ["user 0", "new"]}, True),
    "another name for one user": ({**TWENTY, **{record: ["new"] for record in range(20)}}, False),
    "other names for all users": ({record: [f"person {record // 20}"] for record in range(400)}, False),
    "one user in two halves": ({**TWENTY, **{record: ["user 0b"] for record in range(10)}}, False),
    "two users are one": ({record: [f"user {max(1, record // 20)}"] for record in range(400)}, False),
    "one record elsewhere": ({7: ["user 1"]}, False),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_records_in_common_belong_to_the_same_users(ledger: Ledger, kind: str) -> None:
    owners, admitted = OTHERS[kind]
    opened(ledger, "first", TWENTY)
    if admitted:
        opened(ledger, "second", owners)
        said = basis(ledger.dataset_state("digits"))
        assert said is not None
        assert "over the files of 2 searches, but only for the records in common" in said
    else:
        with raises_code(BudgetRefusedError, "users-differ"):
            opened(ledger, "second", owners)


DIVISIONS = st.dictionaries(st.integers(0, 5), st.sets(st.sampled_from("abc"), min_size=1), max_size=6)


@given(DIVISIONS, DIVISIONS, st.sampled_from("abc"))
def test_the_rule_is_containment_and_no_user_decides_for_others(
    one: dict[int, set[str]], other: dict[int, set[str]], gone: str
) -> None:
    def agrees(left: dict[int, set[str]], right: dict[int, set[str]]) -> bool:
        return compatible(division_of(left).pairs, division_of(right).pairs)

    shared = one.keys() & other.keys()
    assert agrees(one, other) == all(one[each] <= other[each] or one[each] >= other[each] for each in shared)
    assert agrees(one, other) == agrees(other, one)
    without = [{each: rest for each, users in owners.items() if (rest := users - {gone})} for owners in (one, other)]
    assert agrees(*without) or not agrees(one, other), "a user who leaves both files makes no refusal"


# Which searches count.


def test_a_search_that_took_no_step_binds_nobody_and_returns_only_if_it_agrees(ledger: Ledger) -> None:
    opened(ledger, "first", EACH_ONE)
    ledger.close_search("first")
    opened(ledger, "second", TWENTY)
    with raises_code(InputError, "division-missing"):
        ledger.reopen_search("first")
    with raises_code(InputError, "division-missing"):
        ledger.reopen_search("first", division=division_of(TWENTY))
    with raises_code(BudgetRefusedError, "users-differ"):
        ledger.reopen_search("first", division=division_of(EACH_ONE))
    ledger.close_search("second")
    ledger.reopen_search("first", division=division_of(EACH_ONE))
    with raises_code(BudgetRefusedError, "users-differ"):
        ledger.reopen_search("second", division=division_of(TWENTY))


@pytest.mark.parametrize("charged", [True, False])
def test_only_what_no_charged_search_has_is_stored_and_nothing_is_forgotten(door: Backdoor, charged: bool) -> None:
    ledger = Ledger.open(door.url)
    opened(ledger, "first", {1: ["a"], 2: ["a"]})
    if charged:
        took(ledger, "first", 1)
    opened(ledger, "second", {1: ["a"], 2: ["a"], 3: ["b"]})
    took(ledger, "second", 1)
    ledger.close_search("first")
    sizes = {name: len(bytes(pairs)) // 32 for name, pairs in door.sql("SELECT search, pairs FROM divisions")}  # type: ignore[arg-type]
    assert sizes == {"first": 2, "second": 1 if charged else 3}
    for record in (1, 2, 3):
        with raises_code(BudgetRefusedError, "users-differ"):
            opened(Ledger.open(door.url), "third", {record: ["c"]})


_RACER = """
import numpy as np
from tuner.privacy.ledger.division import Division
pairs = np.array([f"{record:016d}{record // int(word):>16}".encode() for record in range(100)], dtype="S32")
ledger = Ledger.open(url)
print("ready", flush=True)
sys.stdin.readline()
try:
    ledger.open_search("digits", word, filter=TotalSteps(step, 10), epsilon=4.0, delta=1e-5, unit="user",
                       division=Division(np.unique(pairs)))
    print("opened")
except BudgetRefusedError as error:
    print(error.code)
"""


@pytest.mark.slow
def test_of_two_processes_that_divide_differently_one_is_admitted(door: Backdoor) -> None:
    Ledger.open(door.url)
    racers = [child(_RACER, door.url, size) for size in ("1", "10")]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(line for racer in racers for line in said_by(racer)) == ["opened", "users-differ"]


# The stored pairs.


@pytest.mark.parametrize("change", ["DELETE FROM divisions", "UPDATE divisions SET pairs = '' WHERE search = 'first'"])
def test_a_table_that_was_changed_is_found(door: Backdoor, change: str) -> None:
    ledger = Ledger.open(door.url)
    opened(ledger, "first", TWENTY)
    ledger.verify_division("digits")
    with pytest.raises(Exception, match="append-only"):
        door.sql(change)
    door.unguard()
    door.sql(change)
    with raises_code(LedgerCorruptError, "ledger-division-damaged"):
        opened(ledger, "second", TWENTY)
    with raises_code(LedgerCorruptError, "ledger-division-damaged"):
        Ledger.open(door.url).verify_division("digits")
    assert len(ledger.dataset_state("digits").searches) == 1


# The owner's word.


def test_a_user_key_is_the_owners_word_and_stays(ledger: Ledger) -> None:
    keyed = replace(division_of(TWENTY), user_key="patient number")
    opened(ledger, "first", keyed)
    opened(ledger, "second", replace(division_of(EACH_ONE), user_key="patient number"))
    said = basis(ledger.dataset_state("digits"))
    assert said is not None
    assert "'patient number'" in said
    assert "the owner's word" in said
    for other in ("visit number", None):
        with raises_code(BudgetRefusedError, "user-key-differs"):
            opened(ledger, "third", replace(keyed, user_key=other))


def test_a_user_key_does_not_replace_a_comparison_that_was_begun(ledger: Ledger) -> None:
    opened(ledger, "first", TWENTY)
    with raises_code(BudgetRefusedError, "user-key-differs"):
        opened(ledger, "second", replace(division_of(EACH_ONE), user_key="record number"))


@pytest.mark.parametrize(("unit", "how"), [("user", None), ("record", division_of(TWENTY))])
def test_the_unit_decides_whether_a_division_is_named(ledger: Ledger, unit: str, how: Division | None) -> None:
    with raises_code(InputError, "division-missing"):
        ledger.open_search("digits", "s", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, unit=unit, division=how)
    assert Ledger.open(ledger.url).datasets() == ()
