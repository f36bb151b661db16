"""The division into users, from a user's own file to the ledger, the budget's views, the card and `tune verify`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from command_fakes import Tune
from held_fakes import refused, write_named

from tuner.privacy.ledger.ledger import Ledger

USERS = np.arange(200) // 10


def write_file(path: Path, users: np.ndarray, *, first: int = 0) -> None:
    """The same 200 records in every file, or those from `first` on, with these users."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(240, 6)).astype(np.float32), draw.integers(0, 2, 240)
    x[:, 0] += 3 * y
    train = slice(first, 200)
    np.savez(path, x_train=x[train], y_train=y[train], x_test=x[200:], y_test=y[200:], user_train=users[train])


def write_own(tune: Tune, name: str = "own", **changes: object) -> str:
    small: dict[str, object] = {
        "dataset__path": "own.npz",
        "dataset__public_users": 40,
        "privacy__unit": "user",
        "privacy__delta": 1e-3,
        "trainable__batch_size": 8,
        "search__trials": 1,
    }
    return write_named(tune, name, **{**small, **changes})


@pytest.fixture
def owned(tune: Tune) -> Tune:
    """A sweep of one trial on twenty users of ten records."""
    write_file(tune.folder / "own.npz", USERS)
    tune("run", write_own(tune), "--local", "--quiet")
    return tune


@pytest.mark.slow
def test_users_are_not_divided_anew_and_every_view_says_so(owned: Tune, scored: list[str]) -> None:
    # The attack: one record less, and every record is a user.
    write_file(owned.folder / "own.npz", np.arange(200), first=1)
    said = refused(owned, scored, "run", "own.yaml", "--local", "--quiet", code=3)
    assert "[users-differ]" in said.err
    for words in (("resume", "own", "--local", "--set", "search.trials=2"), ("export", "own")):
        assert "[ledger-mismatch]" in refused(owned, scored, *words).err
    # With the same users the same file is admitted, and the total is said to rest on both.
    write_file(owned.folder / "own.npz", USERS, first=1)
    owned("run", "own.yaml", "--local", "--quiet")
    basis = (
        "one division of the records among users; the ledger checked it by keyed hashes over the files of 2 searches"
    )
    assert basis in owned("budget", "show").text
    owned("budget", "report", "own", "--out", "page.html")
    assert basis in " ".join(Path("page.html").read_text().split())
    owned("export", owned.sweeps[1].name, "--out", "out")
    assert basis in json.loads(Path("out/privacy_card.json").read_text())["records"]["division"]
    assert basis in Path("out/privacy_card.md").read_text()
    verify = ("verify", "out/privacy_card.json")
    assert "yes: the card follows from its ledger" in owned(*verify).text
    # The table of the ledger is held to its chain.
    with sqlite3.connect(owned.folder / "dp-tuner" / "ledger.db") as raw:
        stored = raw.execute("SELECT search, pairs FROM divisions ORDER BY length(pairs) DESC").fetchone()
        raw.execute("DROP TRIGGER divisions_stay")
        raw.execute("DELETE FROM divisions WHERE search = ?", stored[:1])
    assert "WARNING: The division of the records of data set 'own' among users was" in owned("budget", "show").text
    assert "NO division among users" in owned(*verify, code=None).text
    charged = owned.entries
    assert "[ledger-division-damaged]" in owned("run", "own.yaml", "--local", "--quiet", code=1).err
    assert owned.entries == charged
    with sqlite3.connect(owned.folder / "dp-tuner" / "ledger.db") as raw:
        raw.execute("INSERT INTO divisions VALUES (?, ?)", stored)
    assert "WARNING" not in owned("budget", "show").text
    # An operator may say nothing else on the card: it is compared with one built from the ledger.
    card = json.loads(Path("out/privacy_card.json").read_text())
    card["records"]["division"] = card["records"]["division"].replace("2 searches", "3 searches")
    Path("out/privacy_card.json").write_text(json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    assert "records.division" in owned(*verify, code=None).text


def test_a_user_key_is_the_owners_word_in_every_view(tune: Tune, scored: list[str]) -> None:
    write_file(tune.folder / "own.npz", USERS)
    keyed = {"dataset__user_key": "patient number of hospital X"}
    tune("run", write_own(tune, **keyed), "--local", "--quiet")
    state = Ledger.open(tune.ledger_url, create=False).dataset_state("own")
    (division,) = [search.division for search in state.searches]
    assert division is not None
    assert division.stored is None
    said = tune("budget", "show").text
    assert "the owner's word that the user key 'patient number of hospital X'" in said
    for other in ({"dataset__user_key": "visit number"}, {}):
        write_own(tune, **other)
        assert "must divide the records" in tune("plan", "own.yaml", code=None).text, "before anything starts"
        assert "[user-key-differs]" in refused(tune, scored, "run", "own.yaml", "--local", "--quiet", code=3).err
    write_file(tune.folder / "own.npz", np.arange(200))
    said = refused(tune, scored, "resume", "own", "--local", "--set", "search.trials=2").err
    assert "[ledger-mismatch]" in said, "within a search the word of the owner changes nothing"
