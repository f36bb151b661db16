"""A user's own file that changes while it is used: what was compared is what is read, or nothing is."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors_helper import raises_code

from trainables.data import DatasetRequest, as_it_is, load_records, records_fingerprint, user_file
from trainables.data.divided import divided_records
from trainables.errors import DatasetError

USERS = {"unit": "user", "records_per_user": 4, "public_users": 20}
READERS: list[tuple[Callable[[DatasetRequest], object], dict[str, Any]]] = [
    (load_records, {}),
    (records_fingerprint, {}),
    (lambda request: divided_records(request, b"secret"), USERS),
]


def write(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(60, 3)), random.integers(0, 2, 60)
    np.savez(path, x_train=x[:50], y_train=y[:50], user_train=np.arange(50) % 20, x_test=x[50:], y_test=y[50:])


def replaced(path: Path) -> None:
    write(path.with_name("new.npz"), 1)
    path.with_name("new.npz").replace(path)


@pytest.mark.parametrize("change", [lambda path: write(path, 1), replaced])
@pytest.mark.parametrize(("read", "more"), READERS)
def test_other_records_are_refused_by_every_reader(
    tmp_path: Path, read: Callable[[DatasetRequest], object], more: dict[str, Any], change: Callable[[Path], None]
) -> None:
    path = tmp_path / "own.npz"
    write(path, 0)
    plain = DatasetRequest(name="own", path=str(path), public_size=50, **more)
    request = pickle.loads(pickle.dumps(as_it_is(plain)))  # as a worker gets it
    read(request)
    os.utime(path)  # the same records, written again
    read(request)
    change(path)
    other = as_it_is(plain)
    if read is not load_records:  # these are kept by this process, which is right: they are those of the request
        with raises_code(DatasetError, "own-file-changed"):
            read(request)
    with raises_code(DatasetError, "own-file-changed"):
        load_records(DatasetRequest(**{**vars(request), "split_seed": 7}))
    read(other)
    assert other.content not in {"", request.content}


def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.npz"
    write(path, 0)
    os.utime(path, (1, 1))  # before any change, also where times are coarse
    content, load = user_file.content_of(path), np.load

    def written_meanwhile(file: Any, **options: Any) -> Any:  # noqa: ANN401 - as numpy's
        found = load(file, **options)
        with path.open("r+b") as other:
            other.seek(-1, os.SEEK_END)
            last = other.read(1)
            other.seek(-1, os.SEEK_END)
            other.write(last)
        return found

    user_file.read_arrays_of(path, ("y_test",), content=content)
    monkeypatch.setattr(np, "load", written_meanwhile)
    with raises_code(DatasetError, "own-file-changed"):
        user_file.read_arrays_of(path, ("y_test",), content=content)


def test_the_checksum_is_salted_and_never_printed(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write(path, 0)
    one, two = (as_it_is(DatasetRequest(name="own", path=str(path), public_size=50)) for _ in range(2))
    assert one.content != two.content
    assert one.content not in repr(one)
    assert as_it_is(DatasetRequest(name="digits")).content == ""


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_files_with_one_fingerprint_have_one_split(tmp_path: Path, task: str) -> None:
    """Otherwise records that trained before a resume would validate after it."""
    random = np.random.default_rng(0)
    x, y = random.integers(-1, 2, (300, 4)).astype(float), random.integers(0, 2, 300)
    test = {"x_test": x[:20], "y_test": y[:20].astype(float) if task == "regression" else y[:20]}
    found = []
    for number, change in enumerate((lambda a: a, lambda a: np.where(a == 0, -0.0, a), lambda a: a.astype(np.float16))):
        path = tmp_path / f"{number}.npz"
        labels = change(y.astype(float)) if task == "regression" else y
        np.savez(path, x_train=change(x), y_train=labels, **test)
        request = DatasetRequest(name="own", path=str(path), public_size=300, task=task, validation_fraction=0.4)
        splits = load_records(request)
        found.append((records_fingerprint(request), splits.x_validation.tolist(), splits.y_validation.tolist()))
    assert found[0] == found[1] == found[2]
    assert len(found[0][1]) > 0
