"""From entries to what they add up to. Every rule stands here once: for who writes an entry and for who reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from types import MappingProxyType
from typing import Any

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError, TunerError
from tuner.privacy.accountant.filters import Allowance, FixedOrder, Sealed, TotalSteps, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import admit, admit_name, admit_search, order_filter, unfit, units_at
from tuner.privacy.ledger.entries import Entry, entry_hash
from tuner.privacy.ledger.state import (
    TRAINING,
    VALIDATION,
    Cap,
    DatasetState,
    PoolState,
    SearchState,
    Share,
    TrialState,
    exact_sum,
)

__all__ = ["UNIT_NAMES", "apply", "check_pools", "check_prices", "follow"]

UNIT_NAMES = frozenset({"record", "user"})
"""What a neighbouring data set may have one more or less of."""

_SLACK = 1e-8
"""Prices that were noted may differ by this part from those computed now: machines round differently."""


def apply(states: Mapping[str, DatasetState], entry: Entry) -> DatasetState:
    """The data set after one more entry that was read: checks the chain, and that the history allows it.

    Args:
        states: of all data sets of the ledger before it.
        entry: of one of them.

    Raises:
        LedgerCorruptError: the entry does not follow from what stands before it.
    """
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    where = f"entry {entry.seq} of data set {entry.dataset!r}"
    if entry.seq != state.seq + 1:
        raise _corrupt(where, f"its number must be {state.seq + 1}")
    if entry.previous != state.head:
        raise _corrupt(where, f"it must name the hash before it, {state.head}, but names {entry.previous}")
    found = entry_hash(
        dataset=entry.dataset, seq=entry.seq, time=entry.time, kind=entry.kind, body=entry.body, previous=entry.previous
    )
    if found != entry.hash:
        raise _corrupt(where, f"its content hashes to {found}, but {entry.hash} was written with it")
    try:
        return follow(states, entry)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise _corrupt(where, f"its body cannot be read ({error!r}): {entry.body[:200]}") from error
    except TunerError as error:
        raise _corrupt(where, f"it was not allowed ({error}): {entry.body[:200]}") from error


def follow(states: Mapping[str, DatasetState], entry: Entry) -> DatasetState:
    """The data set after one more entry, if the history allows it.

    Only whole numbers and decimals are added up here: prices are noted in the entries, so that every machine reads the
    same ledger alike.

    Raises:
        BudgetRefusedError: the entry would pass a cap.
        LedgerError: the history does not allow it.
        KeyError, TypeError, ValueError, InputError: the body cannot be read.
    """
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    data = entry.data
    match entry.kind:
        case "cap":
            changed = _cap(state, data)
        case "grant":
            changed = _grant(state, data)
        case "open_search":
            admit_name(states, entry.dataset, data["search"], data["fingerprint"])
            changed = _open(state, data, entry)
        case _:
            search = state.by_name.get(data["search"])
            if search is None:
                raise ValueError(f"search {data['search']!r} was never opened")
            changed = state.having(_of_search(state, search, entry, data))
    return replace(changed, seq=entry.seq, head=entry.hash)


def check_prices(state: DatasetState) -> None:
    """Compute again what the entries noted: the claims of the searches, and Rényi divergences.

    Raises:
        LedgerCorruptError: a noted price is below the true one, or a search may cost more than it claims.
    """

    def hold(what: str, noted: int | None, now: int | None) -> None:
        if noted is not None and (now is None or now > noted * (1 + _SLACK) + 1):
            raise _corrupt(f"data set {state.dataset!r}", f"{what} was noted at {noted} Renyi units and costs {now}")

    cap = state.cap
    if cap is not None and cap.order is not None and cap.units is not None:
        now = order_filter(cap.order, cap.epsilon, cap.delta)
        if cap.units > (now or 0) * (1 + _SLACK):
            raise _corrupt(
                f"data set {state.dataset!r}", f"its cap was noted at {cap.units} Renyi units and holds {now}"
            )
    for search in state.searches:
        if search.counts:
            _check_claims(state, search)
        if cap is not None and search.counts:
            validation = search.validation.allowance if search.validation else None
            hold(f"search {search.search!r}", search.units, units_at(cap.order, search.allowance, validation))
        for pool in search.pools.values():
            if isinstance(pool.allowance, FixedOrder):
                for name, trial in pool.trials.items():
                    if trial.mechanism is not None:
                        hold(f"trial {name!r} of {search.search!r}", trial.price, pool.price(trial.mechanism))


def _check_claims(state: DatasetState, search: SearchState) -> None:
    """An allowance that was written by another hand may cost more than the search says."""
    claims = {TRAINING: (search.epsilon, search.delta), VALIDATION: search.validation_claim}
    for name, pool in search.pools.items():
        claim = claims[name]
        if claim is not None and not pool.allowance.claim(claim[1]) <= claim[0] * (1 + _SLACK):
            raise _corrupt(
                f"data set {state.dataset!r}",
                f"search {search.search!r} claims {claim!r} for its pool {name}, and may cost "
                f"{pool.allowance.claim(claim[1])!r}",
            )


def check_pools(training: Allowance, validation: Allowance | None) -> None:
    """Refuse allowances that do not go together.

    Raises:
        InputError: one is sealed and the other not, or validation is sampled.
    """
    if validation is None:
        return
    if isinstance(training, Sealed) != isinstance(validation, Sealed):
        raise InputError(
            f"a sealed search must be sealed for both its pools, got {training.kind} for training and "
            f"{validation.kind} for validation. Give both the same law and number of runs."
        )
    for mechanism in validation.mechanisms:
        _require_whole(mechanism)


def _cap(state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    require_epsilon(data["epsilon"])
    require_delta(data["delta"])
    order, units = data.get("order"), data.get("units")
    if units is not None:
        require_steps(units, minimum=1, name="units")
    if order is not None and not (isfinite(order) and order > 1):
        raise ValueError("an order must be finite and above 1")
    before = state.cap.order if state.cap else None
    if order != before and state.committed.searches:
        raise BudgetRefusedError(
            f"the order of a data set's cap is fixed before its first search, and stays: for {state.dataset!r} it is "
            f"{before!r}, got {order!r}. What is chosen after something was seen is no filter. Keep the order."
        )
    return replace(state, cap=Cap(data["epsilon"], data["delta"], order, units))


def _grant(state: DatasetState, data: Mapping[str, Any]) -> DatasetState:
    user, share = data["user"], Share(data["epsilon"], data["delta"])
    if not (isinstance(user, str) and isfinite(share.epsilon) and share.epsilon >= 0 and 0 <= share.delta < 1):
        raise ValueError("a share must be a user's, finite and not negative")
    if state.cap is None:
        raise BudgetRefusedError(
            f"a share must be one of a cap, {state.dataset!r} has none. Set it first: tune budget set {state.dataset} "
            "--epsilon E --delta D."
        )
    others = [other for name, other in state.grants.items() if name != user]
    total_epsilon = exact_sum(*(other.epsilon for other in others), share.epsilon)
    total_delta = exact_sum(*(other.delta for other in others), share.delta)
    before = state.grants.get(user, Share(0.0, 0.0))
    lower = share.epsilon <= before.epsilon and share.delta <= before.delta
    if not lower and (total_epsilon > exact_sum(state.cap.epsilon) or total_delta > exact_sum(state.cap.delta)):
        lacking = unfit((total_epsilon, total_delta), (state.cap.epsilon, state.cap.delta))
        raise BudgetRefusedError(
            f"the shares of data set {state.dataset!r} must fit its cap of epsilon {state.cap.epsilon!r}, delta "
            f"{state.cap.delta!r}: with this one for {user!r} they sum to {float(total_epsilon)!r}, "
            f"{float(total_delta)!r}. {lacking}. Grant less, or lower another share first."
        )
    return replace(state, grants=state.grants.having(user, share))


def _open(state: DatasetState, data: Mapping[str, Any], entry: Entry) -> DatasetState:
    name, unit, user = data["search"], data["unit"], data["user"]
    require_epsilon(data["epsilon"])
    require_delta(data["delta"])
    if unit not in UNIT_NAMES:
        raise InputError(f"unit must be record or user, got {unit!r}. Write one of them.")
    allowance = from_body(data["allowance"])
    pools, claim = {TRAINING: PoolState(allowance=allowance)}, None
    if (validation := data["validation"]) is not None:
        pools[VALIDATION] = PoolState(allowance=from_body(validation["allowance"]))
        claim = validation["epsilon"], validation["delta"]
        require_epsilon(claim[0])
        require_delta(claim[1])
        check_pools(allowance, pools[VALIDATION].allowance)
        if not (claim[0] <= data["epsilon"] and claim[1] <= data["delta"]):
            raise InputError(
                f"the claim of a search must cover its validation records too: validation has {claim!r}, the search "
                f"{(data['epsilon'], data['delta'])!r}. Lower the one or raise the other."
            )
    units = _units(data)
    admit_search(
        state, epsilon=data["epsilon"], delta=data["delta"], units=units, unit=unit, user=user, what=f"search {name!r}"
    )
    return state.having(
        SearchState(
            search=name,
            dataset=entry.dataset,
            epsilon=data["epsilon"],
            delta=data["delta"],
            pools=MappingProxyType(pools),
            validation_claim=claim,
            unit=unit,
            user=user,
            fingerprint=data["fingerprint"],
            details=MappingProxyType(data["details"]),
            units=units,
            opened_seq=entry.seq,
            opened_time=entry.time,
        )
    )


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
            raise ValueError(f"unknown kind {kind!r}; written by a newer version?")


def _reserve(state: DatasetState, search: SearchState, data: Mapping[str, Any]) -> SearchState:
    name, steps = data["trial"], data["steps"]
    require_steps(steps, minimum=1)
    pool_name, pool = _pool(search, data, "reserve steps")
    before = _unsettled(search, pool, name, "reserve steps")
    admit(state, 0.0, 0.0, units=0, user=search.user, what=f"trial {name!r}")
    mechanism = SampledGaussian(data["mechanism"]["sample_rate"], data["mechanism"]["noise_multiplier"])
    if before.mechanism not in {None, mechanism}:
        raise LedgerError(
            f"a trial must keep its mechanism: {name!r} of {search.search!r} has {before.mechanism!r}, "
            f"got {mechanism!r}. Start a new trial."
        )
    if pool_name == VALIDATION:
        _require_whole(mechanism)
    price = 0
    if isinstance(pool.allowance, FixedOrder):
        price = data["price"]
        require_steps(price, minimum=1, name="price")
        if before.mechanism is not None and price != before.price:
            raise ValueError(f"a step of trial {name!r} must cost what it cost first, {before.price} units")
    elif mechanism not in pool.allowance.mechanisms:
        raise BudgetRefusedError(
            f"a trial may use the mechanisms of its search, got {mechanism!r} for trial {name!r} of "
            f"{search.search!r}: {', '.join(map(repr, pool.allowance.mechanisms))}. Choose one of them."
        )
    left = pool.left(mechanism, price=price)
    if steps > left:
        raise BudgetRefusedError(_no_room(search, pool_name, name, mechanism, steps, left))
    after = replace(
        before,
        mechanism=mechanism,
        reserved=before.reserved + steps,
        price=price,
        restarts=before.restarts + (before.leased > 0),
    )
    return _with_pool(search, pool_name, pool.having(name, after))


def _lease(search: SearchState, data: Mapping[str, Any]) -> SearchState:
    name, steps = data["trial"], data["steps"]
    require_steps(steps, minimum=1)
    pool_name, pool = _pool(search, data, "lease steps")
    before = _unsettled(search, pool, name, "lease steps")
    if steps > before.outstanding:
        raise BudgetRefusedError(
            f"a trial may lease what it reserved: {steps} {_unit(pool_name)} asked for trial {name!r} of search "
            f"{search.search!r}, {before.outstanding} outstanding. "
            "Reserve before leasing; repeated steps are reserved again."
        )
    return _with_pool(search, pool_name, pool.having(name, replace(before, leased=before.leased + steps)))


def _settle(search: SearchState, data: Mapping[str, Any]) -> SearchState:
    """All pools at once; a closed search settles too."""
    name, taken = data["trial"], data["steps_taken"]
    require_steps(taken, minimum=0, name="steps_taken")
    known = {pool: state.trials[name] for pool, state in search.pools.items() if name in state.trials}
    if not known:
        raise LedgerError(f"only a trial that reserved can be settled, {name!r} is unknown in {search.search!r}.")
    for trial in known.values():
        if trial.settled:
            raise LedgerError(f"a trial is settled once: {name!r} had {trial.taken} steps taken, now {taken}.")
    leased = known[TRAINING].leased if TRAINING in known else 0
    if taken > leased:
        raise LedgerError(
            f"steps must be leased before they are taken: trial {name!r} of search {search.search!r} took {taken} and "
            f"leased {leased}. The guarantee of this search does not hold; report this as a bug."
        )
    for pool, trial in known.items():
        search = _with_pool(search, pool, search.pools[pool].having(name, replace(trial, settled=True, taken=taken)))
    return search


def _begin(state: DatasetState, search: SearchState) -> SearchState:
    if not search.sealed or search.status != "open" or search.begun:
        found = "not sealed" if not search.sealed else "begun already" if search.begun else "closed"
        raise LedgerError(
            f"only a sealed search that is open can be begun, and once: {search.search!r} is {found}. It is charged "
            "for one passage; start a new search."
        )
    admit(state, 0.0, 0.0, units=0, user=search.user, what=f"search {search.search!r}")
    # Closed at once: an entry at its end would tell when that was, beside those of other searches.
    return replace(search, begun=True, status="closed")


def _reopen(state: DatasetState, search: SearchState, data: Mapping[str, Any]) -> SearchState:
    if search.counts:
        return replace(search, status="open")
    units = _units(data)
    what = f"search {search.search!r}"
    admit_search(
        state, epsilon=search.epsilon, delta=search.delta, units=units, unit=search.unit, user=search.user, what=what
    )
    return replace(search, status="open", units=units)


def _units(data: Mapping[str, Any]) -> int | None:
    """Rényi units of a search that begins to count; None where they are not finite."""
    units: int | None = data["units"]
    if units is not None:
        require_steps(units, minimum=0, name="units")
    return units


def _pool(search: SearchState, data: Mapping[str, Any], what: str) -> tuple[str, PoolState]:
    if search.sealed:
        raise LedgerError(
            f"a sealed search is charged as a whole when it begins: {search.search!r} cannot {what}, which would tell "
            "how many runs there were. Use begin_sealed."
        )
    if search.status != "open":
        raise LedgerError(f"only an open search may {what}, {search.search!r} is {search.status}. Resume it.")
    name = data["pool"]
    if name not in search.pools:
        raise LedgerError(f"search {search.search!r} must have the pool that is charged, it has no {name!r}.")
    return name, search.pools[name]


def _unsettled(search: SearchState, pool: PoolState, trial: str, what: str) -> TrialState:
    if any(trial in other.trials and other.trials[trial].settled for other in search.pools.values()):
        raise LedgerError(
            f"only a running trial may {what}, {trial!r} of {search.search!r} is settled. Start a new trial."
        )
    return pool.trials.get(trial, TrialState())


def _with_pool(search: SearchState, name: str, pool: PoolState) -> SearchState:
    return replace(search, pools=MappingProxyType({**search.pools, name: pool}))


def _require_whole(mechanism: SampledGaussian) -> None:
    if mechanism.sample_rate != 1:
        raise InputError(
            f"a released score looks at every validation record, so its sample_rate must be 1, got {mechanism!r}. "
            "Write SampledGaussian(1.0, s)."
        )


def _unit(pool: str) -> str:
    return "releases" if pool == VALIDATION else "steps"


def _no_room(search: SearchState, pool_name: str, trial: str, mechanism: SampledGaussian, steps: int, left: int) -> str:
    pool, unit = search.pools[pool_name], _unit(pool_name)
    match pool.allowance:
        case TotalSteps(step_cap=cap):
            rule = f"the {unit} of all trials must fit the search's cap of {cap}"
        case FixedOrder(order=order):
            rule = f"the Renyi divergences of order {order:g} of all {unit} must fit the search's filter"
        case _:
            rule = f"the {unit} of all trials must fit the search's quota for {mechanism!r}"
    return (
        f"{rule}: {pool.leased_steps} are leased, {pool.reserved_steps} reserved, {left} left, {steps} asked for trial "
        f"{trial!r}. The budget is reached; raise privacy.epsilon in a new search, or plan fewer or shorter trials."
    )


def _corrupt(where: str, why: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"the ledger must be an unbroken chain of what was charged, but at {where}: {why}. "
        "Restore the ledger from a backup that holds every entry; never delete it, or its spending is forgotten."
    )
