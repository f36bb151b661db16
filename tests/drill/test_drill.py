"""The drill's comparison of books finds what does not agree, and the drill itself reconciles."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from click.testing import CliRunner

from tuner.cli.app import cli
from tuner.drill import drill
from tuner.drill.books import Reconciliation, reconcile
from tuner.drill.counted import ORDER
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.recorder.spool import Spool
from tuner.study import views
from tuner.study.storage import open_storage

MECHANISM = SampledGaussian(1.0, 20.0)
SCHEMA = """
CREATE TABLE runs (run_uuid, status);
CREATE TABLE tags (run_uuid, key, value);
CREATE TABLE metrics (key, timestamp, step, value, is_nan, run_uuid);
INSERT INTO runs VALUES ('parent', 'FINISHED'), ('child', 'FINISHED'), ('other', 'RUNNING');
INSERT INTO tags VALUES ('parent', 'dp_tuner.sweep', 'drill-1'), ('parent', 'dp_tuner.trial', '-'),
    ('child', 'dp_tuner.sweep', 'drill-1'), ('child', 'dp_tuner.trial', 'a'),
    ('other', 'dp_tuner.sweep', 'drill-2'), ('other', 'dp_tuner.trial', 'a');
INSERT INTO metrics VALUES ('spent', 1, 0, 0.5, 0, 'parent'), ('loss', 2, 10, 0, 1, 'child'),
    ('loss', 3, 10, 7.0, 0, 'other');
"""


class Books:
    """Books of a sweep of one trial that agree: ten steps leased and drawn, two records."""

    def __init__(self, folder: Path) -> None:
        self.sweep, self.draws, self.mlflow = folder / "drill-1", folder / "draws", folder / "mlflow.db"
        study = optuna.create_study(storage=open_storage(self.sweep), study_name="s")
        trial = study.ask()
        for name, value in ((views.TRIAL_ID, "a"), (views.STEPS_TAKEN, 10), (views.OUTCOME, "COMPLETE")):
            trial.set_user_attr(name, value)
        study.tell(trial, 0.5)
        with Spool(self.sweep / "spool.jsonl") as spool:
            spool.append({"kind": "metrics", "trial": "", "t": 1, "step": 0, "values": {"spent": 0.5}})
            spool.append({"kind": "metrics", "trial": "a", "t": 2, "step": 10, "values": {"loss": "nan"}})
        (self.draws / "a").mkdir(parents=True)
        (self.draws / "a" / "1-1").write_bytes(b"." * 20)
        self.url = f"sqlite:///{folder}/ledger.db"
        self.ledger = Ledger.open(self.url)
        claim = max(epsilon(MECHANISM, 20, 1e-5), 1.0)
        self.ledger.open_search("digits", "s", filter=TotalSteps(MECHANISM, 20), epsilon=claim, delta=1e-5)
        self.ledger.reserve("s", "a", 20)
        self.ledger.lease("s", "a", 10, MECHANISM)
        self.sql(SCHEMA)

    def sql(self, script: str) -> None:
        with sqlite3.connect(self.mlflow) as database:
            database.executescript(script)
        database.close()

    def reconcile(self) -> Reconciliation:
        return reconcile(self.sweep, self.draws, self.url, self.mlflow)


def test_books_that_agree_have_no_problem(tmp_path: Path) -> None:
    found = Books(tmp_path).reconcile()
    assert found.problems(trials=1) == []
    assert (found.leased, found.drawn, found.recorded, found.tracked) == (10, 10, 2, 2)
    assert found.trials == {"COMPLETE": 1}
    assert found.problems(trials=2) == ["1 of 2 trials are in the study"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("DELETE FROM metrics WHERE key = 'loss' AND run_uuid = 'child'", "1 records are not in MLflow"),
        ("INSERT INTO metrics VALUES ('loss', 9, 10, 0, 1, 'child')", "1 records are in MLflow twice"),
        ("UPDATE metrics SET value = 0.6 WHERE key = 'spent'", "1 records are not in MLflow"),
        ("UPDATE runs SET status = 'RUNNING' WHERE run_uuid = 'child'", "1 trials or MLflow runs did not end"),
        (
            "INSERT INTO runs VALUES ('twin', 'FINISHED'); INSERT INTO tags VALUES "
            "('twin', 'dp_tuner.sweep', 'drill-1'), ('twin', 'dp_tuner.trial', 'a')",
            "1 records are in MLflow twice",
        ),
    ],
    ids=["missing", "doubled", "changed", "left running", "a second run"],
)
def test_what_mlflow_has_otherwise_is_found(tmp_path: Path, script: str, says: str) -> None:
    books = Books(tmp_path)
    books.sql(script)
    assert says in books.reconcile().problems(trials=1)


def test_a_draw_without_a_lease_and_a_trial_without_an_end_are_found(tmp_path: Path) -> None:
    books = Books(tmp_path)
    (books.draws / "a" / "2-2").write_bytes(b".")
    assert books.reconcile().problems(trials=1) == ["1 noise draws are not in the ledger"]
    optuna.load_study(study_name="s", storage=open_storage(books.sweep)).ask()
    assert "1 trials or MLflow runs did not end" in books.reconcile().problems(trials=2)


def test_one_worker_ends_as_by_kill_9_where_it_is_told_to(tmp_path: Path) -> None:
    """The file is removed, so that only one worker ends, and the draw has not begun."""
    (tmp_path / ORDER).touch()
    script = (
        "import os, sys; from pathlib import Path; from tuner.drill.counted import _counted; "
        "file = os.open(sys.argv[1] + '/bytes', os.O_WRONLY | os.O_CREAT); "
        f"_counted(lambda: None, file, Path(sys.argv[1], {ORDER!r}), 0.0)()"
    )
    codes = [subprocess.run([sys.executable, "-c", script, tmp_path], check=False).returncode for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
    assert (tmp_path / "bytes").read_bytes() == b"..", "of the second one alone"


@pytest.mark.parametrize(("uncharged", "code"), [(0, 0), (1, 1)])
def test_doctor_ends_with_1_where_the_books_disagree(
    monkeypatch: pytest.MonkeyPatch, uncharged: int, code: int
) -> None:
    books = Reconciliation(
        trials={"COMPLETE": 4},
        leased=1600,
        drawn=1600,
        uncharged=uncharged,
        unused=0,
        recorded=1,
        tracked=1,
        missing=0,
        doubled=0,
        unfinished=0,
    )
    found = drill.Drilled(("killed",), books, tuple(books.problems(trials=4)))
    monkeypatch.setattr(drill, "run_drill", lambda **_: found)
    said = CliRunner().invoke(cli, ["doctor", "--drill", "--json"])
    assert said.exit_code == code
    assert json.loads(said.stdout)["uncharged"] == uncharged


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_drill_reconciles(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "doctor", "--drill", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    values = json.loads(done.stdout)
    assert values["ok"]
    assert values["trials"] == {"COMPLETE": 4}
    assert values["leased"] >= values["drawn"] >= 1600
    assert list(tmp_path.iterdir()) == [], "its ledger and its sweep are not the user's"
