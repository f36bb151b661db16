"""The rules of the ledger, the same for writer and reader: chains whose hashes hold, but whose last entry is forged."""

from __future__ import annotations

from typing import Any

import pytest
from errors_helper import raises_code
from ledgers import (
    BOOK,
    CHEAP,
    MECHANISM,
    RELEASE,
    SEALED,
    as_user,
    chained,
    entry_of,
    folded,
    head_of,
    open_search,
    opening,
)
from ledgers import Row as Row

from tuner.errors import BudgetRefusedError, LedgerCorruptError, TunerError
from tuner.privacy.accountant.filters import FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger import ledger as writing
from tuner.privacy.ledger import owner
from tuner.privacy.ledger.chain import Write
from tuner.privacy.ledger.entries import GENESIS, Entry, canonical, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.rules import checked_state_after


def reserve(steps: int, trial: str = "a", mechanism: SampledGaussian = MECHANISM, **more: object) -> Row:
    asked = {"search": "s", "trial": trial, "steps": steps, "pool": "training", "mechanism": mechanism.body()}
    return "reserve", {**asked, **more}


def scores(count: int, mechanism: SampledGaussian = RELEASE, **more: object) -> Row:
    return reserve(count, mechanism=mechanism, pool="validation", **more)


def lease(steps: int, trial: str = "a", **more: object) -> Row:
    asked = {"search": "s", "trial": trial, "steps": steps, "pool": "training", "mechanism": MECHANISM.body()}
    return "lease", {**asked, **more}


def settle(taken: int, trial: str = "a") -> Row:
    return "settle", {"search": "s", "trial": trial, "steps_taken": taken}


def by(writer: str, row: Row) -> Row:
    return row[0], row[1], writer


def grant(user: str, epsilon: float, delta: float) -> Row:
    return "grant", {"user": user, "epsilon": epsilon, "delta": delta}


CLOSE, BEGIN = ("close_search", {"search": "s"}), ("begin", {"search": "s", "secrets": "0" * 64})
REOPEN = ("reopen_search", {"search": "s", "units": None})
CARD: Row = ("card", {"search": "s", "card_sha256": "0" * 64, "card_kind": "release"})
USERS = ("ada", "bob", "eve")
ORDER = FixedOrder(8.0, 1000)
SCORES = {"filter": TotalSteps(RELEASE, 4).body(), "epsilon": 4.0, "delta": 1e-5}
CAP = ("cap", {"epsilon": 5.0, "delta": 1e-4})
LOW = ("cap", {"epsilon": 0.2, "delta": 1e-5})
TAKEN = grant("ada", 0.0, 0.0)
SPLIT = ("cap", {"epsilon": 5.0, "delta": 2e-5, "order": 8.0, "units": 1000})

TENTHS = [("cap", {"epsilon": 0.3, "delta": 3e-6}), *(grant(user, 0.1, 1e-6) for user in USERS)]
SEALED_SCORES = {**SCORES, "filter": Sealed(SEALED.law, 10, ((RELEASE, 1),)).body()}

OPEN, NEXT, MENU, ORDERED = opening(), opening(search="t"), opening(BOOK), opening(ORDER)
SCORED, SEALED_OPEN = opening(validation=SCORES), opening(SEALED)
FOUR = grant("ada", 4.0, 1e-4)

ALLOWED = {
    "all of the steps": [OPEN, reserve(60), reserve(40, "b")],
    "the share of another mechanism": [MENU, reserve(10), reserve(20, "b", CHEAP)],
    "all of the units": [ORDERED, reserve(4, price=100), reserve(6, "b", CHEAP, price=100)],
    "what was given back": [OPEN, reserve(100), lease(40), settle(40), reserve(60, "b")],
    "its scores": [SCORED, scores(4), lease(4, mechanism=RELEASE.body(), pool="validation")],
    "a sealed search": [SEALED_OPEN, BEGIN],
    "a sealed search with sealed scores": [opening(SEALED, validation=SEALED_SCORES), BEGIN],
    "a second search that fits": [CAP, OPEN, opening(search="t", epsilon=1.0)],
    "one that fits by its order": [SPLIT, opening(epsilon=5.0, units=400), opening(search="t", units=600)],
    "one that fits by its order once another was closed": [
        SPLIT, opening(epsilon=1.0), CLOSE, opening(search="t", epsilon=5.0, units=600),
    ],
    "half of delta for the sum": [SPLIT, opening(delta=1e-5)],
    "three tenths, which are 0.3 for people": [
        *TENTHS, *(by(user, opening(search=user, user=user, epsilon=0.1, delta=1e-6)) for user in USERS),
    ],
    "a lower share after a lower cap": [*TENTHS, LOW, grant("ada", 0.09, 1e-6)],
    "a share that is used": [CAP, FOUR, OPEN],
    "a share of what others left": [CAP, OPEN, grant("eve", 1.0, 9e-5)],
    "a share of what another gave back": [CAP, OPEN, CLOSE, grant("eve", 5.0, 1e-4)],
    "a share of what its own user has committed": [CAP, OPEN, grant("ada", 5.0, 1e-4)],
    "a card": [OPEN, CARD],
    "a share that was given back": [CAP, FOUR, OPEN, CLOSE, NEXT],
    "a lease once the share was taken away": [CAP, FOUR, OPEN, reserve(1), TAKEN, lease(1)],
    "a lease once the cap was lowered": [OPEN, reserve(1), LOW, lease(1), settle(1)],
    "another order before the first search": [SPLIT, ("cap", {**SPLIT[1], "order": 4.0})],
    "another order once nothing counts": [SPLIT, OPEN, CLOSE, ("cap", {**SPLIT[1], "order": 4.0})],
    "another unit once nothing counts": [opening(unit="user"), CLOSE, NEXT],
}  # fmt: skip

FORBIDDEN = {
    "more than the cap on steps": ["cap-exceeded", OPEN, reserve(60), reserve(41, "b")],
    "more than a quota": ["cap-exceeded", MENU, reserve(11)],
    "more than the units": ["cap-exceeded", ORDERED, reserve(4, price=100), reserve(6, "b", CHEAP, price=101)],
    "too many scores": ["cap-exceeded", SCORED, scores(5)],
    "a price of nothing": ["count-out-of-range", ORDERED, reserve(4, price=0)],
    "a price that is lacking": [None, ORDERED, reserve(4)],
    "a price that falls": [None, ORDERED, reserve(1, price=100), reserve(1, price=10)],
    "a mechanism that is not on the menu": ["mechanism-not-allowed", MENU, reserve(1, mechanism=RELEASE)],
    "another mechanism than the only one": ["mechanism-not-allowed", OPEN, reserve(1, mechanism=CHEAP)],
    "a trial of two mechanisms": ["mechanism-not-reserved", MENU, reserve(1), reserve(1, mechanism=CHEAP)],
    "a menu without a choice": [None, MENU, ("reserve", {"search": "s", "trial": "a", "steps": 1})],
    "a lease of more than was reserved": ["not-reserved", OPEN, reserve(10), lease(11)],
    "a lease that was never reserved": ["not-reserved", OPEN, reserve(10), lease(1, "b")],
    "a lease of another mechanism": ["mechanism-not-reserved", MENU, reserve(10), lease(1, mechanism=CHEAP.body())],
    "a score with other noise": ["mechanism-not-reserved", SCORED, scores(4), lease(1, pool="validation")],
    "a lease of what was given back": ["trial-settled", OPEN, reserve(10), lease(4), settle(4), lease(1)],
    "a reservation of a settled trial": ["trial-settled", OPEN, reserve(10), settle(0), reserve(1)],
    "scores of a trial that was settled": ["trial-settled", SCORED, reserve(10), settle(0), scores(1)],
    "steps after scores alone were settled": ["trial-settled", SCORED, scores(1), settle(0), reserve(1)],
    "a trial that was settled twice": ["trial-settled", OPEN, reserve(10), settle(0), settle(0)],
    "more taken than leased": ["steps-not-leased", OPEN, reserve(10), lease(4), settle(5)],
    "steps taken of scores alone": ["steps-not-leased", SCORED, scores(1), settle(1)],
    "a trial that never was": ["trial-unknown", OPEN, settle(0)],
    "a lease in a closed search": ["search-not-open", OPEN, reserve(10), CLOSE, lease(1)],
    "a reservation in a closed search": ["search-not-open", OPEN, CLOSE, reserve(1)],
    "scores of a search without them": ["pool-unknown", OPEN, scores(1)],
    "scores of a sample": [
        "score-sampled",
        opening(validation={**SCORES, "filter": FixedOrder(8.0, 1000).body()}), scores(1, MECHANISM, price=1),
    ],
    "scores that are sampled": [
        "score-sampled", opening(validation={**SCORES, "filter": TotalSteps(MECHANISM, 1).body()}),
    ],
    "scores above the claim": ["validation-claim-too-large", opening(validation={**SCORES, "epsilon": 4.1})],
    "scores that are not sealed with the rest": ["filters-differ", opening(SEALED, validation=SCORES)],
    "steps that are not sealed with the scores": ["filters-differ", opening(validation=SEALED_SCORES)],
    "steps of a sealed search": ["sealed-charged-whole", SEALED_OPEN, reserve(1)],
    "a sealed search that began twice": ["search-not-open", SEALED_OPEN, BEGIN, BEGIN],
    "a closed sealed search": ["search-not-open", SEALED_OPEN, CLOSE, BEGIN],
    "an open search that began": ["search-not-open", OPEN, BEGIN],
    "a search above the data set's cap": ["dataset-cap-exceeded", CAP, OPEN, opening(search="t", epsilon=1.1)],
    "a search above the data set's delta": [
        "dataset-cap-exceeded", CAP, OPEN, opening(search="t", epsilon=0.1, delta=9.5e-5),
    ],
    "a search that fits neither rule": [
        "dataset-cap-exceeded", SPLIT, opening(epsilon=5.0, units=400), opening(search="t", units=601),
    ],
    "a search without a divergence": [
        "dataset-cap-exceeded", SPLIT, opening(epsilon=5.0, units=400), opening(search="t", epsilon=1.0),
    ],
    "a search beside one without a divergence": [
        "dataset-cap-exceeded", SPLIT, opening(epsilon=1.0), opening(search="t", epsilon=5.0, units=1),
    ],
    "a divergence below nothing": ["count-out-of-range", SPLIT, opening(epsilon=5.0, units=-1000)],
    "a divergence that is no number": ["count-out-of-range", SPLIT, opening(epsilon=5.0, units=True)],
    "the whole of delta for the sum": ["dataset-cap-exceeded", SPLIT, opening(epsilon=4.0, delta=1.1e-5)],
    "another order once a search counts": ["cap-order-fixed", SPLIT, OPEN, ("cap", {**SPLIT[1], "order": 4.0})],
    "an order after a search": ["cap-order-fixed", OPEN, SPLIT],
    "no order after a search": ["cap-order-fixed", SPLIT, OPEN, CAP],
    "a trial once the cap was lowered": ["dataset-cap-exceeded", OPEN, LOW, reserve(1)],
    "a sealed search once the cap was lowered": ["dataset-cap-exceeded", SEALED_OPEN, LOW, BEGIN],
    "a search that came back to no room": ["dataset-cap-exceeded", CAP, OPEN, CLOSE, NEXT, REOPEN],
    "a search opened for another user": ["ledger-other-user", opening(user="eve")],
    "a search opened by another user": ["ledger-other-user", by("eve", OPEN)],
    "a reservation by another user": ["ledger-other-user", OPEN, by("eve", reserve(1))],
    "a lease by another user": ["ledger-other-user", OPEN, reserve(1), by("eve", lease(1))],
    "a trial settled by another user": ["ledger-other-user", OPEN, reserve(1), by("eve", settle(0))],
    "a search closed by another user": ["ledger-other-user", OPEN, by("eve", CLOSE)],
    "a search reopened by another user": ["ledger-other-user", OPEN, CLOSE, by("eve", REOPEN)],
    "a sealed search begun by another user": ["ledger-other-user", SEALED_OPEN, by("eve", BEGIN)],
    "a card issued by another user": ["ledger-other-user", OPEN, by("eve", CARD)],
    "a share of what another has committed without one": [
        "shares-exceed-cap", CAP, OPEN, grant("eve", 1.1, 1e-5),
    ],
    "a share of what another has committed above its share": [
        "shares-exceed-cap", CAP, FOUR, OPEN, grant("ada", 1.0, 1e-6), grant("eve", 1.1, 1e-6),
    ],
    "a share of what another has committed of δ": ["shares-exceed-cap", CAP, OPEN, grant("eve", 1.0, 9.1e-5)],
    "a share without a cap": ["cap-not-set", grant("ada", 1.0, 1e-5)],
    "shares above the cap": ["shares-exceed-cap", CAP, grant("ada", 3.0, 1e-5), grant("eve", 2.1, 1e-5)],
    "a share above what is left of ε": ["shares-exceed-cap", *TENTHS, grant("ada", 0.1 + 1e-9, 1e-6)],
    "a share above what is left of δ": ["shares-exceed-cap", *TENTHS, grant("ada", 0.1, 1.001e-6)],
    "a negative share": [None, CAP, grant("ada", -1.0, 1e-5)],
    "a search above its user's share": ["share-exceeded", CAP, grant("ada", 3.9, 1e-4), OPEN],
    "a search above its user's δ": ["share-exceeded", CAP, grant("ada", 4.0, 0.9e-5), OPEN],
    "two searches above their user's share": [
        "share-exceeded", CAP, grant("ada", 4.9, 1e-4), OPEN, opening(search="t", epsilon=1.0),
    ],
    "a search within a share above the cap": [
        "dataset-cap-exceeded", CAP, grant("ada", 5.0, 1e-4), LOW, opening(epsilon=2.0),
    ],
    "a search of who has no share": ["no-share", CAP, grant("eve", 1.0, 1e-5), OPEN],
    "a search of a stranger once all shares were taken away": [
        "no-share", CAP, grant("eve", 1.0, 1e-5), grant("eve", 0.0, 0.0), OPEN,
    ],
    "a trial once the share was taken away": ["share-exceeded", CAP, grant("ada", 4.0, 1e-5), OPEN, TAKEN, reserve(1)],
    "a search that came back to a used share": ["share-exceeded", CAP, FOUR, OPEN, CLOSE, NEXT, REOPEN],
    "a second unit": ["unit-differs", opening(unit="user"), NEXT],
    "a second unit that came back": ["unit-differs", opening(unit="user"), CLOSE, NEXT, REOPEN],
    "a unit that is none": ["unit-unknown", opening(unit="household")],
    "a name that is taken": ["search-name-taken", OPEN, OPEN],
    "a kind that is not known": [None, OPEN, ("refund", {"search": "s", "trial": "a", "steps": 1})],
    "steps that are no number": ["count-out-of-range", OPEN, reserve(True)],
    "fewer than no steps": ["count-out-of-range", OPEN, reserve(-5)],
    "a search that was never opened": [None, reserve(1)],
}  # fmt: skip
"""The error's code, and entries of which the last is not allowed."""
REFUSED = {
    "cap-exceeded", "mechanism-not-allowed", "not-reserved", "dataset-cap-exceeded", "cap-order-fixed", "cap-not-set",
    "shares-exceed-cap", "share-exceeded", "no-share", "unit-differs",
}  # fmt: skip
"""Codes of a budget that does not allow it, which end in another exit code than errors do."""


def said_by(write: Write, row: Row) -> None:
    write._writer = row[2] if len(row) > 2 else "ada"
    write("digits", row[0], dict(row[1]))


@pytest.mark.parametrize("rows", ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_read(rows: list[Row]) -> None:
    assert folded(chained(rows)).seq == len(rows)


@pytest.mark.parametrize("case", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_not_allowed_is_neither_written_nor_read(ledger: Ledger, case: list[Any]) -> None:
    """Reader and writer hold every entry to the same rules; what was refused leaves no trace."""
    code, *before, last = case
    ledger = as_user(ledger, "ada")  # who trusts the prices of her own searches
    with ledger._chain.write() as write:
        for row in before:
            said_by(write, row)
    head = head_of(ledger)
    with pytest.raises((TunerError, KeyError, ValueError)) as refused, ledger._chain.write() as write:
        said_by(write, last)
    assert head_of(ledger) == head_of(as_user(Ledger.open(ledger.url), "ada")) == head
    assert isinstance(refused.value, BudgetRefusedError) == (code in REFUSED)
    with raises_code(LedgerCorruptError, "ledger-entry-not-allowed" if code else "ledger-entry-unreadable") as caught:
        folded(chained([*before, last]))
    assert f"entry {len(before) + 1} of" in caught.value.message
    assert getattr(caught.value.__cause__, "code", None) == getattr(refused.value, "code", None) == code


def test_names_and_records_belong_to_one_data_set() -> None:
    (first,) = chained([opening(fingerprint="sha256:1")])
    states = {"digits": checked_state_after({}, first)}
    for more, code in (
        ({"fingerprint": None}, "search-name-taken"),
        ({"search": "t", "fingerprint": "sha256:1"}, "records-not-admitted"),
    ):
        (second,) = chained([opening(**more)], dataset="other")
        with raises_code(LedgerCorruptError, "ledger-entry-not-allowed") as caught:
            checked_state_after(states, second)
        assert caught.value.__cause__.code == code  # type: ignore[union-attr]
    (third,) = chained([opening(search="t", fingerprint="sha256:2")], dataset="other")
    assert checked_state_after(states, third).seq == 1


def test_an_over_committed_data_set_is_not_used(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 1000)
    state = ledger.dataset_state("digits")
    kind, body = reserve(1, "b", search=search)
    store = ledger._chain.store
    with store.writing() as connection:
        store.append(connection, entry_of(3, kind, canonical(body), state.head, writer=ledger.user()))
    again = Ledger.open(ledger.url)
    for use in (
        lambda: again.dataset_state("digits"),
        lambda: again.search_state(search),
        lambda: ledger.reserve(search, "c", 1),
        ledger.verify_chain,
    ):
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
            patch.setattr(owner, "order_filter", lambda *_: 10**18)
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
    as_user(ledger, "ada").set_cap("digits", 50.0, 1e-3)
    open_search(ledger, "honest", filter=fair)
    ledger.verify_chain()
    kind, body = opening(dear if pool == "training" else fair, validation=None if pool == "training" else scores)
    with ledger._chain.write() as write:
        write("digits", kind, body)
    assert as_user(Ledger.open(ledger.url), "ada").dataset_state("digits").seq == 3
    with raises_code(LedgerCorruptError, "ledger-claim-too-low") as caught:
        ledger.verify_chain()
    assert pool in str(caught.value)
    # Other users find it wherever they look, before they search under the same cap or show a total.
    eve = as_user(Ledger.open(ledger.url), "eve")
    with raises_code(LedgerCorruptError, "ledger-claim-too-low"):
        eve.dataset_state("digits")
    assert eve.damage()["digits"].code == "ledger-claim-too-low"


def test_a_body_of_any_depth_damages_its_own_data_set_and_no_more() -> None:
    fields: dict[str, Any] = {
        "dataset": "junk", "seq": 1, "time": "2026-01-01", "kind": "cap", "writer": "eve",
        "body": "[" * 100_000 + "]" * 100_000, "previous": GENESIS,
    }  # fmt: skip
    with pytest.raises(LedgerCorruptError):
        checked_state_after({}, Entry(**fields, hash=entry_hash(**fields)))
