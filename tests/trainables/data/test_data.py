"""Data sets: stable splits, checksums, fetching, formats, and a user's own file."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables import data
from trainables.data import (
    DATASETS,
    DatasetRequest,
    check_present,
    images,
    info,
    load_records,
    loading,
    records_fingerprint,
    tabular,
)
from trainables.data.splits import aside
from trainables.errors import DatasetError


def test_every_file_that_is_fetched_has_an_address_and_a_sum() -> None:
    for known in DATASETS.values():
        for file in known.files:
            assert file.url.startswith("https://")
        for form in known.forms:
            assert all(len(file.sha256) == 64 or len(file.md5) == 32 for file in form)
            vouched = bool(known.content_sha256) or all(file.sha256 for file in form)
            assert vouched, f"{known.name}: an md5 alone vouches for nothing"


# splits


@settings(max_examples=15)
@given(st.integers(0, 300), st.integers(0, 50), st.floats(0, 0.99), st.text(max_size=5))
def test_more_records_move_no_record(count: int, more: int, fraction: float, key: str) -> None:
    few, many = (aside(n, fraction=fraction, key=key) for n in (count, count + more))
    assert np.array_equal(few, many[:count])


def test_a_split_has_its_size_and_its_key() -> None:
    first, second = (aside(20_000, fraction=0.1, key=key) for key in ("a", "b"))
    # Binomial(20 000, 0.1) has a standard deviation of 42; five of them.
    assert abs(int(first.sum()) - 2000) < 212
    assert abs(int((first & second).sum()) - 200) < 71
    assert not aside(100, fraction=0, key="a").any()


def test_a_seed_changes_the_split_and_a_fraction_of_nothing_keeps_all() -> None:
    request = DatasetRequest(name="iris")
    other = load_records(replace(request, split_seed=1))
    assert not torch.equal(load_records(request).x_validation, other.x_validation)
    assert torch.equal(load_records(request).x_test, other.x_test)
    whole = load_records(replace(request, validation_fraction=0.0))
    assert len(whole.x_validation) == 0
    assert len(whole.x_train) == DATASETS["iris"].public_train_size


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_wrong_fraction_is_refused(fraction: float) -> None:
    with raises_code(DatasetError, "validation-fraction-invalid"):
        load_records(DatasetRequest(name="iris", validation_fraction=fraction))


# finding and checking files


def test_an_unknown_name_gets_the_nearest() -> None:
    with raises_code(DatasetError, "dataset-unknown") as caught:
        info(DatasetRequest(name="mnits"))
    assert "'mnist'" in str(caught.value)


def test_the_data_directory_is_the_option_then_the_variable_then_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DP_TUNER_DATA", raising=False)
    assert data.data_folder(None) == tmp_path / "data"
    monkeypatch.setenv("DP_TUNER_DATA", str(tmp_path / "there"))
    assert data.data_folder(None) == tmp_path / "there"
    assert data.data_folder("here") == tmp_path / "here"


def test_a_missing_and_a_changed_file_are_refused(tmp_path: Path) -> None:
    request = DatasetRequest(name="mnist", data_dir=str(tmp_path))
    with raises_code(DatasetError, "dataset-not-found"):
        check_present(request)
    (tmp_path / "mnist.npz").write_bytes(b"not it")
    with raises_code(DatasetError, "dataset-checksum") as caught:
        check_present(request)
    assert hashlib.sha256(b"not it").hexdigest() in str(caught.value)
    assert DATASETS["mnist"].forms[0][0].sha256 in str(caught.value)


# formats


def idx(array: np.ndarray) -> bytes:
    head = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes())


def test_idx_files_and_npz_files_give_the_same_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {"x_train": rng.integers(0, 256, (5, 28, 28), np.uint8), "y_train": np.arange(5, dtype=np.uint8)}
    parts |= {"x_test": rng.integers(0, 256, (3, 28, 28), np.uint8), "y_test": np.arange(3, dtype=np.uint8)}
    np.savez(tmp_path / "x.npz", **parts)
    paths = tuple(tmp_path / key for key in parts)
    for path, array in zip(paths, parts.values(), strict=True):
        path.write_bytes(idx(array))
    one, other = images.read_npz((tmp_path / "x.npz",)), images.read_idx(paths)
    assert loading.content_sha256(one) == loading.content_sha256(other)
    assert one["x_train"].shape == (5, 1, 28, 28)
    for wrong in (b"no gzip", gzip.compress(b"\x00\x00\x0d\x01"), gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x09ab")):
        paths[0].write_bytes(wrong)
        with raises_code(DatasetError, "dataset-damaged"):
            images.read_idx(paths)


def cifar_archive(path: Path, train: np.ndarray, test: np.ndarray, extra: object = None) -> None:
    with tarfile.open(path, "w:gz") as archive:
        parts = {f"data_batch_{i + 1}": train[i * 2 : i * 2 + 2] for i in range(5)} | {"test_batch": test}
        for name, rows in parts.items():
            content = {b"data": rows.reshape(len(rows), -1), b"labels": [int(row.flat[0]) % 10 for row in rows]}
            raw = pickle.dumps(content | ({b"more": extra} if extra else {}), protocol=2)
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))


def test_the_cifar_archive_is_read_in_its_order_and_runs_no_code(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.integers(0, 256, (10, 3, 32, 32), np.uint8), rng.integers(0, 256, (4, 3, 32, 32), np.uint8)
    path = tmp_path / "cifar-10-python.tar.gz"
    cifar_archive(path, train, test)
    arrays = images.read_cifar_archive((path,))
    assert np.array_equal(arrays["x_train"], train)
    assert np.array_equal(arrays["x_test"], test)
    assert arrays["y_test"].tolist() == [int(row.flat[0]) % 10 for row in test]
    cifar_archive(path, train, test, extra=print)
    with raises_code(DatasetError, "dataset-damaged"):
        images.read_cifar_archive((path,))


def test_tables_use_only_public_words_and_scales() -> None:
    row = "50, Private, 83311, Bachelors, 13, Divorced, ?, Husband, White, Male, 0, 0, 200, Atlantis, >50K.\n"
    x, y = tabular.encode(tabular.ADULT, "|1x3 Cross validator\n\n" + row)
    assert x.shape == (1, tabular.ADULT.width)
    assert y.tolist() == [1]
    assert x[0, 0] == np.float32(0.5)
    hot = int((x == 1).sum())
    assert hot == 7  # workclass, education, marital status, relationship, race, sex; and hours, clipped to 1
    alone, _ = tabular.encode(tabular.ADULT, row)
    among, _ = tabular.encode(tabular.ADULT, row * 2 + row.replace("50,", "17,", 1))
    assert np.array_equal(alone[0], among[0])


CSV = "1000025,5,1,1,1,2,1,3,1,1,2\n1,5,1,1,1,2,?,3,1,1,4\n"
OTHER_LABEL, NO_NUMBER = CSV.replace(",2\n", ",3\n"), "1,nan,1,1,1,2,1,3,1,1,2\n"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        *((tabular.WISCONSIN, text) for text in ("a,b\n", OTHER_LABEL, "x," * 10 + "2\n", NO_NUMBER)),
        (tabular.BANK, '"age";"job"\n30;"admin."\n'),
    ],
)
def test_a_damaged_table_is_refused_without_quoting_a_record(table: tabular.Table, text: str) -> None:
    with raises_code(DatasetError, "dataset-damaged") as caught:
        tabular.encode(table, text)
    assert "1000025" not in str(caught.value)
    assert caught.value.__cause__ is None


# a user's own file

OWN = {
    "x_train": np.zeros((6, 3), np.float32),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.ones((3, 3), np.float32),
    "y_test": np.array([0, 1, 2]),
}


def own(tmp_path: Path, **changed: object) -> DatasetRequest:
    path = tmp_path / "own.npz"
    arrays = {key: value for key, value in {**OWN, **changed}.items() if value is not None}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return DatasetRequest(name="mine", path=str(path), public_size=6, validation_fraction=0.0)


def test_a_users_own_file_is_loaded_as_given(tmp_path: Path) -> None:
    request = own(tmp_path)
    known = info(request)
    assert (known.input_shape, known.classes, known.public_train_size) == ((3,), 3, 6)
    assert known.budget_owner == "mine"
    splits = load_records(request)
    assert splits.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert splits.x_test.tolist() == np.ones((3, 3)).tolist()
    scaled = own(tmp_path, x_train=np.full((6, 3), 255, np.uint8), x_test=np.zeros((3, 3), np.uint8), classes=5)
    assert info(scaled).classes == 5, "as declared"
    assert float(load_records(replace(scaled, name="bytes")).x_train.max()) == 1.0


USER_WRONG: list[tuple[dict[str, object], str]] = [
    ({"x_train": None}, "own-file-format"),
    ({"y_train": np.zeros(5, int)}, "own-file-arrays"),
    ({"y_train": np.zeros(6)}, "own-file-arrays"),
    ({"y_test": np.array([0, 1, 7]), "classes": 3}, "own-file-arrays"),
    ({"x_train": np.zeros((6, 4))}, "own-file-arrays"),
    ({"x_test": np.full((3, 3), np.nan)}, "own-file-arrays"),
    ({"x_train": np.full((6, 3), None)}, "own-file-format"),
    ({"y_test": np.zeros((3, 1), int)}, "own-file-arrays"),
    ({"classes": 1}, "own-file-arrays"),
]


@pytest.mark.parametrize(("changed", "code"), USER_WRONG, ids=[f"{next(iter(c))}-{code}" for c, code in USER_WRONG])
def test_a_wrong_file_of_the_users_is_refused(tmp_path: Path, changed: dict[str, object], code: str) -> None:
    with raises_code(DatasetError, code):
        load_records(own(tmp_path, **changed))


def test_one_bad_training_record_decides_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whether trials run is shown to analysts, so it must not depend on a record: bad ones are fixed one by one."""
    x = np.ones((6, 3))
    x[0, 1] = np.nan
    splits = load_records(own(tmp_path, x_train=x, y_train=np.array([0, 1, 2, 0, -1, 3])))
    assert splits.y_train.tolist() == [0, 1, 2, 0]
    assert splits.x_train[0].tolist() == [1, 0, 1]
    assert not caplog.text, "that there was one is private, and a terminal shows what is said"


def test_removing_a_record_moves_no_other_of_a_users_file(tmp_path: Path) -> None:
    """Rows behind a removed one are renumbered, so a split by index would move them (the control)."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 3)), np.arange(400) % 3
    (tmp_path / "fewer").mkdir()
    full = load_records(replace(own(tmp_path, x_train=x, y_train=y), validation_fraction=0.3))
    fewer = load_records(replace(own(tmp_path / "fewer", x_train=x[1:], y_train=y[1:]), validation_fraction=0.3))
    rows = [{tuple(row) for row in splits.x_train.tolist()} for splits in (full, fewer)]
    assert len(rows[0] ^ rows[1]) <= 1
    by_index = [set(map(tuple, part[~aside(len(part), fraction=0.3, key="k")].tolist())) for part in (x, x[1:])]
    assert len(by_index[0] ^ by_index[1]) > 50


def test_a_file_that_is_none_a_missing_size_and_a_taken_name_are_refused(tmp_path: Path) -> None:
    request = own(tmp_path)
    with raises_code(DatasetError, "public-size-missing"):
        info(replace(request, public_size=None))
    with raises_code(DatasetError, "dataset-name-taken"):
        info(replace(request, name="mnist"))
    with raises_code(DatasetError, "own-file-missing"):
        check_present(replace(request, path=str(tmp_path / "none.npz")))
    (tmp_path / "text.npz").write_text("x")
    with raises_code(DatasetError, "own-file-format"):
        info(replace(request, path=str(tmp_path / "text.npz")))
    np.save(tmp_path / "one.npy", np.zeros(3))
    with raises_code(DatasetError, "own-file-format"):
        info(replace(request, path=str(tmp_path / "one.npy")))


# the ledger's name for the records


def test_sets_that_share_records_share_budget_and_fingerprint(tmp_path: Path) -> None:
    assert DATASETS["cifar10_10k2k"].budget_owner == "cifar10"
    marks = {name: records_fingerprint(DatasetRequest(name=name)) for name in DATASETS}
    assert marks["cifar10_10k2k"] == marks["cifar10"]
    owners = {known.budget_owner for known in DATASETS.values()}
    assert len({marks[name] for name in owners}) == len(owners)
    request = own(tmp_path)
    first = records_fingerprint(request)
    assert first == records_fingerprint(replace(request, name="another"))
    assert records_fingerprint(own(tmp_path, x_train=np.full((6, 3), 2.0))) != first


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "sklearn", "PIL", "ray"]
    modules = "trainables.data, trainables.methods, trainables.model_names"
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
