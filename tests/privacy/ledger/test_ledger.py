"""The ledger: what it admits and refuses, with one mechanism and a cap on steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from math import inf, nan
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import MECHANISM, folded, head_of, lease, left_steps, open_search

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger import chain
from tuner.privacy.ledger.entries import GENESIS, Entry, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge
from tuner.privacy.ledger.state import DatasetCap


def test_reserve_lease_settle_moves_steps(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 300)
    lease(ledger, search, "a", 200)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, left_steps(state)) == (200, 100, 700)
    ledger.settle(search, "a", 150)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, left_steps(state)) == (200, 0, 800)
    assert state.trials["a"].taken == 150


def test_refusals_of_steps_charge_nothing(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 900)
    before = head_of(ledger)
    with raises_code(BudgetRefusedError, "cap-exceeded"):
        ledger.reserve(search, "b", 101)
    with raises_code(BudgetRefusedError, "not-reserved"):
        lease(ledger, search, "a", 901)
    with pytest.raises(BudgetRefusedError):
        lease(ledger, search, "never reserved", 1)
    with raises_code(LedgerError, "steps-not-leased"):
        ledger.settle(search, "a", 1)
    with raises_code(LedgerError, "trial-unknown"):
        ledger.settle(search, "zzz", 0)
    assert head_of(ledger) == before
    ledger.reserve(search, "b", 100)


@pytest.mark.parametrize("steps", [0, -1, 1.0, nan, inf, True, "1", None])
def test_steps_must_be_whole_and_positive(ledger: Ledger, search: str, steps: object) -> None:
    for call in (ledger.reserve, ledger.lease):
        with raises_code(InputError, "count-out-of-range"):
            call(search, "a", steps, mechanism=MECHANISM)  # type: ignore[arg-type]


def test_a_settled_trial_is_over_but_settling_again_is_harmless(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    lease(ledger, search, "a", 10)
    ledger.settle(search, "a", 10)
    before = head_of(ledger)
    ledger.settle(search, "a", 10)
    assert head_of(ledger) == before
    for call in (
        lambda: lease(ledger, search, "a", 1),
        lambda: ledger.reserve(search, "a", 1),
        lambda: ledger.settle(search, "a", 9),
    ):
        with raises_code(LedgerError, "trial-settled"):
            call()


def test_a_resumed_trial_pays_again(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    lease(ledger, search, "a", 10)
    ledger.reserve(search, "a", 5)
    lease(ledger, search, "a", 5)
    assert ledger.search_state(search).trials["a"].leased == 15


def test_a_closed_search_is_closed_until_reopened(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    lease(ledger, search, "a", 4)
    ledger.close_search(search)
    for call in (lambda: lease(ledger, search, "a", 1), lambda: ledger.reserve(search, "b", 1)):
        with raises_code(LedgerError, "search-not-open"):
            call()
    ledger.reopen_search(search)
    lease(ledger, search, "a", 6)
    assert ledger.search_state(search).leased_steps == 10


def test_a_search_must_fit_its_own_cap(ledger: Ledger) -> None:
    fits = accounting.max_steps(MECHANISM, epsilon=1.0, delta=1e-5)
    with raises_code(BudgetRefusedError, "filter-exceeds-claim"):
        open_search(ledger, "greedy", 1.0, step_cap=fits + 1)
    open_search(ledger, "exact", 1.0, step_cap=fits)


@pytest.mark.parametrize("value", [nan, inf, -1.0, 0.0])
def test_caps_must_be_finite_and_positive(ledger: Ledger, value: float) -> None:
    with raises_code(InputError, "epsilon-out-of-range"):
        ledger.set_cap("digits", value, 1e-5)
    with raises_code(InputError, "delta-out-of-range"):
        ledger.set_cap("digits", 1.0, value)
    with raises_code(InputError, "epsilon-out-of-range"):
        open_search(ledger, "bad", value)
    assert ledger.datasets() == ()


@pytest.mark.parametrize("value", [nan, inf])
def test_details_must_be_finite_json(ledger: Ledger, value: float) -> None:
    with raises_code(InputError, "not-plain-json"):
        open_search(ledger, "bad", details={"x": value})
    assert ledger.datasets() == ()


def test_the_data_sets_cap_holds_over_all_searches(ledger: Ledger) -> None:
    ledger.set_cap("digits", 0.3, 1e-4)
    for name in ("one", "two", "three"):  # 0.1 + 0.1 + 0.1 is 0.3 for people, whatever doubles say
        open_search(ledger, name, 0.1, step_cap=1, mechanism=SampledGaussian(0.01, 10.0))
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "four", 1e-3, step_cap=1, mechanism=SampledGaussian(0.001, 50.0))
    assert ledger.dataset_state("digits").committed_epsilon == 0.3


def test_the_data_sets_delta_is_capped_too(ledger: Ledger) -> None:
    ledger.set_cap("digits", 100.0, 1.5e-5)
    open_search(ledger, "one")
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "two")


def test_a_search_that_never_leased_gives_its_cap_back_when_closed(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)
    open_search(ledger, "idle")
    ledger.reserve("idle", "a", 5)
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "next")
    ledger.close_search("idle")
    open_search(ledger, "next")
    with pytest.raises(BudgetRefusedError):  # and it cannot sneak back
        ledger.reopen_search("idle")


def test_a_search_that_leased_once_counts_for_ever(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)
    open_search(ledger, "used")
    ledger.reserve("used", "a", 1)
    lease(ledger, "used", "a", 1)
    ledger.settle("used", "a", 0)
    ledger.close_search("used")
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "next")


def test_a_cap_lowered_below_the_committed_starts_nothing_more(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "running", 10)
    ledger.set_cap("digits", 1.0, 1e-5)
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        ledger.reserve(search, "new", 1)
    lease(ledger, search, "running", 10)
    assert ledger.cap("digits") == DatasetCap(1.0, 1e-5)
    assert ledger.cap("unheard of") is None


def test_names_are_unique_and_records_have_one_budget(ledger: Ledger) -> None:
    open_search(ledger, "one", fingerprint="sha256:1")
    with raises_code(LedgerError, "search-name-taken"):
        open_search(ledger, "one", dataset="other")
    with raises_code(BudgetRefusedError, "dataset-known-otherwise"):
        open_search(ledger, "two", dataset="alias", fingerprint="sha256:1")
    open_search(ledger, "three", fingerprint="sha256:1")


def test_floats_survive_the_ledger_bit_for_bit(ledger: Ledger, url: str) -> None:
    mechanism = SampledGaussian(1 / 3, 2.0 + 2**-51)
    ledger.open_search("d", "s", filter=TotalSteps(mechanism, 3), epsilon=12.1 + 2**-49, delta=1e-5 / 3)
    state = Ledger.open(url).search_state("s")
    assert (state.mechanism, state.epsilon, state.delta) == (mechanism, 12.1 + 2**-49, 1e-5 / 3)


def test_a_worker_never_starts_a_ledger_afresh(tmp_path: Path) -> None:
    with raises_code(LedgerError, "ledger-not-found"):
        LedgerCharge(f"sqlite:///{tmp_path}/gone.db", "s", "t").lease(1, sample_rate=0.05, noise_multiplier=2.0)
    assert list(tmp_path.iterdir()) == []


def test_the_history_of_caps_stays(ledger: Ledger) -> None:
    for epsilon in (8.0, 2.0, 4.0):
        ledger.set_cap("digits", epsilon, 1e-5)
        ledger.set_cap("other", 1.0, 1e-6)
    open_search(ledger, "one")
    caps = [state.cap for entry, state in ledger.entries("digits") if entry.kind == "cap"]
    assert caps == [DatasetCap(8.0, 1e-5), DatasetCap(2.0, 1e-5), DatasetCap(4.0, 1e-5)]
    assert caps[-1] == ledger.cap("digits")


def test_states_that_were_read_stay_as_they_were(ledger: Ledger, search: str) -> None:
    before = ledger.dataset_state("digits")
    told = (before.seq, dict(before.searches[0].trials), before.committed)
    for number in range(40):
        ledger.reserve(search, f"t{number % 7}", 1)
    assert (before.seq, dict(before.searches[0].trials), before.committed) == told
    assert len(ledger.search_state(search).trials) == 7


def test_times_that_jump_back_change_nothing(ledger: Ledger, search: str) -> None:
    ledger.set_cap("digits", 8.0, 1e-4)
    ledger.reserve(search, "a", 100)
    lease(ledger, search, "a", 60)
    ledger.settle(search, "a", 55)
    ledger.close_search(search)
    ledger.reopen_search(search)
    written = [entry for entry, _ in ledger.entries("digits")]
    times = ("9999-12-31T23:59:59+00:00", "1970-01-01T00:00:00+00:00", "", "no time at all", "2025-03-01T12:00:00")
    entries: list[Entry] = []
    for number, entry in enumerate(written):
        said = {
            "dataset": entry.dataset, "seq": entry.seq, "time": times[number % 5], "kind": entry.kind,
            "body": entry.body, "previous": entries[-1].hash if entries else GENESIS,
        }  # fmt: skip
        entries.append(Entry(**said, hash=entry_hash(**said)))
    there, here = folded(written), folded(entries)
    assert here.head != there.head  # the note is in the hash
    for old, new in zip(there.searches, here.searches, strict=True):
        assert replace(new, opened_time=old.opened_time) == old
    assert (here.cap, here.committed) == (there.cap, there.committed)


def test_a_clock_that_jumps_while_it_is_written_changes_nothing(
    ledger: Ledger, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now() - timedelta(days=2000)

    monkeypatch.setattr(chain, "datetime", Jumping)
    ledger.reserve(search, "a", 10)
    lease(ledger, search, "a", 10)
    monkeypatch.undo()
    ledger.reserve(search, "b", 990)
    ledger.verify_chain()
    assert left_steps(Ledger.open(ledger.url).search_state(search)) == 0
