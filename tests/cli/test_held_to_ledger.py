"""A sweep's own files, its data and its study are believed for nothing that is claimed: the ledger decides."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from command_fakes import STEPS, TINY, Said, Tune
from optuna.trial import create_trial

from trainables.rungs import checkpoint_path
from trainables.training import PrivateTraining
from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.privacy.ledger.entries import canonical, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.report.status import status_values
from tuner.study.storage import JOURNAL, open_storage
from tuner.study.views import OUTCOME, PARAMETERS, STEPS_TAKEN, TRIAL_ID
from tuner.sweep.folder import SweepFolder, read_json
from tuner.sweep.preflight import prepare
from tuner.sweep.registration import enter
from tuner.sweep.sweep_study import open_sweep_study

MORE = ("--local", "--set", "search.trials=3")
"""One trial more than the sweep has: a resume that is not refused takes steps."""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory, ready_mlflow: Path) -> Path:
    """A sweep of two trials that has ended and was never exported; tests take copies of it."""
    folder = tmp_path_factory.mktemp("origin")
    (folder / "runs").mkdir()
    shutil.copy(ready_mlflow, folder / "runs" / "mlflow.db")
    before = Path.cwd()
    os.chdir(folder)
    try:
        tune = Tune(folder)
        tune("run", tune.write(), "--local", "--quiet")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def charged(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """A copy of the sweep with its ledger, to be tampered with."""
    folder = tmp_path / "copy"
    shutil.copytree(origin, folder)
    monkeypatch.chdir(folder)
    tune = Tune(folder)
    file = tune.sweeps[0] / "experiment.yaml"
    file.write_text(file.read_text().replace(str(origin), str(folder)))
    return tune


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were scored."""
    splits: list[str] = []
    real = PrivateTraining.evaluate

    def counted(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        splits.append(split)
        return real(self, split)

    monkeypatch.setattr(PrivateTraining, "evaluate", counted)
    return splits


def everything(tune: Tune) -> dict[str, bytes]:
    """Every file of the folder but locks, and the ledger's rows in the place of its pages."""
    kept = (path for path in tune.folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    files = {str(path): path.read_bytes() for path in kept if not path.name.startswith(("ledger.db", "mlflow.db"))}
    return {**files, "ledger": "\n".join(tune.entries).encode()}


def write_named(tune: Tune, name: str, **changes: object) -> str:
    """An experiment file for the data set of that name, and called so itself."""
    file = tune.write(f"{name}.yaml", dataset__name=name, **changes)
    path = tune.folder / file
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "name": name}, sort_keys=False))
    return file


def edit_yaml(sweep: Path, changes: Mapping[str, object]) -> None:
    file = sweep / "experiment.yaml"
    values = yaml.safe_load(file.read_text())
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = values
        for section in sections:
            place = place[section]
        assert last in place
        assert place[last] != value
        place[last] = value
    file.write_text(yaml.safe_dump(values, sort_keys=False))


def edit_plan(sweep: Path, changes: Mapping[str, object]) -> None:
    file = sweep / "plan.json"
    values = json.loads(file.read_text())
    assert all(key in values and values[key] != value for key, value in changes.items())
    file.write_text(json.dumps({**values, **changes}, indent=2))


def refused(tune: Tune, scored: list[str], *words: str, code: int = 1) -> Said:
    """Run a command that must be refused, and must leave everything as it is."""
    before, seen = everything(tune), list(scored)
    said = tune(*words, code=code)
    assert everything(tune) == before, "a refusal writes nothing"
    assert scored == seen, "and scores nothing"
    return said


# 1. The sweep's own files.

FILE: list[dict[str, object]] = [
    {"privacy.private": False, "privacy.noise_seed": 7},
    {"privacy.private": False},
    {"privacy.epsilon": 4.0},
    {"privacy.delta": 1e-6},
    {"privacy.noise_multiplier": 1.0},
    {"dataset.validation.split_seed": 1},
    {"dataset.validation.fraction": 0.2},
    {"dataset.name": "breast_cancer"},
    {"trainable.batch_size": 64},
    {"trainable.method": "dp_weight_decay"},
    {"trainable.model": "mlp_64"},
    {"trainable.epochs": 2.0},
    {"trainable.precision": "bfloat16"},
    {"search.space.clipping": "automatic"},
    {"search.space.ema_decay": 0.9},
    {"search.space": {"learning_rate": {"log_uniform": [0.1, 3.0]}}},
    {"seed": 3},
]
PLAN: list[dict[str, object]] = [
    {"private": False},
    {"epsilon": 4.0},
    {"epsilon": 80.0},
    {"delta": 1e-6},
    {"step_cap": 100_000},
    {"noise_multiplier": 1.0},
    {"noise_multiplier": 4.0},
    {"sample_rate": 0.01},
    {"batch_size": 64},
    {"train_size": 12_610},
    {"steps_per_trial": 20, "rungs": [10, 20]},
    {"method": "dplis"},
    {"epsilon_trial": 0.01},
]
BOTH: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"privacy.private": False, "privacy.noise_seed": 7}, {"private": False}),
    ({"privacy.private": False}, {"private": False}),
    ({"privacy.epsilon": 80.0}, {"epsilon": 80.0, "step_cap": 100_000}),
    ({"privacy.noise_multiplier": 1.0}, {"noise_multiplier": 1.0}),
    ({"trainable.batch_size": 64}, {"batch_size": 64, "sample_rate": 64 / 1261}),
]
TAMPERED = [*((file, {}) for file in FILE), *(({}, plan) for plan in PLAN), *BOTH]


def _name(tampered: tuple[dict[str, object], dict[str, object]]) -> str:
    return " with ".join(",".join(f"{key}={value}" for key, value in each.items()) for each in tampered if each)


@pytest.mark.parametrize("tampered", TAMPERED, ids=map(_name, TAMPERED))
def test_a_sweep_whose_files_are_others_neither_goes_on_nor_is_exported(
    charged: Tune, scored: list[str], tampered: tuple[dict[str, object], dict[str, object]]
) -> None:
    edit_yaml(charged.sweeps[0], tampered[0])
    edit_plan(charged.sweeps[0], tampered[1])
    for words in (("resume", "tiny", *MORE), ("export", "tiny"), ("export", "tiny", "--json")):
        said = refused(charged, scored, *words)
        assert "from a copy" in said.err, "it says what to do"
    assert not (charged.folder / "exports").exists()


def test_the_files_restored_the_sweep_goes_on(charged: Tune) -> None:
    """The control of the test above: it is the change that is refused."""
    sweep = charged.sweeps[0]
    file, plan = (sweep / "experiment.yaml").read_bytes(), (sweep / "plan.json").read_bytes()
    edit_yaml(sweep, {"privacy.epsilon": 4.0})
    edit_plan(sweep, {"epsilon": 4.0})
    charged("resume", "tiny", *MORE, code=1)
    (sweep / "experiment.yaml").write_bytes(file)
    (sweep / "plan.json").write_bytes(plan)
    charged("resume", "tiny", *MORE)
    assert charged.search_state(sweep.name).leased_steps == 3 * STEPS
    charged("export", "tiny")


def test_the_file_it_was_started_with_does_not_bring_a_changed_sweep_back(charged: Tune, scored: list[str]) -> None:
    edit_yaml(charged.sweeps[0], {"privacy.private": False})
    edit_plan(charged.sweeps[0], {"private": False})
    said = refused(charged, scored, "run", "tiny.yaml", "--resume", *MORE, code=2)
    assert "[resume-changes-setting]" in said.err


def test_a_sweep_that_never_was_private_is_told_so(tune: Tune, scored: list[str]) -> None:
    """No ledger knows it, so there is nothing to restore."""
    tune("run", tune.write(search__trials=1, privacy__private=False), "--local", "--quiet")
    tune("resume", "tiny", "--local", "--set", "search.trials=2")
    assert tune.entries == []
    assert "[sweep-not-private]" in refused(tune, scored, "export", "tiny", code=2).err


# 2. and 8. The user's own records.


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


def test_other_records_under_the_same_path_are_refused(own: Tune, scored: list[str]) -> None:
    write_records(own.folder / "own.npz", key=1)
    for words in (("resume", "own", "--local", "--set", "search.trials=2"), ("export", "own")):
        said = refused(own, scored, *words)
        assert "[ledger-mismatch]" in said.err
        assert "the records" in said.err
    one_moved = np.load(write_records(own.folder / "own.npz"))["x_train"]
    one_moved[17, 3] += 1
    write_records(own.folder / "own.npz", x_train=one_moved)
    refused(own, scored, "export", "own")
    write_records(own.folder / "own.npz", packed=True)
    own("export", "own")


@pytest.mark.parametrize("how", ["on the command line", "in the sweep's file"])
def test_records_that_were_moved_are_known_by_what_they_are(own: Tune, scored: list[str], how: str) -> None:
    (own.folder / "elsewhere").mkdir()
    (own.folder / "own.npz").rename(own.folder / "elsewhere" / "moved.npz")
    write_records(own.folder / "elsewhere" / "others.npz", key=1)
    go_on = ("resume", "own", "--local", "--set", "search.trials=2")
    assert "own.npz" in refused(own, scored, *go_on, code=2).err

    def at(name: str) -> tuple[str, ...]:
        path = str(own.folder / "elsewhere" / name)
        if how == "on the command line":
            return ("--set", f"dataset.path={path}")
        edit_yaml(own.sweeps[0], {"dataset.path": path})
        return ()

    assert "the records" in refused(own, scored, *go_on, *at("others.npz")).err
    own(*go_on, *at("moved.npz"))
    assert own.entries.count("open_search") == 1
    assert len(own.search_state(own.sweeps[0].name).trials) == 2
    own("export", "own")


def test_records_have_one_budget_whatever_they_are_called(own: Tune) -> None:
    write_records(own.folder / "mine.npz", packed=True)
    sweeps, entries = own.sweeps, own.entries
    said = own("run", write_own(own, "mine"), "--local", code=3)
    assert "[dataset-known-otherwise]" in said.err
    assert (own.sweeps, own.entries) == (sweeps, entries)
    write_records(own.folder / "mine.npz", key=1)
    own("run", "mine.yaml", "--local", "--quiet")
    assert own.entries.count("open_search") == 2


# 3. and 4. What is exported, and what is claimed.


def add_to_study(sweep: SweepFolder, trial: str, *, steps: int, state: optuna.trial.TrialState, score: float) -> None:
    experiment = load_experiment(sweep.experiment)
    study = open_sweep_study(sweep, experiment, plan_from(read_json(sweep.plan), trials=experiment.search.trials))
    attributes: dict[str, Any] = {TRIAL_ID: trial, PARAMETERS: {"learning_rate": 0.5}, STEPS_TAKEN: steps}
    study.add_trial(
        create_trial(
            state=state,
            value=score if state == optuna.trial.TrialState.COMPLETE else None,
            user_attrs={**attributes, OUTCOME: state.name.lower()},
            intermediate_values={steps: score},
        )
    )


@pytest.mark.parametrize("state", ["COMPLETE", "PRUNED", "FAIL"])
@pytest.mark.parametrize("known", [True, False], ids=["more than it leased", "unknown to the ledger"])
def test_a_study_with_steps_that_were_not_charged_is_not_exported(
    charged: Tune, scored: list[str], state: str, known: bool
) -> None:
    sweep = SweepFolder(charged.sweeps[0])
    trial = next(iter(charged.search_state(sweep.id).trials)) if known else "0002-free"
    add_to_study(
        sweep,
        trial,
        steps=STEPS + 1 if known else 1,
        state=optuna.trial.TrialState[state],
        score=0.01,  # it wins nothing, and yet was seen
    )
    said = refused(charged, scored, "export", "tiny")
    assert "[search-not-charged]" in said.err
    assert f"only {STEPS if known else 0} are charged" in said.err
    assert not (charged.folder / "exports").exists()


def test_a_checkpoint_with_steps_that_were_not_charged_is_not_exported(charged: Tune, scored: list[str]) -> None:
    import torch

    for trial in charged.search_state(charged.sweeps[0].name).trials:
        path = checkpoint_path(charged.sweeps[0], trial)
        assert path is not None
        state = torch.load(path, weights_only=True)
        torch.save({**state, "step": STEPS + 1}, path)
    said = refused(charged, scored, "export", "tiny")
    assert f"only {STEPS} are charged" in said.err
    assert not (charged.folder / "exports").exists()


def test_what_an_export_claims_is_the_ledgers(charged: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even were the files believed: with the comparison taken out, the claim is still what was charged."""
    import tuner.export.package

    edit_yaml(charged.sweeps[0], {"privacy.epsilon": 4.0})
    edit_plan(charged.sweeps[0], {"epsilon": 4.0, "delta": 1e-7})
    monkeypatch.setattr(tuner.export.package, "hold_to_ledger", lambda *_, **__: None)
    text = charged("export", "tiny").out
    assert "ε = 8.5 at δ = 1e-05" in text
    assert "ε = 4" not in text
    said = charged("export", "tiny", "--out", "again", "--json").json
    assert said["claim"] == {"epsilon": TINY["privacy"]["epsilon"], "delta": 1e-5}
    assert json.loads(Path("again/privacy_card.json").read_text())["claim"]["epsilon"] == 8.5


# 5. No fresh ledger for a sweep that was charged.


@pytest.mark.parametrize("left", [None, "", "{}", '{"state": "starting"}', '{"state": "running"}'])
@pytest.mark.parametrize("trials", ["there", "emptied", "gone"])
def test_a_lost_status_opens_no_fresh_ledger(charged: Tune, scored: list[str], left: str | None, trials: str) -> None:
    sweep = SweepFolder(charged.sweeps[0])
    ledger = charged.folder / "runs" / "ledger.db"
    away = ledger.rename(ledger.with_name("away.db"))
    sweep.status.unlink()
    if left is not None:
        sweep.status.write_text(left)
    if trials != "there":
        shutil.rmtree(sweep.trials)
    if trials == "emptied":
        sweep.trials.mkdir()
    refused(charged, scored, "resume", "tiny", *MORE)
    assert not ledger.exists()
    away.rename(ledger)
    before = charged.entries
    if left == "":  # what is no JSON is refused by itself, before the search is opened again
        assert "[sweep-file-unreadable]" in refused(charged, scored, "resume", "tiny", *MORE).err
    else:
        charged("resume", "tiny", "--local")
    assert charged.entries.count("open_search") == 1
    assert charged.entries[: len(before)] == before


# 6. The chain tells nothing of the records.


def opened(tune: Tune) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each open_search entry as it stands in the file, and its body."""
    with sqlite3.connect(tune.folder / "runs" / "ledger.db") as raw:
        raw.row_factory = sqlite3.Row
        rows = [dict(row) for row in raw.execute("SELECT * FROM entries WHERE kind = 'open_search' ORDER BY id")]
    return [(row, json.loads(row["body"])) for row in rows]


def test_a_hash_that_is_shown_commits_to_no_record(own: Tune) -> None:
    """Who guesses the records would check the guess by the hash on a card, were there no nonce under it."""
    own("run", "own.yaml", "--local", "--quiet")
    bodies = [body for _, body in opened(own)]
    assert [len(bytes.fromhex(body["nonce"])) for body in bodies] == [16, 16]
    assert bodies[0]["nonce"] != bodies[1]["nonce"]
    assert bodies[0]["fingerprint"] == bodies[1]["fingerprint"]
    own("export", "own")
    for entry, body in opened(own):
        place = {name: entry[name] for name in ("dataset", "seq", "time", "kind", "previous")}
        assert entry_hash(**place, body=canonical(body)) == entry["hash"]
        guessed = {name: value for name, value in body.items() if name != "nonce"}
        assert entry_hash(**place, body=canonical(guessed)) != entry["hash"]
    shown = [path.read_bytes() for path in (own.folder / "exports").rglob("*") if path.is_file()]
    shown += [path.read_bytes() for path in (own.folder / "runs").rglob("mlartifacts/**/*") if path.is_file()]
    shown += [path.read_bytes() for path in (own.folder / "runs").glob("mlflow.db*")]
    assert len(shown) > 5
    for secret in (bodies[0]["fingerprint"], bodies[0]["nonce"], bodies[1]["nonce"]):
        assert not any(secret.encode() in content for content in shown)


# 7. One split for all searches on the same records.

WARNING = "used another validation split"


@pytest.mark.parametrize("other", ["dataset.validation.fraction=0.2", "dataset.validation.split_seed=1"])
def test_another_split_of_the_same_records_is_warned_of(charged: Tune, other: str) -> None:
    for words in (("plan", "tiny.yaml", "--no-timing"), ("run", "tiny.yaml", "--local", "--dry-run")):
        same = charged(*words)
        assert "committed ε = 8.5" in same.text
        assert WARNING not in same.text
        warned = charged(*words, "--set", other)
        assert WARNING in warned.text
        assert charged.sweeps[0].name in warned.text


def test_a_split_of_other_records_or_of_none_is_no_matter(charged: Tune) -> None:
    split = ("--set", "dataset.validation.split_seed=1")
    write_named(charged, "iris", trainable__batch_size=20, privacy__delta=1e-4)
    assert WARNING not in charged("plan", "iris.yaml", "--no-timing", *split).text
    assert WARNING not in charged("plan", "tiny.yaml", "--no-timing", *split, "--set", "privacy.private=false").text


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


def enter_without_data(tune: Tune, file: str, *overrides: str) -> Ledger:
    """Open a search in the ledger as `tune run` does, of a set that need not be here."""
    ledger = Ledger.open(tune.ledger_url)
    prepared = prepare(str(tune.folder / file), overrides, data_dir=None, need_data=False)
    enter(ledger, SweepFolder(tune.folder / "tiny-20260101-000000-abcdef"), prepared)
    return ledger


def write_cifar(tune: Tune, name: str) -> str:
    return write_named(tune, name, privacy__epsilon=2.0, trainable__epochs=0.1)


@pytest.mark.parametrize(
    ("first", "second"),
    [("cifar10_10k2k", "cifar10"), pytest.param("cifar10", "cifar10_10k2k", marks=pytest.mark.slow)],
)
def test_sets_that_share_records_are_split_differently(tune: Tune, first: str, second: str) -> None:
    enter_without_data(tune, write_cifar(tune, first))
    assert WARNING in tune("plan", write_cifar(tune, second), "--no-timing").text
    assert WARNING not in tune("plan", f"{first}.yaml", "--no-timing").text


@pytest.mark.data
def test_a_run_on_a_part_of_a_set_is_warned_of_the_whole(tune: Tune, data_dir: Path) -> None:
    if not (data_dir / "cifar10_10k2k.webp.npz").exists():
        pytest.skip("cifar10_10k2k is not in the data folder")
    enter_without_data(tune, write_cifar(tune, "cifar10"))
    file = write_cifar(tune, "cifar10_10k2k")
    assert WARNING in tune("run", file, "--local", "--dry-run", "--data-dir", str(data_dir)).text


@pytest.mark.parametrize(
    "value",
    [np.nan, np.inf, -np.inf, np.finfo(np.float32).max],
    ids=["not a number", "infinite", "minus infinite", "the largest number"],
)
def test_what_a_record_holds_does_not_decide_whether_trials_fail(tune: Tune, value: float) -> None:
    """Whether a trial failed is seen by analysts, and a failure would tell that the record is there."""
    x = np.load(write_records(tune.folder / "own.npz"))["x_train"]
    # Of many some are set aside to validate; the records stay apart, for they are split by content.
    x[:: 7 if np.isinf(value) or np.isnan(value) else 200, 3] = value
    write_records(tune.folder / "own.npz", x_train=x)
    said = tune("run", write_own(tune, search__trials=2), "--local", "--json").json
    assert [trial["state"] for trial in said["trials"]] == ["complete", "complete"]
    assert all(np.isfinite(trial["score"]) for trial in said["trials"])


def test_a_label_that_is_none_does_not_decide_it_either(tune: Tune) -> None:
    y = np.load(write_records(tune.folder / "own.npz"))["y_train"]
    y[5] = 7
    write_records(tune.folder / "own.npz", y_train=y)
    said = tune("run", write_own(tune), "--local", "--json").json
    assert [trial["state"] for trial in said["trials"]] == ["complete"]


# 9. The journal while it is written.

_SLOW_WRITER = """
import sys
from pathlib import Path
from optuna.storages.journal._file import get_lock_file
from tuner.study.storage import open_storage

folder, line = Path(sys.argv[1]), sys.argv[2] + "\\n"
with get_lock_file(open_storage(folder)._backend._lock), (folder / "study.journal").open("a") as journal:
    journal.write(line[:20])
    journal.flush()
    print("half", flush=True)
    sys.stdin.readline()
    journal.write(line[20:])
"""


def test_looking_at_a_sweep_cuts_no_line_that_is_being_written(charged: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = charged.sweeps[0]
    before = (folder / JOURNAL).read_text()
    line = '{"op_code":2,"worker_id":"slow","study_id":0,"user_attr":{"slow":"yes"}}'
    writer = subprocess.Popen(
        [sys.executable, "-c", _SLOW_WRITER, str(folder), line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half\n"
    happened: queue.Queue[object] = queue.Queue()
    waits = threading.Event()
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        try:
            real(file, operation)
        except BlockingIOError:
            waits.set()
            raise

    def look() -> None:
        try:
            happened.put(status_values(charged.folder / "runs", "tiny")["sweeps"][0]["trials"])
        except Exception as error:  # noqa: BLE001 - handed to the test's own thread
            happened.put(error)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        looker = threading.Thread(target=look)
        looker.start()
        waited = waits.wait(timeout=60)
        meanwhile = (folder / JOURNAL).read_text()
        writer.communicate("go on\n", timeout=60)
        looker.join(timeout=60)
    assert waited
    assert meanwhile == before + line[:20]
    assert happened.get(timeout=60) == {"planned": 2, "complete": 2}
    assert (folder / JOURNAL).read_text() == before + line + "\n"
    study = optuna.load_study(study_name=folder.name, storage=open_storage(folder))
    assert study.user_attrs["slow"] == "yes"
