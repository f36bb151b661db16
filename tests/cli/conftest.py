"""A working folder for each test of the commands, and one finished sweep that all may look at."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[2])
sys.path.insert(0, HERE)

from command_fakes import Tune, with_mlflow, write_images  # noqa: E402 - after its folder was put on the path


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine reaches a command, and every process that a test starts finds this checkout."""
    for name in ("DP_TUNER_STORAGE", "DP_TUNER_LEDGER", "DP_TUNER_DATA"):
        monkeypatch.delenv(name, raising=False)
    paths = filter(None, [HERE, ROOT, os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture(scope="session")
def ready_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty tracking database: making one takes MLflow seconds, copying it none."""
    from tuner.recorder.mlflow_store import connect

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    connect(f"sqlite:///{path}")
    return path


def work_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder the current one, and the home of the default ledger."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))


@pytest.fixture
def tune(tmp_path: Path, ready_mlflow: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The commands, in an empty folder in which only MLflow's database is made."""
    work_in(tmp_path, monkeypatch)
    return with_mlflow(tmp_path, ready_mlflow)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The commands, in a folder in which nothing is."""
    work_in(tmp_path, monkeypatch)
    return Tune(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, ready_mlflow: Path) -> Tune:
    """One sweep of two trials that was run and exported; tests read it and change nothing."""
    tune = with_mlflow(tmp_path_factory.mktemp("finished"), ready_mlflow)
    with pytest.MonkeyPatch.context() as patch:
        work_in(tune.folder, patch)
        tune("run", tune.write(), "--local", "--quiet")
        tune("export", "tiny")
    return tune


@pytest.fixture
def look(finished: Tune, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The finished sweep, with its folder as the current one."""
    work_in(finished.folder, monkeypatch)
    return finished


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory, ready_mlflow: Path) -> Path:
    """A sweep of two trials that has ended and was never exported; tests take copies of it."""
    tune = with_mlflow(tmp_path_factory.mktemp("origin"), ready_mlflow)
    with pytest.MonkeyPatch.context() as patch:
        work_in(tune.folder, patch)
        tune("run", tune.write(), "--local", "--quiet")
    return tune.folder


@pytest.fixture
def charged(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """A copy of the sweep with its ledger, to be tampered with or resumed."""
    folder = tmp_path / "copy"
    shutil.copytree(origin, folder)
    work_in(folder, monkeypatch)
    tune = Tune(folder)
    file = tune.sweeps[0] / "experiment.yaml"
    file.write_text(file.read_text().replace(str(origin), str(folder)))
    return tune


@pytest.fixture
def public(tune: Tune) -> dict[str, object]:
    """Changes of the tiny file that make it a search on public records, written beside it."""
    write_images(tune.folder / "open.npz", 500)
    return {
        "privacy__accounting": "public",
        "privacy__epsilon": 3.0,
        "privacy__noise_multiplier": "auto",
        "search__trials": 3,
        "search__sampler": "tpe",
        "search__pruner": "median",
        "search__public": {"name": "open", "path": "open.npz", "public_size": 500},
    }


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were scored."""
    from trainables.training import PrivateTraining

    splits: list[str] = []
    real = PrivateTraining.evaluate

    def counted(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        splits.append(split)
        return real(self, split)

    monkeypatch.setattr(PrivateTraining, "evaluate", counted)
    return splits
