"""Which record belongs to which part: a keyed hash of the record's index alone, so that adding one moves no other.

The key is public. A split by count or by shuffling would move records when one is added or removed, and a score on the
records set aside would then depend on the training records (privacy.md §4).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aside"]


def aside(count: int, *, fraction: float, key: str) -> np.ndarray:
    """Return which of the records 0 to count − 1 are set aside: truth values of shape (count,).

    Args:
        count: how many records there are.
        fraction: probability with which a record's hash sets it aside, in [0, 1).
        key: public key of the split; another key is another split.
    """
    import numpy as np

    keyed = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=8)

    def position(index: int) -> int:
        digest = keyed.copy()
        digest.update(index.to_bytes(8, "big"))
        return int.from_bytes(digest.digest(), "big")

    threshold = int(fraction * 2**64)
    return np.fromiter((position(index) < threshold for index in range(count)), dtype=bool, count=count)
