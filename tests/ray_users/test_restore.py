"""`Tuner.restore` with `dp_trainable` after the driver was killed: complete trials are not charged again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ray_fakes import draws, leased

from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import SearchBudget

PROGRAM = str(Path(__file__).parent / "restore_program.py")


def saved(folder: Path) -> dict[str, str]:
    """Trial → status, as in Ray's newest file of the experiment; empty while Ray writes it."""
    try:
        states = [json.loads(file.read_text()) for file in folder.glob("run/experiment_state-*.json")]
        trials: list[dict[str, Any]] = [json.loads(trial) for state in states for trial, _ in state["trial_data"]]
    except ValueError:
        return {}
    return {trial["trial_id"]: trial["status"] for trial in trials}


@pytest.mark.slow
@pytest.mark.timeout(300)  # two drivers start Ray, and Ray saves its state every ten seconds
@pytest.mark.parametrize("searcher", ["ours", "rays"])
def test_a_killed_tuner_is_restored_and_charges_only_what_it_repeats(tmp_path: Path, searcher: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    command = [sys.executable, PROGRAM, str(tmp_path)]
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen([*command, "fit", searcher], stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + 150
        while not ((tmp_path / "hung").exists() and list(saved(tmp_path).values()).count("TERMINATED") >= 2):
            assert driver.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.2)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    complete = {trial for trial, status in saved(tmp_path).items() if status == "TERMINATED"}
    before = leased(url, "mine")
    (hung,) = [trial for trial, taken in draws(tmp_path / "draws").items() if taken == 13]
    assert before[hung] == 15
    assert {before[trial] for trial in complete} == {20}

    done = subprocess.run([*command, "restore", searcher], capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended["errors"] == []
    assert ended["steps"] == [20] * 4
    assert ended["study"] == (["COMPLETE"] * 4 if searcher == "ours" else None)

    after, drawn = leased(url, "mine"), draws(tmp_path / "draws")
    assert len(after) == 4
    assert {after[trial] for trial in complete} == {20}
    assert after[hung] == 25  # it repeats the steps after its checkpoint at step 10
    assert all(20 <= drawn[trial] <= after[trial] for trial in after)
    view = SearchBudget(Ledger.open(url, create=False), "mine").view()
    assert (view.spent_steps, view.reserved_steps) == (sum(after.values()), 0)
    assert sum(after.values()) <= (view.step_cap or 0) == 100
