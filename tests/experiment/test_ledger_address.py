"""Which ledger an experiment is charged in: the file's, the environment's, and never one where the other was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from errors_helper import raises_code

from tuner.errors import ExperimentError, InputError
from tuner.experiment import parse_experiment
from tuner.privacy.ledger.stores import absolute_url, default_url

VARIABLE = "DP_TUNER_LEDGER"
FILE = {
    "name": "a-search",
    "dataset": {"name": "digits"},
    "trainable": {"method": "dp_sgd"},
    "privacy": {"epsilon": 8.0},
}


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)


def text(**more: object) -> str:
    return yaml.safe_dump({**FILE, **more}, sort_keys=False)


def test_without_a_variable_the_file_and_then_the_default_decide() -> None:
    assert parse_experiment(text()).ledger == default_url()
    assert parse_experiment(text(ledger="sqlite:///mine.db")).ledger == "sqlite:///mine.db"


def test_the_default_does_not_depend_on_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = parse_experiment(text()).ledger
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert parse_experiment(text()).ledger == here == absolute_url(here)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert parse_experiment(text()).ledger == f"sqlite:///{tmp_path}/dp-tuner/ledger.db"


@pytest.mark.parametrize("empty", [False, True])
def test_an_empty_variable_names_nothing(monkeypatch: pytest.MonkeyPatch, empty: bool) -> None:
    monkeypatch.setenv(VARIABLE, "" if empty else "sqlite:///shared.db")
    assert (parse_experiment(text()).ledger == default_url()) is empty


@pytest.mark.parametrize("shared", ["sqlite:////shared/ledger.db", "postgresql://ada@db.example/ledger"])
def test_the_variable_is_the_default_and_stays_when_the_search_goes_on(
    monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    """The resolved file names it, so that without the variable the search still goes on in its own ledger."""
    monkeypatch.setenv(VARIABLE, shared)
    experiment = parse_experiment(text())
    assert experiment.ledger == shared
    monkeypatch.delenv(VARIABLE)
    assert parse_experiment(experiment.to_yaml()).ledger == shared


@pytest.mark.parametrize("own", ["sqlite:///shared.db", "sqlite:///here/../shared.db", "sqlite:///link/shared.db"])
def test_relative_addresses_are_compared_as_absolute_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/shared.db")
    assert parse_experiment(text(ledger=own)).ledger == own
    monkeypatch.chdir("/")  # the control: from there it is another file
    with raises_code(ExperimentError, "ledger-not-shared"):
        parse_experiment(text(ledger=own))


def test_a_relative_variable_is_held_where_the_command_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, "sqlite:///shared.db")
    experiment = parse_experiment(text())
    assert experiment.ledger == f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.chdir("/")
    with raises_code(ExperimentError, "ledger-not-shared"):
        parse_experiment(experiment.to_yaml())


def test_another_ledger_than_the_variables_is_refused_with_its_place_and_both_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://ada@db.example/ledger")
    with pytest.raises(ExperimentError) as refused:
        parse_experiment(text(ledger="sqlite:///mine.db"), source="e.yaml")
    (problem,) = refused.value.problems
    assert (problem.where, problem.key, problem.value) == ("e.yaml:8", "ledger", "sqlite:///mine.db")
    assert problem.code == "ledger-not-shared"
    assert f"sqlite:///{tmp_path}/mine.db" in problem.rule
    assert "postgresql://ada@db.example/ledger" in problem.rule
    with raises_code(ExperimentError, "ledger-not-shared"):
        parse_experiment(text(), ["ledger=sqlite:///mine.db"])


@pytest.mark.parametrize(
    "bad", ["postgresql://ada:secret@db/ledger", "mysql://ada:secret@db/x", "sqlite://ada:secret@db/x", "nonsense"]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_variable_that_is_no_address_is_refused_by_its_name_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch, bad: str, named: bool
) -> None:
    monkeypatch.setenv(VARIABLE, bad)
    with raises_code(InputError, "ledger-variable-invalid") as refused:
        parse_experiment(text(ledger="sqlite:///mine.db") if named else text())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://bucket/runs", "gs://bucket/runs", "file:///runs"])
def test_storage_in_an_object_store_is_refused(url: str) -> None:
    with raises_code(ExperimentError, "storage-url"):
        parse_experiment(text(storage=url))
    assert parse_experiment(text(storage="s3/runs")).storage == "s3/runs"  # the control: a folder
