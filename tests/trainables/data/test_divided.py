"""Keyed hashes of records and users: equal for equal records however they are stored, unrelated under another key."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from errors_helper import raises_code

from trainables.data import DatasetRequest
from trainables.data.divided import PAIR, divided_records, hashed_pairs
from trainables.errors import DatasetError

DRAW = np.random.default_rng(0)
BYTES = DRAW.integers(0, 256, (40, 1, 3, 3)).astype(np.uint8)
USERS = DRAW.integers(0, 9, 40)


def common(one: np.ndarray, other: np.ndarray) -> int:
    """How many of the forty pairs of both are the same."""
    return len(np.intersect1d(hashed_pairs(one, USERS, b"k"), hashed_pairs(other, USERS, b"k")))


def test_order_shape_and_type_do_not_count() -> None:
    order = DRAW.permutation(40)
    pairs = hashed_pairs(BYTES, USERS, b"k")
    assert pairs.dtype == PAIR
    moved = hashed_pairs(BYTES.reshape(40, 9)[order], USERS[order].astype(str), b"k")
    assert np.array_equal(pairs, moved)
    for same in (BYTES.astype(int), BYTES.astype(float), BYTES / 255, (BYTES / np.float32(255)).astype(np.float32)):
        assert common(BYTES, same) == 40
    assert np.array_equal(*(hashed_pairs(x, USERS[:1], b"k") for x in (np.zeros((1, 2)), -np.zeros((1, 2)))))


def test_any_change_makes_a_new_record_and_another_key_other_hashes() -> None:
    changed = BYTES / 255
    changed[7, 0, 1, 1] += 1e-3
    assert common(BYTES, changed) == 39
    under = [hashed_pairs(BYTES, USERS, key).view("S16") for key in (b"k", b"l")]
    assert len(np.intersect1d(*under)) == 0


def test_what_is_not_finite_counts_as_it_is_trained_and_warns_of_nothing() -> None:
    odd = np.array([[np.nan, 1.0], [1e300, 1.0], [0.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(hashed_pairs(odd, np.zeros(3, int), b"k")) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"user_train": np.zeros(3, int)},
        {"user_train": np.zeros(4)},
        {"x_train": np.zeros(4)},
        {"x_train": np.full((4, 2), "a")},
    ],
)
def test_malformed_arrays_are_one_error(wrong: dict[str, np.ndarray], tmp_path: Path) -> None:
    arrays = {"x_train": np.zeros((4, 2)), "y_train": np.zeros(4, int), "x_test": np.zeros((1, 2))}
    arrays |= {"y_test": np.zeros(1, int), "user_train": np.zeros(4, int), **wrong}
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    request = DatasetRequest(name="mine", path=str(tmp_path / "own.npz"), public_users=4, unit="user")
    with raises_code(DatasetError, "own-file-arrays"):
        divided_records(request, b"k")
