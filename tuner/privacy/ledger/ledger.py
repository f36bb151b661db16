"""The ledger: the durable record of all caps and charges of a data set.

A trial reserves steps before it starts. It leases steps (charges them durably) before it takes them. When the
trial ends it is settled, and the steps that it reserved but did not lease are freed. `reader.py` has what only reads,
and `owner.py` what an owner of the data writes.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.errors import InputError
from tuner.privacy.accountant.filters import Filter
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.ledger.admission import (
    admit_own,
    check_pools,
    require_dataset,
    require_fit,
    require_name,
    require_search,
    units_at,
)
from tuner.privacy.ledger.blocks import mirror_name, mirrors_of
from tuner.privacy.ledger.chain import Write
from tuner.privacy.ledger.division import Division, known_pairs, require_compatible
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.owner import OwnersLedger
from tuner.privacy.ledger.state import TRAINING, VALIDATION, PoolState, SearchState

__all__ = ["Ledger"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


_SHARED = ("own", "split", "purpose", "contact")
"""Notes on a search that are also kept with its part on another block."""


class Ledger(OwnersLedger):
    """Durable record of the caps of data sets and of the charges of all searches on them.

    Formal guarantees:
        At all times, the filter of a search admits the steps that its trials have leased and reserved. This holds
        after any crash and with any number of writers, because each admission reads and writes in one exclusive
        transaction. The filter's claim is at most the search's (ε, δ), which is checked when the search is opened.
        Searches on a data set may be chosen adaptively and run concurrently. Together they stay within the data set's
        cap (`admission.admit`), and a user's searches stay within the user's share. A failed write charges nothing. If
        only the confirmation of a commit is lost, the charge counts although the caller sees an error.

    Use `Ledger.open`. A ledger is safe across threads and processes. Each process opens the ledger by its URL.
    """

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
        fingerprint: str | None = None,
        division: Division | None = None,
        details: Mapping[str, Any] | None = None,
        blocks: Sequence[str] = (),
        block_fingerprints: Sequence[str] = (),
    ) -> None:
        """Open a search of the current user. Its whole (ε, δ) then counts against the cap of the data set.

        A release (`OneRelease`, `VotedLabels`) is also charged by this call, and its search is then closed.

        Args:
            dataset: name of the data set.
            search: name, unique in the ledger.
            filter: privacy filter (cap) that covers the training records. Its ε at `delta` must be at most `epsilon`.
            epsilon: ε of the claim, for each training record and each protected validation record.
            delta: δ of the claim.
            validation: privacy filter (cap) that covers the validation records. It counts each released score as a
                step. None if the guarantee does not cover the scores.
            validation_claim: (ε, δ) of the claim for validation records. Its ε and δ may not exceed the search's ε and
                δ, which are the default.
            unit: unit of protection, `record` or `user`.
            user: user whose share the search uses; `user()` by default.
            fingerprint: keyed checksum of the data. Data that the ledger knows as public or under another name are
                refused.
            division: how the records are divided among users, if the unit is a user. Records that earlier searches have
                too must belong to the same users.
            details: notes on the search, as plain JSON. The key `own` says that the records are the user's own. The
                data protection officer sees `purpose` and `contact`.
            blocks: other data sets on which the whole claim counts too (`blocks.py`). If one of them refuses, nothing
                is opened.
            block_fingerprints: keyed checksum of the records of each block alone: of `dataset`, then of `blocks`. They
                are handled as `fingerprint`, which is that of all blocks together.

        Raises:
            BudgetRefusedError: the claim exceeds a data set's cap or the user's share, a filter exceeds its claim, a
                data set's searches protect another unit or divide the records among users differently, or the ledger
                knows the data under another name.
            LedgerCorruptError: the stored division of an earlier search was changed or removed.
            LedgerError: the name of the search exists already.
        """
        require_dataset(dataset)
        require_name(search, "search")
        require_epsilon(epsilon)
        require_delta(delta)
        if fingerprint is not None:
            require_name(fingerprint, "fingerprint")
        own, *others = block_fingerprints or (None,) * (1 + len(blocks))
        if division is not None and division.user_key is not None:
            require_name(division.user_key, "user_key")
        check_pools(filter, validation)
        require_fit(filter, epsilon, delta, "the search's")
        self.states_of((dataset, *blocks))  # the claims of other users' searches, which count against the same cap
        claim = (epsilon, delta) if validation_claim is None else validation_claim
        if validation is not None:
            require_epsilon(claim[0], name="the epsilon of validation")
            require_delta(claim[1], name="the delta of validation")
            require_fit(validation, *claim, "the validation")
        body = {
            "search": search,
            "filter": filter.body(),
            "validation": None if validation is None else {
                "filter": validation.body(), "epsilon": float(claim[0]), "delta": float(claim[1])
            },
            "unit": unit,
            "user": self.user(),
            "adjacency": "add_or_remove_one",
            "accounting": filter.mode,
            "epsilon": float(epsilon),
            "delta": float(delta),
            "fingerprint": fingerprint,
            "block_fingerprint": own,
            "details": dict(details or {}),
            # Cards show a hash that covers this entry. The nonce hides whatever in it could be guessed.
            "nonce": secrets.token_hex(16),
            "blocks": list(blocks),
            "mirror_of": None,
        }  # fmt: skip
        canonical(body)
        with self._chain.write() as write:
            if "own" in (details or {}):
                for name in (dataset, *blocks):
                    admit_own(write.states, name)
            shared = {key: value for key, value in (details or {}).items() if key in _SHARED}
            body["division"] = None if division is None else _entered(write, dataset, search, division)
            for block, known in zip(blocks, others, strict=True):
                require_dataset(block)
                mirror: dict[str, Any] = {
                    "search": mirror_name(search, block),
                    "blocks": [],
                    "mirror_of": search,
                    "fingerprint": None,
                    "block_fingerprint": known,
                    "details": shared,
                    "nonce": secrets.token_hex(16),
                    "units": units_at(write.order(block), filter, validation),
                }
                write(block, "open_search", {**body, **mirror})
            write(dataset, "open_search", {**body, "units": units_at(write.order(dataset), filter, validation)})
            if filter.charged_whole and filter.hidden_runs is None:
                # A release is charged in the same transaction, so that no crash leaves it open.
                _begin_mirrors(write, require_search(write.states, search))
                write(dataset, "release", {"search": search})

    def store_release(self, search: str, sha256: str) -> None:
        """Record the checksum of the release that was drawn for `search`, which was charged when it was opened.

        Raises:
            LedgerError: the search is no release, or a release is stored already.
        """
        if not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
            raise _not_a_hash("sha256", sha256)
        with self._chain.write() as write:
            state = require_search(write.states, search)
            write(state.dataset, "stored", {"search": search, "sha256": sha256})

    def begin_sealed(self, search: str, secrets: str) -> None:
        """Charge a sealed search as a whole, before its first run. Afterwards the search can charge nothing more.

        `secrets` is the SHA-256 of the number of runs and the key of all their randomness. With other secrets, the
        search would be another one.

        Raises:
            BudgetRefusedError: the owner has lowered the cap or the share below the committed total.
            LedgerError: the search is not sealed or not open, or has already begun.
        """
        if not (isinstance(secrets, str) and _SHA256.fullmatch(secrets)):
            raise _not_a_hash("secrets", secrets)
        with self._chain.write() as write:
            state = require_search(write.states, search)
            _begin_mirrors(write, state)
            write(state.dataset, "begin", {"search": search, "secrets": secrets})

    def reserve(
        self, search: str, trial: str, steps: int, *, mechanism: SampledGaussian | None = None, pool: str = TRAINING
    ) -> None:
        """Reserve more steps of one pool for a trial. `steps` must be at least 1. See `reserve_together` for errors."""
        require_steps(steps, minimum=1)
        self.reserve_together(search, trial, {pool: steps}, mechanism=mechanism)

    def reserve_together(
        self,
        search: str,
        trial: str,
        steps: Mapping[str, int],
        *,
        mechanism: SampledGaussian | None = None,
        rung: bool = False,
    ) -> None:
        """Reserve steps of one or both pools for a new or running trial. Either all of them are reserved, or none.

        Args:
            search: name of an open search.
            trial: id of the trial.
            steps: number of steps to reserve in each pool.
            mechanism: mechanism of all training steps of the trial. None means the mechanism that the trial reserved
                before, or else the search's only mechanism.
            rung: whether these are the steps of the trial's next rung. The trial must have taken all that it has
                reserved. Every other reservation after the first lease is of steps that the trial repeats.

        Raises:
            BudgetRefusedError: the filter does not admit the steps, or the owner has lowered the data set's cap or the
                user's share below the committed total.
            InputError: `mechanism` is None, the trial has reserved none before, and the search has several mechanisms.
            LedgerError: the search is closed or sealed, the trial is settled or has reserved another mechanism, or its
                rung is not finished.
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
                if rung:
                    body["rung"] = True
                if pool in state.pools and not state.charged_whole:
                    body |= _priced(state.pools[pool], trial, mechanism if pool == TRAINING else None)
                write(state.dataset, "reserve", body)

    def lease(self, search: str, trial: str, steps: int, mechanism: SampledGaussian, *, pool: str = TRAINING) -> None:
        """Charge `steps` steps of a pool durably. After this method returns, the trial may take the steps.

        `steps` must be at least 1.

        Raises:
            BudgetRefusedError: the trial has not reserved that many steps.
            LedgerError: the trial has reserved another mechanism or is settled, the search is closed or sealed, or
                writing to the ledger failed.
        """
        require_steps(steps, minimum=1)
        with self._chain.write() as write:
            state = require_search(write.states, search)
            body = {"search": search, "trial": trial, "steps": steps, "pool": pool, "mechanism": mechanism.body()}
            _begin_mirrors(write, state)
            write(state.dataset, "lease", body)

    def settle(self, search: str, trial: str, steps_taken: int, *, leases: Sequence[tuple[str, int]] = ()) -> None:
        """End a trial, and free the steps that it reserved in either pool but never leased.

        The search may be open or closed. A second call with the same number of training steps does nothing, so the call
        can be repeated after a crash. `leases`, pairs (pool, steps), are charged first, in the same transaction.

        Raises:
            LedgerError: the trial took more steps than it leased, is unknown, or was settled with another number of
                steps.
        """
        require_steps(steps_taken, minimum=0, name="steps_taken")
        with self._chain.write() as write:
            state = require_search(write.states, search)
            before = [pool.trials[trial] for pool in state.pools.values() if trial in pool.trials]
            if not any(each.settled and each.taken == steps_taken for each in before):
                if leases:
                    _begin_mirrors(write, state)
                for pool, steps in leases:
                    used = _mechanism_of(state.pools[pool], trial, None)
                    body = {"search": search, "trial": trial, "steps": steps, "pool": pool, "mechanism": used.body()}
                    write(state.dataset, "lease", body)
                write(state.dataset, "settle", {"search": search, "trial": trial, "steps_taken": steps_taken})

    def close_search(self, search: str) -> None:
        """Close a search, so that it can charge nothing more. If it charged nothing, its claim no longer counts.

        On a damaged block nothing can be written, so its claim counts there until it is closed again after the repair.
        """
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open":
                write(state.dataset, "close_search", {"search": search})
            for mirror in mirrors_of(write.states, state, but_damaged=True):
                if mirror.status == "open":
                    write(mirror.dataset, "close_search", {"search": mirror.search})

    def reopen_search(self, search: str, *, division: Division | None = None) -> None:
        """Reopen a closed search with its old claim. Do nothing if it is open, or if it is sealed and has begun.

        `division` is the one with which the search was opened. It is needed if the claim did not count while the search
        was closed, and the search protects users.

        Raises:
            BudgetRefusedError: the claim did not count while the search was closed, and now exceeds the data set's cap
                or the user's share, or its division differs from that of a search that was opened since.
            InputError: the division is needed and is not the one with which the search was opened.
        """
        with self._chain.write() as write:
            state = require_search(write.states, search)
            if state.status == "open" or state.begun:
                return
            validation = state.validation.filter if state.validation else None
            if not state.counts and state.division is not None and state.division.user_key is None:
                if division is None or division.named.pairs != state.division.pairs:
                    raise InputError(
                        "division-missing",
                        f"Search {search!r} can be reopened only if its records are divided among users as when it was "
                        "opened. Give the same (record, user) pairs.",
                    )
                known, _ = known_pairs(write.states.get(state.dataset), write.division, but=search)
                require_compatible(known, division.pairs, state.dataset)
            for each in (*(mirror for mirror in mirrors_of(write.states, state) if not mirror.begun), state):
                units = units_at(write.order(each.dataset), state.filter, validation)
                write(each.dataset, "reopen_search", {"search": each.search, "units": units})

    def record_card(self, search: str, card_sha256: str, kind: str) -> None:
        """Record that a privacy card with this hash and this kind was issued for `search`."""
        require_name(kind, "kind")
        if not (isinstance(card_sha256, str) and _SHA256.fullmatch(card_sha256)):
            raise _not_a_hash("card_sha256", card_sha256)
        with self._chain.write() as write:
            state = require_search(write.states, search)
            write(state.dataset, "card", {"search": search, "card_sha256": card_sha256, "card_kind": kind})


def _not_a_hash(name: str, value: object) -> InputError:
    return InputError(
        "hash-invalid", f"`{name}` must be 64 hexadecimal digits (got {value!r}). Give the SHA-256 of the content."
    )


def _begin_mirrors(write: Write, search: SearchState) -> None:
    """Commit the claim of a search on its other blocks, before its first charge."""
    for mirror in mirrors_of(write.states, search):
        if not mirror.begun:
            write(mirror.dataset, "begin", {"search": mirror.search})


def _entered(write: Write, dataset: str, search: str, division: Division) -> dict[str, str]:
    """Compare a division with those of the searches that count, store what is new, and return what the entry names."""
    state = write.states.get(dataset)
    if division.user_key is not None:
        return division.named.body()
    import numpy as np

    known, charged = known_pairs(state, write.division)
    require_compatible(known, division.pairs, dataset)
    # A search that was not charged may stop counting, and its pairs with it. So they make no others redundant.
    content = np.setdiff1d(division.pairs, charged, assume_unique=True).tobytes()
    write.store_division(search, content)
    return replace(division.named, stored=hashlib.sha256(content).hexdigest()).body()


def _priced(pool: PoolState, trial: str, mechanism: SampledGaussian | None) -> dict[str, Any]:
    """Return the mechanism and the price of a step, which the entry of a reservation records.

    Because prices are recorded, all machines add up the same numbers.
    """
    before = pool.account(trial)
    mechanism = _mechanism_of(pool, trial, mechanism)
    price = before.price if before.mechanism == mechanism else pool.filter.price(mechanism)
    return {"mechanism": mechanism.body(), **({"price": price} if price else {})}


def _mechanism_of(pool: PoolState, trial: str, named: SampledGaussian | None) -> SampledGaussian:
    mechanism = named or pool.account(trial).mechanism or pool.filter.only_mechanism
    if mechanism is None:
        raise InputError(
            "mechanism-not-named",
            f"Trial {trial!r} must name its mechanism, because its search allows several. Give "
            "mechanism=SampledGaussian(...).",
        )
    return mechanism
