"""The ledger is asked about every data set that a command reads, tells nothing of records, and is never made aside."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from command_fakes import Tune, write_images
from test_own_records import write_own, write_records

from trainables.data import DatasetRequest, records_fingerprint
from trainables.training import PrivateTraining
from tuner.privacy.card.card import card_text
from tuner.privacy.ledger.ledger import Ledger

CAP = ("--epsilon", "99", "--delta", "1e-4")
OPEN = {"privacy__private": False, "search__trials": 1, "trainable__epochs": 0.2, "search__rungs": 1}


def digits_in_public(tune: Tune) -> str:
    """A public search on `digits`, and a charged run on images of one's own."""
    write_images(tune.folder / "mine.npz", 500)
    return tune.write(
        "public.yaml",
        name="public",
        dataset={"name": "mine", "path": "mine.npz", "public_size": 500},
        privacy={"epsilon": 8.0, "accounting": "public"},
        search__public={"name": "digits"},
        search__trials=1,
        trainable__epochs=0.5,
    )


@pytest.mark.parametrize("kind", ["public", pytest.param("not private", marks=pytest.mark.slow)])
def test_a_set_that_the_ledger_holds_as_private_is_used_only_when_its_total_is_void(tune: Tune, kind: str) -> None:
    file = digits_in_public(tune) if kind == "public" else tune.write("study.yaml", name="study", **OPEN)
    tune("budget", "set", "digits", *CAP)
    said = tune("run", file, "--local", code=3)
    assert "[records-not-admitted]" in said.err
    assert "digits" not in said.err.partition("error:")[2]
    assert (tune.sweeps, tune.entries) == ([], ["cap"])
    assert "[value-empty]" in tune("run", file, "--local", "--void-total", " ", code=2).err
    assert "[options-conflict]" in tune("run", tune.write("own.yaml"), "--void-total", "no use", code=2).err
    assert (tune.sweeps, tune.entries) == ([], ["cap"])
    run = tune("run", file, "--local", "--quiet", "--void-total", "a study of noise")
    assert "the TOTAL of digits is now VOID" in run.text
    assert "for information, not a guarantee: the total is void" in tune("budget", "show", "digits").text
    assert tune.entries[:2] == ["cap", "void"], "before the first step"
    # Every view says so from now on, the card of a later search and its check too.
    later = tune.write(search__trials=1)
    views = [
        tune("budget", "show", "digits").text,
        tune("plan", later, "--no-timing").text,
        tune("run", later, "--local").text,
        tune("budget", "report", "digits", "--out", "page.html").text + (tune.folder / "page.html").read_text(),
    ]
    tune("export", "tiny")
    card = Path("exports/tiny/privacy_card.json")
    views += [tune("verify", str(card)).text, card.with_suffix(".md").read_text()]
    for view in views:
        assert "void" in view.lower()
        assert "a study of noise" in view
    assert tune("budget", "show", "digits", "--json").json["datasets"][0]["guarantee"] is None
    # The control: a card that keeps silent about it is refused, by the second count as well.
    read = json.loads(card.read_text())
    assert "NO guarantee for all uses together" in read["dataset_budget"]["label"]
    read["dataset_budget"]["void"] = []
    card.write_text(card_text(read))
    checks = tune("verify", str(card), "--json", code=1).json["checks"]
    assert any("void" in each["name"] and each["ok"] is False for each in checks)


@pytest.mark.parametrize("kind", ["public", "not private"])
def test_a_search_without_a_charge_starts_no_trial_once_the_ledger_holds_its_records(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = digits_in_public(tune) if kind == "public" else tune.write("study.yaml", name="study", **OPEN)
    honest = PrivateTraining.run_to

    def meanwhile(self: PrivateTraining, step: int) -> None:
        Ledger.open(tune.ledger_url).set_cap("digits", 9.0, 1e-4)  # as a search of another process would
        honest(self, step)

    monkeypatch.setattr(PrivateTraining, "run_to", meanwhile)
    assert "[records-not-admitted]" in tune("run", file, "--local", "--set", "search.trials=3", code=3).err
    (sweep,) = tune("status", "--json").json["sweeps"]
    assert (sweep["state"], sweep["trials"]["complete"]) == ("failed", 1)
    assert "[records-not-admitted]" in tune("resume", sweep["sweep"], "--local", code=3).err


def test_a_set_that_no_ledger_knows_stays_free(tune: Tune) -> None:
    tune("run", tune.write(**OPEN), "--local", "--quiet")
    assert not (tune.folder / "dp-tuner").exists(), "a search without privacy makes no ledger"


def test_a_file_is_not_used_openly_once_a_cap_names_records_that_nobody_has_searched(tune: Tune) -> None:
    write_records(tune.folder / "guess.npz")
    file = write_own(tune, "guess", **OPEN)
    tune("budget", "set", "digits", *CAP)
    tune("run", file, "--local", "--quiet")
    tune("budget", "set", "clinic", *CAP, "--new")
    assert "[records-not-admitted]" in tune("run", file, "--local", code=3).err
    tune("budget", "public", "guess", "guess.npz")
    tune("run", file, "--local", "--quiet")


@pytest.fixture
def held(tune: Tune) -> Tune:
    """A ledger that holds records of one's own as private; `right.npz` has them in another order, `wrong.npz` not."""
    write_records(tune.folder / "own.npz")
    tune("run", write_own(tune), "--local", "--quiet")
    write_records(tune.folder / "right.npz", packed=True)
    write_records(tune.folder / "wrong.npz", key=1)
    return tune


def test_a_right_and_a_wrong_guess_get_one_answer(held: Tune) -> None:
    entries, answers = held.entries, set()
    for guess in ("right", "wrong"):
        for changes in (OPEN, {}):
            file = write_own(held, "guess", dataset__path=f"{guess}.npz", **changes)
            answers.add(held("run", file, "--local", "--json", code=3).err)
    assert len(answers) == 1
    assert held.entries == entries
    # The owner sees the reason, and what the owner entered runs.
    said = held("budget", "public", "open", "right.npz", code=3).err
    assert "[records-known-private]" in said
    assert "'own'" in said
    held("budget", "public", "open", "wrong.npz")
    held("run", write_own(held, "guess", dataset__path="wrong.npz", **OPEN), "--local", "--quiet")
    again = write_own(held, "guess", dataset__path="wrong.npz")
    assert "[records-not-admitted]" in held("run", again, "--local", code=3).err, "public once, public for ever"


@pytest.mark.parametrize("labels", [(-1, 1), (-277, 3, 644_352), (0.5, 1.0)])
def test_public_records_of_every_task_can_be_entered(tune: Tune, labels: tuple[float, ...]) -> None:
    y = np.array(labels * 10)
    x = np.arange(2.0 * len(y), dtype=np.float32).reshape(-1, 2)
    np.savez(tune.folder / "open.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert "as public" in tune("budget", "public", "open", "open.npz").out


def test_the_ledger_has_no_checksum_that_a_guess_can_be_tested_with(held: Tune) -> None:
    own = DatasetRequest(name="own", path=str(held.folder / "own.npz"), public_size=200)
    with sqlite3.connect(held.folder / "dp-tuner" / "ledger.db") as raw:
        bodies = "".join(body for (body,) in raw.execute("SELECT body FROM entries"))
    assert records_fingerprint(own) not in bodies
    state = Ledger.open(held.ledger_url).dataset_state("own")
    (found,) = state.fingerprints
    assert found in bodies
    (held.folder / "dp-tuner" / "ledger.db.key").rename(held.folder / "key")
    before = held.sweeps
    assert "[ledger-key]" in held("run", "own.yaml", "--local", code=1).err
    assert held.sweeps == before, "a search that never began leaves no folder"
    held("budget", "show", "own")  # a reader needs no key


def test_a_total_that_rests_on_a_name_says_so(held: Tune) -> None:
    held("budget", "set", "twin", *CAP)
    file = write_own(held, "twin", dataset__path="wrong.npz")
    for command in (("plan", file, "--no-timing"), ("run", file, "--local")):
        said = held(*command).text
        assert "only if all files with these records use this data set name" in said
        assert "same shape, searched by the same user: own" in said
    held("export", "twin")
    card = json.loads((held.folder / "exports" / "twin" / "privacy_card.json").read_text())
    assert card["dataset_budget"]["naming"].startswith("ASSUMED")
    assert card["dataset_budget"]["naming"].endswith(": own")
    held("verify", "exports/twin/privacy_card.json")


# A ledger is never made as a side effect.


def test_a_new_ledger_is_told_and_looking_makes_none(tune: Tune) -> None:
    file = tune.write()
    for words in (("plan", file, "--no-timing"), ("run", file, "--dry-run"), ("status",), ("validate", file)):
        tune(*words)
    assert not (tune.folder / "dp-tuner").exists()
    assert "which contains no earlier search" in tune("run", file, "--local").out
    assert "which contains no earlier search" not in tune("run", file, "--local").out


def test_an_exported_file_is_trained_with_its_own_ledger_only(charged: Tune) -> None:
    folder = charged.folder / "dp-tuner"
    early = charged.folder / "early"
    shutil.copytree(folder, early)
    charged("export", "tiny")
    charged("budget", "set", "digits", *CAP)
    charged("export", "tiny", "--out", "late")
    file = "late/experiment.yaml"
    charged("plan", file, "--no-timing")  # the control: its own ledger
    shutil.move(folder, charged.folder / "away")
    for there in (None, early):
        if there is not None:
            shutil.copytree(there, folder)
        for words in (("train", file, "--local"), ("run", file, "--local"), ("plan", file, "--no-timing")):
            assert "[ledger-not-origin]" in charged(*words, code=1).err
        assert folder.exists() == (there is not None)
    shutil.rmtree(folder)
    charged("budget", "set", "digits", *CAP)  # another ledger
    assert "[ledger-not-origin]" in charged("train", file, "--local", code=1).err
    shutil.rmtree(folder)
    sweep = charged.sweeps[0].name
    charged("resume", sweep, "--local", "--set", "search.trials=3", code=1)
    assert not folder.exists()


def test_landscape_asks_the_ledger(charged: Tune) -> None:
    charged("export", "tiny")
    words = ("landscape", "exports/tiny", "--public-data", "--records", "20", "--iterations", "1", "--points", "3")
    charged(*words, "--restarts", "1")  # the control: validation records of its own search
    split = charged.write("other.yaml", name="other", dataset__validation={"split_seed": 5}, search__trials=1)
    charged("run", split, "--local", "--quiet")
    assert "[records-not-admitted]" in charged(*words, code=3).err, "they trained in another search"


def test_a_file_that_nobody_entered_voids_the_totals_of_all_own_records(held: Tune) -> None:
    file = write_own(held, "guess", dataset__path="wrong.npz", **OPEN)
    held("run", file, "--local", "--quiet", "--void-total", "we know what we do")
    (void,) = Ledger.open(held.ledger_url).dataset_state("own").voids
    assert (void.use, void.why, void.sweep) == ("not private", "we know what we do", held.sweeps[0].name)
    held("resume", "guess", "--local", "--quiet", "--set", "search.trials=2")
    assert held.entries.count("void") == 1
    assert "[records-not-admitted]" in held("run", file, "--local", code=3).err, "for one sweep only"


def test_a_damaged_data_set_does_not_stop_another_total_from_becoming_void(held: Tune) -> None:
    """It cannot be entered there, and this is said. A use of the damaged set itself is refused by its damage."""
    held("budget", "set", "twin", *CAP)
    write_records(held.folder / "twin.npz", key=7)
    held("run", write_own(held, "twin", dataset__path="twin.npz"), "--local", "--quiet")
    with contextlib.closing(sqlite3.connect(held.folder / "dp-tuner" / "ledger.db")) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE heads SET seq = seq + 1 WHERE dataset = 'twin'")
        raw.commit()
    entries = len(held.entries)
    void = ("--local", "--quiet", "--void-total", "we know")
    mine = held("run", write_own(held, "twin", dataset__path="twin.npz", **OPEN), *void, code=1)
    assert "[ledger-damaged]" in mine.err
    assert "twin" in mine.err
    assert len(held.entries) == entries, "nothing was written"
    assert len(held.sweeps) == 2
    file = write_own(held, "guess", dataset__path="wrong.npz", **OPEN)
    assert "[records-not-admitted]" in held("run", file, "--local", code=3).err
    said = held("run", file, "--local", "--void-total", "we know")
    assert "the total of twin could not be entered as void" in said.text
    assert len(held.entries) == entries + 1
    ledger = Ledger.open(held.ledger_url)
    assert [void.why for void in ledger.dataset_state("own").voids] == ["we know"]
    held("resume", "guess", "--local", "--quiet", "--set", "search.trials=2")
