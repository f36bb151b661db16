"""Records of a sealed search: the same few records and timestamps, however many runs there were."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from errors_helper import raises_code
from recorder_fakes import URI, sent, sweep

from tuner.errors import TrackingError
from tuner.recorder.released_winner import record_winner
from tuner.recorder.spool import Spool, read_spool

DAY = datetime(2026, 3, 4, tzinfo=UTC)
MIDNIGHT = int(DAY.timestamp() * 1000)
CHOSEN = {"learning_rate": 0.25, "schedule": "constant"}


def record(folder: Path, parameters: dict[str, object] | None) -> None:
    plan = folder / "plan.json"
    plan.write_text("{}")
    settings = {"privacy": {"epsilon": 8.0, "delta": 1e-5}, "dataset": {"validation": {"protected": False}}}
    info = sweep(URI, settings=settings)
    record_winner(folder, info, parameters=parameters, score=0.875, artifacts=(plan,), day=DAY)


def test_one_parent_and_one_child_without_a_number_or_an_hour(tmp_path: Path) -> None:
    record(tmp_path, CHOSEN)
    server = sent(tmp_path)
    state = server.state()
    assert set(state) == {"-", "winner"}
    status, params, tags, points = state["winner"]
    assert (status, params) == ("FINISHED", {"learning_rate": "0.25", "schedule": "constant"})
    assert tags == {
        "dp_tuner.sweep": "digits-0001",
        "dp_tuner.trial": "winner",
        "mlflow.source.name": "tune run",
        "mlflow.parentRunId": tags["mlflow.parentRunId"],
        "state": "complete",
        "best": "1",
    }
    assert {(name, value, step) for name, value, _, step in points} == {
        ("validation_accuracy", "0.875", 0),
        ("objective", "0.875", 0),
    }
    assert {run.info.run_name for run in server.runs.values()} == {"digits-0001", "winner"}
    moments = {time for *_, all_points in state.values() for _, _, time, _ in all_points}
    moments |= {run.info.start_time for run in server.runs.values()}
    assert all(0 <= moment - MIDNIGHT < 10 for moment in moments)
    note = state["-"][2]["mlflow.note.content"]
    assert "ε = 8 at δ = 1e-05" in note
    assert ("epsilon_cap", "8.0", 0) in {(name, value, step) for name, value, _, step in state["-"][3]}


def test_without_a_winner_there_is_no_child(tmp_path: Path) -> None:
    record(tmp_path, None)
    state = sent(tmp_path).state()
    assert set(state) == {"-"}
    assert state["-"][2]["state"] == "done, without a winner"


def test_told_twice_is_told_once(tmp_path: Path) -> None:
    record(tmp_path, CHOSEN)
    spool = (tmp_path / "spool.jsonl").read_bytes()
    record(tmp_path, CHOSEN)
    assert (tmp_path / "spool.jsonl").read_bytes() == spool


@pytest.mark.parametrize("lines", range(7))
def test_a_record_that_was_cut_off_is_written_again(tmp_path: Path, lines: int) -> None:
    """A power cut inside the one write: whole lines are there, and the end is not."""
    whole = tmp_path / "whole"
    cut = tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        record(folder, CHOSEN)
    path = cut / "spool.jsonl"
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(text[:lines]) + text[lines][:20])
    record(cut, CHOSEN)

    def plain(folder: Path) -> dict[str, Any]:
        return {name: (status, params) for name, (status, params, *_) in sent(folder).state().items()}

    assert plain(cut) == plain(whole)
    last = [each.record for each in read_spool(path)][-1]
    assert last["kind"] == "sweep_finished"


def test_nobody_else_writes_the_spool_meanwhile(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool.jsonl"), raises_code(TrackingError, "spool-busy"):
        record(tmp_path, CHOSEN)
