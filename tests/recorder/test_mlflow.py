"""The recorder against MLflow itself: a SQLite store, and an address where nobody answers."""

from __future__ import annotations

import errno
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from errors_helper import raises_code
from recorder_fakes import FakeBudget, recorder, run_trial, trial

from tuner.errors import InputError, TrackingError
from tuner.recorder import mlflow_store as store
from tuner.recorder.sync import attach, send_unsent
from tuner.study.types import TrialStatus


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for the module: MLflow needs seconds to make its tables."""
    return store.absolute_uri(f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/track/mlflow.db")


def test_a_whole_sweep_is_in_mlflow_and_sending_it_again_changes_nothing(tmp_path: Path, uri: str) -> None:
    budget = FakeBudget()
    data = {"name": "visits", "digest": "private", "training records (public)": "2000"}
    with recorder(tmp_path, uri, budget, data=data) as observer:
        run_trial(observer, budget, 0, score=0.7)
        run_trial(observer, budget, 1, state=TrialStatus.FAILED, score=float("nan"))
        observer.trial_started(trial(2))
        (tmp_path / "plan.json").write_text("{}")
        observer.artifact("plan.json")
        observer.finish("interrupted")
        assert observer.flush(timeout=100).complete
    model = {"name": "visits", "about": "Claimed: ε = 8", "tags": {"epsilon": "8"}}
    for _ in range(2):  # a second export
        scores = {"test_accuracy": 0.6}
        attach(tmp_path, ["plan.json"], under="export", tags={"exported": "yes"}, metrics=scores, model=model)
    assert send_unsent(tmp_path).complete
    client = store.connect(uri)
    experiment = client.get_experiment_by_name("digits")

    def runs() -> dict[str, tuple[object, ...]]:
        return {
            run.data.tags["dp_tuner.trial"]: (run.info.status, run.data.params, run.data.tags, run.info.run_id)
            for run in client.search_runs([experiment.experiment_id])
        }

    first = runs()
    assert {name: value[0] for name, value in first.items()} == {
        "-": "KILLED",
        "t0": "FINISHED",
        "t1": "FAILED",
        "t2": "KILLED",
    }
    parent, child = str(first["-"][3]), str(first["t0"][3])
    epsilon = client.get_metric_history(child, "epsilon_trial")
    assert {(point.step, point.value) for point in epsilon} == {(50, budget.epsilon(50)), (100, budget.epsilon(100))}
    spent = client.get_run(parent).data.metrics["epsilon_spent"]
    assert spent == pytest.approx(budget.epsilon(200), abs=1e-9)
    assert sorted(item.path for item in client.list_artifacts(parent)) == ["export", "plan.json"]

    (said,) = client.get_run(parent).inputs.dataset_inputs
    assert (said.dataset.name, said.dataset.digest) == ("visits", "private")
    assert client.get_run(child).info.run_name == "trial 000"

    def versions() -> list[tuple[str, str, object]]:
        return [
            (str(each.version), each.description, each.tags) for each in client.search_model_versions("name = 'visits'")
        ]

    assert versions() == [("1", "Claimed: ε = 8", {"epsilon": "8"})]
    (tmp_path / "spool.acknowledged.json").unlink()
    points = len(client.get_metric_history(parent, "epsilon_spent"))
    assert send_unsent(tmp_path).complete
    assert runs() == first
    assert len(versions()) == len(client.get_run(parent).inputs.dataset_inputs) == 1
    assert len(client.get_metric_history(parent, "epsilon_spent")) == points
    assert len(client.get_metric_history(child, "epsilon_trial")) == len(epsilon)


def test_more_points_than_one_request_takes(tmp_path: Path, uri: str) -> None:
    budget = FakeBudget(cap=10_000)
    with recorder(tmp_path, uri, budget, id="many", send=False) as observer:
        observer.trial_started(trial(0, parameters={f"p{number}": number for number in range(250)}))
        for step in range(1, 401):
            observer.trial_reported(trial(0, step=step), step, {"validation_accuracy": 0.1, "validation_loss": 1.0})
    assert send_unsent(tmp_path).complete
    client = store.connect(uri)
    experiment = client.get_experiment_by_name("digits").experiment_id
    tags = "tags.`dp_tuner.sweep` = 'many' and tags.`dp_tuner.trial` = 't0'"
    (run,) = client.search_runs([experiment], filter_string=tags)
    assert len(run.data.params) == 250
    assert len(client.get_metric_history(run.info.run_id, "validation_loss")) == 400


def test_where_nobody_answers_the_sweep_goes_on_and_sync_says_why(tmp_path: Path, uri: str) -> None:
    with socket.socket() as taken:  # bound and not listening: every connection is refused
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        budget = FakeBudget()
        with recorder(tmp_path, dead, budget, id="late") as observer:
            run_trial(observer, budget, 0)
            status = observer.flush(timeout=60)
            assert status.waiting == len((tmp_path / "spool.jsonl").read_text().splitlines())
            assert "127.0.0.1" in status.problem
        with raises_code(TrackingError, "tracking-unavailable"):
            send_unsent(tmp_path)
    assert send_unsent(tmp_path, uri=uri).complete
    client = store.connect(uri)
    experiment = client.get_experiment_by_name("digits").experiment_id
    assert len(client.search_runs([experiment], filter_string="tags.`dp_tuner.sweep` = 'late'")) == 2


def test_a_database_that_mlflow_cannot_use_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("garbage")
    with raises_code(TrackingError, "tracking-store-unusable") as caught:
        store.connect(store.absolute_uri(f"sqlite:///{tmp_path}/bad.db"))
    assert "file is not a database" in str(caught.value)
    assert (tmp_path / "bad.db").read_text() == "garbage"


def test_a_locked_database_is_not_called_damaged(tmp_path: Path) -> None:
    uri = store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db")
    store.connect(uri)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with raises_code(TrackingError, "tracking-store-busy"):
            store.connect(uri)


def test_the_cause_of_an_error_is_named() -> None:
    noise = "(raised as a result of Query-invoked autoflush; consider using a session.no_autoflush block)\n"
    assert store.cause_of(RuntimeError(f"{noise}disk is full")) == "disk is full"
    assert store.cause_of(RuntimeError()) == "RuntimeError"
    assert len(store.cause_of(RuntimeError("a" * 900))) == 200
    assert str(store.cause_of(TrackingError("tracking-store-unusable", "b" * 900))).count("b") >= 900


def test_a_creation_that_was_cut_off_leaves_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow could not use a database with some of its tables."""
    fresh, real = store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"), store._with_tables

    def cut_off(uri: str) -> None:
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as half:
            half.execute("CREATE TABLE secrets (id INTEGER)")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "_with_tables", cut_off)
    with pytest.raises(OSError, match="No space left"):
        store.connect(fresh)
    assert not (tmp_path / "mlflow.db").exists()
    monkeypatch.setattr(store, "_with_tables", real)
    assert store.experiment_id(store.connect(fresh), uri=fresh, name="later")
    assert {path.name for path in tmp_path.glob("mlflow.db*")} == {"mlflow.db", "mlflow.db.lock"}


def test_several_openings_of_a_fresh_database_wait_for_each_other(tmp_path: Path) -> None:
    fresh = store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db")
    found: list[str] = []

    def open_it() -> None:
        found.append(store.experiment_id(store.connect(fresh), uri=fresh, name="same"))

    threads = [threading.Thread(target=open_it) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_addresses_become_absolute_and_bad_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.absolute_uri("sqlite:///runs/m.db") == f"sqlite:///{tmp_path}/runs/m.db"
    assert store.absolute_uri("sqlite:////abs/m.db") == "sqlite:////abs/m.db"
    assert store.absolute_uri("https://tracking.example.org") == "https://tracking.example.org"
    for bad in ("runs/mlruns", "file:///x", "sqlite:///:memory:", "sqlite:///"):
        with raises_code(InputError, "tracking-uri-invalid"):
            store.absolute_uri(bad)
