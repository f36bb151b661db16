"""DP_TUNER_LEDGER binds every command: an owner's cap there holds for plan, run, train and resume too."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import STEPS, Tune

from tuner.privacy.ledger.ledger import Ledger

VARIABLE = "DP_TUNER_LEDGER"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.setenv(VARIABLE, url)
    return url


def test_a_cap_in_the_shared_ledger_binds_plan_run_and_train(
    tune: Tune, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("budget", "set", "digits", "--epsilon", "0.1", "--delta", "1e-5")
    file = tune.write(search__trials=1, search__space={"learning_rate": 0.5})
    for command in (("plan", file, "--no-timing"), ("run", file, "--local"), ("train", file, "--local")):
        assert "[dataset-cap-exceeded]" in tune(*command, code=3).text
    assert tune.sweeps == []
    assert not (tune.folder / "runs" / "ledger.db").exists()
    monkeypatch.delenv(VARIABLE)  # the control: it is the variable that led there
    tune("plan", file, "--no-timing")
    assert Ledger.open(shared, create=False).dataset_state("digits").searches == ()


def test_a_file_with_another_ledger_is_refused_by_every_command_that_charges(tune: Tune, shared: str) -> None:
    file = tune.write(ledger="sqlite:///runs/ledger.db")
    for command in (("plan", file), ("run", file, "--local"), ("train", file, "--local"), ("validate", file)):
        said = tune(*command, code=2).text
        assert f"{VARIABLE} names {shared}" in said
        assert f"{file}:" in said
    assert tune.sweeps == []
    assert tune.entries == []


def test_a_sweep_goes_on_in_its_own_ledger_or_not_at_all(
    tune: Tune, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tune("run", tune.write(search__trials=1), "--local", "--json").json["sweep"]
    more = ("resume", "tiny", "--set", "search.trials=2", "--local", "--quiet")
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tune.folder}/another.db")
    for command in (more, ("run", "tiny.yaml", "--resume", "--local", "--set", "search.trials=2")):
        assert f"this is {shared}, and {VARIABLE} names" in tune(*command, code=2).text
    assert not (tune.folder / "another.db").exists()
    monkeypatch.delenv(VARIABLE)
    tune(*more)
    assert Ledger.open(shared, create=False).search_state(sweep).leased_steps == 2 * STEPS
    assert not (tune.folder / "runs" / "ledger.db").exists()
