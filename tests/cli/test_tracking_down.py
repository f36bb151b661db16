"""A tracking server that is down from the start stops nothing, is said, and gets everything later."""

from __future__ import annotations

from command_fakes import Tune

NOBODY = "http://127.0.0.1:9"


def test_a_sweep_without_its_tracking_server(tune: Tune) -> None:
    said = tune("run", tune.write(tracking__uri=NOBODY), "--local")
    assert "tune sync tiny" in said.text
    assert tune.mlflow_runs() == []
    assert "tune sync" in tune("sync", "tiny", code=1).err
    assert "tracking.uri" in tune("sync", "tiny", "--uri", "nowhere", code=2).err
    exported = tune("export", "tiny", "--json").json
    assert "tune sync" in exported["tracking"]
    here = ("--uri", "sqlite:///runs/mlflow.db")
    assert "records sent" in tune("sync", "tiny", *here).out
    runs = {run.data.tags["dp_tuner.trial"]: run for run in tune.mlflow_runs()}
    assert len(runs) == 3
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert "test_accuracy" in runs["-"].data.metrics
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert runs["-"].data.metrics["epsilon_spent"] == status["budget"]["epsilon_spent"]
    tune("sync", "tiny", *here)
    assert len(tune.mlflow_runs()) == 3, "sending twice makes no run twice"
