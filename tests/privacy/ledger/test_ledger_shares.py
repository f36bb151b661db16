"""Users and their shares of a data set's cap, and two sweeps that want the same room."""

from __future__ import annotations

import subprocess
import sys
import threading
from math import inf, nan

import pytest
from errors_helper import raises_code
from ledgers import CHEAP, MECHANISM, head_of, lease, open_search

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import Share


@pytest.fixture
def divided(ledger: Ledger) -> Ledger:
    ledger.set_cap("digits", 8.0, 1e-4)
    ledger.grant("digits", "ada", 5.0, 5e-5)
    ledger.grant("digits", "eve", 1.0, 5e-5)
    return ledger


def test_a_search_is_of_who_opens_it(ledger: Ledger) -> None:
    open_search(ledger, "mine")
    open_search(ledger, "hers", user="ada")
    assert ledger.search_state("mine").user == ledger.user() != ""
    assert ledger.search_state("hers").user == "ada"
    assert ledger.dataset_state("digits").committed_by("ada") == (4.0, 1e-5)
    assert ledger.dataset_state("digits").committed_by("nobody") == (0.0, 0.0)


def test_a_share_holds_over_all_searches_of_its_user(divided: Ledger) -> None:
    open_search(divided, "a1", user="ada")
    with raises_code(BudgetRefusedError, "share-exceeded"):
        open_search(divided, "a2", 1.5, user="ada")
    open_search(divided, "a2", 1.0, user="ada", step_cap=1)
    with raises_code(BudgetRefusedError, "share-exceeded"):
        open_search(divided, "e1", user="eve")
    open_search(divided, "e1", 1.0, user="eve", step_cap=1)
    assert divided.dataset_state("digits").committed_by("ada") == (5.0, 2e-5)


def test_a_share_holds_delta_too(divided: Ledger) -> None:
    with raises_code(BudgetRefusedError, "share-exceeded"):
        open_search(divided, "a", 1.0, user="ada", step_cap=1, delta=6e-5)


def test_who_has_no_share_starts_nothing_once_there_are_shares(ledger: Ledger, divided: Ledger) -> None:
    with raises_code(BudgetRefusedError, "no-share"):
        open_search(divided, "m", 0.5, user="mallory", step_cap=1, mechanism=CHEAP)
    ledger.set_cap("other", 8.0, 1e-4)  # the control: a data set that is not divided
    open_search(ledger, "m", 0.5, dataset="other", user="mallory", step_cap=1, mechanism=CHEAP)


def test_shares_fit_the_cap_exactly(ledger: Ledger) -> None:
    with raises_code(BudgetRefusedError, "cap-not-set"):
        ledger.grant("digits", "ada", 0.1, 1e-6)
    ledger.set_cap("digits", 0.3, 3e-6)
    for user in ("a", "b", "c"):  # 0.1 + 0.1 + 0.1 is 0.3 for people
        ledger.grant("digits", user, 0.1, 1e-6)
    for epsilon, delta in ((1e-9, 1e-9), (1e-9, 1e-7)):
        with raises_code(BudgetRefusedError, "shares-exceed-cap"):
            ledger.grant("digits", "d", epsilon, delta)
    ledger.grant("digits", "a", 0.05, 0.5e-6)
    ledger.grant("digits", "d", 0.05, 0.5e-6)
    with raises_code(BudgetRefusedError, "shares-exceed-cap"):
        ledger.grant("digits", "b", 0.1 + 1e-9, 1e-6)


def test_the_cap_binds_where_it_was_lowered_below_the_shares(divided: Ledger) -> None:
    divided.set_cap("digits", 4.5, 1e-4)
    open_search(divided, "a", user="ada")
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(divided, "e", 1.0, user="eve", step_cap=1)
    with raises_code(BudgetRefusedError, "shares-exceed-cap"):
        divided.grant("digits", "eve", 1.1, 5e-5)
    divided.grant("digits", "eve", 0.9, 5e-5)  # still above it together, but less than before


def test_a_share_that_is_lowered_or_revoked_starts_nothing_more_and_ends_nothing(divided: Ledger) -> None:
    open_search(divided, "a", user="ada")
    divided.reserve("a", "t", 5)
    divided.grant("digits", "ada", 3.0, 5e-5)
    with raises_code(BudgetRefusedError, "share-exceeded"):
        divided.reserve("a", "t2", 1)
    divided.grant("digits", "ada", 4.0, 5e-5)
    divided.reserve("a", "t2", 1)
    divided.revoke("digits", "ada")
    with pytest.raises(BudgetRefusedError):
        divided.reserve("a", "t3", 1)
    lease(divided, "a", "t", 5)
    divided.settle("a", "t", 5)
    assert divided.dataset_state("digits").grants["ada"] == Share(0.0, 0.0)


def test_a_data_set_that_was_divided_stays_divided(divided: Ledger) -> None:
    for user in ("ada", "eve"):
        divided.revoke("digits", user)
    with raises_code(BudgetRefusedError, "no-share"):
        open_search(divided, "m", 0.5, user="mallory", step_cap=1, mechanism=CHEAP)
    with raises_code(LedgerError, "share-not-found"):
        divided.revoke("digits", "mallory")


def test_what_was_closed_without_a_step_goes_back_to_the_share(divided: Ledger) -> None:
    open_search(divided, "a1", user="ada")
    divided.close_search("a1")
    open_search(divided, "a2", 5.0, user="ada")
    with raises_code(BudgetRefusedError, "share-exceeded"):
        divided.reopen_search("a1")
    assert divided.dataset_state("digits").committed_by("ada") == (5.0, 1e-5)


@pytest.mark.parametrize("value", [nan, inf, -1.0, 0.0])
def test_shares_must_be_finite_and_positive(divided: Ledger, value: float) -> None:
    before = head_of(divided)
    with raises_code(InputError, "epsilon-out-of-range"):
        divided.grant("digits", "ada", value, 1e-5)
    with raises_code(InputError, "delta-out-of-range"):
        divided.grant("digits", "ada", 1.0, value)
    with raises_code(InputError, "ledger-name-invalid"):
        divided.grant("digits", "", 1.0, 1e-5)
    assert head_of(divided) == before


# Two sweeps at once.

_RACER = (
    "import sys\n"
    "from tuner.errors import BudgetRefusedError\n"
    "from tuner.privacy.accountant.filters import TotalSteps\n"
    "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
    "from tuner.privacy.ledger.ledger import Ledger\n"
    "ledger = Ledger.open(sys.argv[1], create=False)\n"
    "filter = TotalSteps(SampledGaussian(0.05, 2.0), 10)\n"
    "filter.claim(1e-5)\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
    "try:\n"
    "    ledger.open_search('digits', sys.argv[2], filter=filter, epsilon=4.0, delta=1e-5, user=sys.argv[3])\n"
    "except BudgetRefusedError:\n"
    "    print('refused')\n"
    "else:\n"
    "    print('opened')\n"
)


@pytest.mark.parametrize("by", ["cap", "share", "order"])
def test_of_two_processes_that_want_the_last_room_exactly_one_gets_it(ledger: Ledger, by: str) -> None:
    if by == "share":
        ledger.set_cap("digits", 100.0, 1e-3)
        ledger.grant("digits", "ada", 7.9, 1e-4)
    elif by == "order":
        ledger.set_cap("digits", 1.03, 1e-4, order=8.0)  # room for one by its divergence, for none by the sum
    else:
        ledger.set_cap("digits", 7.9, 1e-4)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, ledger.url, f"sweep-{number}", "ada"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = sorted(racer.communicate(timeout=60)[0].strip() for racer in racers)
    assert said == ["opened", "refused"]
    assert len(ledger.dataset_state("digits").searches) == 1
    ledger.verify_chain()


def test_of_many_threads_exactly_one_gets_the_last_room(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-4)
    said: list[str] = []
    start = threading.Barrier(6)

    def race(number: int) -> None:
        mine = ledger if number % 2 else Ledger.open(ledger.url)
        start.wait()
        try:
            open_search(mine, f"sweep-{number}")
            said.append("opened")
        except BudgetRefusedError:
            said.append("refused")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["opened", *["refused"] * 5]


def test_two_sweeps_that_hold_the_ledger_open_see_each_other(ledger: Ledger) -> None:
    ledger.set_cap("digits", 8.0, 1e-4)
    other = Ledger.open(ledger.url)
    open_search(ledger, "one")
    open_search(other, "two", mechanism=MECHANISM)
    for mine, name in ((ledger, "one"), (other, "two")):
        mine.reserve(name, "t", 5)
    assert {search.search: search.reserved_steps for search in ledger.dataset_state("digits").searches} == {
        "one": 5,
        "two": 5,
    }
    with pytest.raises(BudgetRefusedError):
        open_search(other, "three", 0.1, mechanism=CHEAP, step_cap=1)


def test_the_control_sweeps_that_do_not_see_each_other_both_start(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.privacy.ledger import rules as fold

    ledger.set_cap("digits", 4.0, 1e-4)
    monkeypatch.setattr(fold, "admit_search", lambda *_, **__: None)
    open_search(ledger, "one")
    open_search(Ledger.open(ledger.url), "two")
    monkeypatch.undo()
    with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):  # and whoever looks at all of it notices
        Ledger.open(ledger.url)


def test_the_same_records_are_divided_among_the_same_users(ledger: Ledger) -> None:
    """Two hundred users of seven records each, and every record as a user: a total of both covers nobody."""
    open_search(ledger, "first", unit="user", fingerprint="f", details={"users": "of seven"})
    with raises_code(BudgetRefusedError, "users-differ"):
        open_search(ledger, "second", unit="user", fingerprint="f", details={"users": "each one"})
    assert [search.search for search in ledger.dataset_state("digits").searches] == ["first"]
    open_search(ledger, "again", unit="user", fingerprint="f", details={"users": "of seven"})
    open_search(ledger, "grown", unit="user", fingerprint="g", details={"users": "other records"})
