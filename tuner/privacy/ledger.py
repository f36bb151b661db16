"""The ledger of a data set's privacy: reserve, lease, settle. A step is charged, durably, before it is taken."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Connection

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.admission import admit, find, known, require_name, running, unsettled
from tuner.privacy.entries import (
    Cap,
    DatasetState,
    Entry,
    SearchState,
    TrialState,
    apply,
    canonical,
    entry_hash,
)
from tuner.privacy.events import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.store import Store, path_of

__all__ = ["Cap", "DatasetState", "Ledger", "SearchState", "TrialState"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Ledger:
    """What was allowed and charged, over all searches, on every data set of one ledger file.

    Formal guarantees:
        Leased steps plus outstanding reservations of a search never exceed its `step_cap`, whatever dies, whenever, and
        however many processes write: each admission reads and writes in one immediate transaction. `step_cap` steps
        of the search's mechanism fit its (ε, δ), checked when it is opened. The (ε, δ) of the searches of a data set,
        chosen adaptively and running concurrently, sum to at most its cap (Rogers et al. 2016; Vadhan & Zhang 2023).
        A failed write charges nothing or, when only its answer was lost, too much.

    Use `Ledger.open`. Safe across threads and processes; each process opens it by URL.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._states: dict[str, DatasetState] = {}
        self._last = 0
        with self._lock, store.reading() as connection:
            self._states, self._last = self._folded(connection)

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a ledger and verify all of it.

        Args:
            url: `sqlite:///runs/ledger.db`.
            create: make folder and file when there is none. A worker says False: it must never start afresh. So does
                who only looks; a file or folder that cannot be written is then enough, if SQLite can read it.

        Raises:
            InputError: the URL is not of an SQLite file.
            LedgerCorruptError: a chain is broken or the file unreadable.
            LedgerError: the file is absent (with `create=False`) or cannot be opened.
        """
        return cls(Store(url, create=create))

    @staticmethod
    def exists(url: str) -> bool:
        """Whether there is a ledger file at `url`; looking does not make one.

        Raises:
            InputError: the URL is not of an SQLite file.
        """
        return path_of(url).exists()

    @property
    def url(self) -> str:
        """The URL with its path made absolute: what another process opens."""
        return self._store.url

    # What owners and sweeps write.

    def set_cap(self, dataset: str, epsilon: float, delta: float) -> None:
        """Set what all searches on `dataset` together may spend; the history of caps stays.

        It may be below what is committed: then nothing more starts. What runs on a reservation finishes.
        """
        require_name(dataset, "dataset")
        require_epsilon(epsilon)
        require_delta(delta)
        with self._write() as write:
            write(dataset, "cap", {"epsilon": float(epsilon), "delta": float(delta)})

    def open_search(
        self,
        dataset: str,
        search: str,
        *,
        mechanism: SampledGaussian,
        epsilon: float,
        delta: float,
        step_cap: int,
        fingerprint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Open a search with its cap; from here on its whole (ε, δ) counts against the data set.

        Args:
            dataset: owner of the budget.
            search: name, unique in the ledger.
            mechanism: one step, the same in all trials.
            epsilon: the claim of the search.
            delta: the claim of the search.
            step_cap: total steps of all trials; they must fit (`epsilon`, `delta`).
            fingerprint: of the data; the same data under another name is refused.
            details: plain JSON to keep with it.

        Raises:
            BudgetRefusedError: it does not fit the data set's cap, its steps do not fit its own, or its data are known
                under another name.
            LedgerError: the name is taken.
        """
        from tuner.privacy.accounting import epsilon as epsilon_of

        require_name(dataset, "dataset")
        require_name(search, "search")
        require_epsilon(epsilon)
        require_delta(delta)
        require_steps(step_cap, minimum=1, name="step_cap")
        if fingerprint is not None:
            require_name(fingerprint, "fingerprint")
        needed = epsilon_of(mechanism, step_cap, delta)
        if not needed <= epsilon:
            raise BudgetRefusedError(
                f"step_cap must fit the search's own cap: {step_cap} steps cost epsilon {needed!r} at delta {delta!r}, "
                f"the cap is {epsilon!r}. Use max_steps() for the cap on steps."
            )
        body = {
            "search": search,
            "sample_rate": mechanism.sample_rate,
            "noise_multiplier": mechanism.noise_multiplier,
            "adjacency": "add_or_remove_one",
            "accounting": "composition",
            "epsilon": float(epsilon),
            "delta": float(delta),
            "step_cap": step_cap,
            "fingerprint": fingerprint,
            "details": dict(details or {}),
            # A card shows the chain's hash; without this it would be a commitment to the private records' checksum.
            "nonce": secrets.token_hex(16),
        }
        canonical(body)
        with self._write() as write:
            if (other := find(write.states, search)) is not None:
                raise LedgerError(
                    f"a search must have a name of its own, {search!r} exists on data set {other.dataset!r}. "
                    "Choose another name, or resume it."
                )
            for state in write.states.values():
                same = fingerprint and any(s.fingerprint == fingerprint for s in state.searches)
                if same and state.dataset != dataset:
                    raise BudgetRefusedError(
                        f"one data set must have one budget: these records are known as {state.dataset!r}, "
                        f"not {dataset!r}. Name the data set {state.dataset!r}."
                    )
            admit(write.states.get(dataset), epsilon, delta, what=f"search {search!r}")
            write(dataset, "open_search", body)

    def reserve(self, search: str, trial: str, steps: int) -> None:
        """Promise `steps` more steps to a trial, if they fit; nothing may start without it.

        Raises:
            BudgetRefusedError: leased + outstanding + asked would pass the cap on steps, or the owner has lowered the
                data set's cap below what is committed.
            LedgerError: the search is closed or the trial settled.
        """
        require_name(trial, "trial")
        require_steps(steps, minimum=1)
        with self._write() as write:
            state = running(write.states, search, "reserve steps")
            unsettled(state, trial, "reserve steps")
            admit(write.states[state.dataset], 0.0, 0.0, what=f"trial {trial!r}")
            if steps > state.left_steps:
                raise BudgetRefusedError(
                    f"the steps of all trials must fit the search's cap of {state.step_cap}: "
                    f"{state.leased_steps} are leased, {state.reserved_steps} reserved, {state.left_steps} left, "
                    f"{steps} asked for trial {trial!r}. "
                    "The budget is reached; raise privacy.epsilon in a new search, or plan fewer or shorter trials."
                )
            write(state.dataset, "reserve", {"search": search, "trial": trial, "steps": steps})

    def lease(self, search: str, trial: str, steps: int) -> None:
        """Charge `steps` steps, durably. When this returns the trial may take them; they are never given back.

        Raises:
            BudgetRefusedError: the trial has not that many reserved.
            LedgerError: the search is closed, the trial unknown or settled, or the ledger cannot be written.
        """
        require_steps(steps, minimum=1)
        with self._write() as write:
            state = running(write.states, search, "lease steps")
            outstanding = unsettled(state, trial, "lease steps").outstanding
            if steps > outstanding:
                raise BudgetRefusedError(
                    f"a trial may lease what it reserved: {steps} steps asked for trial {trial!r} of search "
                    f"{search!r}, {outstanding} outstanding. Reserve before leasing; repeated steps are reserved again."
                )
            write(state.dataset, "lease", {"search": search, "trial": trial, "steps": steps})

    def settle(self, search: str, trial: str, steps_taken: int) -> None:
        """End a trial: what it reserved and never leased returns to the budget. Leased steps stay charged.

        Settling again with the same number does nothing, so that a crash after it can be repeated.

        Raises:
            LedgerError: more steps taken than leased, an unknown trial, or settled before with another number.
        """
        require_steps(steps_taken, minimum=0, name="steps_taken")
        with self._write() as write:
            state = known(write.states, search)
            before = state.trials.get(trial)
            if before is None:
                raise LedgerError(f"only a trial that reserved can be settled, {trial!r} is unknown in {search!r}.")
            if before.settled:
                if before.taken == steps_taken:
                    return
                raise LedgerError(
                    f"a trial is settled once: {trial!r} had {before.taken} steps taken, now {steps_taken}."
                )
            if steps_taken > before.leased:
                raise LedgerError(
                    f"steps must be leased before they are taken: trial {trial!r} of search {search!r} took "
                    f"{steps_taken} and leased {before.leased}. "
                    "The guarantee of this search does not hold; report this as a bug."
                )
            write(state.dataset, "settle", {"search": search, "trial": trial, "steps_taken": steps_taken})

    def close_search(self, search: str) -> None:
        """No more reservations or leases. A search closed before its first lease counts 0 against the data set."""
        with self._write() as write:
            state = known(write.states, search)
            if state.status == "open":
                write(state.dataset, "close_search", {"search": search})

    def reopen_search(self, search: str) -> None:
        """Let a closed search go on under its old cap; an open one is left as it is.

        Raises:
            BudgetRefusedError: it counted 0 and its cap no longer fits the data set's.
        """
        with self._write() as write:
            state = known(write.states, search)
            if state.status == "open":
                return
            if not state.counts:
                admit(write.states[state.dataset], state.epsilon, state.delta, what=f"search {search!r}")
            write(state.dataset, "reopen_search", {"search": search})

    def record_card(self, search: str, card_sha256: str, kind: str) -> None:
        """Note that a privacy card with this hash was issued for `search`."""
        require_name(kind, "kind")
        if not (isinstance(card_sha256, str) and _SHA256.fullmatch(card_sha256)):
            raise InputError(f"card_sha256 must be 64 hexadecimal digits, got {card_sha256!r}. Use card_hash(card).")
        with self._write() as write:
            state = known(write.states, search)
            write(state.dataset, "card", {"search": search, "card_sha256": card_sha256, "card_kind": kind})

    # What anyone may read.

    def cap(self, dataset: str) -> Cap | None:
        """The owner's latest cap, or None."""
        return self.dataset_state(dataset).cap

    def cap_history(self, dataset: str) -> tuple[Cap, ...]:
        """Every cap that the owner ever set, the first one first; the last one holds."""
        return tuple(state.cap for entry, state in self._history(dataset) if entry.kind == "cap" and state.cap)

    def search_state(self, search: str) -> SearchState:
        """The search as it stands now.

        Raises:
            LedgerError: there is none of that name.
        """
        return known(self._read(), search)

    def dataset_state(self, dataset: str) -> DatasetState:
        """The data set as it stands now; one that was never used is empty."""
        return self._read().get(dataset, DatasetState(dataset=dataset))

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets with an entry, sorted."""
        return tuple(sorted(self._read()))

    def head(self, dataset: str) -> tuple[int, str]:
        """Number and hash of the last entry of `dataset`; (0, 64 zeros) when there is none."""
        state = self.dataset_state(dataset)
        return state.seq, state.head

    def state_at(self, dataset: str, seq: int) -> DatasetState:
        """The data set as it stood right after its entry `seq`: what a card was issued on."""
        before = [state for entry, state in self._history(dataset) if entry.seq <= seq]
        return before[-1] if before else DatasetState(dataset=dataset)

    def verify_chain(self) -> None:
        """Read everything again from the first byte: pages, hashes, numbers, heads, and that each entry was allowed.

        Raises:
            LedgerCorruptError: something does not follow; the message names the entry.
        """
        self._store.check_pages()
        with self._lock:
            with self._store.reading() as connection:
                fresh, _ = self._fold(connection, {}, 0)
            remembered = self._states
        for dataset, state in remembered.items():
            if dataset not in fresh or fresh[dataset].seq < state.seq:
                raise LedgerCorruptError(
                    f"a ledger only grows, but data set {dataset!r} had {state.seq} entries and now has fewer. "
                    "Restore the ledger from a backup."
                )

    # How.

    def _read(self) -> dict[str, DatasetState]:
        with self._lock:
            with self._store.reading() as connection:
                self._states, self._last = self._folded(connection)
            return self._states

    def _history(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Every entry of a data set, read again and checked, with the state right after it."""
        with self._lock, self._store.reading() as connection:
            rows = self._store.after(connection, 0)
        state, history = DatasetState(dataset=dataset), []
        for entry in (entry for _, entry in rows if entry.dataset == dataset):
            state = apply(state, entry)
            history.append((entry, state))
        return history

    def _write(self) -> _Write:
        return _Write(self, self._store)

    def _folded(self, connection: Connection) -> tuple[dict[str, DatasetState], int]:
        return self._fold(connection, self._states, self._last)

    def _fold(
        self, connection: Connection, states: dict[str, DatasetState], last: int
    ) -> tuple[dict[str, DatasetState], int]:
        """Fold what was written since, and hold it against the heads: a tail that vanished is noticed here."""
        states = dict(states)
        for row, entry in self._store.after(connection, last):
            states[entry.dataset] = apply(states.get(entry.dataset, DatasetState(dataset=entry.dataset)), entry)
            last = row
        heads = self._store.heads(connection)
        folded = {name: (state.seq, state.head) for name, state in states.items()}
        for name in sorted(heads.keys() | folded.keys()):
            if heads.get(name) != folded.get(name):
                raise LedgerCorruptError(
                    f"the chain of data set {name!r} must end at its head {heads.get(name)}, but ends at "
                    f"{folded.get(name)}. Entries were lost or changed; restore the ledger from a backup."
                )
        return states, last


class _Write:
    """One immediate transaction: sees the newest state, appends, and is remembered only once it is committed."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store
        self.states: dict[str, DatasetState] = {}

    def __enter__(self) -> Self:
        self._ledger._lock.acquire()
        try:
            self._transaction = self._store.writing()
            self._connection = self._transaction.__enter__()
            try:
                self.states, self._last = self._ledger._folded(self._connection)
            except BaseException as error:
                self._transaction.__exit__(type(error), error, error.__traceback__)
                raise
        except BaseException:
            self._ledger._lock.release()
            raise
        return self

    def __call__(self, dataset: str, kind: str, data: dict[str, Any]) -> None:
        before = self.states.get(dataset, DatasetState(dataset=dataset))
        body = canonical(data)
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        seq, previous = before.seq + 1, before.head
        digest = entry_hash(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous)
        entry = Entry(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous, hash=digest)
        # The same rules as on reading: nothing is written that would not be read again.
        self.states[dataset] = apply(before, entry)
        self._last = self._store.append(self._connection, entry)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:  # noqa: ANN401 - the protocol of `with`
        try:
            self._transaction.__exit__(kind, error, trace)
            if error is None:
                self._ledger._states, self._ledger._last = self.states, self._last
        finally:
            self._ledger._lock.release()
