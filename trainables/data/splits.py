"""Which record belongs to which part: a keyed hash of its identity, or its user's, so that adding one moves no other.

The key is public. A split by count or by shuffling would move records when one is added or removed, and a score on the
records set aside would then depend on the training records. A published set's records are known by their
index, which never changes; those of a user's own file by their content, because removing a row renumbers all behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aside", "aside_by_content", "aside_by_user", "contributions"]


def aside(count: int, *, fraction: float, key: str) -> np.ndarray:
    """Return which of the records 0 to count - 1 are set aside, by their index: truth values of shape (count,).

    Args:
        count: how many records there are.
        fraction: probability with which a record's hash sets it aside, in [0, 1).
        key: public key of the split; another key is another split.
    """
    return _chosen((index.to_bytes(8, "big") for index in range(count)), count, fraction=fraction, key=key)


def aside_by_content(x: np.ndarray, y: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return which records are set aside, by what is in them: truth values of shape (n,). Equal records stay together.

    Args:
        x: inputs, shape (n, ...).
        y: labels, shape (n,).
        fraction: probability with which a record's hash sets it aside, in [0, 1).
        key: public key of the split; another key is another split.
    """
    return _chosen(_contents(x, y), len(y), fraction=fraction, key=key)


def aside_by_user(users: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return which records are set aside, by whose they are: truth values of shape (n,). A user's stay together.

    Args:
        users: each record's user, numbers or strings, shape (n,).
        fraction: probability with which a user's hash sets the user aside, in [0, 1).
        key: public key of the split; another key is another split.
    """
    import numpy as np

    names, whose = np.unique(users, return_inverse=True)
    chosen = _chosen((_identity(name) for name in names), len(names), fraction=fraction, key=key)
    return np.asarray(chosen[whose])


def contributions(x: np.ndarray, y: np.ndarray, users: np.ndarray, *, most: int, key: str) -> np.ndarray:
    """Return which records stand for each user: those whose keyed hashes are the smallest, `most` of them at most.

    Which they are depends on the user's own records and the public key alone: other users may come and go.

    Args:
        x: inputs, shape (n, ...).
        y: labels, shape (n,).
        users: each record's user, numbers or strings, shape (n,).
        most: m, at least 1.
        key: public key of the choice.

    Returns:
        Numbers of records, int64, shape (users, most), -1 where a user has fewer than `most`; users in their own order.
    """
    import numpy as np

    names, whose = np.unique(users, return_inverse=True)
    own = [_identity(name) + b"\0" for name in names]
    records = (own[user] + content for user, content in zip(whose.tolist(), _contents(x, y), strict=True))
    order = np.lexsort((_positions(records, len(y), key=key), whose))  # user by user, by hash within each
    counts = np.bincount(whose, minlength=len(names))
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = rank < most
    table = np.full((len(names), most), -1, np.int64)
    table[whose[order][kept], rank[kept]] = order[kept]
    return table


def _contents(x: np.ndarray, y: np.ndarray) -> Iterator[bytes]:
    return (row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))


def _identity(user: object) -> bytes:
    # Not the bytes as they are stored: one long name more in the file would lengthen those of all others.
    return str(user).encode(errors="surrogatepass")


def _chosen(identities: Iterable[bytes], count: int, *, fraction: float, key: str) -> np.ndarray:
    return _positions(identities, count, key=key) < int(fraction * 2**64)


def _positions(identities: Iterable[bytes], count: int, *, key: str) -> np.ndarray:
    """A keyed hash of each identity as a number below 2⁶⁴."""
    import numpy as np

    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(identity: bytes) -> int:
        digest = keyed.copy()
        digest.update(identity)
        return int.from_bytes(digest.digest(), "big")

    return np.fromiter((position(identity) for identity in identities), dtype=np.uint64, count=count)
