"""Suggestions for a mistyped name: near names are found, and another word is no suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.suggestions import edit_distance, meant, near, near_files

WORDS = st.text("abc", max_size=5)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "abc", 3),
        ("tiny", "tiny", 0),
        ("tinny", "tiny", 1),
        ("tiyn", "tiny", 1),
        ("ca", "abc", 3),
        ("mnist", "digits", 4),
    ],
)
def test_the_distance_of_two_words(one: str, other: str, distance: int) -> None:
    assert edit_distance(one, other) == distance


@given(WORDS, WORDS)
def test_the_distance_is_symmetric_and_zero_for_equal_words_alone(one: str, other: str) -> None:
    distance = edit_distance(one, other)
    assert distance == edit_distance(other, one) <= max(len(one), len(other))
    assert (distance == 0) == (one == other)


def test_only_near_names_are_suggested() -> None:
    known = ["digits_dplis", "digits_gen", "mnist_pate", "a"]
    assert near("digits_dpils", known) == ["digits_dplis"]
    assert near("Digits_Gen", known) == ["digits_gen"]
    assert near("digits", known) == ["digits_gen", "digits_dplis"], "it is the beginning of both"
    assert near("nofile", known) == []
    assert near("b", known) == [], "one letter of one is another name"
    assert meant(near("nofile", known)) == ""
    assert meant(["a", "b"]) == " Did you mean 'a' or 'b'?"


def test_files_are_suggested_by_their_name_without_its_ending(tmp_path: Path) -> None:
    for name in ("first.yaml", "first.yml", "first.npz", "other.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "frist.yaml").mkdir()
    kinds = (".yaml", ".yml")
    assert near_files(tmp_path / "frist.yaml", kinds=kinds) == [str(tmp_path / f"first{kind}") for kind in kinds]
    assert near_files(tmp_path / "first", kinds=kinds) == [str(tmp_path / f"first{kind}") for kind in kinds]
    assert near_files(tmp_path / "nofile.yaml", kinds=kinds) == []
    assert near_files(tmp_path / "none" / "first.yaml", kinds=kinds) == [], "there is no such folder"
