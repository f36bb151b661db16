"""Executor on Ray Tune.

Ray only places trials on machines and reuses actors. Its searcher and scheduler ask the driver for every decision.
Ray's own records are never read, so the searcher saves nothing, and Ray's folder is removed at the end. To resume a
sweep, a new Ray run starts from the storage, the ledger and the checkpoints.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from trainables.charge import Charge, NoCharge
from trainables.data.shared import SharedRecords
from trainables.rungs import OPERATOR_LOG, MakeTraining, TrainingLoop
from trainables.trial import AGAIN, FAILED, LOST, METRICS, REQUEST, STEP, STOPS, TrialTrainable
from tuner.errors import TunerError, disk_full, is_disk_full
from tuner.executors.base import (
    ExecutorSettings,
    TrialSetup,
    act,
    check_stop,
    checkpoint_finder,
    interrupted,
    lose,
    require_checkpoint,
)
from tuner.executors.ray.charge import ActorCharge, start_charge_actor
from tuner.executors.ray.hung import HungWorkers
from tuner.executors.ray.ranks import RankedTraining
from tuner.executors.ray.session import environment, interruptible, ray_session
from tuner.executors.ray.watchdog import RayGone, watched
from tuner.study.driver import StudyDriver
from tuner.study.storage import exclusive
from tuner.study.types import Stop, Suggestion

__all__ = ["RayExecutor"]

_NAMESPACE = "dp-tuner"
_PATIENCE = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Pauses in seconds before the consecutive restarts of a trial that lost its worker, one pause per restart.

For up to a minute, Ray sends trials to a machine that is gone. Without pauses, all restarts would fail in a second. A
report of the trial resets the sequence.
"""

_NO_RECORDS = {"TUNE_GLOBAL_CHECKPOINT_S": "inf"}
"""By default, Ray writes its own records of all trials again and again, which takes 5 % of the driver's time."""

MAX_LOST_WORKERS = 7
"""Maximum number of restarts of a trial after lost workers. Each restart charges the repeated steps again."""


class RayExecutor:
    """Executor on Ray, on this machine or on a cluster."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings

    def run(self, driver: StudyDriver, setup: TrialSetup) -> Stop:
        """Run trials until the driver stops; see `tuner.executors.base.Executor`."""
        setup = replace(setup, folder=setup.folder.absolute())
        settings = self._settings
        with exclusive(setup.folder):
            try:
                with ray_session(settings):
                    driver.reconcile(checkpoint_finder(setup.folder))
                    bridge = _Bridge(driver, setup, settings)
                    _fit(bridge, settings)
            except KeyboardInterrupt as interrupt:
                raise interrupted() from interrupt
        if bridge.error is not None:
            raise bridge.error
        if bridge.interrupted:
            raise interrupted()
        if bridge.stop is None or driver.running:
            raise TunerError(
                "internal-error", "Ray ended the run before the driver stopped. Resume the sweep, and report this bug."
            )
        return check_stop(bridge.stop, setup.folder)


@dataclass
class _Placed:
    """A trial that was given to Ray, with the number of workers it lost and the time of its next restart."""

    suggestion: Suggestion
    lost: int = 0
    lost_in_a_row: int = 0  # lost workers since the trial's last report
    again_at: float | None = None
    why: str = ""  # why its worker was killed by us
    because: str = ""  # why it starts again
    reports: int = 0
    charge: Charge | None = None  # to read how many steps were leased
    ray_id: str = ""  # the Ray trial that has it now; a trial that was paused, or lost its worker, gets another one


class _Bridge:
    """Connection of Ray's searcher, scheduler and stopper to the driver. It maps Ray's trial ids to our trial ids.

    Ray's own restarts are disabled, because Ray gives up a trial whose reused actor was lost. Instead, a trial that
    lost its worker restarts as a new Ray trial.

    An exception of the driver is stored in `error` and ends the run. Ray would convert the exception to text.
    """

    def __init__(self, driver: StudyDriver, setup: TrialSetup, settings: ExecutorSettings) -> None:
        self.driver = driver
        self.setup = setup
        self.hung = HungWorkers(settings.hung_after)
        self.error: Exception | None = None
        self.interrupted = False
        self.ray_gone = False
        self.stop: Stop | None = None
        self.charge_actor = f"charge-actor-{uuid.uuid4().hex}"
        self._settings = settings
        self._ours: dict[str, str] = {}  # Ray's trial id → ours
        self._placed: dict[str, _Placed] = {}  # by our id
        self._added: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as None. Ray writes its searcher and scheduler to files, which must not contain the driver."""
        return (type(None), ())

    @property
    def over(self) -> bool:
        """Whether every trial must stop now."""
        return self.interrupted or self.error is not None

    def interrupt(self) -> None:
        """Stop every trial after Ctrl-C."""
        self.interrupted = True

    def gone(self) -> None:
        """End the run because Ray's process on this machine died."""
        self.ray_gone = True
        self.error = self.error or TunerError(
            "ray-gone",
            "Ray's process on this machine (raylet) died, so no trial can run here. All charges remain, and a resume "
            "continues from the last checkpoints. If the machine ran out of memory, lower `concurrent_trials`.",
        )

    def suggest(self, ray_id: str) -> dict[str, object] | str | None:
        """Return the configuration of a Ray trial, or ``FINISHED``, or None if Ray must ask again later."""
        if self.over:
            return str(Searcher.FINISHED)
        waiting = [placed for placed in self._placed.values() if placed.again_at is not None]
        if waiting:
            again = self._again(ray_id, min(waiting, key=lambda placed: placed.again_at or 0.0))
            if again is not None or self.over:
                return again
        if self.driver.running >= self._settings.concurrent_trials:
            return None  # Ray asks early; the driver is asked only when a slot is free
        if self.stop is not None:
            # A running trial may still lose its worker and need a restart. After ``FINISHED``, Ray never asks again.
            return None if self.driver.running else str(Searcher.FINISHED)
        with self._guard():
            decision = self.driver.next()
            if isinstance(decision, Stop):
                self.stop = decision
                return None if self.driver.running else str(Searcher.FINISHED)
            if isinstance(decision, Suggestion):
                self._placed[decision.trial_id] = _Placed(decision)
                return self._place(ray_id, decision)
            return None
        return str(Searcher.FINISHED)

    def _again(self, ray_id: str, placed: _Placed) -> dict[str, object] | None:
        """Restart a trial that lost its worker, if its pause has ended and the repeated steps fit the budget."""
        if placed.again_at is None or time.monotonic() < placed.again_at:
            return None
        placed.again_at = None
        with self._guard():
            if self.driver.restarted(placed.suggestion.trial_id, placed.because):
                # A committed run, or an only trial, may now end earlier.
                shape = self.driver.shape_of_trial(placed.suggestion.trial_id)
                placed.suggestion = replace(placed.suggestion, shape=shape)
                return self._place(ray_id, placed.suggestion)
            del self._placed[placed.suggestion.trial_id]  # the driver has finished it as LOST
        return None

    def _place(self, ray_id: str, suggestion: Suggestion) -> dict[str, object]:
        self._ours[ray_id] = suggestion.trial_id
        self._placed[suggestion.trial_id].ray_id = ray_id
        return {REQUEST: self._loop_of(suggestion)}

    def added(self, ray_id: str) -> None:
        """Handle a trial that Ray put into its queue. If Ray queues a trial again, the trial is restarted.

        Ray queues a trial again when the trial's machine announces that it leaves the cluster.
        """
        trial_id = self._ours[ray_id]
        if ray_id in self._added and self.driver.is_running(trial_id):
            with self._guard():
                # If the repeated steps do not fit the budget, the driver finishes the trial as LOST, or lets an only
                # trial end earlier. Ray starts the trial with its old end, so the ledger then refuses a lease.
                self.driver.restarted(trial_id, "its machine leaves the cluster")
        self._added.add(ray_id)

    def result(self, ray_id: str, result: Mapping[str, Any]) -> bool:
        """Act on a worker's report, and return whether the trial continues."""
        trial_id = self._ours[ray_id]
        if self.over or not self._has_it(ray_id):
            return False
        with self._guard():
            if FAILED in result:
                self.driver.raised(trial_id)
                return False
            if result.get(AGAIN):
                self.lost(ray_id, str(result[LOST]))
                return False
            if LOST in result:
                # Without the ledger no trial can go on. The sweep stops, so that this one is not lost for good.
                stops = self.setup.stops_when_lost or bool(result.get(STOPS))
                lose(self.driver, replace(self.setup, stops_when_lost=stops), trial_id, str(result[LOST]))
                return False
            self._placed[trial_id].lost_in_a_row = 0
            self._placed[trial_id].reports += 1
            prefix = f"{METRICS}/"
            metrics = {
                key.removeprefix(prefix): float(value) for key, value in result.items() if key.startswith(prefix)
            }
            require_checkpoint(self.setup.folder, trial_id, int(result[STEP]))
            return act(self.driver, trial_id, int(result[STEP]), metrics)
        return False

    def lost(self, ray_id: str, why: str = "") -> None:
        """Schedule the restart of a trial that lost its worker, or lose it after too many restarts."""
        trial_id = self._ours[ray_id]
        if self.over or not self._has_it(ray_id):
            return
        placed = self._placed[trial_id]
        why, placed.why = why or placed.why or "its worker was lost", ""
        placed.lost += 1
        placed.lost_in_a_row += 1
        if self._settings.on_loss == "stop":
            with self._guard():
                self._require_free(trial_id, placed, why)
            if self.over:
                return
        if placed.lost <= MAX_LOST_WORKERS:
            placed.because = why
            placed.again_at = time.monotonic() + _PATIENCE[min(placed.lost_in_a_row, len(_PATIENCE)) - 1]
            return
        with self._guard():
            lose(self.driver, self.setup, trial_id, f"after the last allowed restart: {why}")

    def _require_free(self, trial_id: str, placed: _Placed, why: str) -> None:
        """Raise a TunerError if a trial that lost its worker would repeat charged steps."""
        placed.charge = placed.charge or self.setup.charge_for(trial_id)
        done = checkpoint_finder(self.setup.folder)(trial_id) or 0
        twice = placed.charge.leased() - done
        if not isinstance(placed.charge, NoCharge) and twice > 0:
            raise TunerError(
                "loss-not-paid",
                f"Trial {trial_id} would repeat its steps after step {done}, because {why}. This would charge {twice} "
                "steps twice. `resources.on_loss` is stop, so the sweep stops instead. To continue the trial and "
                "charge these steps again, use `tune resume`.",
            )

    def kill_hung(self) -> None:
        """Kill the workers that make no progress. Ray then says that they were lost."""
        if self.over or not self.hung.due:
            return
        for trial_id, placed in self._placed.items():
            if placed.again_at is not None or not self.driver.is_running(trial_id):
                placed.charge = None  # it may have opened the ledger
                continue
            placed.charge = placed.charge or self.setup.charge_for(trial_id)
            if self.hung.look(trial_id, placed.ray_id, placed.charge, placed.reports):
                placed.why = f"its worker made no progress for {self._settings.hung_after:g} s (resources.hung_after)"

    def _has_it(self, ray_id: str) -> bool:
        """Return whether a Ray trial has one of our running trials, which was not given to another one since."""
        trial_id = self._ours[ray_id]
        return self.driver.is_running(trial_id) and self._placed[trial_id].ray_id == ray_id

    def _loop_of(self, suggestion: Suggestion) -> TrainingLoop:
        charge = self.setup.charge_for(suggestion.trial_id)
        return TrainingLoop(
            self._training(),
            self.setup.spec_for(suggestion),
            ActorCharge(self.charge_actor, _NAMESPACE, suggestion.trial_id, cloudpickle.dumps(charge)),
            folder=self.setup.folder,
            trial_id=suggestion.trial_id,
            rung_steps=suggestion.shape.rungs,
            saves=suggestion.shape.stops,
            scored=suggestion.scored,
        )

    def _training(self) -> MakeTraining:
        made, settings = self.setup.make_training, self._settings
        if settings.concurrent_trials * settings.workers_per_trial > 1:  # a lone worker would only copy its records
            made = SharedRecords(made, self.charge_actor)
        if settings.workers_per_trial == 1:
            return made
        cpus, gpus = settings.of_worker["CPU"], settings.of_worker["GPU"]
        return RankedTraining(made, settings.workers_per_trial, cpus, gpus, self.setup.folder / OPERATOR_LOG)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self.error = self.error or error


class _DriverSearcher(Searcher):  # type: ignore[misc]  # Ray has no types
    """Searcher of Ray that asks the driver for the next trial."""

    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def suggest(self, trial_id: str) -> dict[str, object] | str | None:
        return self._bridge.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: FBT001, FBT002 - Ray's signature
        """Handle a trial that lost its worker. The scheduler has already handled trials that end in any other way."""
        if error:
            self._bridge.lost(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing."""


class _DriverScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray has no types
    """Scheduler of Ray that asks the driver whether a trial continues, after every result."""

    _supports_buffered_results = False

    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def on_trial_add(self, tune_controller: object, trial: tune.experiment.Trial) -> None:
        self._bridge.hung.controller = tune_controller
        self._bridge.added(trial.trial_id)

    def on_trial_result(self, tune_controller: object, trial: tune.experiment.Trial, result: dict[str, Any]) -> str:
        continues = self._bridge.result(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if continues else TrialScheduler.STOP)


class _Stopper(tune.Stopper):  # type: ignore[misc]  # Ray has no types
    """Stopper of Ray that stops all trials after Ctrl-C or an error."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False  # the scheduler stops single trials; Ray would not ask it after True

    def stop_all(self) -> bool:
        """Return whether all trials must stop. Ray asks several times a second, also while every worker hangs."""
        self._bridge.kill_hung()
        return self._bridge.over


def _fit(bridge: _Bridge, settings: ExecutorSettings) -> None:
    scratch = bridge.setup.folder / "ray"
    bundles = [{name: need for name, need in settings.of_worker.items() if need}] * settings.workers_per_trial
    charge_actor = start_charge_actor(bridge.charge_actor, _NAMESPACE)
    # It opens the ledger now, while the workers load torch, and not when the first of them waits for its charge.
    charge_actor.ask.remote("", cloudpickle.dumps(bridge.setup.charge_for("")), "leased")
    tuner = tune.Tuner(
        tune.with_resources(TrialTrainable, tune.PlacementGroupFactory(bundles)),
        tune_config=tune.TuneConfig(
            search_alg=_DriverSearcher(bridge),
            scheduler=_DriverScheduler(bridge),
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=_ray_id,  # Ray's default name would contain the whole configuration
            trial_dirname_creator=_ray_id,
        ),
        run_config=tune.RunConfig(
            name=uuid.uuid4().hex,
            storage_path=str(scratch),
            stop=_Stopper(bridge),
            failure_config=tune.FailureConfig(max_failures=0),  # the bridge restarts lost trials
            # The trainable writes its own checkpoints. By default, Ray would write another one at the end of a trial.
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=0,
        ),
    )
    try:
        with watched(bridge.gone), interruptible(bridge.interrupt), environment(_NO_RECORDS):
            tuner.fit()
    except RayGone:
        pass  # `run` raises the error that says so
    except tune.TuneError as error:
        # If the driver failed, `run` raises the driver's error, which says more than Ray's.
        if not bridge.over:
            if is_disk_full(error) or os.strerror(errno.ENOSPC) in str(error):  # Ray makes text of its errors
                raise disk_full(str(bridge.setup.folder)) from error
            raise TunerError("ray-failed", f"Ray Tune failed: {error}") from error
    finally:
        if not bridge.ray_gone:
            ray.kill(charge_actor)
        shutil.rmtree(scratch, ignore_errors=True)


def _ray_id(trial: tune.experiment.Trial) -> str:
    return str(trial.trial_id)
