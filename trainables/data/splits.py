"""Splits by a keyed hash of each record or user. Adding a record moves no other record to another split.

A split by count or by shuffling would move other records too. Then a score on validation records would depend on the
training records. In a shipped data set, the hash uses the index of a record, which never changes. In a custom data set,
the hash uses the content of a record, because removing a row would change the indices of all later rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

__all__ = ["aside", "aside_by_content", "aside_by_user", "contributions"]


def aside(count: int, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each of `count` records is selected by a hash of its index: Booleans, shape (count,).

    `fraction` is the probability of a selection, and `key` is the public key of the hash.
    """
    return _chosen((index.to_bytes(8, "big") for index in range(count)), count, fraction=fraction, key=key)


def aside_by_content(x: np.ndarray, y: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each record is selected by a hash of its input in `x`, shape (n, ...), and its label in `y`."""
    return _chosen(_contents(x, y), len(y), fraction=fraction, key=key)


def aside_by_user(users: np.ndarray, *, fraction: float, key: str) -> np.ndarray:
    """Return whether each record is selected by a hash of its user. All records of a user get the same answer."""
    names, whose = np.unique(users, return_inverse=True)
    chosen = _chosen((_identity(name) for name in names), len(names), fraction=fraction, key=key)
    return np.asarray(chosen[whose])


def contributions(x: np.ndarray, y: np.ndarray, users: np.ndarray, *, most: int, key: str) -> np.ndarray:
    """Return the indices of the records that each user contributes, int64, shape (users, most).

    A user contributes the `most` records with the smallest keyed hashes. The index -1 fills up the row of a user with
    fewer records. The choice depends only on the user's own records and the public key. The rows are sorted by user.
    The other arguments are those of `aside_by_content` and `aside_by_user`.
    """
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
    # The stored bytes depend on other users, because numpy pads them to the longest name of all users.
    return str(user).encode(errors="surrogatepass")


def _chosen(identities: Iterable[bytes], count: int, *, fraction: float, key: str) -> np.ndarray:
    return _positions(identities, count, key=key) < int(fraction * 2**64)


def _positions(identities: Iterable[bytes], count: int, *, key: str) -> np.ndarray:
    """Return a number below 2⁶⁴ for each identity, by a keyed hash. An identity is the bytes of a record or user."""
    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(identity: bytes) -> int:
        digest = keyed.copy()
        digest.update(identity)
        return int.from_bytes(digest.digest(), "big")

    return np.fromiter((position(identity) for identity in identities), dtype=np.uint64, count=count)
