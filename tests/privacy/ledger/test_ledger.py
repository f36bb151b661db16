"""What the ledger adds to its rules (test_ledger_forged.py has those): values, names, prices, times and threads."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from errors_helper import raises_code
from ledgers import (
    BOOK,
    CHEAP,
    MECHANISM,
    SCORES,
    SEALED,
    as_user,
    chained,
    folded,
    head_of,
    lease,
    left_steps,
    open_search,
)

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger import search_rules
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge

# Steps.


def test_reserve_lease_settle_moves_steps(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 300)
    lease(ledger, search, "a", 200)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, left_steps(state)) == (200, 100, 700)
    ledger.settle(search, "a", 150)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, left_steps(state)) == (200, 0, 800)
    assert state.trials["a"].taken == 150
    before = head_of(ledger)
    ledger.settle(search, "a", 150)  # settling again is harmless
    assert head_of(ledger) == before


@pytest.mark.parametrize("steps", [0, -1, 1.0, nan, inf, True, "1", None])
def test_steps_must_be_whole_and_positive(ledger: Ledger, search: str, steps: object) -> None:
    for call in (ledger.reserve, ledger.lease):
        with raises_code(InputError, "count-out-of-range"):
            call(search, "a", steps, mechanism=MECHANISM)  # type: ignore[arg-type]


def test_a_mechanism_must_be_named_where_there_are_several(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=BOOK)
    with raises_code(InputError, "mechanism-not-named"):
        ledger.reserve("s", "a", 1)
    ledger.reserve("s", "a", 1, mechanism=CHEAP)
    ledger.reserve("s", "a", 1)  # its own
    assert ledger.search_state("s").trials["a"].mechanism == CHEAP
    with raises_code(LedgerError, "mechanism-not-single"):
        _ = ledger.search_state("s").mechanism


def test_a_mechanism_without_a_finite_divergence_is_refused(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=FixedOrder(8.0, 10**15))
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("s", "a", 1, mechanism=SampledGaussian(1.0, 1e-200))
    assert dict(ledger.search_state("s").trials) == {}


@pytest.mark.parametrize("asked", [{"training": 11, "validation": 1}, {"training": 1, "validation": 7}])
def test_both_pools_promise_or_neither(ledger: Ledger, asked: dict[str, int]) -> None:
    open_search(ledger, "s", **SCORES)
    before = head_of(ledger)
    with pytest.raises(BudgetRefusedError):
        ledger.reserve_together("s", "a", asked)
    assert head_of(ledger) == before
    assert head_of(Ledger.open(ledger.url)) == before
    ledger.reserve_together("s", "a", {"training": 10, "validation": 6})
    assert head_of(ledger)[0] == before[0] + 2


# Searches.


def test_a_search_must_fit_its_own_cap(ledger: Ledger) -> None:
    fits = accounting.max_steps(MECHANISM, epsilon=1.0, delta=1e-5)
    book, order = CouponBook(((MECHANISM, fits), (CHEAP, 2000))), FixedOrder(8.0, 10**17)
    for filter in (TotalSteps(MECHANISM, fits + 1), book, order):
        with raises_code(BudgetRefusedError, "filter-exceeds-claim"):
            open_search(ledger, "greedy", 1.0, filter=filter)
    with raises_code(BudgetRefusedError, "filter-exceeds-claim"):
        open_search(ledger, "greedy", validation=SCORES["validation"], validation_claim=(0.01, 1e-6))
    assert ledger.datasets() == ()
    open_search(ledger, "exact", 1.0, step_cap=fits)


@pytest.mark.parametrize("value", [nan, inf, -1.0, 0.0])
def test_claims_must_be_finite_and_positive(ledger: Ledger, value: float) -> None:
    uses: list[Any] = [
        lambda *claim: ledger.set_cap("digits", *claim),
        lambda *claim: ledger.grant("digits", "ada", *claim),
        lambda *claim: open_search(ledger, "bad", claim[0], delta=claim[1]),
        lambda *claim: open_search(ledger, "bad", validation=SCORES["validation"], validation_claim=claim),
    ]
    for use in uses:
        with raises_code(InputError, "epsilon-out-of-range"):
            use(value, 1e-5)
        with raises_code(InputError, "delta-out-of-range"):
            use(1.0, value)
    assert ledger.datasets() == ()


@pytest.mark.parametrize("value", [nan, inf])
def test_details_must_be_finite_json(ledger: Ledger, value: float) -> None:
    with raises_code(InputError, "not-plain-json"):
        open_search(ledger, "bad", details={"x": value})
    assert ledger.datasets() == ()


def test_what_a_search_has_by_default(ledger: Ledger) -> None:
    open_search(ledger, "mine", validation=SCORES["validation"])
    state = ledger.search_state("mine")
    assert (state.validation_claim, state.unit, state.user) == ((4.0, 1e-5), "record", ledger.user())
    open_search(as_user(ledger, "ada"), "hers")
    assert ledger.dataset_state("digits").committed_by("ada") == (4.0, 1e-5)
    assert ledger.dataset_state("digits").committed_by("nobody") == (0.0, 0.0)
    assert ledger.cap("unheard of") is None


def test_floats_survive_the_ledger_bit_for_bit(ledger: Ledger, url: str) -> None:
    mechanism = SampledGaussian(1 / 3, 2.0 + 2**-51)
    ledger.open_search("d", "s", filter=TotalSteps(mechanism, 3), epsilon=12.1 + 2**-49, delta=1e-5 / 3)
    state = Ledger.open(url).search_state("s")
    assert (state.mechanism, state.epsilon, state.delta) == (mechanism, 12.1 + 2**-49, 1e-5 / 3)


@pytest.mark.parametrize("touch", ["training", "validation", "sealed"])
def test_a_closed_search_counts_exactly_where_it_touched_records(ledger: Ledger, touch: str) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)
    open_search(ledger, "s", filter=SEALED) if touch == "sealed" else open_search(ledger, "s", **SCORES)
    if touch != "sealed":
        ledger.reserve("s", "a", 1, pool=touch)
    ledger.close_search("s")
    assert ledger.dataset_state("digits").committed_epsilon == 0.0
    ledger.reopen_search("s")
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "next")
    ledger.begin_sealed("s", "0" * 64) if touch == "sealed" else lease(ledger, "s", "a", 1, pool=touch)
    ledger.close_search("s")
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "next")
    assert ledger.dataset_state("digits").committed_epsilon == 4.0


def test_a_sealed_search_is_charged_once_and_as_a_whole(ledger: Ledger, url: str) -> None:
    open_search(ledger, "s", filter=SEALED)
    state = ledger.search_state("s")
    assert (state.charged_whole, state.begun, state.counts, left_steps(state)) == (True, False, True, 0)
    for call in (
        lambda: ledger.reserve("s", "run 1", 5),
        lambda: ledger.reserve_together("s", "run 1", {"training": 5}, mechanism=CHEAP),
        lambda: lease(ledger, "s", "run 1", 5),
    ):
        with raises_code(LedgerError, "sealed-charged-whole"):
            call()
    ledger.begin_sealed("s", "0" * 64)
    with raises_code(LedgerError, "search-not-open"):
        ledger.begin_sealed("s", "0" * 64)
    ledger.close_search("s")  # it is
    state = Ledger.open(url).search_state("s")
    assert (state.begun, state.counts, state.status) == (True, True, "closed")
    ledger.reopen_search("s")
    entries = [entry for entry, _ in ledger.entries("digits")]
    assert [entry.kind for entry in entries] == ["open_search", "begin"], "no entry marks its end"
    ledger.record_card("s", "0" * 64, "export")
    times = {entry.time for entry, _ in ledger.entries("digits")}
    assert len(times) == 1
    assert len(times.pop()) == len("2026-01-01"), "the day alone"


# The data set's cap, over all searches.


def test_the_data_sets_cap_holds_over_all_searches(ledger: Ledger) -> None:
    ledger.set_cap("digits", 0.3, 1e-4)
    for name in ("one", "two", "three"):  # 0.1 + 0.1 + 0.1 is 0.3 for people, whatever doubles say
        open_search(ledger, name, 0.1, step_cap=1, mechanism=SampledGaussian(0.01, 10.0))
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "four", 1e-3, step_cap=1, mechanism=SampledGaussian(0.001, 50.0))
    assert ledger.dataset_state("digits").committed_epsilon == 0.3


def test_only_who_has_a_share_loses_it(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-4)
    ledger.grant("digits", "ada", 4.0, 1e-4)
    ledger.revoke("digits", "ada")
    with raises_code(BudgetRefusedError, "share-exceeded"):
        open_search(as_user(ledger, "ada"), "s")
    with raises_code(InputError, "share-not-found"):
        ledger.revoke("digits", "mallory")


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


def test_the_control_sweeps_that_do_not_see_each_other_both_start(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.set_cap("digits", 4.0, 1e-4)
    monkeypatch.setattr(search_rules, "admit_search", lambda *_, **__: None)
    open_search(ledger, "one")
    open_search(Ledger.open(ledger.url), "two")
    monkeypatch.undo()
    with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):  # and whoever looks at all of it notices
        Ledger.open(ledger.url).dataset_state("digits")


# Processes and clocks.


def test_a_worker_never_starts_a_ledger_afresh(tmp_path: Path) -> None:
    with raises_code(LedgerError, "ledger-not-found"):
        LedgerCharge(f"sqlite:///{tmp_path}/gone.db", "s", "t").lease(1, sample_rate=0.05, noise_multiplier=2.0)
    assert list(tmp_path.iterdir()) == []


def test_times_that_jump_back_change_nothing(ledger: Ledger, search: str) -> None:
    ledger.set_cap("digits", 8.0, 1e-4)
    ledger.reserve(search, "a", 100)
    lease(ledger, search, "a", 60)
    ledger.settle(search, "a", 55)
    ledger.close_search(search)
    ledger.reopen_search(search)
    written = [entry for entry, _ in ledger.entries("digits")]
    times = ("9999-12-31T23:59:59+00:00", "1970-01-01T00:00:00+00:00", "", "no time at all", "2025-03-01T12:00:00")
    there, here = (
        folded(written),
        folded(chained([(entry.kind, entry.data, entry.writer) for entry in written], times=times)),
    )
    assert here.head != there.head  # the note is in the hash
    for old, new in zip(there.searches, here.searches, strict=True):
        assert replace(new, opened_time=old.opened_time) == old
    assert (here.cap, here.committed) == (there.cap, there.committed)
