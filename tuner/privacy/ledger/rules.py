"""Rules of the ledger: which entries it allows, and the state after each entry. Writers and readers apply the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from types import MappingProxyType
from typing import Any

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError, TunerError
from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import (
    admit,
    admit_name,
    admit_search,
    check_pools,
    require_unsampled,
    require_writer,
    unfit,
)
from tuner.privacy.ledger.blocks import admit_blocks, require_mirrors
from tuner.privacy.ledger.division import NamedDivision, admit_division
from tuner.privacy.ledger.entries import Entry, entry_hash
from tuner.privacy.ledger.state import (
    TRAINING,
    VALIDATION,
    Committed,
    DatasetCap,
    DatasetState,
    PoolState,
    SearchState,
    Share,
    TrialAccount,
    Void,
    exact_sum,
)

__all__ = ["checked_state_after", "contradiction", "state_after"]


def checked_state_after(states: Mapping[str, DatasetState], entry: Entry) -> DatasetState:
    """Return the state of a data set after an entry from the store.

    `states` has the state of each data set before the entry. Raise `LedgerCorruptError` if the number, the hash or the
    content of the entry contradicts the earlier entries.
    """
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    where = f"entry {entry.seq} of data set {entry.dataset!r}"
    if entry.seq != state.seq + 1:
        raise contradiction("ledger-chain-broken", where, f"its number should be {state.seq + 1}")
    if entry.previous != state.head:
        raise contradiction(
            "ledger-chain-broken", where, f"its previous hash is {entry.previous} and should be {state.head}"
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
        raise contradiction("ledger-chain-broken", where, f"its hash is {entry.hash} and should be {found}")
    try:
        return state_after(states, entry)
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise contradiction(
            "ledger-entry-unreadable", where, f"its body cannot be read ({error!r}): {entry.body[:200]}"
        ) from error
    except TunerError as error:
        raise contradiction(
            "ledger-entry-not-allowed", where, f"it was not allowed ({error}): {entry.body[:200]}"
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
            admit_name(states, entry.dataset, data["search"], data["fingerprint"])
            admit_blocks(states, entry.dataset)
            changed = _open(state, data, entry)
        case _:
            search = state.by_name.get(data["search"])
            if search is None:
                raise ValueError(f"search {data['search']!r} was never opened")
            require_writer(entry.writer, search.user, search.search)
            if entry.kind in {"lease", "begin"}:
                require_mirrors(states, search)
            if entry.kind in {"reserve", "begin"}:
                for block in filter(None, map(states.get, search.blocks)):
                    if block.damage is None:  # the owner of each block may have lowered its cap
                        admit(block, 0.0, 0.0, units=0, user=search.user, what=f"search {search.search!r}")
            changed = state.with_search(_of_search(state, search, entry, data))
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
            f"The Rényi order of the cap of {state.dataset!r} is {before!r} and cannot become {order!r}, because "
            "searches count against the cap. Keep the order.",
        )
    return replace(state, cap=DatasetCap(data["epsilon"], data["delta"], order, units))


def _grant(state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    user, share = data["user"], Share(data["epsilon"], data["delta"])
    if not (isinstance(user, str) and isfinite(share.epsilon) and share.epsilon >= 0 and 0 <= share.delta < 1):
        raise ValueError("a share needs a user, and finite numbers that are not negative")
    if state.cap is None:
        raise BudgetRefusedError(
            "cap-not-set",
            f"Data set {state.dataset!r} has no cap, so there is nothing to share. Set a cap: tune budget set "
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
            f"The cap of data set {state.dataset!r} is ε = {state.cap.epsilon!r}, δ = {state.cap.delta!r}. Other users "
            f"hold ε = {float(held[0])!r}, δ = {float(held[1])!r}: each their share, or what their searches have "
            f"committed if that is more or they have no share. So at most ε = {float(left[0])!r}, "
            f"δ = {float(left[1])!r} is left for {user!r} (asked for ε = {share.epsilon!r}, δ = {share.delta!r}). "
            f"{unfit(total, (state.cap.epsilon, state.cap.delta))}. Grant less, lower another share, or raise the cap.",
        )
    return replace(state, grants=state.grants.with_item(user, share))


def _public(states: Mapping[str, DatasetState], state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    fingerprint = data["fingerprint"]
    if not isinstance(fingerprint, str):
        raise TypeError("the fingerprint must be text")
    private = next((each.dataset for each in states.values() if fingerprint in each.fingerprints), None)
    if private is None and state.is_private:
        private = state.dataset
    if private is not None:  # only owners of the data can write this entry, so they may see the name
        raise BudgetRefusedError(
            "records-known-private",
            f"The ledger holds these records as private, as data set {private!r}. They cannot be entered as public.",
        )
    return replace(state, public=state.public | {fingerprint})


def _void(data: Mapping[str, Any], entry: Entry) -> Void:
    found = Void(entry.time, data["use"], data["why"], data["sweep"])
    if found.use not in {"public", "not private"} or not all(isinstance(text, str) for text in vars(found).values()):
        raise ValueError("a void total needs a use and a reason")
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


def _open(state: DatasetState, data: Mapping[str, Any], entry: Entry) -> DatasetState:
    require_epsilon(data["epsilon"])
    require_delta(data["delta"])
    if data["unit"] not in {"record", "user"}:
        raise InputError("unit-unknown", f"The unit of protection must be record or user (got {data['unit']!r}).")
    whole = data["epsilon"], data["delta"]
    pools = {TRAINING: PoolState(filter=from_body(data["filter"]), claim=whole)}
    if (validation := data["validation"]) is not None:
        claim = validation["epsilon"], validation["delta"]
        pools[VALIDATION] = PoolState(filter=from_body(validation["filter"]), claim=claim)
        require_epsilon(claim[0])
        require_delta(claim[1])
        check_pools(pools[TRAINING].filter, pools[VALIDATION].filter)
        if not (claim[0] <= whole[0] and claim[1] <= whole[1]):
            raise InputError(
                "validation-claim-too-large",
                f"The (ε, δ) for validation records must not exceed the (ε, δ) of the search, {whole!r} (got "
                f"{claim!r}). Lower the ε or δ for validation records, or raise the ε or δ of the search.",
            )
    if (data["unit"] == "user") != (data["division"] is not None):
        raise InputError(
            "division-missing",
            "A search that protects each user must say how its records are divided among users, and no other search "
            f"may (the unit is {data['unit']}). Give the (record, user) pairs.",
        )
    search = SearchState(
        search=data["search"],
        dataset=entry.dataset,
        epsilon=data["epsilon"],
        delta=data["delta"],
        pools=MappingProxyType(pools),
        unit=data["unit"],
        user=data["user"],
        fingerprint=data["fingerprint"],
        division=None if data["division"] is None else NamedDivision.from_body(data["division"]),
        details=MappingProxyType(data["details"]),
        units=_units(data),
        opened_seq=entry.seq,
        opened_time=entry.time,
        blocks=tuple(data.get("blocks", ())),
        mirror_of=data.get("mirror_of"),
    )
    _admit(state, search)
    return state.with_search(search)


def _admit(state: DatasetState, search: SearchState) -> None:
    admit_search(
        state,
        epsilon=search.epsilon,
        delta=search.delta,
        units=search.units,
        unit=search.unit,
        user=search.user,
        what=f"search {search.search!r}",
    )
    if search.division is not None:
        admit_division(state, search.division.user_key, f"search {search.search!r}")


def _of_search(state: DatasetState, search: SearchState, entry: Entry, data: Mapping[str, Any]) -> SearchState:
    match entry.kind:
        case "reserve":
            return _reserve(state, search, data)
        case "lease":
            return _lease(search, data)
        case "settle":
            return _settle(search, data)
        case "begin":
            return _begin(state, search)
        case "close_search":
            return replace(search, status="closed")
        case "reopen_search":
            return _reopen(state, search, data)
        case "card":
            return replace(search, cards=(*search.cards, (data["card_sha256"], data["card_kind"], entry.seq)))
        case kind:
            raise ValueError(f"unknown kind {kind!r}; a newer version may have written it")


def _reserve(state: DatasetState, search: SearchState, data: Mapping[str, Any]) -> SearchState:
    name, steps, rung = data["trial"], data["steps"], data.get("rung", False)
    require_steps(steps, minimum=1)
    if not isinstance(rung, bool):
        raise TypeError("rung must be true or false")
    pool_name, pool, before = _account(search, data, "reserve steps")
    admit(state, 0.0, 0.0, units=0, user=search.user, what=f"trial {name!r}")
    mechanism = SampledGaussian.from_body(data["mechanism"])
    if before.mechanism not in {None, mechanism}:
        raise LedgerError(
            "mechanism-not-reserved",
            f"Trial {name!r} of {search.search!r} has reserved steps of {before.mechanism!r} and cannot reserve steps "
            f"of {mechanism!r}. Start a new trial.",
        )
    if pool_name == VALIDATION:
        require_unsampled(mechanism)
    price = 0
    if pool.filter.priced:
        price = data["price"]
        require_steps(price, minimum=1, name="price")
        if before.mechanism is not None and price != before.price:
            raise ValueError(f"the price of a step of trial {name!r} must stay {before.price} Rényi units")
    if not pool.filter.admits(mechanism):
        raise BudgetRefusedError(
            "mechanism-not-allowed",
            f"Search {search.search!r} does not allow {mechanism!r}, which trial {name!r} requests. It allows "
            f"{', '.join(map(repr, pool.filter.mechanisms))}.",
        )
    if rung and pool_name == TRAINING and not (before.leased and not before.outstanding):
        raise LedgerError(
            "rung-not-finished",
            f"Trial {name!r} of {search.search!r} cannot reserve its next rung, because it has leased {before.leased} "
            f"steps and {before.outstanding} are outstanding. A trial takes all that it has reserved first. Please "
            "report this as a bug.",
        )
    left = pool.left(mechanism, price=price)
    if steps > left:
        raise BudgetRefusedError("cap-exceeded", _no_room(search, pool_name, name, mechanism, steps, left))
    after = replace(
        before,
        mechanism=mechanism,
        reserved=before.reserved + steps,
        price=price,
        restarts=before.restarts + (before.leased > 0 and not rung),
    )
    return _with_pool(search, pool_name, pool.with_trial(name, after))


def _lease(search: SearchState, data: Mapping[str, Any]) -> SearchState:
    name, steps = data["trial"], data["steps"]
    require_steps(steps, minimum=1)
    pool_name, pool, before = _account(search, data, "lease steps")
    mechanism = SampledGaussian.from_body(data["mechanism"])
    if steps > before.outstanding:
        raise BudgetRefusedError(
            "not-reserved",
            f"Trial {name!r} of search {search.search!r} requests to lease {steps} {_unit(pool_name)} but has only "
            f"{before.outstanding} reserved. Reserve all steps before leasing them, including repeated steps.",
        )
    if mechanism != before.mechanism:
        raise LedgerError(
            "mechanism-not-reserved",
            f"Trial {name!r} of {search.search!r} reserved {_unit(pool_name)} of {before.mechanism!r}, but requests "
            f"to lease {_unit(pool_name)} of {mechanism!r}. Please report this as a bug.",
        )
    return _with_pool(search, pool_name, pool.with_trial(name, replace(before, leased=before.leased + steps)))


def _settle(search: SearchState, data: Mapping[str, Any]) -> SearchState:
    """Return the search with the trial settled in all pools. The search may be closed."""
    name, taken = data["trial"], data["steps_taken"]
    require_steps(taken, minimum=0, name="steps_taken")
    known = {pool: state.trials[name] for pool, state in search.pools.items() if name in state.trials}
    if not known:
        raise LedgerError(
            "trial-unknown", f"Trial {name!r} of {search.search!r} has reserved nothing, so it cannot be settled."
        )
    for trial in known.values():
        if trial.settled:
            raise LedgerError(
                "trial-settled",
                f"Trial {name!r} of {search.search!r} was settled with {trial.taken} steps and cannot be settled again "
                f"with {taken}.",
            )
    leased = known[TRAINING].leased if TRAINING in known else 0
    if taken > leased:
        raise LedgerError(
            "steps-not-leased",
            f"Trial {name!r} of search {search.search!r} took {taken} steps but leased only {leased}, so the guarantee "
            "of this search does not hold. Please report this as a bug.",
        )
    for pool, trial in known.items():
        search = _with_pool(
            search, pool, search.pools[pool].with_trial(name, replace(trial, settled=True, taken=taken))
        )
    return search


def _begin(state: DatasetState, search: SearchState) -> SearchState:
    whole = search.charged_whole or search.mirror_of is not None
    if not whole or search.status != "open" or search.begun:
        found = "is not sealed" if not whole else "has already begun" if search.begun else "is closed"
        raise LedgerError(
            "search-not-open",
            f"Search {search.search!r} {found}. Only an open sealed search can begin, and only once. Start a new "
            "search.",
        )
    if search.mirror_of is None:
        admit(state, 0.0, 0.0, units=0, user=search.user, what=f"search {search.search!r}")
    # Close the search now, because an entry at its end would show when the search ended.
    return replace(search, begun=True, status="closed")


def _reopen(state: DatasetState, search: SearchState, data: Mapping[str, Any]) -> SearchState:
    if search.counts:
        return replace(search, status="open")
    reopened = replace(search, status="open", units=_units(data))
    _admit(state, reopened)
    return reopened


def _units(data: Mapping[str, Any]) -> int | None:
    """Return a search's Rényi units, which its entry's body `data` contains; None if they are infinite."""
    units: int | None = data["units"]
    if units is not None:
        require_steps(units, minimum=0, name="units")
    return units


def _account(search: SearchState, data: Mapping[str, Any], what: str) -> tuple[str, PoolState, TrialAccount]:
    """Return the name and state of the pool in which an entry reserves or leases steps, and the trial's account."""
    if search.mirror_of is not None:
        raise LedgerError(
            "block-mirror",
            f"{search.search!r} is the part of search {search.mirror_of!r} on one of its blocks and cannot {what}. Use "
            "the search itself.",
        )
    if search.charged_whole:
        raise LedgerError(
            "sealed-charged-whole",
            f"Sealed search {search.search!r} cannot {what}, because it is charged as a whole when it begins. Use "
            "begin_sealed.",
        )
    if search.status != "open":
        raise LedgerError(
            "search-not-open", f"Search {search.search!r} is {search.status} and cannot {what}. Resume it first."
        )
    name, trial = data["pool"], data["trial"]
    if name not in search.pools:
        raise LedgerError(
            "pool-unknown",
            f"Search {search.search!r} has no pool {name!r}. Its pools are: {', '.join(search.pools)}. To charge "
            "scores, open the search with a filter for its validation records.",
        )
    if any(trial in other.trials and other.trials[trial].settled for other in search.pools.values()):
        raise LedgerError(
            "trial-settled", f"Trial {trial!r} of {search.search!r} is settled and cannot {what}. Start a new trial."
        )
    pool = search.pools[name]
    return name, pool, pool.account(trial)


def _with_pool(search: SearchState, name: str, pool: PoolState) -> SearchState:
    return replace(search, pools=MappingProxyType({**search.pools, name: pool}))


def _unit(pool: str) -> str:
    return "releases" if pool == VALIDATION else "steps"


def _no_room(search: SearchState, pool_name: str, trial: str, mechanism: SampledGaussian, steps: int, left: int) -> str:
    pool, unit = search.pools[pool_name], _unit(pool_name)
    return (
        f"Trial {trial!r} of search {search.search!r} requests {steps} {unit}, but only {left} are left. The cap for "
        f"all trials is {pool.filter.limit(unit, mechanism)}; {pool.leased_steps} {unit} are leased and "
        f"{pool.reserved_steps} are reserved. Plan fewer or shorter trials, or raise privacy.epsilon in a new search."
    )


def contradiction(code: str, where: str, why: str) -> LedgerCorruptError:
    """Return the error for a ledger that contradicts itself. `where` names the place, and `why` the fault."""
    return LedgerCorruptError(
        code,
        f"The ledger contradicts itself at {where}: {why}. Restore the ledger from a backup with all entries. Do not "
        "delete it, because it is the only record of all charges.",
    )
