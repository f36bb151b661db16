"""The one division of a data set's records among users, which all searches that protect users must share.

A claim for each user adds up over searches only if a record belongs to the same user in all of them. So a search names
its division: keyed hashes of its (record, user) pairs, which are compared with those of the earlier searches, or a user
key, which is the owner's word that the same column or system always divides the records.

Rule (`compatible`). For each record in common with earlier searches that count, the users U in the new file and V in
those satisfy U ⊆ V or V ⊆ U. Comparison and opening are one transaction.

Claim. Let D′ be D without the rows that bear the name of user u, in ALL files. All that is shown is (Σε_i, Σδ_i)-DP for
D and D′. And D′ has no record of u left: a record that no file gives to several users has one user in all files.

Proof. Each search sees neighbours, and the sums add up. U and V have one element each, so U = V.

Without the rule, a search that gives the records of u to n names costs up to n times as much for u.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import BudgetRefusedError, LedgerCorruptError

if TYPE_CHECKING:
    import numpy as np

    from tuner.privacy.ledger.state import DatasetState, SearchState

__all__ = ["Division", "NamedDivision", "admit_division", "basis", "compatible", "known_pairs", "require_compatible"]

_PAIR, _HALF, _PAIR_BYTES = "S32", "S16", 32  # types of numpy arrays, which is imported only to compare divisions
_SHA256 = re.compile(r"[0-9a-f]{64}")
_Rows = Callable[[str], bytes | None]
"""Function that returns the stored pairs of a search, or None if the ledger has none."""


@dataclass(frozen=True)
class Division:
    """Division of a search's records among users, as its caller knows it.

    Attributes:
        pairs: sorted, distinct pairs of a keyed hash of a record and a keyed hash of its user: 16 bytes each, type S32.
        user_key: public name of the column or system that divides all records of the data set. It is the owner's word
            that replaces the comparison with earlier searches. None if there is none.
    """

    pairs: np.ndarray
    user_key: str | None = None

    @property
    def named(self) -> NamedDivision:
        """What the ledger's entry says of the division, before it is known which pairs must be stored."""
        return NamedDivision(pairs=hashlib.sha256(self.pairs.tobytes()).hexdigest(), user_key=self.user_key)


@dataclass(frozen=True)
class NamedDivision:
    """What a ledger entry says of a search's division. Either `user_key` or `stored` is set.

    Attributes:
        pairs: SHA-256 of all pairs of the search, to which its later runs are held.
        user_key: the declared user key.
        stored: SHA-256 of those pairs that the ledger stored with this search, because no charged search had them.
    """

    pairs: str
    user_key: str | None = None
    stored: str | None = None

    def body(self) -> dict[str, str]:
        """Return the fields that are set, as plain JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> NamedDivision:
        """Return the division in an entry; raise `ValueError` or `TypeError` if it is malformed."""
        found = cls(**body)
        key = found.user_key
        named = found.stored if key is None else found.pairs
        if not all(isinstance(each, str) and _SHA256.fullmatch(each) for each in (found.pairs, named)):
            raise ValueError(
                "a division needs the SHA-256 of all pairs and, without a user key, that of the stored pairs"
            )
        if key is not None and (found.stored is not None or not (isinstance(key, str) and 0 < len(key) <= 200)):
            raise ValueError("a user key must be a name, and a division with a user key must store no pairs")
        return found


def admit_division(state: DatasetState, user_key: str | None, what: str) -> None:
    """Refuse another user key than that of the searches that count, or a key where they have none.

    Raises:
        BudgetRefusedError: the key is refused.
    """
    for other in state.searches:
        known = other.division
        if other.counts and known is not None and known.user_key != user_key:
            raise BudgetRefusedError(
                "user-key-differs",
                f"All searches on {state.dataset!r} must divide the records among users in the same way. An earlier "
                f"search has {_declared(known.user_key)}, but {what} has {_declared(user_key)}. "
                f"{_fix(known.user_key)}.",
            )


def require_compatible(known: np.ndarray, pairs: np.ndarray, dataset: str) -> None:
    """Refuse a search whose file gives a known record to other users. The error tells neither record nor user."""
    if not compatible(known, pairs):
        raise BudgetRefusedError(
            "users-differ",
            f"This search divides the records of data set {dataset!r} among users in another way than earlier searches "
            "did, so no claim would cover all these searches. Use the same user column, with the same user names.",
        )


def compatible(known: np.ndarray, pairs: np.ndarray) -> bool:
    """Return whether two sets of (record, user) pairs, both sorted and distinct, belong to one division.

    For each record in both, its users in one set must include all its users in the other. A record has several users
    if several have a record with this content. The rule is closed under removing a user from both sets, so whether a
    search is admitted does not depend on a user whom the files divide alike.
    """
    import numpy as np

    shared = _records(np.intersect1d(known, pairs, assume_unique=True))
    (ours, of_ours), (theirs, of_theirs) = (np.unique(_records(each), return_counts=True) for each in (known, pairs))
    both, at_ours, at_theirs = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    common, of_common = np.unique(shared, return_counts=True)
    agreeing = np.zeros(len(both), np.int64)
    agreeing[np.searchsorted(both, common)] = of_common
    return bool((agreeing == np.minimum(of_ours[at_ours], of_theirs[at_theirs])).all())


def known_pairs(state: DatasetState | None, rows: _Rows, *, but: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted, distinct pairs of all searches that count, and those of the searches that were charged.

    A charged search counts for ever; another one counts until it is closed.

    Args:
        state: state of the data set; None if it has no entry.
        rows: function that returns the stored pairs of a search.
        but: name of a search that is left out.

    Raises:
        LedgerCorruptError: the stored pairs of a search are missing, or are not those that its entry names.
    """
    charged: list[np.ndarray] = []
    others: list[np.ndarray] = []
    for search in state.searches if state is not None else ():
        stored = search.division is not None and search.division.stored is not None
        if stored and search.counts and search.search != but:
            (charged if search.touched else others).append(_stored(search, rows))
    always = _union(charged)
    return _union([always, *others]), always


def _union(parts: list[np.ndarray]) -> np.ndarray:
    import numpy as np

    # The stable sort merges sorted parts in linear time. This runs while all other writers of the ledger wait.
    pairs = np.sort(np.concatenate([np.empty(0, _PAIR), *parts]), kind="stable")
    return pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs


def basis(state: DatasetState) -> str | None:
    """Return in words what the total of a data set for each user rests on; None if no search protects users."""
    counted = [search.division for search in state.searches if search.counts and search.division is not None]
    if not counted:
        return None
    key = counted[0].user_key
    if key is not None:
        return (
            f"the owner's word that the user key {key!r} divides all records of all searches in the same way; the "
            "ledger compares no records, so it cannot check this"
        )
    files = "the file of 1 search" if len(counted) == 1 else f"the files of {len(counted)} searches"
    return (
        f"one division of the records among users; the ledger checked it by keyed hashes over {files}, but only for "
        "the records in common; a record with any changed input counts as a new record and is not compared"
    )


def _stored(search: SearchState, rows: _Rows) -> np.ndarray:
    import numpy as np

    content = rows(search.search)
    named = None if search.division is None else search.division.stored
    if content is None or len(content) % _PAIR_BYTES or hashlib.sha256(content).hexdigest() != named:
        raise LedgerCorruptError(
            "ledger-division-damaged",
            f"The division of the records of data set {search.dataset!r} among users was changed or removed in the "
            f"ledger: the (record, user) pairs of search {search.search!r} do not match the hash in its entry. Restore "
            "the ledger from a backup.",
        )
    return np.frombuffer(content, _PAIR)


def _records(pairs: np.ndarray) -> np.ndarray:
    """Return the record of each pair: S16, in the order of the pairs."""
    import numpy as np

    return np.ascontiguousarray(pairs).view(_HALF).reshape(-1, 2)[:, 0]


def _declared(user_key: str | None) -> str:
    return "no user key (the ledger compares records)" if user_key is None else f"the user key {user_key!r}"


def _fix(user_key: str | None) -> str:
    return "Remove `dataset.user_key`" if user_key is None else f"Write `dataset.user_key: {user_key}`"
