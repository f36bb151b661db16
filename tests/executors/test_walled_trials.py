"""Trials behind the wall: a hostile training is heard by the operator alone, and a failed trial tells no step."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_fakes import RUNGS, SECRET, STEPS, Recorder, Sweep, facts, run_script, states

from trainables.errors import InfrastructureError
from trainables.rungs import OPERATOR_LOG, TrainingLoop, private_training
from tuner.errors import TunerError
from tuner.executors.local import LocalExecutor
from tuner.study.types import TrialStatus
from tuner.study.views import read_trials

HOSTILE = """
import logging, sys, time
from pathlib import Path
from rich.console import Console
from sweep_fakes import RUNGS, STEPS, Recorder, Sweep
import sweep_fakes
logging.basicConfig()
folder, executor = Path(sys.argv[1]), sys.argv[2]
if executor == "bare":
    sweep_fakes.tell_all()
sweep = Sweep(folder, trials=2, faults={"raise_at": 47}, observers=(Recorder(lambda n: print("report", n)),))
(sweep.run_local if executor == "local" else sweep.run_ray)()
"""


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_only_the_operators_log_hears_a_hostile_training(tmp_path: Path, executor: str) -> None:
    done = run_script(HOSTILE, str(tmp_path), executor)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"report {n}" for n in range(1, 8)], "what the driver says is shown"
    if executor == "local":
        assert done.stderr == ""
    log = tmp_path / OPERATOR_LOG
    assert log.read_text().count(SECRET) >= 10
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path != log]
    assert others
    assert not any(SECRET.encode() in path.read_bytes() for path in others)
    assert not any(b"ValueError" in path.read_bytes() for path in others), "nor the name of the error"


def test_the_control_is_heard(tmp_path: Path) -> None:
    done = run_script(HOSTILE, str(tmp_path), "bare")
    assert done.stdout.count(SECRET) >= 3
    assert done.stderr.count(SECRET) >= 4


def seen(folder: Path, step: int, run: str) -> tuple[Any, ...]:
    """Return all that is shown of a sweep whose first trial raises at a step, without random ids."""
    recorder = Recorder()
    sweep = Sweep(folder, trials=2, faults={"raise_at": step}, observers=(recorder,))
    getattr(sweep, run)()
    study = sweep.study()
    views = read_trials(study, mode="max", steps_planned=STEPS)
    ledger = sweep.ledger
    return (
        facts(study),
        [{k: v for k, v in trial.user_attrs.items() if k != "trial_id"} for trial in study.get_trials()],
        [(view.number, view.state, view.step, view.reason, view.last_score) for view in (*views, *recorder.finished)],
        [(ledger.leased(view.id), ledger.released(view.id), ledger.settled()[view.id]) for view in views],
        len(recorder.reports),
    )


@pytest.mark.parametrize("run", ["run_local", pytest.param("run_ray", marks=pytest.mark.slow)])
def test_a_failed_trial_does_not_tell_at_which_step_it_failed(
    tmp_path: Path, run: str, ray_two_slots: None, capfd: pytest.CaptureFixture[str]
) -> None:
    said = []
    early = seen(tmp_path / "early", RUNGS[0] + 3, run)
    said.append(capfd.readouterr())
    late = seen(tmp_path / "late", RUNGS[1] - 1, run)
    said.append(capfd.readouterr())
    assert early == late
    assert said[0] == said[1]
    assert early[2][0][:3] == (0, TrialStatus.FAILED, RUNGS[0]), "the step is that of the last report"
    assert early[3][0] == (STEPS, 0, RUNGS[0]), "all that it had reserved is charged"
    another = seen(tmp_path / "other", RUNGS[1] + 1, run)
    assert another != early, "a report more may be seen: this comparison can fail"


@pytest.mark.parametrize("run", ["run_local", pytest.param("run_ray", marks=pytest.mark.slow)])
def test_a_full_disk_stops_the_sweep_and_a_resume_completes_every_trial(
    tmp_path: Path, run: str, ray_two_slots: None
) -> None:
    sweep = Sweep(tmp_path, trials=3, faults={"full_disk_in": (1,)})
    with pytest.raises(TunerError, match=r"the disk is full.*\[trial-lost\]"):
        getattr(sweep, run)()
    assert "RUNNING" in states(sweep), "the trial goes on where the disk has room again"
    again = Sweep(tmp_path, trials=3)
    getattr(again, run)()
    assert states(again) == ["COMPLETE"] * 3
    assert again.draws <= again.ledger.leased()
    assert again.ledger.outstanding() == {}


def test_a_checkpoint_that_cannot_be_read_is_the_infrastructures(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=1, faults={"interrupt_at": 50})
    with pytest.raises(TunerError):
        sweep.run_local()
    for path in tmp_path.glob("trials/*/checkpoint/*.pt"):
        path.write_text("torn")
    recorder = Recorder()
    with pytest.raises(TunerError, match="its only trial failed"):
        Sweep(tmp_path, trials=1, observers=(recorder,)).run_local()
    assert recorder.finished[0].state is TrialStatus.LOST
    assert "[checkpoint-damaged]" in recorder.finished[0].reason


def test_a_lost_trial_of_a_sealed_search_stays_and_is_made_again(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=1, faults={"full_disk_in": (0,)})
    setup = sweep.setup()
    object.__setattr__(setup, "stops_when_lost", True)
    with pytest.raises(TunerError, match=r"the disk is full.*\[trial-lost\]"):
        LocalExecutor().run(sweep.driver(), setup)
    assert states(sweep) == ["RUNNING"]
    again = Sweep(tmp_path, trials=1)
    again.run_local()
    assert states(again) == ["COMPLETE"]


def test_a_machine_that_cannot_load_torch_loses_the_trial_and_fails_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trainables.training", None)  # its import raises an ImportError
    loop = TrainingLoop(private_training, None, None, folder=tmp_path, trial_id="a", rung_steps=RUNGS)
    with pytest.raises(InfrastructureError) as caught:
        loop.advance()
    assert caught.value.code == "machine-failed"


def test_an_error_that_names_itself_a_refusal_is_still_behind_the_wall(tmp_path: Path) -> None:
    """The place of an error decides and not its type: a model can raise an error of any type."""
    from trainables.errors import GateError, WalledError

    class Lying:
        step = 0

        def __init__(self, *_: object) -> None: ...

        def run_to(self, _step: int) -> None:
            raise GateError("samples-mixed", SECRET)

    loop = TrainingLoop(Lying, None, None, folder=tmp_path, trial_id="0000-abcdef", rung_steps=RUNGS)
    with pytest.raises(WalledError) as caught:
        loop.advance()
    assert SECRET not in str(caught.value)
    assert sys.exc_info() == (None, None, None)
