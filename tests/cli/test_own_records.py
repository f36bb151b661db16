"""A user's own records: recognised by their content, never shown, and split alike in all searches."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import Tune
from held_fakes import edit_yaml, refused, write_named

from trainables.data import DATASETS, load_records, loading
from tuner.privacy.ledger.entries import canonical, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.sweep.folder import SweepFolder
from tuner.sweep.preflight import prepare
from tuner.sweep.registration import enter
from tuner.sweep.settings import split_of


def write_records(path: Path, *, key: int = 0, packed: bool = False, **changes: np.ndarray) -> Path:
    """An npz file of 200 + 40 records in two classes."""
    draw = np.random.default_rng(key)
    x, y = draw.normal(size=(240, 6)).astype(np.float32), draw.integers(0, 2, 240)
    x[:, 0] += 3 * y
    arrays: dict[str, Any] = {"x_train": x[:200], "y_train": y[:200], "x_test": x[200:], "y_test": y[200:], **changes}
    if packed:
        np.savez_compressed(path, **dict(reversed(arrays.items())))
    else:
        np.savez(path, **arrays)
    return path


def write_own(tune: Tune, name: str = "own", **changes: object) -> str:
    own = {"dataset__path": f"{name}.npz", "dataset__public_size": 200}
    small = {"trainable__batch_size": 45, "trainable__epochs": 0.5, "privacy__epsilon": 4.0, "search__trials": 1}
    return write_named(tune, name, **{**own, **small, **changes})


@pytest.fixture
def own(tune: Tune) -> Tune:
    """A sweep of one trial on the user's own file."""
    write_records(tune.folder / "own.npz")
    tune("run", write_own(tune), "--local", "--quiet")
    return tune


def test_a_file_that_was_written_anew_is_read_anew_by_the_next_search_of_the_process(
    own: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    load = loading.load_splits
    monkeypatch.setattr(loading, "load_splits", lambda *asked: seen.append(asked) or load(*asked))
    own("run", "own.yaml", "--local", "--quiet", "--set", "name=again", "--set", "search.trials=2")
    assert len(seen) == 1, "once a search"
    write_records(own.folder / "own.npz", key=1)
    own("run", "own.yaml", "--local", "--quiet", "--set", "name=other")
    assert len(seen) == 2


def test_other_records_under_the_same_path_are_refused(own: Tune, scored: list[str]) -> None:
    write_records(own.folder / "own.npz", key=1)
    for words in (("resume", "own", "--local", "--set", "search.trials=2"), ("export", "own")):
        said = refused(own, scored, *words)
        assert "[ledger-mismatch]" in said.err
        assert "The records of" in said.err
    one_moved = np.load(write_records(own.folder / "own.npz"))["x_train"]
    one_moved[17, 3] += 1
    write_records(own.folder / "own.npz", x_train=one_moved)
    refused(own, scored, "export", "own")
    write_records(own.folder / "own.npz", packed=True)
    own("export", "own")


def test_another_number_of_classes_is_refused_with_the_same_training_records(own: Tune, scored: list[str]) -> None:
    labels = np.load(own.folder / "own.npz")["y_test"].copy()
    labels[0] = 2
    write_records(own.folder / "own.npz", y_test=labels)
    said = refused(own, scored, "export", "own")
    assert "The shape or number of classes of the records of" in said.err
    write_records(own.folder / "own.npz")
    own("export", "own")


def test_a_split_without_a_usable_record_ends_the_search_at_its_first_trial(tune: Tune) -> None:
    write_records(tune.folder / "own.npz", y_train=np.full(200, 7))  # no label is a class of the test records
    said = tune("run", write_own(tune, search__trials=3), "--local", "--quiet", code=1)
    assert "[split-empty]" in said.err
    (sweep,) = tune.sweeps
    assert tune.search_state(sweep.name).leased_steps == 0
    (status,) = tune("status", "own", "--json").json["sweeps"]
    assert status["trials"] == {"planned": 3, "cut off": 1}


def test_records_that_were_moved_are_known_by_what_they_are(own: Tune, scored: list[str]) -> None:
    elsewhere = own.folder / "elsewhere"
    elsewhere.mkdir()
    (own.folder / "own.npz").rename(elsewhere / "moved.npz")
    write_records(elsewhere / "others.npz", key=1)
    go_on = ("resume", "own", "--local", "--set", "search.trials=2")
    assert "own.npz" in refused(own, scored, *go_on, code=2).err
    others = ("--set", f"dataset.path={elsewhere / 'others.npz'}")
    assert "The records of" in refused(own, scored, *go_on, *others).err
    own(*go_on, "--set", f"dataset.path={elsewhere / 'moved.npz'}")
    assert own.entries.count("open_search") == 1
    assert len(own.search_state(own.sweeps[0].name).trials) == 2
    (elsewhere / "moved.npz").rename(elsewhere / "again.npz")
    edit_yaml(own.sweeps[0], {"dataset.path": str(elsewhere / "again.npz")})
    own("export", "own")


def test_records_have_one_budget_whatever_they_are_called(own: Tune) -> None:
    write_records(own.folder / "mine.npz", packed=True)
    sweeps, entries = own.sweeps, own.entries
    said = own("run", write_own(own, "mine"), "--local", code=3)
    assert "[records-not-admitted]" in said.err
    assert (own.sweeps, own.entries) == (sweeps, entries)
    # Other records get the same answer, so it tells nothing. Once the owner has entered the name, they run.
    write_records(own.folder / "mine.npz", key=1)
    assert own("run", "mine.yaml", "--local", code=3).err == said.err
    own("budget", "set", "mine", "--epsilon", "9", "--delta", "1e-4")
    own("run", "mine.yaml", "--local", "--quiet")
    assert own.entries.count("open_search") == 2


def test_a_copy_of_a_shipped_set_is_held_to_that_sets_cap(tune: Tune) -> None:
    arrays = loading.read_arrays(DATASETS["digits"], Path())
    order = np.random.default_rng(0).permutation(len(arrays["y_train"]))
    arrays |= {key: arrays[key][order] for key in ("x_train", "y_train")}
    np.savez("mine.npz", **arrays)
    tune("budget", "set", "digits", "--epsilon", "0.1", "--delta", "1e-5")
    file = tune.write("mine.yaml", dataset={"name": "mine", "path": "mine.npz", "public_size": 1401})
    for command in (("plan", file, "--no-timing"), ("run", file, "--local")):
        assert "[dataset-cap-exceeded]" in tune(*command, code=3).text


# What the chain tells of the records.


def opened(tune: Tune) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each open_search entry of the ledger's file, and its body."""
    with sqlite3.connect(tune.folder / "dp-tuner" / "ledger.db") as raw:
        raw.row_factory = sqlite3.Row
        rows = [dict(row) for row in raw.execute("SELECT * FROM entries WHERE kind = 'open_search' ORDER BY id")]
    return [(row, json.loads(row["body"])) for row in rows]


def test_a_hash_that_is_shown_commits_to_no_record(own: Tune) -> None:
    """Without a nonce, anyone could check a guess of the records with the hash on a card."""
    own("run", "own.yaml", "--local", "--quiet")
    bodies = [body for _, body in opened(own)]
    assert [len(bytes.fromhex(body["nonce"])) for body in bodies] == [16, 16]
    assert bodies[0]["nonce"] != bodies[1]["nonce"]
    assert bodies[0]["fingerprint"] == bodies[1]["fingerprint"]
    own("export", "own")
    for entry, body in opened(own):
        place = {name: entry[name] for name in ("dataset", "seq", "time", "kind", "writer", "previous")}
        assert entry_hash(**place, body=canonical(body)) == entry["hash"]
        guessed = {name: value for name, value in body.items() if name != "nonce"}
        assert entry_hash(**place, body=canonical(guessed)) != entry["hash"]
    shown = [path.read_bytes() for path in (own.folder / "exports").rglob("*") if path.is_file()]
    shown += [path.read_bytes() for path in (own.folder / "runs").rglob("mlartifacts/**/*") if path.is_file()]
    shown += [path.read_bytes() for path in (own.folder / "runs").glob("mlflow.db*")]
    assert len(shown) > 5
    for secret in (bodies[0]["fingerprint"], bodies[0]["nonce"], bodies[1]["nonce"]):
        assert not any(secret.encode() in content for content in shown)


# One split for all searches on the same records.

WARNING = "used another validation split"


@pytest.mark.slow
def test_another_split_of_the_same_records_is_warned_of(charged: Tune) -> None:
    plan = ("plan", "tiny.yaml", "--no-timing")
    assert WARNING not in charged(*plan).text
    other = ("--set", "dataset.validation.split_seed=1")
    for words in (plan, ("run", "tiny.yaml", "--local", "--dry-run")):
        warned = charged(*words, *other)
        assert WARNING in warned.text
        assert charged.sweeps[0].name in warned.text
    assert WARNING in charged(*plan, "--set", "dataset.validation.fraction=0.2").text
    assert WARNING not in charged(*plan, *other, "--set", "privacy.private=false").text
    write_named(charged, "iris", trainable__batch_size=20, privacy__delta=1e-4)
    assert WARNING not in charged("plan", "iris.yaml", "--no-timing", *other).text, "other records"


def test_a_regression_splits_the_same_file_in_another_way(own: Tune) -> None:
    regression = ("trainable.task=regression", "search.metric={name: validation_loss, mode: min}")
    request, other = (prepare("own.yaml", words, data_dir=None).request for words in ((), regression))
    one, two = (load_records(each).x_validation for each in (request, other))
    assert one.shape != two.shape or not bool((one == two).all())
    assert split_of(request) != split_of(other)
    assert WARNING in own("plan", "own.yaml", "--no-timing", *(f"--set={each}" for each in regression)).text


def test_a_search_that_was_closed_before_its_first_step_split_nothing(tune: Tune) -> None:
    file = tune.write()
    enter_without_data(tune, file).close_search("tiny-20260101-000000-abcdef")
    assert WARNING not in tune("plan", file, "--no-timing", "--set", "dataset.validation.split_seed=1").text


def test_the_card_lists_the_splits_of_all_searches(charged: Tune) -> None:
    charged("run", "tiny.yaml", "--local", "--quiet", "--set", "dataset.validation.split_seed=1")
    charged("export", charged.sweeps[-1].name, "--out", "second")
    charged("export", charged.sweeps[0].name, "--out", "first")
    for folder in ("first", "second"):
        card = json.loads(Path(folder, "privacy_card.json").read_text())
        splits = [json.loads(split) for split in card["dataset_budget"]["validation_splits"]]
        assert splits == [{"set": "digits", "fraction": 0.1, "seed": seed} for seed in (0, 1)]
        assert card["validation"]["key"] == splits[0 if folder == "first" else 1]
        assert charged("verify", f"{folder}/privacy_card.json", "--json").json["ok"] is True


def test_a_protected_and_an_open_search_have_no_total_for_validation_records(charged: Tune) -> None:
    protected = {"protected": True, "epsilon": 8.5, "delta": 1e-6}
    charged("run", "tiny.yaml", "--local", "--quiet", "--set", f"dataset.validation={json.dumps(protected)}")
    said = charged("export", charged.sweeps[-1].name, "--out", "second").text
    assert "holds only for records that no search used, in any version, for validation without protection" in " ".join(
        said.split()
    )
    card = json.loads(Path("second", "privacy_card.json").read_text())
    splits = [json.loads(split) for split in card["dataset_budget"]["validation_splits"]]
    assert sorted(split.get("scores", "") for split in splits) == ["", "protected"]
    assert charged("verify", "second/privacy_card.json", "--json").json["ok"] is True


def test_a_total_over_a_changed_file_does_not_hold_for_validation_records(own: Tune) -> None:
    """A changed record has another part of the split: it may train before the change, and validate after it."""
    with np.load(own.folder / "own.npz") as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    write_records(own.folder / "sorted.npz", x_train=x[::-1], y_train=y[::-1])
    write_records(own.folder / "changed.npz", x_train=2 * x, y_train=y)
    condition = "holds only for records that no search used, in any version, for validation without protection"
    for file, splits in (("sorted", 1), ("changed", 2)):
        own("run", "own.yaml", "--local", "--quiet", "--set", f"name={file}", "--set", f"dataset.path={file}.npz")
        (dataset,) = Ledger.open(own.ledger_url).states().values()
        assert len(dataset.validation_splits) == splits
        shown = own("budget", "show", dataset.dataset).text
        assert (condition in " ".join(shown.split())) == (splits > 1)
        own("export", file)
        verified = own("verify", f"exports/{file}/privacy_card.json")
        assert (condition in " ".join(verified.text.split())) == (splits > 1)
        card = Path(f"exports/{file}/privacy_card.json").read_text()
        shown = [json.loads(split).get("version") for split in json.loads(card)["dataset_budget"]["validation_splits"]]
        assert shown == ([None] if splits == 1 else [1, 2])
        for search in dataset.searches:
            assert str(search.fingerprint)[:12] not in card, "a checksum of records depends on each of them"
        losses = (
            "landscape",
            "exports/sorted",
            "--public-data",
            "--records",
            "9",
            "--iterations",
            "1",
            "--points",
            "3",
        )
        told = own(*losses, "--restarts", "1", code=0 if splits == 1 else 3)
        assert ("[records-not-admitted]" in told.err) == (splits > 1), "they may have trained with other values"


def enter_without_data(tune: Tune, file: str, *overrides: str) -> Ledger:
    """Open a search in the ledger as `tune run` does, of a set that need not be here."""
    ledger = Ledger.open(tune.ledger_url)
    prepared = prepare(str(tune.folder / file), overrides, data_dir=None, need_data=False)
    sweep = SweepFolder(tune.folder / "tiny-20260101-000000-abcdef")
    sweep.root.mkdir()
    enter(ledger, sweep, prepared)
    return ledger


@pytest.mark.slow
def test_sets_that_share_records_are_split_differently(tune: Tune) -> None:
    # Many records a batch and much noise: the accountant is quick.
    quick = {"trainable__batch_size": 2000, "trainable__epochs": 0.1, "privacy__noise_multiplier": 4.0}
    first, second = (write_named(tune, name, **quick) for name in ("cifar10_10k2k", "cifar10"))
    enter_without_data(tune, first)
    assert WARNING in tune("plan", second, "--no-timing").text


@pytest.mark.parametrize("value", [np.nan, np.finfo(np.float32).max], ids=["not a number", "the largest number"])
def test_what_a_record_holds_does_not_decide_whether_trials_fail(tune: Tune, value: float) -> None:
    """Whether a trial failed is seen by analysts, and a failure would tell that the record is there."""
    arrays = np.load(write_records(tune.folder / "own.npz"))
    x, y = arrays["x_train"], arrays["y_train"]
    # Some of many values are validation records, because records are split by content.
    x[:: 7 if np.isnan(value) else 200, 3] = value
    y[5] = 7
    write_records(tune.folder / "own.npz", x_train=x, y_train=y)
    said = tune("run", write_own(tune, search__trials=2), "--local", "--json").json
    assert [trial["state"] for trial in said["trials"]] == ["complete", "complete"]
    assert all(np.isfinite(trial["score"]) for trial in said["trials"])
