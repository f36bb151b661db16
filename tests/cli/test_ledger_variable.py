"""The variable DP_TUNER_LEDGER: its caps hold for plan, run and train, and a sweep never leaves its ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import STEPS, Tune

from tuner.privacy.ledger.ledger import Ledger

VARIABLE = "DP_TUNER_LEDGER"


def test_a_ledger_of_the_environment_binds_every_command(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.setenv(VARIABLE, shared)
    tune("budget", "set", "digits", "--epsilon", "0.1", "--delta", "1e-5")
    file, other = tune.write(search__trials=1, search__space={"learning_rate": 0.5}), "other.yaml"
    tune.write(other, ledger="sqlite:///runs/ledger.db")
    for command in (("plan", "--no-timing"), ("run", "--local"), ("train", "--local")):
        assert "[dataset-cap-exceeded]" in tune(command[0], file, *command[1:], code=3).text
        assert "[ledger-not-shared]" in tune(command[0], other, *command[1:], code=2).text
    assert tune.sweeps == []
    tune("budget", "set", "digits", "--epsilon", "20", "--delta", "1e-4")
    sweep = tune("run", tune.write(search__trials=1), "--local", "--json").json["sweep"]
    more = ("resume", "tiny", "--set", "search.trials=2", "--local", "--quiet")
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tune.folder}/another.db")
    for command in (more, ("run", "tiny.yaml", "--resume", "--local", "--set", "search.trials=2")):
        assert "[ledger-not-shared]" in tune(*command, code=2).text
    assert not (tune.folder / "another.db").exists()
    monkeypatch.delenv(VARIABLE)
    tune(*more)
    assert Ledger.open(shared, create=False).search_state(sweep).leased_steps == 2 * STEPS
    assert not (tune.folder / "runs" / "ledger.db").exists()
