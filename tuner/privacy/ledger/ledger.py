"""Privacy ledger of a data set: reserve, lease and settle steps. Each step is charged durably before it is taken."""

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
    """Ledger of the caps and charges of all searches, for each of its data sets.

    Formal guarantees:
        The steps that a search's trials have leased and reserved are at all times admitted by its filter. This holds
        after any crash and with any number of writers, because each admission reads and writes in one immediate
        transaction. The filter's claim is at most the search's (ε, δ), checked when the search is opened. Searches of
        a data set, chosen adaptively and running at once, together stay within its cap (`admission.admit`), and
        those of a user within the user's share. A failed write charges nothing, or too much if only the confirmation
        of its commit was lost.

    Use `Ledger.open`. Safe across threads and processes; each process opens it by URL.
    """

    def __init__(self, store: Store) -> None:
        self._chain = Chain(store)

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a ledger and verify all of it.

        Args:
            url: `sqlite:///runs/ledger.db`, or `postgresql://user@host/database`.
            create: create the ledger if there is none. Workers pass False: they must never start an empty ledger.
                Readers pass False too: read-only access is then enough, if SQLite can read the file.

        Raises:
            InputError: the URL is of no ledger.
            LedgerCorruptError: a chain is broken or the file unreadable.
            LedgerError: the ledger is absent (with `create=False`) or cannot be opened.
        """
        return cls(open_store(url, create=create))

    @staticmethod
    def exists(url: str) -> bool:
        """Return whether a ledger exists at `url`, without creating one.

        Raises:
            InputError: the URL is of no ledger.
        """
        return store_exists(url)

    @property
    def url(self) -> str:
        """Absolute URL, with which another process opens the ledger."""
        return self._chain.store.url

    @property
    def id(self) -> str:
        """Random, given when the ledger was made."""
        return self._chain.store.ledger_id

    def user(self) -> str:
        """Who is charging here: the account of the operating system, or the role of the database.

        A database authenticates its roles. A file does not: whoever may write it may write any name.
        """
        return self._chain.store.user()

    # What owners and sweeps write.

    def set_cap(self, dataset: str, epsilon: float, delta: float, *, order: float | None = None) -> None:
        """Set the cap on what all searches on `dataset` may spend together; earlier caps stay in the history.

        The cap may be below what is committed: then nothing more is admitted, but steps already reserved may be taken.

        Args:
            dataset: owner of the budget.
            epsilon: over all searches.
            delta: over all searches.
            order: of a Rényi filter that may admit a search where the sum does not; each rule then has half of δ.

        Raises:
            BudgetRefusedError: another order than now, while a search counts.
            InputError: a value is out of range.
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
        """Set one user's share of the data set's cap. Once any share is set, users without one cannot start a search.

        It may be below what the user's searches have committed: then they start nothing more.

        Raises:
            BudgetRefusedError: there is no cap, or the shares together would pass it.
        """
        require_name(dataset, "dataset")
        require_name(user, "user")
        require_epsilon(epsilon)
        require_delta(delta)
        with self._chain.write() as write:
            write(dataset, "grant", {"user": user, "epsilon": float(epsilon), "delta": float(delta)})

    def revoke(self, dataset: str, user: str) -> None:
        """Take a user's share away: it becomes (0, 0). A data set that was divided once stays divided.

        Raises:
            LedgerError: the user has no share.
        """
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
        """Open a search with its cap; from here on its whole (ε, δ) counts against the data set.

        Args:
            dataset: owner of the budget.
            search: name, unique in the ledger.
            filter: what may be done to the records that train; its claim must fit (`epsilon`, `delta`).
            epsilon: the claim of the search, for a record that trains and for one that validates.
            delta: the claim of the search.
            validation: what may be done to the records that validate; one step is one released score. None leaves
                them outside the guarantee.
            validation_claim: (ε, δ) of `validation`, each at most the search's; those of the search by default.
            unit: `record` or `user`.
            user: whose share it takes; `user()` by default.
            fingerprint: of the data; the same data under another name is refused.
            details: plain JSON to keep with it.

        Raises:
            BudgetRefusedError: it does not fit the data set's cap or the user's share, a filter does not fit its
                claim, the data set's searches protect another unit, or its data are known under another name.
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
            # A card shows the chain's hash; without this it would be a commitment to the private records' checksum.
            "nonce": secrets.token_hex(16),
        }  # fmt: skip
        canonical(body)
        with self._chain.write() as write:
            _require_same_users(write.states.get(dataset), fingerprint, (details or {}).get("users"), search)
            write(dataset, "open_search", {**body, "units": units_at(write.order(dataset), filter, validation)})

    def begin_sealed(self, search: str) -> None:
        """Charge a sealed search as a whole, before its first run, and close it: nothing more is entered of it.

        A search is begun only once: an interrupted one is resumed.

        Raises:
            BudgetRefusedError: the owner has lowered the cap or the share below what is committed.
            LedgerError: it is not sealed, not open, or begun already.
        """
        with self._chain.write() as write:
            write(require_search(write.states, search).dataset, "begin", {"search": search})

    def reserve(
        self,
        search: str,
        trial: str,
        steps: int,
        *,
        mechanism: SampledGaussian | None = None,
        pool: str = TRAINING,
    ) -> None:
        """Promise `steps` more steps to a trial, if they fit; nothing may start without it.

        Args:
            search: an open one.
            trial: of it, new or running.
            steps: at least 1.
            mechanism: of the steps, the same for the trial's life; None for the trial's own or the only one.
            pool: `training`, or `validation`, where a step is one released score.

        Raises:
            BudgetRefusedError: the filter does not admit leased + outstanding + asked, or the owner has lowered the
                data set's cap or the user's share below what is committed.
            InputError: the mechanism must be named.
            LedgerError: the search is closed or sealed, or the trial settled or of another mechanism.
        """
        require_name(trial, "trial")
        require_steps(steps, minimum=1)
        self._reserve(search, trial, {pool: steps}, mechanism if pool == TRAINING else None)

    def reserve_together(
        self, search: str, trial: str, steps: Mapping[str, int], *, mechanism: SampledGaussian | None = None
    ) -> None:
        """Promise training steps and released scores to a trial, all or nothing.

        Args:
            search: an open one.
            trial: of it, new or running.
            steps: by pool; 0 asks for nothing.
            mechanism: of the training steps.

        Raises:
            BudgetRefusedError, InputError, LedgerError: as `reserve`; nothing was promised of any pool.
        """
        require_name(trial, "trial")
        for pool, each in steps.items():
            require_steps(each, minimum=0, name="releases" if pool == VALIDATION else "steps")
        self._reserve(search, trial, {pool: each for pool, each in steps.items() if each}, mechanism)

    def lease(self, search: str, trial: str, steps: int, mechanism: SampledGaussian, *, pool: str = TRAINING) -> None:
        """Charge `steps` steps, durably. When this returns the trial may take them; they are never given back.

        Args:
            search: an open one.
            trial: of it, running.
            steps: at least 1.
            mechanism: that the trial is about to use.
            pool: `training`, or `validation`, where a step is one released score.

        Raises:
            BudgetRefusedError: the trial has not that many reserved.
            LedgerError: the trial reserved another mechanism or is settled, the search is closed or sealed, or the
                ledger cannot be written.
        """
        require_steps(steps, minimum=1)
        with self._chain.write() as write:
            dataset = require_search(write.states, search).dataset
            body = {"search": search, "trial": trial, "steps": steps, "pool": pool, "mechanism": mechanism.body()}
            write(dataset, "lease", body)

    def settle(self, search: str, trial: str, steps_taken: int) -> None:
        """End a trial: what it reserved of any pool and never leased returns to the budget. What is leased stays.

        Settling again with the same number does nothing, so that a crash after it can be repeated.

        Args:
            search: open or closed.
            trial: that has reserved.
            steps_taken: training steps.

        Raises:
            LedgerError: more steps taken than leased, an unknown trial, or settled before with another number.
        """
        require_steps(steps_taken, minimum=0, name="steps_taken")
        with self._chain.write() as write:
            state = require_search(write.states, search)
            before = [pool.trials[trial] for pool in state.pools.values() if trial in pool.trials]
            if not any(each.settled and each.taken == steps_taken for each in before):
                write(state.dataset, "settle", {"search": search, "trial": trial, "steps_taken": steps_taken})

    def close_search(self, search: str) -> None:
        """Close a search to further charges. One that charged nothing then counts 0 against the data set."""
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open":
                write(state.dataset, "close_search", {"search": search})

    def reopen_search(self, search: str) -> None:
        """Reopen a closed search under its old cap; leave an open one unchanged.

        Raises:
            BudgetRefusedError: it counted 0 and its cap no longer fits the data set's or its user's share.
        """
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open" or state.begun:  # a sealed one is closed from its beginning
                return
            validation = state.validation.filter if state.validation else None
            units = units_at(write.order(state.dataset), state.filter, validation)
            write(state.dataset, "reopen_search", {"search": search, "units": units})

    def record_card(self, search: str, card_sha256: str, kind: str) -> None:
        """Note that a privacy card with this hash was issued for `search`."""
        require_name(kind, "kind")
        if not (isinstance(card_sha256, str) and _SHA256.fullmatch(card_sha256)):
            raise InputError(
                "hash-invalid",
                f"`card_sha256` must be 64 hexadecimal digits (got {card_sha256!r}). Use card_hash(card).",
            )
        with self._chain.write() as write:
            state = require_search(write.states, search)
            write(state.dataset, "card", {"search": search, "card_sha256": card_sha256, "card_kind": kind})

    # What anyone may read.

    def cap(self, dataset: str) -> DatasetCap | None:
        """The owner's latest cap, or None."""
        return self.dataset_state(dataset).cap

    def search_state(self, search: str) -> SearchState:
        """The search as it stands now.

        Raises:
            LedgerError: there is none of that name.
        """
        return require_search(self._chain.read(), search)

    def dataset_state(self, dataset: str) -> DatasetState:
        """The data set as it stands now; one that was never used is empty."""
        return self._chain.read().get(dataset, DatasetState(dataset=dataset))

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets with an entry, sorted."""
        return tuple(sorted(self._chain.read()))

    def state_at(self, dataset: str, seq: int) -> DatasetState:
        """Return the state of the data set right after its entry `seq`, for example when a card was issued."""
        before = [state for entry, state in self.entries(dataset) if entry.seq <= seq]
        return before[-1] if before else DatasetState(dataset=dataset)

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Every entry of a data set, read again and checked, with the state right after it."""
        return self._chain.entries(dataset)

    def verify_chain(self) -> None:
        """Read everything again from the first byte: pages, hashes, heads, prices, and that each entry was allowed.

        Raises:
            LedgerCorruptError: something does not follow; the message names the entry.
        """
        self._chain.verify()

    def _reserve(self, search: str, trial: str, steps: Mapping[str, int], mechanism: SampledGaussian | None) -> None:
        with self._chain.write() as write:
            for pool, each in steps.items():
                state = require_search(write.states, search)
                body: dict[str, Any] = {"search": search, "trial": trial, "steps": each, "pool": pool}
                if pool in state.pools and not state.charged_whole:
                    body |= _priced(state.pools[pool], trial, mechanism if pool == TRAINING else None)
                write(state.dataset, "reserve", body)


def _require_fit(filter: Filter, epsilon: float, delta: float, whose: str) -> None:
    needed = filter.claim(delta)
    if not needed <= epsilon:
        raise BudgetRefusedError(
            "filter-exceeds-claim",
            f"The filter ({filter.summary}) costs ε = {needed!r} at δ = {delta!r}, above {whose} own ε of {epsilon!r}. "
            "Allow less, or raise epsilon.",
        )


def _require_same_users(state: DatasetState | None, fingerprint: str | None, users: object, search: str) -> None:
    """Refuse to divide the same records among different users than another search does: no total covers both."""
    for other in state.searches if state and fingerprint is not None else ():
        known = other.details.get("users")
        if other.fingerprint == fingerprint and None not in {known, users} and known != users:
            raise BudgetRefusedError(
                "users-differ",
                f"{search!r} divides the records of {other.dataset!r} among other users than {other.search!r}, so no "
                "claim covers both. Use the same user column.",
            )


def _priced(pool: PoolState, trial: str, mechanism: SampledGaussian | None) -> dict[str, Any]:
    """Return a reservation's mechanism and price per step, stored so that all machines compute the same totals."""
    before = pool.trials.get(trial)
    if mechanism is None:
        mechanism = before.mechanism if before else pool.filter.only_mechanism
    if mechanism is None:
        raise InputError(
            "mechanism-not-named",
            f"Trial {trial!r} names no mechanism, and its search allows several. Give mechanism=SampledGaussian(...).",
        )
    price = before.price if before and before.mechanism == mechanism else pool.filter.price(mechanism)
    return {"mechanism": mechanism.body(), **({"price": price} if price else {})}
