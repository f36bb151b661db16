"""The ledger: the durable record of all caps and charges of a data set.

A trial reserves steps before it starts, leases (durably charges) steps before it takes them, and is settled at its end.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Self

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import Filter
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import check_pools, order_filter, require_name, require_search, units_at
from tuner.privacy.ledger.chain import Chain
from tuner.privacy.ledger.entries import Entry, canonical
from tuner.privacy.ledger.state import TRAINING, VALIDATION, DatasetCap, DatasetState, PoolState, SearchState
from tuner.privacy.ledger.stores import Store, open_store, store_exists

__all__ = ["Ledger"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Ledger:
    """Ledger of the caps and charges of all searches on all of its data sets.

    Formal guarantees:
        The filter of a search admits, at all times, the steps that its trials have leased and reserved. This holds
        after any crash and with any number of writers, because each admission reads and writes in one immediate
        transaction. The filter's claim is at most the search's (ε, δ); this is checked when the search is opened.
        Searches on a data set may be chosen adaptively and run concurrently, and together stay within its cap
        (`admission.admit`); searches of a user stay within the user's share. A failed write charges nothing, or too
        much if only the confirmation of its commit was lost.

    Use `Ledger.open`. Safe across threads and processes; each process opens the ledger by its URL.
    """

    def __init__(self, store: Store) -> None:
        self._chain = Chain(store)

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a ledger and verify all of it.

        Args:
            url: `sqlite:///runs/ledger.db`, or `postgresql://user@host/database`.
            create: whether to create a ledger if there is none. Workers pass False, because a new ledger would forget
                all charges. Readers pass False, because they may lack the right to write.

        Raises:
            InputError: the URL is not the URL of a ledger.
            LedgerCorruptError: a chain is broken or the file is unreadable.
            LedgerError: the ledger does not exist (with `create=False`) or cannot be opened.
        """
        return cls(open_store(url, create=create))

    @staticmethod
    def exists(url: str) -> bool:
        """Return whether a ledger exists at `url`, without creating one."""
        return store_exists(url)

    @property
    def url(self) -> str:
        """Absolute URL, with which another process opens the ledger."""
        return self._chain.store.url

    @property
    def id(self) -> str:
        """Random id of the ledger, set when it was created."""
        return self._chain.store.ledger_id

    def user(self) -> str:
        """Return the current user: the account of the operating system, or the role of the database.

        A database authenticates its roles. In a file, anyone who may write can write any name.
        """
        return self._chain.store.user()

    # Written by owners and sweeps.

    def set_cap(self, dataset: str, epsilon: float, delta: float, *, order: float | None = None) -> None:
        """Set the (ε, δ) that all searches on `dataset` may spend together.

        The cap may be below what is committed. Then no search or step is admitted, but reserved steps may be taken.
        With an `order`, a Rényi filter of that order may admit a search if the sum does not; each of the two rules has
        half of δ. Raise `BudgetRefusedError` if the order would change while a search counts.
        """
        require_name(dataset, "dataset")
        require_epsilon(epsilon)
        require_delta(delta)
        body: dict[str, Any] = {"epsilon": float(epsilon), "delta": float(delta)}
        if order is not None:
            body |= {"order": float(order), "units": order_filter(order, epsilon, delta)}
        with self._chain.write() as write:
            write(dataset, "cap", body)

    def grant(self, dataset: str, user: str, epsilon: float, delta: float) -> None:
        """Set one user's share of the data set's cap. After the first share, users without one cannot start a search.

        The share may be below what the user's searches have committed. Then the user can start nothing more. Raise
        `BudgetRefusedError` if there is no cap, or if the shares together would exceed it.
        """
        require_name(dataset, "dataset")
        require_name(user, "user")
        require_epsilon(epsilon)
        require_delta(delta)
        with self._chain.write() as write:
            write(dataset, "grant", {"user": user, "epsilon": float(epsilon), "delta": float(delta)})

    def revoke(self, dataset: str, user: str) -> None:
        """Set a user's share to (0, 0); raise `LedgerError` if the user has no share."""
        with self._chain.write() as write:
            state = write.states.get(dataset)
            if state is None or user not in state.grants:
                raise LedgerError(
                    "share-not-found", f"User {user!r} has no share of {dataset!r}, so none can be revoked."
                )
            write(dataset, "grant", {"user": user, "epsilon": 0.0, "delta": 0.0})

    def open_search(
        self,
        dataset: str,
        search: str,
        *,
        filter: Filter,
        epsilon: float,
        delta: float,
        validation: Filter | None = None,
        validation_claim: tuple[float, float] | None = None,
        unit: str = "record",
        user: str | None = None,
        fingerprint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Open a search. From now on its whole (ε, δ) counts against the data set.

        Args:
            dataset: name of the data set.
            search: name, unique in the ledger.
            filter: limit for the training records; its claim must fit (`epsilon`, `delta`).
            epsilon: ε of the claim, for each training record and each protected validation record.
            delta: δ of the claim.
            validation: limit for the validation records; one step is one released score. None if the guarantee does
                not cover the scores.
            validation_claim: (ε, δ) of `validation`, each at most the search's, which is the default.
            unit: `record` or `user`.
            user: user whose share the search takes; `user()` by default.
            fingerprint: checksum of the data; the same data under another name is refused.
            details: plain JSON notes.

        Raises:
            BudgetRefusedError: the search does not fit the data set's cap or the user's share, a filter does not fit
                its claim, the data set's searches protect another unit, or the data are known under another name.
            LedgerError: the name is taken.
        """
        require_name(dataset, "dataset")
        require_name(search, "search")
        require_epsilon(epsilon)
        require_delta(delta)
        user = self.user() if user is None else user
        require_name(user, "user")
        if fingerprint is not None:
            require_name(fingerprint, "fingerprint")
        check_pools(filter, validation)
        _require_fit(filter, epsilon, delta, "the search's")
        claim = (epsilon, delta) if validation_claim is None else validation_claim
        if validation is not None:
            require_epsilon(claim[0], name="the epsilon of validation")
            require_delta(claim[1], name="the delta of validation")
            _require_fit(validation, *claim, "the validation's")
        body = {
            "search": search,
            "filter": filter.body(),
            "validation": None if validation is None else {
                "filter": validation.body(), "epsilon": float(claim[0]), "delta": float(claim[1])
            },
            "unit": unit,
            "user": user,
            "adjacency": "add_or_remove_one",
            "accounting": "selection" if filter.charged_whole else "composition",
            "epsilon": float(epsilon),
            "delta": float(delta),
            "fingerprint": fingerprint,
            "details": dict(details or {}),
            # Cards show the hash of the chain. Without a nonce the hash would reveal the checksum of private records.
            "nonce": secrets.token_hex(16),
        }  # fmt: skip
        canonical(body)
        with self._chain.write() as write:
            _require_same_users(write.states.get(dataset), fingerprint, (details or {}).get("users"), search)
            write(dataset, "open_search", {**body, "units": units_at(write.order(dataset), filter, validation)})

    def begin_sealed(self, search: str) -> None:
        """Charge a sealed search as a whole, before its first run, and close it to further entries.

        Raises:
            BudgetRefusedError: the owner has lowered the cap or the share below what is committed.
            LedgerError: the search is not sealed, not open, or has begun already.
        """
        with self._chain.write() as write:
            write(require_search(write.states, search).dataset, "begin", {"search": search})

    def reserve(
        self, search: str, trial: str, steps: int, *, mechanism: SampledGaussian | None = None, pool: str = TRAINING
    ) -> None:
        """Reserve `steps` (at least 1) more steps of one pool for a trial; see `reserve_together`."""
        require_steps(steps, minimum=1)
        self.reserve_together(search, trial, {pool: steps}, mechanism=mechanism)

    def reserve_together(
        self, search: str, trial: str, steps: Mapping[str, int], *, mechanism: SampledGaussian | None = None
    ) -> None:
        """Reserve steps of one or both pools for a new or running trial, all or nothing.

        Args:
            search: name of an open search.
            trial: id of the trial.
            steps: number of steps by pool.
            mechanism: mechanism of all training steps of the trial; None for the trial's own or the only one.

        Raises:
            BudgetRefusedError: the filter does not admit the steps, or the owner has lowered the data set's cap or the
                user's share below what is committed.
            InputError: the mechanism must be named.
            LedgerError: the search is closed or sealed, or the trial is settled or has another mechanism.
        """
        require_name(trial, "trial")
        for pool, each in steps.items():
            require_steps(each, minimum=0, name="releases" if pool == VALIDATION else "steps")
        with self._chain.write() as write:
            for pool, each in steps.items():
                if not each:
                    continue
                state = require_search(write.states, search)
                body: dict[str, Any] = {"search": search, "trial": trial, "steps": each, "pool": pool}
                if pool in state.pools and not state.charged_whole:
                    body |= _priced(state.pools[pool], trial, mechanism if pool == TRAINING else None)
                write(state.dataset, "reserve", body)

    def lease(self, search: str, trial: str, steps: int, mechanism: SampledGaussian, *, pool: str = TRAINING) -> None:
        """Charge `steps` (at least 1) steps of a pool durably. After this returns, the trial may take them.

        Raises:
            BudgetRefusedError: the trial has not reserved that many steps.
            LedgerError: the trial reserved another mechanism or is settled, the search is closed or sealed, or the
                ledger cannot be written.
        """
        require_steps(steps, minimum=1)
        with self._chain.write() as write:
            dataset = require_search(write.states, search).dataset
            body = {"search": search, "trial": trial, "steps": steps, "pool": pool, "mechanism": mechanism.body()}
            write(dataset, "lease", body)

    def settle(self, search: str, trial: str, steps_taken: int) -> None:
        """End a trial of an open or closed search, and free its steps of all pools that were never leased.

        Settling again with the same number of training steps does nothing, so it can be repeated after a crash.

        Raises:
            LedgerError: the trial took more steps than it leased, is unknown, or was settled with another number.
        """
        require_steps(steps_taken, minimum=0, name="steps_taken")
        with self._chain.write() as write:
            state = require_search(write.states, search)
            before = [pool.trials[trial] for pool in state.pools.values() if trial in pool.trials]
            if not any(each.settled and each.taken == steps_taken for each in before):
                write(state.dataset, "settle", {"search": search, "trial": trial, "steps_taken": steps_taken})

    def close_search(self, search: str) -> None:
        """Close a search to further charges. A search that charged nothing then counts 0 against the data set."""
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open":
                write(state.dataset, "close_search", {"search": search})

    def reopen_search(self, search: str) -> None:
        """Reopen a closed search under its old claim. Do nothing for an open search or a sealed one that has begun.

        Raise `BudgetRefusedError` if the search counted 0 and no longer fits the data set's cap or its user's share.
        """
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open" or state.begun:
                return
            validation = state.validation.filter if state.validation else None
            units = units_at(write.order(state.dataset), state.filter, validation)
            write(state.dataset, "reopen_search", {"search": search, "units": units})

    def record_card(self, search: str, card_sha256: str, kind: str) -> None:
        """Record that a privacy card with this hash was issued for `search`."""
        require_name(kind, "kind")
        if not (isinstance(card_sha256, str) and _SHA256.fullmatch(card_sha256)):
            raise InputError(
                "hash-invalid",
                f"`card_sha256` must be 64 hexadecimal digits (got {card_sha256!r}). Use card_hash(card).",
            )
        with self._chain.write() as write:
            state = require_search(write.states, search)
            write(state.dataset, "card", {"search": search, "card_sha256": card_sha256, "card_kind": kind})

    # Read by anyone.

    def cap(self, dataset: str) -> DatasetCap | None:
        """Return the data set's latest cap, or None."""
        return self.dataset_state(dataset).cap

    def search_state(self, search: str) -> SearchState:
        """Return the current state of a search; raise `LedgerError` if there is no search of that name."""
        return require_search(self._chain.read(), search)

    def dataset_state(self, dataset: str) -> DatasetState:
        """Return the current state of a data set; an empty state if it has no entry."""
        return self._chain.read().get(dataset, DatasetState(dataset=dataset))

    def datasets(self) -> tuple[str, ...]:
        """Return the sorted names of all data sets with an entry."""
        return tuple(sorted(self._chain.read()))

    def state_at(self, dataset: str, seq: int) -> DatasetState:
        """Return the state of a data set right after its entry `seq`, for example when a card was issued."""
        before = [state for entry, state in self.entries(dataset) if entry.seq <= seq]
        return before[-1] if before else DatasetState(dataset=dataset)

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Return all entries of a data set, read and verified again, each with the state after it."""
        return self._chain.entries(dataset)

    def verify_chain(self) -> None:
        """Read the whole ledger again, and raise `LedgerCorruptError` if it is damaged or contradicts itself.

        This checks pages, hashes, heads, rules, prices and claims.
        """
        self._chain.verify()


def _require_fit(filter: Filter, epsilon: float, delta: float, whose: str) -> None:
    needed = filter.claim(delta)
    if not needed <= epsilon:
        raise BudgetRefusedError(
            "filter-exceeds-claim",
            f"The filter ({filter.summary}) costs ε = {needed!r} at δ = {delta!r}, above {whose} own ε of {epsilon!r}. "
            "Allow fewer steps, or raise epsilon.",
        )


def _require_same_users(state: DatasetState | None, fingerprint: str | None, users: object, search: str) -> None:
    """Refuse a search that divides the same records among other users, because no claim would cover both divisions."""
    for other in state.searches if state and fingerprint is not None else ():
        known = other.details.get("users")
        if other.fingerprint == fingerprint and None not in {known, users} and known != users:
            raise BudgetRefusedError(
                "users-differ",
                f"Search {search!r} divides the records of {other.dataset!r} among other users than {other.search!r}, "
                "so no claim covers both. Use the same user column.",
            )


def _priced(pool: PoolState, trial: str, mechanism: SampledGaussian | None) -> dict[str, Any]:
    """Return a reservation's mechanism and price. The entry states both, so that all machines compute equal totals."""
    before = pool.trials.get(trial)
    if mechanism is None:
        mechanism = before.mechanism if before else pool.filter.only_mechanism
    if mechanism is None:
        raise InputError(
            "mechanism-not-named",
            f"Trial {trial!r} names no mechanism, but its search allows several. Give mechanism=SampledGaussian(...).",
        )
    price = before.price if before and before.mechanism == mechanism else pool.filter.price(mechanism)
    return {"mechanism": mechanism.body(), **({"price": price} if price else {})}
