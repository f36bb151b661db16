"""The executor on Ray: the faults of test_local on a cluster, lost workers, and several machines."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray
from errors_helper import raises_code
from ledger_fakes import FileCharge, MemoryLedger
from sweep_fakes import (
    LEASE,
    LONG_RUN,
    RUNGS,
    SECRET,
    STEPS,
    FakeRanks,
    FakeSpec,
    FakeTraining,
    KilledCharge,
    MostRunning,
    Recorder,
    Sweep,
    run_script,
    states,
)

from trainables.charge import NoCharge
from trainables.rungs import OPERATOR_LOG, TrainingLoop
from trainables.trial import REQUEST, TrialTrainable
from tuner.errors import InputError, LedgerError, SweepInterrupted, TunerError
from tuner.executors import base
from tuner.executors.base import ExecutorSettings, TrialSetup
from tuner.executors.ray import runner as ray_runner
from tuner.executors.ray.hung import HungWorkers
from tuner.study.driver import RAISED
from tuner.study.types import Ask, Decision, Stop, StopReason, Suggestion, TrialShape


@pytest.mark.slow
def test_faults_budget_and_concurrency_together(tmp_path: Path, ray_two_slots: None) -> None:
    recorder, watch = Recorder(), MostRunning()
    faults = {"raise_in": (1,), "nan_in": (2,)}
    sweep = Sweep(tmp_path, trials=9, cap=6 * STEPS, faults=faults, observers=(recorder, watch))
    stop = sweep.run_ray(concurrent_trials=2)
    assert stop.reason is StopReason.BUDGET
    # What the trial that raised had reserved is gone; 40 steps of the one that gave NaN leave room for four whole ones.
    assert states(sweep) == ["COMPLETE", "FAIL", "FAIL", *["COMPLETE"] * 3]
    assert sweep.draws == sweep.ledger.leased() - STEPS == 4 * STEPS + RUNGS[1]
    assert sweep.ledger.outstanding() == {}
    reasons = {view.number: view.reason for view in recorder.finished if view.reason}
    assert set(reasons) == {1, 2}
    assert reasons[1] == RAISED
    assert SECRET not in repr(reasons)
    assert SECRET in (tmp_path / OPERATOR_LOG).read_text()
    assert not (tmp_path / "ray").exists()
    assert watch.most == 2


@pytest.mark.slow
def test_a_lost_worker_goes_on_from_its_checkpoint_and_pays_again(
    tmp_path: Path, ray_two_slots: None, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep(tmp_path, trials=2, faults={"kill_once_at": 50})
    assert sweep.run_ray().reason is StopReason.DONE
    assert "(raylet)" not in capfd.readouterr().out, "standard output may be JSON"
    assert states(sweep) == ["COMPLETE"] * 2
    assert sweep.draws == sweep.ledger.leased() == 2 * STEPS + LEASE
    assert sweep.ledger.outstanding() == {}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_hangs_is_killed_and_its_trial_goes_on(tmp_path: Path, ray_two_slots: None) -> None:
    sweep = Sweep(tmp_path, trials=2, faults={"stop_once_at": 50})
    assert sweep.run_ray(hung_after=25.0).reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 2
    assert sweep.draws == sweep.ledger.leased() == 2 * STEPS + LEASE
    assert sweep.ledger.outstanding() == {}


def test_only_a_worker_without_a_lease_or_a_report_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, killed = [0.0], []
    monkeypatch.setattr(ray, "kill", killed.append)
    hung = HungWorkers(10.0, clock=lambda: clock[0])
    monkeypatch.setattr(hung, "_actor", lambda ray_id: None if ray_id == "queued" else f"worker of {ray_id}")
    ledger = MemoryLedger("")
    ledger.reserve("a", Ask(100))

    def look(ray_id: str = "r0", reports: int = 0, charge: object = ledger.charge_for("a")) -> bool:
        clock[0] += 6.0
        return hung.look("a", ray_id, charge, reports)  # type: ignore[arg-type]

    assert [look(), look()] == [False, False]
    ledger.lease("a", 10)
    assert [look(), look()] == [False, False], "a lease is progress"
    assert [look(reports=1), look(reports=1)] == [False, False], "and so is a report"
    assert [look("r1", 1), look("r1", 1)] == [False, False], "another worker begins anew"
    assert [look("queued", 1), look("queued", 1), look("queued", 1)] == [False] * 3, "no worker cannot hang"
    assert [look(charge=NoCharge()) for _ in range(4)] == [False] * 4, "nothing is known of a trial without a charge"
    assert killed == []
    assert [look("r1", 1), look("r1", 1), look("r1", 1)] == [False, False, True]
    assert killed == ["worker of r1"]


RAYLET_KILLED = """
import sys
from pathlib import Path
import ray
from sweep_fakes import Recorder, Sweep
from tuner.errors import TunerError

def die(n):
    if n == 3:
        ray._private.worker._global_node.all_processes["raylet"][0].process.kill()

try:
    Sweep(Path(sys.argv[1]), trials=2000, observers=(Recorder(die),)).run_ray()
except TunerError as error:
    sys.exit(error.code)
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_raylet_ends_the_driver_with_an_error_and_a_resume_continues(
    tmp_path: Path, ray_two_slots: None
) -> None:
    done = run_script(RAYLET_KILLED, str(tmp_path), timeout=300)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "ray-gone", done.stderr
    resumed = Sweep(tmp_path, trials=3)
    assert resumed.run_ray().reason is StopReason.DONE
    assert set(states(resumed)) == {"COMPLETE"}
    assert resumed.draws <= resumed.ledger.leased()
    assert resumed.ledger.outstanding() == {}


@pytest.mark.slow
@pytest.mark.parametrize("kill_once_at", [None, 50])
def test_a_trial_that_lost_a_rank_goes_on_from_its_checkpoint(
    tmp_path: Path, ray_two_slots: None, kill_once_at: int | None
) -> None:
    recorder = Recorder()
    faults = {"kill_once_at": kill_once_at}
    sweep = Sweep(tmp_path, trials=3, faults=faults, observers=(recorder,), make_training=FakeRanks)
    assert sweep.run_ray(cpus_per_trial=2, workers_per_trial=2).reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 3, [view.reason for view in recorder.finished]
    # The step in which the rank died was paid, but without its share no noise was drawn. It continues from step 40.
    assert sweep.draws == 3 * STEPS + (0 if kill_once_at is None else LEASE - 1)
    assert sweep.ledger.leased() == 3 * STEPS + (0 if kill_once_at is None else LEASE)
    assert sweep.ledger.outstanding() == {}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before the charge", "after it"])
def test_a_killed_charge_actor_is_a_lost_worker(tmp_path: Path, ray_two_slots: None, after: bool) -> None:
    recorder = Recorder()
    sweep = Sweep(tmp_path, trials=2, observers=(recorder,))
    stop = sweep.run_ray(charge_for=lambda trial: KilledCharge(sweep.ledger, trial, after=after))
    assert stop.reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 2, [view.reason for view in recorder.finished]
    # The checkpoint of step 40 is as new as the request that was cut off, so only that request is paid again.
    assert sweep.draws == 2 * STEPS
    assert sweep.ledger.leased() == 2 * STEPS + after * 2 * LEASE
    assert sweep.ledger.outstanding() == {}


@pytest.mark.slow
def test_a_committed_run_that_lost_its_worker_ends_earlier(tmp_path: Path, ray_two_slots: None) -> None:
    sweep = Sweep(tmp_path, trials=2, cap=4 * STEPS, committed=LONG_RUN, faults={"kill_once_at": 145})
    assert sweep.run_ray().reason is StopReason.DONE
    run = sweep.study().get_trials()[2]
    assert (run.state.name, run.user_attrs["steps_taken"]) == ("COMPLETE", 180), "125 and the 55 that were left"
    assert sweep.draws == sweep.ledger.leased() == 4 * STEPS
    assert sweep.ledger.outstanding() == {}


@pytest.mark.slow
def test_a_lost_worker_whose_repetition_does_not_fit_is_failed(tmp_path: Path, ray_two_slots: None) -> None:
    sweep = Sweep(tmp_path, trials=2, cap=STEPS, faults={"kill_once_at": 50})
    assert sweep.run_ray().reason is StopReason.BUDGET
    assert states(sweep) == ["FAIL"]
    assert "do not fit" in sweep.study().get_trials()[0].user_attrs["reason"]
    assert sweep.draws == sweep.ledger.leased() == 50


@pytest.mark.slow
def test_ctrl_c_leaves_a_sweep_that_continues(tmp_path: Path, ray_two_slots: None) -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupting = Recorder(lambda n: signal.raise_signal(signal.SIGINT) if n == 7 else None)
    sweep = Sweep(tmp_path, trials=3, observers=(interrupting,))
    with pytest.raises(SweepInterrupted):
        sweep.run_ray()
    assert signal.getsignal(signal.SIGINT) is before
    assert states(sweep) == ["COMPLETE", "RUNNING"]
    resumed = Sweep(tmp_path, trials=3)
    assert resumed.run_ray().reason is StopReason.DONE
    assert states(resumed) == ["COMPLETE"] * 3
    # The worker was stopped wherever it was: what it had leased beyond its checkpoint is paid and drawn again.
    assert 3 * STEPS <= resumed.draws <= resumed.ledger.leased() <= 3 * STEPS + RUNGS[0]
    assert resumed.ledger.outstanding() == {}


@pytest.mark.slow
def test_an_error_of_the_driver_is_raised_as_it_is(tmp_path: Path, ray_two_slots: None) -> None:
    def broken(_report: int) -> None:
        raise LedgerError("ledger-damaged", "the chain is broken")

    with raises_code(LedgerError, "ledger-damaged"):
        Sweep(tmp_path, observers=(Recorder(broken),)).run_ray()


def test_a_trial_that_no_machine_can_hold_is_refused_at_once(tmp_path: Path, ray_two_slots: None) -> None:
    for key in ("cpus_per_trial", "gpus_per_trial"):
        with raises_code(InputError, "resources-too-large") as caught:
            Sweep(tmp_path).run_ray(**{key: 10_000})
        assert f"resources.{key}" in str(caught.value)
    assert Sweep(tmp_path).ledger.entries() == []


KILLED = """
import os, signal, sys
from pathlib import Path
from sweep_fakes import Recorder, Sweep
die = Recorder(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == 8 else None)
Sweep(Path(sys.argv[1]), trials=4, observers=(die,)).run_ray(concurrent_trials=2)
"""


@pytest.mark.slow
def test_kill_9_of_the_driver_and_resume(tmp_path: Path, ray_two_slots: None) -> None:
    done = run_script(KILLED, str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    sweep = Sweep(tmp_path, trials=4)
    assert sweep.run_ray(concurrent_trials=2).reason is StopReason.DONE
    assert states(sweep) == ["COMPLETE"] * 4
    assert 4 * STEPS <= sweep.draws <= sweep.ledger.leased() <= 4 * STEPS + 2 * RUNGS[0]
    assert sweep.ledger.outstanding() == {}
    assert "uploading" not in done.stderr.lower()


TWO_NODES = """
import os
import sys
from pathlib import Path
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # so that Ray does not warn
import ray
from ray.cluster_utils import Cluster
from sweep_fakes import FakeTraining, Recorder, Sweep

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
cluster.add_node(num_cpus=1)
victim = cluster.add_node(num_cpus=1)
removed = []

def on_report(n):
    if n == 4 and "remove" in sys.argv[2:]:
        cluster.remove_node(victim, allow_graceful=False)
        removed.append(n)

sweep = Sweep(Path(sys.argv[1]), trials=5, observers=(Recorder(on_report),))
try:
    stop = sweep.run_ray(concurrent_trials=2, address=cluster.address)
finally:
    cluster.shutdown()
print(stop.reason.value, removed)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", ["none", "remove"])
def test_two_nodes_and_the_loss_of_one(tmp_path: Path, fault: str) -> None:
    done = run_script(TWO_NODES, str(tmp_path), fault, timeout=230)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ("done []" if fault == "none" else "done [4]")
    sweep = Sweep(tmp_path, trials=5)
    assert states(sweep) == ["COMPLETE"] * 5
    assert 5 * STEPS <= sweep.draws <= sweep.ledger.leased() <= 5 * STEPS + 2 * RUNGS[0]
    assert sweep.ledger.outstanding() == {}


@pytest.mark.slow
def test_a_cluster_that_happens_to_run_here_is_not_used(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from sweep_fakes import Recorder, Sweep
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 7, "include_dashboard": False})
import os
os.environ["RAY_ADDRESS"] = cluster.address
seen = []
watch = Recorder(lambda n: seen.append(ray.get_runtime_context().gcs_address))
Sweep(Path(sys.argv[1]), trials=1, observers=(watch,)).run_ray()
print(cluster.address in seen, ray.is_initialized())
cluster.shutdown()
"""
    done = run_script(script, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"


def test_the_runner_gives_no_driver_to_rays_files(ray_two_slots: None) -> None:
    from ray import cloudpickle

    bridge = ray_runner._Bridge.__new__(ray_runner._Bridge)
    assert cloudpickle.loads(cloudpickle.dumps(bridge)) is None


class OneTrial:
    """Driver with one trial."""

    def __init__(self, *, fits: bool = True) -> None:
        self.ended: list[str] = []
        self.restarts = 0
        self._asked = False
        self._fits = fits

    @property
    def running(self) -> int:
        return int(self.is_running("ours"))

    def is_running(self, _: str) -> bool:
        return self._asked and not self.ended

    def is_committed(self, _: str) -> bool:
        return False

    def next(self) -> Suggestion | Stop:
        if self._asked:
            return Stop(StopReason.DONE, "")
        self._asked = True
        return Suggestion("ours", 0, {}, self.shape_of_trial("ours"))

    def restarted(self, trial_id: str, why: str) -> bool:
        self.restarts += 1
        if not self._fits:
            self.ended.append("no room")
        return self._fits

    def step_of(self, _: str) -> int:
        return 0

    def finish(self, _: str, *, reason: str = "", **__: object) -> None:
        self.ended.append(reason)

    def report(self, *_: object) -> object:
        return Decision.CONTINUE

    def shape_of_trial(self, _: str) -> TrialShape:
        return TrialShape(steps=RUNGS[-1], rungs=RUNGS)

    def bridge(self, folder: Path = Path(), **options: Any) -> ray_runner._Bridge:  # noqa: ANN401
        setup = TrialSetup(
            spec_for=lambda _: None,
            charge_for=lambda _: None,  # type: ignore[arg-type, return-value]
            folder=folder,
            make_training=FakeTraining,  # type: ignore[arg-type]
        )
        return ray_runner._Bridge(self, setup, ExecutorSettings(concurrent_trials=2, **options))  # type: ignore[arg-type]


def test_a_trial_that_ray_gives_up_is_asked_for_again_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(ray_runner.time, "monotonic", lambda: clock[0])
    driver = OneTrial()
    bridge = driver.bridge()
    asked = bridge.suggest("r0")
    assert isinstance(asked, dict)
    assert bridge.suggest("-") is None, "nothing is left to begin, but what runs may have to be asked for again"
    pauses = []
    for loss in range(1, 1 + ray_runner.MAX_LOST_WORKERS):
        bridge.lost(f"r{loss - 1}")
        assert not driver.ended
        begun = clock[0]
        while (again := bridge.suggest(f"r{loss}")) is None:
            clock[0] += 0.5
        assert again == asked, "the same trial, and never the end of the search while it waits"
        pauses.append(clock[0] - begun)
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.0, "one loss costs nobody a second"
    assert sum(pauses) >= 60.0, "a machine that is gone is noticed within a minute, not at once"
    assert driver.restarts == ray_runner.MAX_LOST_WORKERS, "each time what is repeated is reserved again"
    bridge.lost(f"r{ray_runner.MAX_LOST_WORKERS}")
    assert "last allowed restart" in driver.ended[0]
    assert bridge.suggest("last") == "FINISHED"
    assert bridge.stop is not None


def test_a_loss_that_would_be_paid_twice_stops_the_sweep_if_it_must_not_pay(tmp_path: Path) -> None:
    for step, stops in ((20, True), (40, False)):
        ledger = MemoryLedger("")
        ledger.reserve("ours", Ask(100))
        ledger.lease("ours", 40)
        driver = OneTrial()
        bridge = driver.bridge(tmp_path, on_loss="stop")
        bridge.setup = replace(bridge.setup, charge_for=ledger.charge_for)
        bridge.suggest("r0")
        checkpoint(tmp_path, step)
        bridge.lost("r0")
        assert (getattr(bridge.error, "code", None) == "loss-not-paid") is stops, bridge.error
        assert isinstance(bridge.suggest("r1"), dict) is not stops
        assert (driver.restarts, driver.ended) == (not stops, []), "it stays as it is, for a resume"


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("ledger-read-only", "stops"),
        ("ledger-disk-full", "stops"),
        ("ledger-unavailable", "again"),
        ("not-reserved", "lost"),
    ],
)
def test_a_ledger_that_refuses_stops_the_sweep_and_loses_no_trial(tmp_path: Path, code: str, answer: str) -> None:
    @dataclass(frozen=True)
    class Refusing(FileCharge):
        def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
            raise LedgerError(code, "The ledger refuses.")

    sweep = Sweep(tmp_path)
    spec = FakeSpec(0, {"learning_rate": 0.1, "smoothing_radius": 1.0}, str(tmp_path / "draws"))
    charge = Refusing(sweep.ledger, "ours")
    loop = TrainingLoop(FakeTraining, spec, charge, folder=tmp_path, trial_id="ours", rung_steps=RUNGS)
    result = TrialTrainable(config={REQUEST: loop}).step()
    driver = OneTrial()
    bridge = driver.bridge(tmp_path)
    bridge.suggest("r0")
    assert not bridge.result("r0", result)
    assert (getattr(bridge.error, "code", None) == "trial-lost") is (answer == "stops")
    assert isinstance(bridge.suggest("r1"), dict) is (answer == "again")
    assert len(driver.ended) == (answer == "lost")
    assert sweep.draws == 0


def test_while_a_lost_trial_waits_other_slots_are_filled_and_ctrl_c_ends_all() -> None:
    class Two(OneTrial):
        more = 1

        def next(self) -> Suggestion | Stop:
            if self._asked and self.more:
                self.more -= 1
                return Suggestion("another", 1, {}, self.shape_of_trial("another"))
            return super().next()

    bridge = Two().bridge()
    bridge.suggest("r0")
    for loss in range(2):  # the second pause is one of a second
        bridge.lost(f"r{loss}")
        if not loss:
            assert isinstance(bridge.suggest("r1"), dict)
    asked = bridge.suggest("r2")
    assert isinstance(asked, dict)
    assert asked["request"].trial_id == "another"
    assert bridge.suggest("r3") is None
    bridge.interrupt()
    assert bridge.suggest("r4") == "FINISHED"


def checkpoint(folder: Path, step: int) -> None:
    """Write what a worker writes before it reports a step."""
    path = folder / "trials" / "ours" / "checkpoint" / f"step-{step:08d}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize("seen", [0, RUNGS[0] - 1, RUNGS[0]])
def test_a_report_whose_checkpoint_the_driver_does_not_see_stops_the_search(
    seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_SEEN_WITHIN", 0.0)
    driver = OneTrial()
    bridge = driver.bridge(tmp_path)
    bridge.suggest("r0")
    if seen:
        checkpoint(tmp_path, seen)
    went_on = bridge.result("r0", {"trial_step": RUNGS[0]})
    if seen == RUNGS[0]:
        assert went_on
        assert bridge.error is None
    else:
        assert not went_on
        assert isinstance(bridge.error, TunerError)
        assert bridge.error.code == "checkpoint-unseen"
        assert bridge.suggest("r1") == "FINISHED", "no other trial starts"


@pytest.mark.parametrize("again", [True, False])
def test_only_a_passing_failure_of_the_infrastructure_is_tried_again(again: bool) -> None:
    driver = OneTrial()
    bridge = driver.bridge()
    bridge.suggest("r0")
    assert not bridge.result("r0", {"trial_lost": "the disk is full", "trial_again": again})
    assert driver.ended == ([] if again else ["the disk is full"])
    assert (bridge.suggest("r1") == "FINISHED") != again


def test_a_report_between_two_losses_ends_the_pauses_growth(tmp_path: Path) -> None:
    bridge = OneTrial().bridge(tmp_path)
    checkpoint(tmp_path, RUNGS[0])
    bridge.suggest("r0")
    bridge.lost("r0")
    assert isinstance(bridge.suggest("r1"), dict)
    bridge.result("r1", {"trial_step": RUNGS[0]})
    bridge.lost("r1")
    assert isinstance(bridge.suggest("r2"), dict), "at once again"
    bridge.lost("r2")
    assert bridge.suggest("r3") is None, "two in a row"


def test_a_lost_trial_whose_repetition_does_not_fit_is_not_given_to_ray_again() -> None:
    driver = OneTrial(fits=False)
    bridge = driver.bridge()
    bridge.suggest("r0")
    bridge.lost("r0")
    assert bridge.suggest("r1") == "FINISHED"
    assert driver.ended == ["no room"]


def test_a_trial_that_is_moved_with_notice_pays_again_too() -> None:
    driver = OneTrial()
    bridge = driver.bridge()
    bridge.suggest("r0")
    bridge.added("r0")
    assert driver.restarts == 0
    bridge.added("r0")
    assert driver.restarts == 1


def test_the_trainable_takes_one_request_after_another(tmp_path: Path) -> None:
    from trainables.rungs import TrainingLoop
    from trainables.trial import METRICS, REQUEST, STEP, TrialTrainable

    sweep = Sweep(tmp_path)
    ledger = sweep.ledger
    for name in ("a", "b"):
        ledger.reserve(name, Ask(STEPS))

    def request(name: str) -> dict[str, TrainingLoop]:
        parameters = {"learning_rate": 0.1, "smoothing_radius": 5.0}
        return {
            REQUEST: TrainingLoop(
                trial_id=name,
                spec=FakeSpec(0, parameters, str(tmp_path / "draws")),
                charge=ledger.charge_for(name),
                make_training=FakeTraining,
                folder=tmp_path,
                rung_steps=RUNGS,
            )
        }

    trial = TrialTrainable.__new__(TrialTrainable)
    trial.setup(request("a"))
    assert trial.step()[STEP] == RUNGS[0]
    assert trial.reset_config(request("b"))
    result = trial.step()
    assert result[STEP] == RUNGS[0]
    assert set(result[METRICS]) >= {"learning_rate", "validation_loss"}
    trial.cleanup()
    with pytest.raises(RuntimeError, match="stopped"):
        trial.step()
