"""The part of a ledger that owners of data write: caps, shares, public records, and totals that are void."""

from __future__ import annotations

from typing import Any

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import require_delta, require_epsilon
from tuner.privacy.ledger.admission import order_filter, require_dataset, require_name
from tuner.privacy.ledger.reader import LedgerReader
from tuner.privacy.ledger.state import DatasetCap

__all__ = ["OwnersLedger"]


class OwnersLedger(LedgerReader):
    """Methods of `Ledger` with which an owner limits all searches on a data set, and says what is public."""

    def set_cap(self, dataset: str, epsilon: float, delta: float, *, order: float | None = None) -> None:
        """Set the (ε, δ) that all searches on `dataset` may spend together.

        The cap may be below the committed total. Then no new search and no new reservation is admitted, but reserved
        steps may still be taken. If `order` is given, a search is admitted if it fits at least one of two rules: a
        limit on the sum of all claims, or a Rényi filter of that order. Each rule uses half of δ. Raise
        `BudgetRefusedError` if the order would change while any search counts against the cap.
        """
        require_dataset(dataset)
        require_epsilon(epsilon)
        require_delta(delta)
        body: dict[str, Any] = {"epsilon": float(epsilon), "delta": float(delta)}
        if order is not None:
            body |= {"order": float(order), "units": order_filter(order, epsilon, delta)}
        with self._chain.write() as write:
            write(dataset, "cap", body)

    def set_first_cap(self, dataset: str, epsilon: float, delta: float) -> DatasetCap | None:
        """Set the cap of a data set that has none, without an order. Return the earlier cap, and then change nothing.

        Of two processes that call it together, one sets the cap and the other gets it.
        """
        require_dataset(dataset)
        require_epsilon(epsilon)
        require_delta(delta)
        with self._chain.write() as write:
            state = write.states.get(dataset)
            if state is not None and state.cap is not None:
                return state.cap
            write(dataset, "cap", {"epsilon": float(epsilon), "delta": float(delta)})
        return None

    def grant(self, dataset: str, user: str, epsilon: float, delta: float) -> None:
        """Set one user's share of the data set's cap.

        After the first grant, users without a share cannot start a search. A share may be below the committed total of
        the user's searches. Then the user cannot start a new search or trial. Raise `BudgetRefusedError` if there is no
        cap, or if the shares together would exceed the cap.
        """
        require_dataset(dataset)
        require_name(user, "user")
        require_epsilon(epsilon)
        require_delta(delta)
        with self._chain.write() as write:
            write(dataset, "grant", {"user": user, "epsilon": float(epsilon), "delta": float(delta)})

    def revoke(self, dataset: str, user: str) -> None:
        """Set a user's share to (0, 0); raise `InputError` if the user has no share."""
        with self._chain.write() as write:
            state = write.states.get(dataset)
            if state is None or user not in state.grants:
                raise InputError(
                    "share-not-found",
                    f"User {user!r} has no share of data set {dataset!r}, so none can be revoked. Check both names.",
                )
            write(dataset, "grant", {"user": user, "epsilon": 0.0, "delta": 0.0})

    def enter_public(self, dataset: str, *fingerprints: str) -> None:
        """Enter records that everyone may see, by their keyed checksums. Only an owner of the data should do this.

        Raise `BudgetRefusedError` if the ledger holds any of the records, or the name, as private. Then it enters none.
        """
        require_dataset(dataset)
        for fingerprint in fingerprints:
            require_name(fingerprint, "fingerprint")
        with self._chain.write() as write:
            for fingerprint in fingerprints:
                write(dataset, "public", {"fingerprint": fingerprint, "user": self.user()})

    def void_total(self, dataset: str, *, use: str, why: str, sweep: str) -> None:
        """Record, before a sweep uses the records without protection, that the data set's total is void from now on.

        `use` is `public` or `not private`. Only an owner of the data should do this.
        """
        require_dataset(dataset)
        require_name(why, "reason")
        with self._chain.write() as write:
            write(dataset, "void", {"use": use, "why": why, "sweep": sweep, "user": self.user()})
