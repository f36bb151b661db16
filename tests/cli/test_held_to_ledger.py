"""Refusals to resume or export a sweep whose files, study or checkpoints differ from its ledger."""

from __future__ import annotations

import fcntl
import json
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from command_fakes import STEPS, TINY, Tune
from held_fakes import edit_plan, edit_yaml, refused
from optuna.trial import create_trial

from trainables.checkpoint import read_state, write_state
from trainables.rungs import checkpoint_path
from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.privacy.ledger.stores.sqlite import Sqlite
from tuner.report.status import status_values
from tuner.study.storage import JOURNAL, open_storage
from tuner.study.views import OUTCOME, PARAMETERS, STEPS_TAKEN, TRIAL_ID
from tuner.sweep.folder import SweepFolder, read_json
from tuner.sweep.sweep_study import open_sweep_study

MORE = ("--local", "--set", "search.trials=3")
"""One trial more than the sweep has, so that a resume that is not refused takes steps."""

# The sweep's own files.

TAMPERED: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"privacy.private": False, "privacy.noise_seed": 7}, {}),
    ({"privacy.epsilon": 4.0}, {}),
    ({"dataset.name": "breast_cancer"}, {}),
    ({"trainable.model": "mlp_64"}, {}),
    ({}, {"private": False}),
    ({}, {"epsilon": 80.0}),
    ({}, {"step_cap": 100_000}),
    ({}, {"noise_multiplier": 4.0}),
    ({}, {"train_size": 12_610}),
    ({}, {"epsilon_trial": 0.01}),
    ({"privacy.private": False}, {"private": False}),
    ({"privacy.epsilon": 80.0}, {"epsilon": 80.0, "step_cap": 100_000}),
    ({"trainable.batch_size": 64}, {"batch_size": 64, "sample_rate": 64 / 1261}),
]


@pytest.mark.parametrize("tampered", TAMPERED, ids=str)
def test_a_sweep_whose_files_are_others_neither_goes_on_nor_is_exported(
    charged: Tune, scored: list[str], tampered: tuple[dict[str, object], dict[str, object]]
) -> None:
    edit_yaml(charged.sweeps[0], tampered[0])
    edit_plan(charged.sweeps[0], tampered[1])
    for words in (("resume", "tiny", *MORE), ("export", "tiny")):
        assert "from a copy" in refused(charged, scored, *words).err, "it says what to do"
    assert not (charged.folder / "exports").exists()


def test_the_files_restored_the_sweep_goes_on(charged: Tune, scored: list[str]) -> None:
    """The control of the test above: with its own files the sweep is resumed."""
    sweep = charged.sweeps[0]
    file, plan = (sweep / "experiment.yaml").read_bytes(), (sweep / "plan.json").read_bytes()
    edit_yaml(sweep, {"privacy.private": False})
    edit_plan(sweep, {"private": False})
    charged("resume", "tiny", *MORE, code=1)
    again = refused(charged, scored, "run", "tiny.yaml", "--resume", *MORE, code=2)
    assert "[resume-changes-setting]" in again.err, "nor does the file it was started with bring it back"
    (sweep / "experiment.yaml").write_bytes(file)
    (sweep / "plan.json").write_bytes(plan)
    charged("resume", "tiny", *MORE)
    assert charged.search_state(sweep.name).leased_steps == 3 * STEPS
    charged("export", "tiny")


# What is exported, and what is claimed.


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
    for trial in charged.search_state(charged.sweeps[0].name).trials:
        path = checkpoint_path(charged.sweeps[0], trial)
        assert path is not None
        write_state(path, {**read_state(path), "step": STEPS + 1})
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


# No fresh ledger for a sweep that was charged.


@pytest.mark.parametrize(
    ("left", "trials"),
    [
        (None, "gone"),
        ("", "there"),
        ("{}", "emptied"),
        ('{"state": "starting"}', "there"),
        ('{"state": "starting"}', "gone"),
        ('{"state": "running"}', "emptied"),
    ],
)
def test_a_lost_status_opens_no_fresh_ledger(charged: Tune, scored: list[str], left: str | None, trials: str) -> None:
    sweep = SweepFolder(charged.sweeps[0])
    ledger = charged.folder / "dp-tuner" / "ledger.db"
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


def test_a_copied_sweep_charges_nobody_elses_search(
    charged: Tune, scored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sqlite, "user", lambda _: "mallory")
        for words in (("resume", "tiny", *MORE), ("export", "tiny")):
            assert "[ledger-other-user]" in refused(charged, scored, *words).err
    assert charged.search_state(charged.sweeps[0].name).leased_steps == 2 * STEPS
    charged("resume", "tiny", *MORE)  # the control


# The journal while it is written.

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
