"""Splits by a publicly keyed hash of each record or user, so that adding one record moves no other record.

A split by count or by shuffling would move other records too, and a score on validation records would depend on the
training records. The hash is of a record's index in a published set, which never changes. In a user's own file it is of
the content, because removing a row renumbers all later rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aside", "aside_by_content", "aside_by_user", "contributions"]


def aside(count: int, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each record is set aside, by a hash of its index with the public key: Booleans, shape (count,)."""
    return _chosen((index.to_bytes(8, "big") for index in range(count)), count, fraction=fraction, key=key)


def aside_by_content(x: np.ndarray, y: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each record is set aside, by a hash of its content x, shape (n, ...), and y, shape (n,)."""
    return _chosen(_contents(x, y), len(y), fraction=fraction, key=key)


def aside_by_user(users: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each record is set aside, by a hash of its user, so that a user's records stay together."""
    import numpy as np

    names, whose = np.unique(users, return_inverse=True)
    chosen = _chosen((_identity(name) for name in names), len(names), fraction=fraction, key=key)
    return np.asarray(chosen[whose])


def contributions(x: np.ndarray, y: np.ndarray, users: np.ndarray, *, most: int, key: str) -> np.ndarray:
    """Return the records that each user contributes: at most m, those with the smallest keyed hashes.

    The choice depends only on the user's own records and the public key. The arguments are those of `aside_by_content`
    and `aside_by_user`. The result is indices of records, int64, shape (users, m), -1 if a user has fewer than m; the
    users are sorted.
    """
    import numpy as np

    names, whose = np.unique(users, return_inverse=True)
    own = [_identity(name) + b"\0" for name in names]
    records = (own[user] + content for user, content in zip(whose.tolist(), _contents(x, y), strict=True))
    order = np.lexsort((_positions(records, len(y), key=key), whose))  # by user, then by hash
    counts = np.bincount(whose, minlength=len(names))
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = rank < most
    table = np.full((len(names), most), -1, np.int64)
    table[whose[order][kept], rank[kept]] = order[kept]
    return table


def _contents(x: np.ndarray, y: np.ndarray) -> Iterator[bytes]:
    return (row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))


def _identity(user: object) -> bytes:
    # Not the stored bytes, which numpy pads to the longest name of all users.
    return str(user).encode(errors="surrogatepass")


def _chosen(identities: Iterable[bytes], count: int, *, fraction: float, key: str) -> np.ndarray:
    return _positions(identities, count, key=key) < int(fraction * 2**64)


def _positions(identities: Iterable[bytes], count: int, *, key: str) -> np.ndarray:
    """Return a keyed hash of each identity, a number below 2⁶⁴."""
    import numpy as np

    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(identity: bytes) -> int:
        digest = keyed.copy()
        digest.update(identity)
        return int.from_bytes(digest.digest(), "big")

    return np.fromiter((position(identity) for identity in identities), dtype=np.uint64, count=count)
