"""Records that belong to users: nobody is on two sides or moves another, and nothing is counted from the records."""

from __future__ import annotations

import itertools
import tempfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st

from trainables.data import (
    DATASETS,
    DatasetRequest,
    check_present,
    info,
    load_records,
    loading,
    public_train_size,
    public_validation_size,
    records_fingerprint,
    text,
)
from trainables.data.divided import divided_records
from trainables.data.requests import DatasetInfo
from trainables.data.splits import aside_by_user, contributions
from trainables.errors import DatasetError

NAMES = st.lists(st.text(max_size=6).filter(lambda name: "\0" not in name), unique=True, max_size=30)

# -- the split and the bound -----------------------------------------------------------------------------------------


@given(NAMES, st.text(min_size=7, max_size=40).filter(lambda name: "\0" not in name), st.floats(0, 0.99))
def test_another_user_moves_nobody(names: list[str], another: str, fraction: float) -> None:
    """However long the new name is: numpy stores all names of an array as long as the longest."""
    users = np.array([*names, *names], dtype=np.str_)
    more = np.array([another, *names, *names], dtype=np.str_)
    held, held_of_more = (aside_by_user(each, fraction=fraction, key="k") for each in (users, more))
    assert np.array_equal(held, held_of_more[1:])
    assert np.array_equal(held[: len(names)], held[len(names) :]), "a user's records stay together"


def records(counts: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(len(counts)), counts)
    order = rng.permutation(len(users))
    return rng.normal(size=(len(users), 3)).astype(np.float32), rng.integers(0, 3, len(users)), users[order]


def chosen(x: np.ndarray, y: np.ndarray, users: np.ndarray, most: int) -> dict[int, set[tuple[float, ...]]]:
    """The records that stand for each user, by what is in them."""
    table = contributions(x, y, users, most=most, key="k")
    assert table.shape == (len(np.unique(users)), most)
    found = {}
    for user, row in zip(np.unique(users).tolist(), table, strict=True):
        own = row[row >= 0]
        assert (row[: len(own)] >= 0).all(), "what is missing comes last"
        assert (users[own] == user).all(), "a user stands for nobody else"
        assert len(own) == min(most, int((users == user).sum())) == len(set(own.tolist()))
        found[user] = {(*x[record].tolist(), float(y[record])) for record in own}
    return found


@given(st.lists(st.integers(1, 6), min_size=2, max_size=8), st.integers(1, 7), st.integers(0, 9))
def test_who_stands_for_a_user_depends_on_that_user_alone(counts: list[int], most: int, seed: int) -> None:
    x, y, users = records(counts, seed)
    whole = chosen(x, y, users, most)
    others = users != 0
    without = chosen(x[others], y[others], users[others], most)
    assert without == {user: own for user, own in whole.items() if user != 0}
    backwards = chosen(x[::-1], y[::-1], users[::-1], most)
    assert backwards == whole, "nor on the order of the file"


def test_the_choice_is_by_the_key_and_not_by_the_place() -> None:
    x, y, users = records([500])
    first, second = (contributions(x, y, users, most=50, key=key)[0] for key in ("a", "b"))
    # Hypergeometric: 5 of 50 are expected to be in both, with a standard deviation of 2.
    assert len(set(first.tolist()) & set(second.tolist())) < 16
    assert 150 < np.mean(first) < 350


# -- a file of one's own ---------------------------------------------------------------------------------------------

OWNERS = np.array(["ann", "bo", "ann", "cy", "bo", "ann"])
OWN: dict[str, Any] = {
    "x_train": np.arange(18, dtype=np.float32).reshape(6, 3),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.ones((3, 3), np.float32),
    "y_test": np.array([0, 1, 2]),
    "user_train": OWNERS,
}


def own(folder: Path, **changed: object) -> DatasetRequest:
    folder.mkdir(exist_ok=True)
    arrays = {key: value for key, value in {**OWN, **changed}.items() if value is not None}
    np.savez(folder / "own.npz", **arrays)
    path = str(folder / "own.npz")
    return DatasetRequest(
        name="mine", path=path, public_users=4, unit="user", records_per_user=2, validation_fraction=0.0
    )


@pytest.mark.parametrize("owners", [OWNERS, np.array([7, -2, 7, 10**12, -2, 7])], ids=["strings", "numbers"])
def test_a_file_with_users_is_loaded_user_by_user(owners: np.ndarray, tmp_path: Path) -> None:
    request = own(tmp_path, user_train=owners)
    check_present(request)
    known, splits = info(request), load_records(request)
    assert (known.users, known.input_shape, known.classes) == (4, (3,), 3)
    assert splits.users_train is not None
    rows = [row[row >= 0] for row in splits.users_train]
    assert sorted(len(row) for row in rows) == [1, 2, 2], "no more than two of ann's three"
    owner_of = {tuple(x): owner for x, owner in zip(OWN["x_train"].tolist(), owners.tolist(), strict=True)}
    seen = [{owner_of[tuple(x)] for x in splits.x_train[row].tolist()} for row in rows]
    assert all(len(each) == 1 for each in seen)
    assert len(set.union(*seen)) == 3
    assert len(splits.x_train) == len(splits.y_train) == 5, "what stands for nobody is not kept"


def test_validation_records_are_those_of_whole_users(tmp_path: Path) -> None:
    x, y, users = records([7] * 60)
    request = replace(own(tmp_path, x_train=x, y_train=y, user_train=users), validation_fraction=0.3)
    splits = load_records(request)
    assert splits.users_validation is not None
    owner_of = {tuple(row): owner for row, owner in zip(x.tolist(), users.tolist(), strict=True)}
    held = [owner_of[tuple(row)] for row in splits.x_validation.tolist()]
    trained = {owner_of[tuple(row)] for row in splits.x_train.tolist()}
    assert len(held) == 7 * len(set(held)), "with all their records: none is left over"
    assert set(held) | trained == set(range(60))
    assert not set(held) & trained
    pairs = set(zip(held, splits.users_validation.tolist(), strict=True))
    assert len(pairs) == len(set(held)) == len(splits.users_validation.unique())
    # The control: as records, users are on both sides.
    mixed = load_records(replace(request, unit="record", public_size=420))
    assert (mixed.users_train, mixed.users_validation) == (None, None)
    assert {owner_of[tuple(row)] for row in mixed.x_validation.tolist()} & {
        owner_of[tuple(row)] for row in mixed.x_train.tolist()
    }


def test_public_sizes_are_those_that_were_declared(tmp_path: Path) -> None:
    request = replace(own(tmp_path), public_users=50, validation_fraction=0.2)
    assert (public_train_size(request), public_validation_size(request)) == (40, 10)
    nowhere = replace(request, path="/nowhere/x.npz")
    assert public_train_size(nowhere) == 40, "no look at the file"
    as_records = replace(request, unit="record", public_size=1000)
    assert (public_train_size(as_records), public_validation_size(as_records)) == (800, 200)
    mnist = DatasetRequest(name="mnist", validation_fraction=0.0)
    assert public_validation_size(mnist) == 0


def test_a_user_of_the_test_is_none_of_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of it: that there was such a record is private."""
    splits = load_records(own(tmp_path, user_test=np.array(["ann", "dee", "dee"])))
    assert splits.users_train is not None
    assert len(splits.users_train) == 2
    anns = {tuple(row) for row in OWN["x_train"][OWNERS == "ann"].tolist()}
    assert not anns & {tuple(row) for row in splits.x_train.tolist()}
    assert not caplog.text


def test_a_record_that_is_left_out_leaves_its_user_with_the_others(tmp_path: Path) -> None:
    splits = load_records(own(tmp_path, y_train=np.array([0, 1, -1, 9, 1, 2])))
    assert splits.users_train is not None
    assert [len(row[row >= 0]) for row in splits.users_train] == [2, 2], "cy's only record is none"


WRONG: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({"user_train": None}, {}, "own-file-format"),
    ({"user_train": OWNERS[:5]}, {}, "own-file-arrays"),
    ({"user_train": np.arange(6.0)}, {}, "own-file-arrays"),
    ({"user_test": np.arange(2)}, {}, "own-file-arrays"),
    *(({}, {"public_users": wrong}, "public-size-missing") for wrong in (None, 0, True, 2.0)),
    ({}, {"records_per_user": 0}, "records-per-user-invalid"),
    ({}, {"records_per_user": float("nan")}, "records-per-user-invalid"),
    ({}, {"unit": "household"}, "unit-unknown"),
]


@pytest.mark.parametrize(("arrays", "asked", "code"), WRONG)
def test_what_cannot_be_had_is_refused(
    arrays: dict[str, object], asked: dict[str, object], code: str, tmp_path: Path
) -> None:
    with raises_code(DatasetError, code) as caught:
        load_records(replace(own(tmp_path, **arrays), **asked))  # type: ignore[arg-type]
    assert "ann" not in str(caught.value).replace(str(tmp_path), "")


def test_records_need_no_users_whatever_the_file_has(tmp_path: Path) -> None:
    as_records = replace(own(tmp_path, user_train=np.zeros((2, 2))), unit="record", public_size=6)
    assert len(load_records(as_records).x_train) == 6


def test_sets_without_users_say_so() -> None:
    for name in (name for name, known in DATASETS.items() if known.users is None):
        with raises_code(DatasetError, "users-missing"):
            info(DatasetRequest(name=name, unit="user"))


def test_records_have_one_budget_whoever_they_belong_to(tmp_path: Path) -> None:
    """Users that were added to a file must not open a fresh budget; that they changed is told apart from it."""
    first, moved = (own(tmp_path / str(turn), user_train=np.roll(OWNERS, turn)) for turn in (0, 1))
    without = replace(own(tmp_path / "none", user_train=None), unit="record", public_size=6)
    assert len({records_fingerprint(request) for request in (first, moved, without)}) == 1


NUMBERS = np.array([7, -2, 7, 10**8, -2, 7])


@pytest.mark.parametrize("dtype", [np.int32, ">i8", str, "U40"])
def test_users_are_the_same_whatever_type_their_names_are_stored_as(dtype: str | type, tmp_path: Path) -> None:
    """The ledger's pairs, the validation users, the records of each user, and the users of the test."""
    users, x, y = NUMBERS.astype(dtype), OWN["x_train"], OWN["y_train"]
    both = [own(tmp_path / each.dtype.str, user_train=each, user_test=NUMBERS[[1, 1, 1]]) for each in (users, NUMBERS)]
    assert np.array_equal(*(divided_records(request, b"k") for request in both))
    kept = [{tuple(row) for row in load_records(request).x_train.tolist()} for request in both]
    assert kept[0] == kept[1]
    assert not kept[0] & {tuple(row) for row in x[NUMBERS == -2].tolist()}, "a user of the test trains nowhere"
    for key in "abcdef":
        assert np.array_equal(*(aside_by_user(each, fraction=0.4, key=key) for each in (users, NUMBERS)))
        tables = [contributions(x, y, each, most=1, key=key) for each in (users, NUMBERS)]
        assert set(tables[0].flat) == set(tables[1].flat), "the order of the users alone may differ"


# -- speakers --------------------------------------------------------------------------------------------------------


def corpus(path: Path) -> Path:
    """A public corpus of five words, with the unlike, in two documents."""
    words = ["The", "the", "of", "people", "--", "co-op", "union", ".", "1990"]
    counts = [3, 4, 5, 2, 90, 2, 2, 6, 40]
    ids = np.repeat(np.arange(len(words)), counts).astype(np.uint16)
    vocab = np.frombuffer("\n".join(words).encode(), np.uint8)
    np.savez(path, ids=ids, vocab=vocab, doc=(np.arange(len(ids)) >= 12).astype(np.uint16))
    return path


def speeches(path: Path, **texts: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("state_union/README", "the people of the union")
        for name, words in texts.items():
            archive.writestr(f"state_union/{name}.txt", words.encode("latin-1"))
    return path


def test_the_vocabulary_is_the_public_corpus_alone(tmp_path: Path) -> None:
    """Numbers, and what is too rare in the corpus, are not in it, however often the addresses have them."""
    path = corpus(tmp_path / "corpus.npz")
    vocabulary = text.public_vocabulary(path, least=2)
    assert vocabulary == {"the": 1, ".": 2, "of": 3, "co": 4, "op": 5, "people": 6, "union": 7}
    assert text.public_vocabulary(path, least=5) == {"the": 1, ".": 2, "of": 3}
    first, second = text.documents(path, vocabulary)
    assert first.tolist() == [1] * 7 + [3] * 5
    assert second.tolist() == [6, 6, *[4, 5] * 2, 7, 7, *[2] * 6, *[0] * 40]
    private = speeches(tmp_path / "s.zip", **{"1951-Smith": "xyzzy " * 42})
    assert text.read_speeches(private, path, least=2)["x"].tolist() == [[0] * 20] * 2


def test_records_are_windows_of_one_paragraph_and_users_are_speakers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "CONTEXT", 3)
    named = {
        "1951-Smith": "The people of THE Union. of\n\nof the people. xyzzy the people",
        "1950-Jones-1": "of the people",
        "1952-Jones-2": "union " * 9,
    }
    found = text.read_speeches(speeches(tmp_path / "s.zip", **named), corpus(tmp_path / "c.npz"), least=2)
    assert found["user"].tolist() == ["Smith", "Smith", "Jones", "Jones"], "three words are no record"
    assert found["x"].tolist() == [[1, 6, 3], [3, 1, 6], [7, 7, 7], [7, 7, 7]]
    assert found["y"].tolist() == [1, 2, 7, 7]


WORDS = st.sampled_from(["the", "of", "people", "union", ".", "xyzzy"])
PARAGRAPHS = st.lists(st.lists(WORDS, max_size=14), min_size=1, max_size=5)


@given(PARAGRAPHS, st.data())
def test_a_word_is_in_one_record_and_a_change_stays_within_its_paragraph(
    paragraphs: list[list[str]], draw: st.DataObject
) -> None:
    """The control: windows that step by one word, or that run on over the end of a paragraph, fail both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CONTEXT", 3)
        numbers = np.arange(sum(map(len, paragraphs)))
        starts = np.cumsum([0, *map(len, paragraphs)])
        rows = [text.windows(numbers[a:b]) for a, b in itertools.pairwise(starts)]
        occurrences = np.concatenate(rows).ravel().tolist()
        assert len(occurrences) == len(set(occurrences))
        place = draw.draw(st.integers(0, len(paragraphs) - 1))
        changed = [*paragraphs[:place], draw.draw(st.lists(WORDS, max_size=14)), *paragraphs[place + 1 :]]
        with tempfile.TemporaryDirectory() as folder:
            made = [_counted(Path(folder), each) for each in (paragraphs, changed)]
        most = max(len(paragraphs[place]), len(changed[place])) // 4
        assert all((one - other).total() <= most for one, other in itertools.permutations(made))


def test_a_window_more_moves_no_other_window_across_the_validation_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a split by the number of the row moves about a tenth of the windows behind it."""
    info, generator = DATASETS["state_union"], np.random.default_rng(0)
    x, y = generator.integers(0, 50, (400, 20)).astype(np.float32), generator.integers(0, 50, 400)
    more = np.insert(x, 100, 1.0, axis=0), np.insert(y, 100, 1)

    def training_windows(known: DatasetInfo, x: np.ndarray, y: np.ndarray) -> Counter[bytes]:
        arrays = {"x_train": x, "y_train": y, "x_test": x[:5], "y_test": y[:5]}
        monkeypatch.setattr(loading, "read_arrays", lambda _info, _folder: arrays)
        found = loading.load_splits(known, DatasetRequest(name="state_union", validation_fraction=0.1))
        return Counter(a.numpy().tobytes() for a in found.x_train)

    for known, is_sound in ((info, True), (replace(info, record=""), False)):
        one, other = training_windows(known, x, y), training_windows(known, *more)
        assert ((one - other).total() + (other - one).total() <= 1) is is_sound


def _counted(folder: Path, paragraphs: list[list[str]]) -> Counter[bytes]:
    told = "\n".join(" ".join(words) for words in paragraphs)
    found = text.read_speeches(speeches(folder / "s.zip", **{"1951-S": told}), corpus(folder / "c.npz"), least=2)
    return Counter(x.tobytes() + y.tobytes() for x, y in zip(found["x"], found["y"], strict=True))


def test_damaged_texts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no zip")
    with raises_code(DatasetError, "dataset-damaged"):
        text.read_speeches(tmp_path / "no.zip", corpus(tmp_path / "c.npz"))
    with raises_code(DatasetError, "dataset-damaged"):
        text.public_vocabulary(tmp_path / "no.zip")
