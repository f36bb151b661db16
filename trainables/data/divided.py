"""Keyed hashes of which record belongs to which user. With them, a ledger compares files that share records.

Only the inputs of a record count, as float32 numbers: not their order in the file, their type, or the labels. A record
that differs in any number is another record. Without the key, nobody can test a guess of a record or a user.
"""

from __future__ import annotations

import hashlib

import numpy as np

from trainables.data import user
from trainables.data.files import data_folder
from trainables.data.loading import read_arrays
from trainables.data.requests import DatasetRequest
from trainables.errors import DatasetError
from trainables.wall import walled

__all__ = ["PAIR", "divided_records", "hashed_pairs"]

PAIR = np.dtype("S32")
"""Type of one pair: 16 bytes for the record, then 16 bytes for its user."""

_SIZE = 16  # bytes of one hash. Among 10⁹ records, two hashes are equal with a probability below 10⁻²⁰
_ROWS = 4096  # rows that are converted at a time, to save memory


@walled
def divided_records(request: DatasetRequest, secret: bytes) -> np.ndarray:
    """Return the distinct (record, user) pairs of the training records of a data set whose unit is a user.

    The result is sorted: `PAIR`, shape (pairs,). `secret` has at most 64 bytes.

    Raises:
        DatasetError: the data set or its users cannot be read.
    """
    from trainables.data import info

    known = info(request)
    arrays = read_arrays(known, data_folder(request.data_dir)) if known.path is None else user.read_raw(known)
    x, users = arrays["x_train"], arrays.get("user_train")
    shaped = x.ndim >= 2 and x.dtype.kind in "fiub"
    if users is None or not shaped or users.dtype.kind not in "iuU" or users.shape != x.shape[:1]:
        raise DatasetError(
            "own-file-arrays",
            f"{known.path or known.name}: `x_train` must be a numeric array with one row for each record, and "
            "`user_train` a vector of integers or strings, one for each record.",
        )
    return hashed_pairs(x, users, secret)


def hashed_pairs(x: np.ndarray, users: np.ndarray, secret: bytes) -> np.ndarray:
    """Return the distinct (record, user) pairs of inputs in `x`, shape (n, ...), and their users, shape (n,)."""
    names, whose = np.unique(users, return_inverse=True)
    # User numbers and their decimal strings are the same names, as everywhere.
    owners = _hashes([str(name).encode(errors="surrogatepass") for name in names.tolist()], secret, b"user")[whose]
    found = [_pairs(x, owners, secret, 1.0)]
    if x.dtype == np.uint8:  # trained as fractions of 255; other files may hold these fractions, or whole numbers
        found.append(_pairs(x, owners, secret, 255.0))
    return np.unique(np.concatenate(found))


def _pairs(x: np.ndarray, owners: np.ndarray, secret: bytes, divisor: float) -> np.ndarray:
    records = np.empty((len(x), _SIZE), np.uint8)
    for start in range(0, len(x), _ROWS):
        part = slice(start, start + _ROWS)
        with np.errstate(all="ignore"):  # a warning would say something about a record
            rows: np.ndarray = x[part].reshape(len(x[part]), -1).astype(np.float32)
            # As in training, what is not finite is 0. Adding 0 makes -0.0 equal to 0.0.
            rows = np.where(np.isfinite(rows), rows, np.float32(0)) / np.float32(divisor) + np.float32(0)
        records[part] = _hashes([row.tobytes() for row in rows], secret, b"record")
    return np.concatenate([records, owners], axis=1).view(PAIR).ravel()


def _hashes(contents: list[bytes], secret: bytes, purpose: bytes) -> np.ndarray:
    """Return a keyed hash of each content: uint8, shape (n, 16). Hashes of two purposes are unrelated."""
    keyed = hashlib.blake2b(key=secret, person=purpose, digest_size=_SIZE)

    def digest(content: bytes) -> bytes:
        own = keyed.copy()
        own.update(content)
        return own.digest()

    return np.frombuffer(b"".join(map(digest, contents)), np.uint8).reshape(-1, _SIZE)
