"""Which record belongs to which part: a keyed hash of the record's identity, so that adding one moves no other.

The key is public. A split by count or by shuffling would move records when one is added or removed, and a score on the
records set aside would then depend on the training records. A published set's records are known by their
index, which never changes; those of a user's own file by their content, because removing a row renumbers all behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aside", "aside_by_content"]


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
    records = (row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))
    return _chosen(records, len(y), fraction=fraction, key=key)


def _chosen(identities: Iterable[bytes], count: int, *, fraction: float, key: str) -> np.ndarray:
    import numpy as np

    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(identity: bytes) -> int:
        digest = keyed.copy()
        digest.update(identity)
        return int.from_bytes(digest.digest(), "big")

    threshold = int(fraction * 2**64)
    return np.fromiter((position(identity) < threshold for identity in identities), dtype=bool, count=count)
