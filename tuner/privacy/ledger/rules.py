"""Rules of the ledger: which entries it allows, and the state after each entry. Writers and readers apply the rules.

The entries about one search have their rules in `search_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from typing import Any

from tuner.errors import BudgetRefusedError, LedgerCorruptError, TunerError
from tuner.privacy.accountant.mechanism import require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import admit, admit_name, require_writer, unfit
from tuner.privacy.ledger.amounts import amounts
from tuner.privacy.ledger.blocks import admit_blocks, require_mirrors
from tuner.privacy.ledger.entries import Entry, entry_hash
from tuner.privacy.ledger.search_rules import opened, search_after
from tuner.privacy.ledger.state import Committed, DatasetCap, DatasetState, Share, Void, exact_sum

__all__ = ["checked_state_after", "contradiction", "state_after"]


def checked_state_after(states: Mapping[str, DatasetState], entry: Entry) -> DatasetState:
    """Return the state of a data set after an entry from the store.

    `states` has the state of each data set before the entry. Raise `LedgerCorruptError` if the number, the hash or the
    content of the entry contradicts the earlier entries.
    """
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    where = f"entry {entry.seq} of data set {entry.dataset!r}"
    if entry.seq != state.seq + 1:
        raise contradiction("ledger-chain-broken", where, f"the entry's number should be {state.seq + 1}")
    if entry.previous != state.head:
        raise contradiction(
            "ledger-chain-broken", where, f"the entry's previous hash is {entry.previous} and should be {state.head}"
        )
    found = entry_hash(
        dataset=entry.dataset,
        seq=entry.seq,
        time=entry.time,
        kind=entry.kind,
        writer=entry.writer,
        body=entry.body,
        previous=entry.previous,
    )
    if found != entry.hash:
        raise contradiction("ledger-chain-broken", where, f"the entry's hash is {entry.hash} and should be {found}")
    try:
        return state_after(states, entry)
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise contradiction(
            "ledger-entry-unreadable", where, f"the entry's body cannot be read ({error!r}): {entry.body[:200]}"
        ) from error
    except TunerError as error:
        raise contradiction(
            "ledger-entry-not-allowed",
            where,
            f"the ledger's rules do not allow the entry ({error}): {entry.body[:200]}",
        ) from error


def state_after(states: Mapping[str, DatasetState], entry: Entry) -> DatasetState:
    """Return the state of the entry's data set after `entry`, if the rules allow the entry.

    Entries contain their prices, and only integers and decimals are summed. So every machine computes the same state
    from the same ledger.

    An entry about a search is written by the search's user. Whether the writer of a cap or a share owns the data, only
    the database can know: a trigger of PostgreSQL checks it, and a file cannot.

    Raises:
        BudgetRefusedError: the entry would exceed a cap.
        LedgerError: another rule forbids the entry.
        KeyError, TypeError, ValueError, InputError: the body is malformed.
    """
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    data = entry.data
    match entry.kind:
        case "cap":
            admit_blocks(states, entry.dataset)
            changed = _cap(state, data)
        case "grant":
            changed = _grant(state, data)
        case "public":
            changed = _public(states, state, data)
        case "void":
            changed = replace(state, voids=(*state.voids, _void(data, entry)))
        case "open_search":
            require_writer(entry.writer, data["user"], data["search"])
            for known in (data["fingerprint"], data.get("block_fingerprint")):
                admit_name(states, entry.dataset, data["search"], known)
            admit_blocks(states, entry.dataset)
            changed = opened(state, data, entry)
        case _:
            search = state.by_name.get(data["search"])
            if search is None:
                raise ValueError(f"search {data['search']!r} was never opened")
            require_writer(entry.writer, search.user, search.search)
            if entry.kind in {"lease", "begin", "release"}:
                require_mirrors(states, search)
            if entry.kind in {"reserve", "begin", "release"}:
                for block in filter(None, map(states.get, search.blocks)):
                    if block.damage is None:  # the owner of each block may have lowered its cap
                        admit(block, 0.0, 0.0, units=0, user=search.user, what=f"search {search.search!r}")
            changed = state.with_search(search_after(state, search, entry, data))
    return replace(changed, seq=entry.seq, head=entry.hash)


def _cap(state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    require_epsilon(data["epsilon"])
    require_delta(data["delta"])
    order, units = data.get("order"), data.get("units")
    if units is not None:
        require_steps(units, minimum=1, name="units")
    if order is not None and not (isfinite(order) and order > 1):
        raise ValueError("the Rényi order must be finite and above 1")
    before = state.cap.order if state.cap else None
    if order != before and state.committed.searches:
        raise BudgetRefusedError(
            "cap-order-fixed",
            f"The Rényi order of the cap of {state.dataset!r} cannot be changed from {before or 'none'} to "
            f"{order or 'none'}, because searches already count against this cap. Keep the order.",
        )
    return replace(state, cap=DatasetCap(data["epsilon"], data["delta"], order, units))


def _grant(state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    user, share = data["user"], Share(data["epsilon"], data["delta"])
    if not (isinstance(user, str) and isfinite(share.epsilon) and share.epsilon >= 0 and 0 <= share.delta < 1):
        raise ValueError("a share needs a user, a finite ε of at least 0, and a δ from 0 to below 1")
    if state.cap is None:
        raise BudgetRefusedError(
            "cap-not-set",
            f"Data set {state.dataset!r} has no cap, so no share of a cap can be granted. Set a cap: tune budget set "
            f"{state.dataset} --epsilon E --delta D.",
        )
    held = _held_by_others(state, user)
    total = exact_sum(held[0], share.epsilon), exact_sum(held[1], share.delta)
    before = state.grants.get(user, Share(0.0, 0.0))
    lower = share.epsilon <= before.epsilon and share.delta <= before.delta
    if not lower and (total[0] > exact_sum(state.cap.epsilon) or total[1] > exact_sum(state.cap.delta)):
        left = [
            max(exact_sum(cap, -other), Decimal(0))
            for cap, other in zip((state.cap.epsilon, state.cap.delta), held, strict=True)
        ]
        raise BudgetRefusedError(
            "shares-exceed-cap",
            f"The cap of data set {state.dataset!r} is {amounts(state.cap.epsilon, state.cap.delta)}. Other users hold "
            f"{amounts(float(held[0]), float(held[1]))} of this cap. Each of them holds the larger of their share "
            f"and what their searches have committed. So at most {amounts(float(left[0]), float(left[1]))} is "
            f"left for {user!r} (asked for {amounts(share.epsilon, share.delta)}). "
            f"{unfit(total, (state.cap.epsilon, state.cap.delta))}. Grant less, lower another share, or raise the cap.",
        )
    return replace(state, grants=state.grants.with_item(user, share))


def _public(states: Mapping[str, DatasetState], state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    fingerprint = data["fingerprint"]
    if not isinstance(fingerprint, str):
        raise TypeError("the fingerprint must be text")
    private = next((each.dataset for each in states.values() if fingerprint in each.fingerprints), None)
    if private is not None:  # only owners of the data can write this entry, so they may see the name
        raise BudgetRefusedError(
            "records-known-private",
            f"The ledger holds these records as private (data set {private!r}), so they cannot be entered as public. "
            "Use them only in private searches on that data set.",
        )
    if state.is_private:
        raise BudgetRefusedError(
            "records-known-private",
            f"The ledger holds the records of data set {state.dataset!r} as private, so nothing can be entered as "
            "public under this name. If the file has other records, choose another name.",
        )
    return replace(state, public=state.public | {fingerprint})


def _void(data: Mapping[str, Any], entry: Entry) -> Void:
    found = Void(entry.time, data["use"], data["why"], data["sweep"])
    if found.use not in {"public", "not private"} or not all(isinstance(text, str) for text in vars(found).values()):
        raise ValueError("an entry that voids a total needs a use and a reason")
    return found


def _held_by_others(state: DatasetState, user: str) -> tuple[Decimal, Decimal]:
    """Return the (ε, δ) of the cap that others than `user` hold: the larger of their share and what they committed.

    What a user has committed without a share, or before the share was lowered, is gone from the cap all the same.
    """
    epsilon, delta = Decimal(0), Decimal(0)
    for other in {*state.grants, *state.committed_of} - {user}:
        share, used = state.grants.get(other, Share(0.0, 0.0)), state.committed_of.get(other, Committed())
        epsilon = exact_sum(epsilon, max(exact_sum(share.epsilon), used.epsilon))
        delta = exact_sum(delta, max(exact_sum(share.delta), used.delta))
    return epsilon, delta


def contradiction(code: str, where: str, why: str) -> LedgerCorruptError:
    """Return the error for a ledger that contradicts itself. `where` names the place, and `why` the fault."""
    return LedgerCorruptError(
        code,
        f"The ledger contradicts itself at {where}: {why}. Restore the ledger from a backup with all entries. Do not "
        "delete the ledger, because it is the only record of all charges.",
    )
