"""Chains whose hashes hold, of entries that were never allowed: the rules are asked again when a ledger is read."""

from __future__ import annotations

import sqlite3

import pytest
from errors_helper import raises_code
from ledgers import CHEAP, MECHANISM, RELEASE, chained, file_of, folded, open_search

from tuner.errors import LedgerCorruptError
from tuner.privacy.accountant.filters import CouponBook, Filter, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger import ledger as writing
from tuner.privacy.ledger.entries import Entry, canonical, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.rules import checked_state_after

Row = tuple[str, dict[str, object]]


def opened(filter: Filter | None = None, **more: object) -> Row:
    body = (filter or TotalSteps(MECHANISM, 100)).body()
    said = {
        "search": "s", "filter": body, "validation": None, "unit": "record", "user": "ada",
        "epsilon": 4.0, "delta": 1e-5, "fingerprint": None, "details": {}, "units": None,
    }  # fmt: skip
    return "open_search", {**said, **more}


def named(mechanism: SampledGaussian) -> dict[str, float]:
    return {"sample_rate": mechanism.sample_rate, "noise_multiplier": mechanism.noise_multiplier}


def reserve(steps: int, trial: str = "a", mechanism: SampledGaussian = MECHANISM, **more: object) -> Row:
    asked = {"search": "s", "trial": trial, "steps": steps, "pool": "training", "mechanism": named(mechanism)}
    return "reserve", {**asked, **more}


def scores(count: int, mechanism: SampledGaussian = RELEASE, **more: object) -> Row:
    return reserve(count, mechanism=mechanism, pool="validation", **more)


def lease(steps: int, trial: str = "a", **more: object) -> Row:
    asked = {"search": "s", "trial": trial, "steps": steps, "pool": "training", "mechanism": named(MECHANISM)}
    return "lease", {**asked, **more}


def settle(taken: int, trial: str = "a") -> Row:
    return "settle", {"search": "s", "trial": trial, "steps_taken": taken}


def grant(user: str, epsilon: float, delta: float) -> Row:
    return "grant", {"user": user, "epsilon": epsilon, "delta": delta}


CLOSE = ("close_search", {"search": "s"})
BOOK = CouponBook(((MECHANISM, 10), (CHEAP, 20)))
ORDER = FixedOrder(8.0, 1000)
SEALED = Sealed(RunLaw(name="geometric", mean=3.0, shape=1.0), 10, ((MECHANISM, 5),))
SCORES = {"filter": TotalSteps(RELEASE, 4).body(), "epsilon": 4.0, "delta": 1e-5}
CAP = ("cap", {"epsilon": 5.0, "delta": 1e-4})
SPLIT = ("cap", {"epsilon": 5.0, "delta": 2e-5, "order": 8.0, "units": 1000})

ALLOWED = {
    "all of the steps": [opened(), reserve(60), reserve(40, "b")],
    "the share of another mechanism": [opened(BOOK), reserve(10), reserve(20, "b", CHEAP)],
    "all of the units": [opened(ORDER), reserve(4, price=100), reserve(6, "b", CHEAP, price=100)],
    "what was given back": [opened(), reserve(100), lease(40), settle(40), reserve(60, "b")],
    "its scores": [opened(validation=SCORES), scores(4), lease(4, mechanism=named(RELEASE), pool="validation")],
    "a sealed search": [opened(SEALED), ("begin", {"search": "s"})],
    "a second search that fits": [CAP, opened(), opened(search="t", epsilon=1.0)],
    "one that fits by its order": [SPLIT, opened(epsilon=5.0, units=400), opened(search="t", units=600)],
    "a share that is used": [CAP, grant("ada", 4.0, 1e-4), opened()],
    "another order before the first search": [SPLIT, ("cap", {**SPLIT[1], "order": 4.0})],
    "another unit once nothing counts": [opened(unit="user"), CLOSE, opened(search="t")],
}  # fmt: skip

FORBIDDEN = {
    "more than the cap on steps": [opened(), reserve(60), reserve(41, "b")],
    "more than a quota": [opened(BOOK), reserve(11)],
    "more than the units": [opened(ORDER), reserve(4, price=100), reserve(6, "b", CHEAP, price=101)],
    "a price of nothing": [opened(ORDER), reserve(4, price=0)],
    "a price that is lacking": [opened(ORDER), reserve(4)],
    "a price that falls": [opened(ORDER), reserve(1, price=100), reserve(1, price=10)],
    "a mechanism that is not on the menu": [opened(BOOK), reserve(1, mechanism=RELEASE)],
    "a trial of two mechanisms": [opened(BOOK), reserve(1), reserve(1, mechanism=CHEAP)],
    "a menu without a choice": [opened(BOOK), ("reserve", {"search": "s", "trial": "a", "steps": 1})],
    "a lease of more than was reserved": [opened(), reserve(10), lease(11)],
    "a lease of another mechanism": [opened(BOOK), reserve(10), lease(1, mechanism=named(CHEAP))],
    "a score with other noise": [opened(validation=SCORES), scores(4), lease(1, pool="validation")],
    "a lease of what was given back": [opened(), reserve(10), lease(4), settle(4), lease(1)],
    "a reservation of a settled trial": [opened(), reserve(10), settle(0), reserve(1)],
    "scores of a trial that was settled": [
        opened(validation=SCORES), reserve(10), settle(0), scores(1),
    ],
    "more taken than leased": [opened(), reserve(10), lease(4), settle(5)],
    "a trial that was settled twice": [opened(), reserve(10), settle(0), settle(0)],
    "a trial that never was": [opened(), settle(0)],
    "a lease in a closed search": [opened(), reserve(10), CLOSE, lease(1)],
    "a reservation in a closed search": [opened(), CLOSE, reserve(1)],
    "scores of a search without them": [opened(), scores(1)],
    "too many scores": [opened(validation=SCORES), scores(5)],
    "scores of a sample": [
        opened(validation={**SCORES, "filter": FixedOrder(8.0, 1000).body()}),
        scores(1, MECHANISM, price=1),
    ],
    "scores that are sampled": [opened(validation={**SCORES, "filter": TotalSteps(MECHANISM, 1).body()})],
    "scores above the claim": [opened(validation={**SCORES, "epsilon": 4.1})],
    "scores that are not sealed with the rest": [opened(SEALED, validation=SCORES)],
    "steps of a sealed search": [opened(SEALED), reserve(1)],
    "a sealed search that began twice": [opened(SEALED), ("begin", {"search": "s"}), ("begin", {"search": "s"})],
    "a closed sealed search": [opened(SEALED), CLOSE, ("begin", {"search": "s"})],
    "an open search that began": [opened(), ("begin", {"search": "s"})],
    "a search above the data set's cap": [CAP, opened(), opened(search="t", epsilon=1.1)],
    "a search above the data set's delta": [CAP, opened(), opened(search="t", epsilon=0.1, delta=9.5e-5)],
    "a search that fits neither rule": [SPLIT, opened(epsilon=5.0, units=400), opened(search="t", units=601)],
    "a search without a divergence": [SPLIT, opened(epsilon=5.0, units=400), opened(search="t", epsilon=1.0)],
    "a divergence below nothing": [SPLIT, opened(epsilon=5.0, units=-1000)],
    "a divergence that is no number": [SPLIT, opened(epsilon=5.0, units=True)],
    "the whole of delta for the sum": [SPLIT, opened(epsilon=4.0, delta=1.1e-5)],
    "another order once a search counts": [SPLIT, opened(), ("cap", {**SPLIT[1], "order": 4.0})],
    "an order after a search": [opened(), SPLIT],
    "no order after a search": [SPLIT, opened(), CAP],
    "a trial once the cap was lowered": [opened(), ("cap", {"epsilon": 1.0, "delta": 1e-5}), reserve(1)],
    "a sealed search once the cap was lowered": [
        opened(SEALED), ("cap", {"epsilon": 1.0, "delta": 1e-5}), ("begin", {"search": "s"}),
    ],
    "a search that came back where no room was left": [
        CAP, opened(), CLOSE, opened(search="t"), ("reopen_search", {"search": "s", "units": None}),
    ],
    "a share without a cap": [grant("ada", 1.0, 1e-5)],
    "shares above the cap": [
        CAP, grant("ada", 3.0, 1e-5), grant("eve", 2.1, 1e-5),
    ],
    "a negative share": [CAP, grant("ada", -1.0, 1e-5)],
    "a search above its user's share": [CAP, grant("ada", 3.9, 1e-4), opened()],
    "a search of who has no share": [CAP, grant("eve", 1.0, 1e-5), opened()],
    "a trial once the share was taken away": [
        CAP, grant("ada", 4.0, 1e-5), opened(),
        grant("ada", 0.0, 0.0), reserve(1),
    ],
    "a second unit": [opened(unit="user"), opened(search="t")],
    "a unit that is none": [opened(unit="household")],
    "a name that is taken": [opened(), opened()],
    "a kind that is not known": [opened(), ("refund", {"search": "s", "trial": "a", "steps": 1})],
    "steps that are no number": [opened(), reserve(True)],
    "fewer than no steps": [opened(), reserve(-5)],
    "a search that was never opened": [reserve(1)],
}  # fmt: skip


@pytest.mark.parametrize("rows", ALLOWED.values(), ids=ALLOWED)
def test_what_was_allowed_is_read(rows: list[Row]) -> None:
    assert folded(chained(rows)).seq == len(rows)


@pytest.mark.parametrize("rows", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_was_never_allowed_is_not_read_though_its_hashes_hold(rows: list[Row]) -> None:
    entries = chained(rows)
    if len(entries) > 1:
        folded(entries[:-1])  # all before the last one is fine
    with pytest.raises(LedgerCorruptError) as caught:
        folded(entries)
    assert caught.value.code in {"ledger-entry-not-allowed", "ledger-entry-unreadable"}
    assert f"entry {len(rows)} of" in caught.value.message


def test_names_and_records_belong_to_one_data_set() -> None:
    (first,) = chained([opened(fingerprint="sha256:1")])
    states = {"digits": checked_state_after({}, first)}
    for more in ({"fingerprint": None}, {"search": "t", "fingerprint": "sha256:1"}):
        (second,) = chained([opened(**more)], dataset="other")
        with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):
            checked_state_after(states, second)
    (third,) = chained([opened(search="t", fingerprint="sha256:2")], dataset="other")
    assert checked_state_after(states, third).seq == 1


def test_an_over_committed_file_is_not_opened(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 1000)
    state = ledger.dataset_state("digits")
    kind, body = reserve(1, "b", search=search)
    told = {
        "dataset": "digits", "seq": 3, "time": "", "kind": kind, "previous": state.head, "body": canonical(body),
    }  # fmt: skip
    forged = Entry(**told, hash=entry_hash(**told))  # type: ignore[arg-type]
    raw = sqlite3.connect(file_of(ledger))
    columns = ("dataset", "seq", "time", "kind", "body", "previous", "hash")
    values = [getattr(forged, column) for column in columns]
    raw.execute(f"INSERT INTO entries ({', '.join(columns)}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    raw.execute("UPDATE heads SET seq = 3, hash = ?", [forged.hash])
    raw.commit()
    raw.close()
    for use in (lambda: Ledger.open(ledger.url), lambda: ledger.reserve(search, "c", 1), ledger.verify_chain):
        with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):
            use()


def test_a_price_that_was_noted_too_low_is_found_by_verify(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    filter = FixedOrder.of(order=8.0, epsilon=4.0, delta=1e-5)
    assert filter is not None
    open_search(ledger, "s", 4.1, filter=filter)
    ledger.reserve("s", "honest", 3, mechanism=MECHANISM)
    ledger.verify_chain()
    with monkeypatch.context() as patch:
        patch.setattr(FixedOrder, "price", lambda _self, _mechanism: 7)
        ledger.reserve("s", "cheat", 3, mechanism=CHEAP)
    assert Ledger.open(ledger.url).search_state("s").trials["cheat"].price == 7  # the sums are right
    with raises_code(LedgerCorruptError, "ledger-price-too-low") as caught:
        ledger.verify_chain()
    assert "'cheat'" in str(caught.value)


@pytest.mark.parametrize(("which", "said"), [("cap", "its cap"), ("search", "search 's'")])
def test_an_order_that_was_noted_too_well_is_found_by_verify(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, which: str, said: str
) -> None:
    with monkeypatch.context() as patch:
        if which == "cap":
            patch.setattr(writing, "order_filter", lambda *_: 10**18)
        else:
            patch.setattr(writing, "units_at", lambda *_: 1)
        ledger.set_cap("digits", 4.0, 1e-4, order=8.0)
        open_search(ledger, "s")
    assert Ledger.open(ledger.url).dataset_state("digits").seq == 2
    with raises_code(LedgerCorruptError, "ledger-price-too-low") as caught:
        ledger.verify_chain()
    assert said in str(caught.value)


@pytest.mark.parametrize("pool", ["training", "validation"])
def test_a_search_that_may_cost_more_than_it_claims_is_found_by_verify(ledger: Ledger, pool: str) -> None:
    """Its hashes and sums hold: only who computes its claim again can tell."""
    dear, fair = TotalSteps(MECHANISM, 1_000_000), TotalSteps(MECHANISM, 100)
    scores = {"filter": TotalSteps(RELEASE, 10_000).body(), "epsilon": 0.1, "delta": 1e-6}
    ledger.set_cap("digits", 50.0, 1e-3)
    open_search(ledger, "honest", filter=fair)
    ledger.verify_chain()
    kind, body = opened(dear if pool == "training" else fair, validation=None if pool == "training" else scores)
    with ledger._chain.write() as write:
        write("digits", kind, body)
    assert Ledger.open(ledger.url).dataset_state("digits").seq == 3
    with raises_code(LedgerCorruptError, "ledger-claim-too-low") as caught:
        ledger.verify_chain()
    assert f"pool {pool}" in str(caught.value)
