"""Splits by a keyed hash of each record's identity, or its user's, so that adding one record moves no other.

The key is public. A split by count or by shuffling would move records when one is added or removed, and a score on the
records set aside would then depend on the training records. The identity of a record is its index in a published set,
which never changes, and its content in a user's own file, where removing a row renumbers all later ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aside", "aside_by_content", "aside_by_user", "contributions"]


def aside(count: int, *, fraction: float, key: str) -> np.ndarray:
    """Return which of the records 0 to count - 1 are set aside, by their index: Booleans of shape (count,).

    Args:
        count: how many records there are.
        fraction: probability with which a record's hash sets it aside, in [0, 1).
        key: public key of the split.
    """
    return _chosen((index.to_bytes(8, "big") for index in range(count)), count, fraction=fraction, key=key)


def aside_by_content(x: np.ndarray, y: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return which records are set aside, by their content: Booleans of shape (n,). Equal records stay together.

    The inputs x have the shape (n, ...), the labels y the shape (n,); the others are as for `aside`.
    """
    return _chosen(_contents(x, y), len(y), fraction=fraction, key=key)


def aside_by_user(users: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return which records are set aside, by their user: Booleans of shape (n,). Records of a user stay together.

    Users are numbers or strings of shape (n,); the others are as for `aside`, with the hash of a user.
    """
    import numpy as np

    names, whose = np.unique(users, return_inverse=True)
    chosen = _chosen((_identity(name) for name in names), len(names), fraction=fraction, key=key)
    return np.asarray(chosen[whose])


def contributions(x: np.ndarray, y: np.ndarray, users: np.ndarray, *, most: int, key: str) -> np.ndarray:
    """Return the records that each user contributes: at most `most`, those with the smallest keyed hashes.

    The choice depends only on the user's own records and the public key, not on other users.

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
    # Not the stored bytes: numpy pads all names to the longest one, so another user would change them.
    return str(user).encode(errors="surrogatepass")


def _chosen(identities: Iterable[bytes], count: int, *, fraction: float, key: str) -> np.ndarray:
    return _positions(identities, count, key=key) < int(fraction * 2**64)


def _positions(identities: Iterable[bytes], count: int, *, key: str) -> np.ndarray:
    """Return a keyed hash of each identity as a number below 2⁶⁴."""
    import numpy as np

    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(identity: bytes) -> int:
        digest = keyed.copy()
        digest.update(identity)
        return int.from_bytes(digest.digest(), "big")

    return np.fromiter((position(identity) for identity in identities), dtype=np.uint64, count=count)
