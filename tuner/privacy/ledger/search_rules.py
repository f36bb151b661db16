"""Rules of the entries about one search: it is opened, reserves, leases and settles, begins, is closed and reopened.

`rules.py` applies them, after the rules of the data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import admit, admit_search, check_pools, require_name, require_unsampled
from tuner.privacy.ledger.division import NamedDivision, admit_division
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.state import TRAINING, VALIDATION, DatasetState, PoolState, SearchState, TrialAccount

__all__ = ["opened", "search_after"]


def opened(state: DatasetState, data: Mapping[str, Any], entry: Entry) -> DatasetState:
    """Return the state of a data set after `entry`, whose body `data` opens a search."""
    require_name(data["search"], "search")
    require_epsilon(data["epsilon"])
    require_delta(data["delta"])
    if data["unit"] not in {"record", "user"}:
        raise InputError("unit-unknown", f"The unit of protection must be `record` or `user` (got {data['unit']!r}).")
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
            "A search whose unit is user needs (record, user) pairs. A search whose unit is record must have none (the "
            f"unit is {data['unit']}). Give or remove the pairs.",
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
        block_fingerprint=data.get("block_fingerprint"),
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


def search_after(state: DatasetState, search: SearchState, entry: Entry, data: Mapping[str, Any]) -> SearchState:
    """Return the state of an opened search after `entry`, whose body is `data`."""
    match entry.kind:
        case "reserve":
            return _reserve(state, search, data)
        case "lease":
            return _lease(search, data)
        case "settle":
            return _settle(search, data)
        case "begin":
            return _begin(state, search, data)
        case "release":
            return _release(state, search)
        case "stored":
            return _stored(search, data)
        case "close_search":
            return replace(search, status="closed")
        case "reopen_search":
            return _reopen(state, search, data)
        case "card":
            return replace(search, cards=(*search.cards, (data["card_sha256"], data["card_kind"], entry.seq)))
        case kind:
            raise ValueError(
                f"the entry has the unknown kind {kind!r}; a newer version of dp-tuner may have written it"
            )


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
            f"Trial {name!r} of search {search.search!r} has reserved steps of {before.mechanism!r} and cannot reserve "
            f"steps of {mechanism!r}. Start a new trial.",
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
            f"Trial {name!r} requests {mechanism!r}, but search {search.search!r} allows only "
            f"{', '.join(map(repr, pool.filter.mechanisms))}.",
        )
    if rung and pool_name == TRAINING and not (before.leased and not before.outstanding):
        raise LedgerError(
            "rung-not-finished",
            f"Trial {name!r} of search {search.search!r} cannot reserve its next rung yet. It has leased "
            f"{before.leased} steps, and {before.outstanding} reserved steps are not leased. A trial must lease all "
            "reserved steps first. Please report this as a bug.",
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
            f"Trial {name!r} of search {search.search!r} requests to lease {steps} {_unit(pool_name)} but has reserved "
            f"only {before.outstanding}. Reserve all steps before leasing them, including repeated steps.",
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
            "trial-unknown",
            f"Trial {name!r} of {search.search!r} has reserved nothing, so the trial cannot be settled.",
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


def _begin(state: DatasetState, search: SearchState, data: Mapping[str, Any]) -> SearchState:
    whole = search.hides_runs or search.mirror_of is not None
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
    secrets = None if search.mirror_of else _checksum(data["secrets"])
    return replace(search, begun=True, secrets=secrets, status="closed")


def _release(state: DatasetState, search: SearchState) -> SearchState:
    """Return the search after its release was charged. Nothing else can be charged to it."""
    if not _is_release(search) or search.status != "open" or search.begun:
        raise LedgerError(
            "release-charged",
            f"Search {search.search!r} cannot be charged for a release: the search is {search.status}, and its limit "
            f"is {search.filter.summary}. A release is charged once, when its search is opened. Start a new "
            "search.",
        )
    admit(state, 0.0, 0.0, units=0, user=search.user, what=f"search {search.search!r}")
    return replace(search, begun=True, status="closed")


def _stored(search: SearchState, data: Mapping[str, Any]) -> SearchState:
    digest = _checksum(data["sha256"])
    if not _is_release(search) or not search.begun or search.stored is not None:
        raise LedgerError(
            "release-stored",
            f"Search {search.search!r} cannot store a release: the search is not for a release, was not charged, or "
            "has a stored release already. A release is drawn once. Charge a new release.",
        )
    return replace(search, stored=digest)


def _checksum(digest: object) -> str:
    if not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
        raise ValueError("a checksum must be 64 hexadecimal digits")
    return digest


def _is_release(search: SearchState) -> bool:
    return search.charged_whole and not search.hides_runs


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
            f"{search.search!r} cannot {what}, because this entry only counts the claim of search "
            f"{search.mirror_of!r} on one block. Use search {search.mirror_of!r}.",
        )
    if search.charged_whole:
        raise LedgerError(
            "sealed-charged-whole",
            f"Search {search.search!r} cannot {what}, because sealed searches and releases are charged as a whole.",
        )
    if search.status != "open":
        raise LedgerError(
            "search-not-open",
            f"Search {search.search!r} is {search.status} and cannot {what}. Resume the search first.",
        )
    name, trial = data["pool"], data["trial"]
    if name not in search.pools:
        raise LedgerError(
            "pool-unknown",
            f"Search {search.search!r} has no budget named {name!r}. Its budgets are: {', '.join(search.pools)}. A "
            "search with protected scores needs a budget for its validation records from its start.",
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
        f"all trials is {pool.filter.limit(unit, mechanism)}; {pool.leased_steps} {unit} are charged and "
        f"{pool.reserved_steps} more are reserved. Plan fewer or shorter trials, or raise privacy.epsilon in a new "
        "search."
    )
