"""The local executor: faults, Ctrl-C, and a process that is killed at any point."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from errors_helper import raises_code
from sweep_fakes import LONG_RUN, METRIC, RUNGS, SECRET, STEPS, Recorder, Sweep, facts, run_script, states

from trainables.rungs import OPERATOR_LOG, checkpoint_path, checkpoint_step
from tuner.errors import LedgerError, SweepInterrupted, TunerError
from tuner.executors.local import LocalExecutor
from tuner.study.driver import RAISED
from tuner.study.storage import exclusive
from tuner.study.types import StopReason, TrialStatus


def test_a_sweep_charges_every_step_once_and_leaves_the_last_two_checkpoints(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=3)
    assert sweep.run_local().reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 3
    assert sweep.draws == sweep.ledger.leased() == 3 * STEPS
    for trial in sweep.study().get_trials():
        path = checkpoint_path(tmp_path, trial.user_attrs["trial_id"])
        assert path is not None
        assert checkpoint_step(path) == STEPS
        assert {checkpoint_step(each) for each in path.parent.iterdir()} == set(RUNGS[-2:])


def test_a_trial_that_raises_is_failed_and_the_sweep_goes_on(tmp_path: Path) -> None:
    recorder = Recorder()
    sweep = Sweep(tmp_path, trials=4, faults={"raise_in": (1,)}, observers=(recorder,))
    sweep.run_local()
    assert states(sweep) == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    failed = recorder.finished[1]
    assert failed.state is TrialStatus.FAILED
    assert failed.reason == RAISED
    assert SECRET not in failed.reason
    assert SECRET not in repr(sweep.study().get_trials()[1]), "what analysts read holds nothing of the message"
    assert sweep.ledger.outstanding() == {}
    log = tmp_path / OPERATOR_LOG
    assert SECRET in log.read_text()
    assert "Traceback" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600, "the traceback is for the operator only"


def test_a_trial_that_gives_nan_is_failed_at_once_and_refunded(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=3, faults={"nan_in": (0,)})
    sweep.run_local()
    assert states(sweep) == ["FAIL", "COMPLETE", "COMPLETE"]
    assert sweep.draws == sweep.ledger.leased() == 2 * STEPS + RUNGS[1]
    assert METRIC in sweep.study().get_trials()[0].user_attrs["reason"]


def test_a_sweep_whose_first_trials_all_fail_ends_with_an_error(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=20, faults={"raise_in": tuple(range(20))})
    with raises_code(TunerError, "first-trials-failed") as caught:
        sweep.run_local()
    assert SECRET not in str(caught.value)
    assert states(sweep) == ["FAIL"] * 3


def test_a_broken_ledger_stops_the_sweep_and_nothing_is_hidden(tmp_path: Path) -> None:
    class Broken:
        def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
            raise LedgerError("ledger-chain-broken", "The chain is broken.")

        def leased(self) -> int:
            return 0

    sweep = Sweep(tmp_path)
    with raises_code(LedgerError, "ledger-chain-broken"):
        LocalExecutor().run(sweep.driver(), sweep.setup(lambda _: Broken()))
    assert sweep.draws == 0
    assert states(sweep) == ["RUNNING"], "resumable once the ledger is fixed"


def test_a_refused_lease_takes_no_step(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=1)
    driver = sweep.driver()
    nobody = sweep.ledger.charge_for("nobody")
    with pytest.raises(TunerError, match="its only trial failed"):
        LocalExecutor().run(driver, sweep.setup(lambda _: nobody))
    assert states(sweep) == ["FAIL"]
    assert sweep.draws == 0
    assert "[not-reserved]" in driver.study.trials[0].user_attrs["reason"]
    assert driver.study.trials[0].user_attrs["outcome"] == "LOST", "the ledger refused, whatever the records are"


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_a_bit, lambda path: os.truncate(path, 3)], ids=["flipped", "truncated"])
def test_a_trial_continues_from_the_checkpoint_before_a_damaged_one_and_pays_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    sweep = Sweep(tmp_path, trials=1, faults={"interrupt_at": 50})
    with pytest.raises(SweepInterrupted):
        sweep.run_local()
    (trial,) = sweep.study().get_trials()
    last = checkpoint_path(tmp_path, trial.user_attrs["trial_id"])
    assert last is not None
    assert checkpoint_step(last) == RUNGS[1]
    taken = sweep.draws
    damage(last)
    resumed = Sweep(tmp_path, trials=1)
    assert resumed.run_local().reason is StopReason.DONE
    assert states(resumed) == ["COMPLETE"]
    assert resumed.draws == taken + STEPS - RUNGS[0], "the steps since the checkpoint before are repeated"
    assert resumed.ledger.leased() == resumed.draws, "and charged again"


def test_ctrl_c_leaves_a_sweep_that_continues(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=2, faults={"interrupt_at": 50})
    with pytest.raises(SweepInterrupted):
        sweep.run_local()
    assert states(sweep) == ["RUNNING"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = Sweep(tmp_path, trials=2)
    assert resumed.run_local().reason is StopReason.DONE
    assert states(resumed) == ["COMPLETE"] * 2
    # interrupted at step 50, its checkpoint is at 40: ten steps are drawn, and paid, a second time
    assert resumed.draws == resumed.ledger.leased() == 2 * STEPS + 10


def test_a_finished_sweep_grows(tmp_path: Path) -> None:
    Sweep(tmp_path, trials=2).run_local()
    grown = Sweep(tmp_path, trials=5)
    assert grown.run_local().reason is StopReason.DONE
    trials = grown.study().get_trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 5
    assert len({tuple(t.params.items()) for t in trials}) == 5, "the sampler must not begin its stream again"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with exclusive(tmp_path), raises_code(TunerError, "sweep-running"):
        Sweep(tmp_path).run_local()


KILLED = """
import os, signal, sys
from pathlib import Path
from ledger_fakes import FileLedger
from sweep_fakes import Recorder, Sweep
import optuna

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

where, folder, cap = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
faults, observers = {}, ()
if where == "after a report":
    observers = (Recorder(lambda n: die() if n == 7 else None),)
elif where == "between two rungs":
    faults = {"kill_once_at": 50}
elif where == "between reserve and ask":
    optuna.Study.ask = die
elif where == "between tell and settle":
    FileLedger.settle = die
elif where == "before tell":
    optuna.Study.tell = die
Sweep(folder, trials=3, cap=cap, faults=faults, observers=observers).run_local()
"""


def kill_driver(where: str, folder: Path, cap: int = 10**9) -> None:
    done = run_script(KILLED, where, str(folder), str(cap))
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("where", "repeated"),
    [
        ("after a report", 0),
        ("between two rungs", 10),
        ("between reserve and ask", 0),
        ("between tell and settle", 0),
        ("before tell", 0),
    ],
)
def test_kill_9_of_the_driver_and_resume(tmp_path: Path, where: str, repeated: int) -> None:
    kill_driver(where, tmp_path)
    recorder = Recorder()
    sweep = Sweep(tmp_path, trials=3, observers=(recorder,))
    assert sweep.run_local().reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 3
    assert sweep.draws == sweep.ledger.leased() == 3 * STEPS + repeated
    assert sweep.ledger.outstanding() == {}
    values = [trial.intermediate_values for trial in sweep.study().get_trials()]
    assert all(set(value) == set(RUNGS) for value in values)


@pytest.mark.parametrize(
    ("report", "pruner"),
    [
        (6, "none"),
        (8, "median"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((3, "none"), (9, "none"), (8, "unimodal"))),
    ],
)
def test_kill_9_of_a_rung_wise_search_repeats_no_step(tmp_path: Path, report: int, pruner: str) -> None:
    options = {"trials": 5, "cap": 3 * STEPS, "full_runs": 3.0, "pruner": (pruner, {})}
    script = KILLED.replace("trials=3, cap=cap", f"**{options!r}").replace("n == 7", f"n == {report}")
    done = run_script(script, "after a report", str(tmp_path), "0")
    assert done.returncode == -signal.SIGKILL, done.stderr
    sweep = Sweep(tmp_path, **options)
    assert sweep.run_local().reason in (StopReason.DONE, StopReason.BUDGET)
    assert "COMPLETE" in states(sweep)
    taken = [trial.user_attrs["steps_taken"] for trial in sweep.study().get_trials()]
    assert sweep.draws == sweep.ledger.leased() == sum(taken) <= 3 * STEPS
    assert sweep.ledger.outstanding() == {}
    undisturbed = Sweep(tmp_path / "undisturbed", **options)
    undisturbed.run_local()
    if pruner == "none" and report > 5:  # all configurations were drawn before the crash
        assert facts(sweep.study()) == facts(undisturbed.study()), "pauses and promotions do not depend on the crash"


def test_a_resumed_trial_that_fits_no_more_is_failed_with_the_reason(tmp_path: Path) -> None:
    kill_driver("between two rungs", tmp_path, cap=STEPS)
    sweep = Sweep(tmp_path, trials=3, cap=STEPS)
    assert sweep.run_local().reason is StopReason.BUDGET
    assert states(sweep) == ["FAIL"]
    assert "do not fit" in sweep.study().get_trials()[0].user_attrs["reason"]
    assert sweep.study().get_trials()[0].user_attrs["outcome"] == "LOST"
    assert sweep.draws == sweep.ledger.leased() == 50


def test_a_committed_run_follows_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, trials=2, cap=4 * STEPS, committed=LONG_RUN, faults={"interrupt_at": 130})
    with pytest.raises(SweepInterrupted):
        sweep.run_local()
    assert states(sweep) == ["COMPLETE", "COMPLETE", "RUNNING"]
    resumed = Sweep(tmp_path, trials=2, cap=4 * STEPS, committed=LONG_RUN)
    assert resumed.run_local().reason is StopReason.DONE
    run = resumed.study().get_trials()[2]
    assert (run.state.name, run.user_attrs["steps_taken"]) == ("COMPLETE", 190), "125 and the 65 that were left"
    assert resumed.draws <= resumed.ledger.leased() == 4 * STEPS
    assert resumed.run_local().reason is StopReason.DONE
    assert len(states(resumed)) == 3
