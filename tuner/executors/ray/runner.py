"""Run a sweep on Ray Tune: a searcher and a scheduler that only pass questions to the driver, and the runner.

Ray places trials, restarts lost workers and reuses actors. It decides nothing and its own records are never read:
`save` and `restore` of the searcher are empty, and its folder is removed at the end. A resume is a new Ray run over
what the storage, the ledger and the checkpoints say.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from trainables.rungs import MakeTraining
from trainables.trial import FAILED, METRICS, REQUEST, STEP, TrialRequest, TrialTrainable
from tuner.errors import TunerError
from tuner.executors.base import ChargeFor, SpecFor, act, check_stop, checkpoint_finder, interrupted, private_training
from tuner.executors.ray.charge import ActorCharge, start_charge_actor
from tuner.executors.ray.session import interruptible, ray_session
from tuner.study.driver import StudyDriver
from tuner.study.storage import exclusive
from tuner.study.types import Stop, Suggestion, TrialStatus

__all__ = ["DriverScheduler", "DriverSearcher", "run"]

_NAMESPACE = "dp-tuner"
_LOST = "its worker was lost, and again after every restart that is allowed"
_PATIENCE = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before a trial that lost its worker once, twice, … in a row without a report begins again.

Until Ray notices that a machine is gone (up to a minute) it sends trials back to it, and without a pause all restarts
pass in a second.
"""

MAX_LOST_WORKERS = 7
"""How often a trial may lose its worker and go on from its checkpoint; each time it pays again for what it repeats."""


def run(
    driver: StudyDriver,
    spec_for: SpecFor,
    charge_for: ChargeFor,
    *,
    folder: Path,
    make_training: MakeTraining | None = None,
    concurrent_trials: int = 1,
    cpus_per_trial: float = 1,
    gpus_per_trial: float = 0,
    address: str | None = None,
    sealed: bool = False,
    debug: bool = False,
) -> Stop:
    """Run trials on Ray until the driver says stop.

    Args:
        driver: decides; `reconcile` is called here.
        spec_for: what to train for a suggestion; what it returns must be picklable.
        charge_for: what pays for a trial's steps; what it returns must be picklable, for the charge actor uses it.
        folder: the sweep's folder; on a cluster of several machines a path that all of them share.
        make_training: makes a training of a spec and a charge; `trainables.training.PrivateTraining` by default.
        concurrent_trials: trials at a time.
        cpus_per_trial: CPUs of one trial.
        gpus_per_trial: GPUs of one trial.
        address: of a running cluster, or None for this machine.
        sealed: keep the logs of a Ray that is started here from other accounts, and remove them at the end.
        debug: let Ray and its workers write to the terminal.

    Returns:
        Why no further trial was started.

    Raises:
        tuner.errors.SweepInterrupted: Ctrl-C; what ran stays RUNNING in the storage and is continued by the next run.
        tuner.errors.TunerError: the first trials all failed, or the ledger or the storage cannot be used.
    """
    folder = folder.absolute()
    session = ray_session(
        address=address,
        cpus=cpus_per_trial,
        gpus=gpus_per_trial,
        concurrent_trials=concurrent_trials,
        sealed=sealed,
        debug=debug,
    )
    with exclusive(folder):
        try:
            with session:
                driver.reconcile(checkpoint_finder(folder))
                bridge = _Bridge(
                    driver,
                    spec_for,
                    charge_for,
                    folder=folder,
                    make_training=make_training or private_training(),
                    concurrent_trials=concurrent_trials,
                )
                _fit(bridge, {"cpu": cpus_per_trial, "gpu": gpus_per_trial}, debug=debug)
        except KeyboardInterrupt as interrupt:
            raise interrupted() from interrupt
    if bridge.error is not None:
        raise bridge.error
    if bridge.interrupted:
        raise interrupted()
    if bridge.stop is None or driver.running:
        raise TunerError("Ray ended the sweep before the driver did; resume it, and please report this as a bug")
    return check_stop(bridge.stop, folder)


@dataclass
class _Placed:
    """A trial that Ray was given: how often it lost its worker, and when it may be given again if it waits for that."""

    suggestion: Suggestion
    lost: int = 0
    lost_in_a_row: int = 0  # since it last reported
    again_at: float | None = None


class _Bridge:
    """What the searcher, the scheduler and the stopper share: the driver, and which Ray trial is which of ours.

    Ray is told to restart nothing: it gives a trial up at once when the actor that it wanted to use again is gone, and
    only it knows which case it was. A trial that lost its worker is asked for again here, as a new trial of Ray's.

    Whatever the driver raises is kept in `error` and ends the run; Ray would turn it into text.
    """

    def __init__(
        self,
        driver: StudyDriver,
        spec_for: SpecFor,
        charge_for: ChargeFor,
        *,
        folder: Path,
        make_training: MakeTraining,
        concurrent_trials: int,
    ) -> None:
        self.driver = driver
        self.folder = folder
        self.error: Exception | None = None
        self.interrupted = False
        self.stop: Stop | None = None
        self.charge_actor = f"charge-actor-{uuid.uuid4().hex}"
        self._spec_for = spec_for
        self._charge_for = charge_for
        self._make_training = make_training
        self._concurrent = concurrent_trials
        self._ours: dict[str, str] = {}  # Ray's trial id → ours
        self._placed: dict[str, _Placed] = {}  # by our id
        self._added: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Ray pickles its arguments into files that nobody reads; nothing of the driver belongs there."""
        return (_nothing, ())

    @property
    def over(self) -> bool:
        """Whether every trial is to be stopped now."""
        return self.interrupted or self.error is not None

    def interrupt(self) -> None:
        """The user wants to stop."""
        self.interrupted = True

    def suggest(self, ray_id: str) -> dict[str, object] | str | None:
        """A configuration, ``FINISHED``, or None for "ask again"."""
        if self.over:
            return str(Searcher.FINISHED)
        waiting = [placed for placed in self._placed.values() if placed.again_at is not None]
        if waiting:
            again = self._again(ray_id, min(waiting, key=lambda placed: placed.again_at or 0.0))
            if again is not None or self.over:
                return again
        if self.driver.running >= self._concurrent:
            return None  # Ray asks ahead of time; a trial is asked for only when there is a slot for it
        if self.stop is not None:
            # Once told so, Ray asks for nothing any more; a running trial may still lose its worker.
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
        """The trial that lost its worker, when its pause is over and what it will repeat fits."""
        if placed.again_at is None or time.monotonic() < placed.again_at:
            return None
        placed.again_at = None
        with self._guard():
            if self.driver.restarted(placed.suggestion.trial_id):
                return self._place(ray_id, placed.suggestion)
            self._placed.pop(placed.suggestion.trial_id)  # finished by the driver: no room for what it repeats
        return None

    def _place(self, ray_id: str, suggestion: Suggestion) -> dict[str, object]:
        self._ours[ray_id] = suggestion.trial_id
        return {REQUEST: self._request(suggestion)}

    def added(self, ray_id: str) -> None:
        """Ray queued a trial; the second time because its machine went with notice, which Ray does not count."""
        trial_id = self._ours[ray_id]
        if ray_id in self._added and self.driver.is_running(trial_id):
            with self._guard():
                # When refused the trial is FAILED and settled; should Ray start it all the same, its lease is refused.
                self.driver.restarted(trial_id)
        self._added.add(ray_id)

    def result(self, ray_id: str, result: Mapping[str, Any]) -> bool:
        """Act on what a worker returned; whether the trial goes on."""
        trial_id = self._ours[ray_id]
        if self.over or not self.driver.is_running(trial_id):
            return False
        self._placed[trial_id].lost_in_a_row = 0
        with self._guard():
            step = int(result[STEP])
            if FAILED in result:
                self.driver.finish(trial_id, outcome=TrialStatus.FAILED, steps_taken=step, reason=str(result[FAILED]))
                return False
            prefix = f"{METRICS}/"
            metrics = {
                key.removeprefix(prefix): float(value) for key, value in result.items() if key.startswith(prefix)
            }
            return act(self.driver, trial_id, step, metrics)
        return False

    def lost(self, ray_id: str) -> None:
        """Ray gave a trial up, for its worker is gone."""
        trial_id = self._ours[ray_id]
        if self.over or not self.driver.is_running(trial_id):
            return
        placed = self._placed[trial_id]
        placed.lost += 1
        placed.lost_in_a_row += 1
        if placed.lost <= MAX_LOST_WORKERS:
            placed.again_at = time.monotonic() + _PATIENCE[min(placed.lost_in_a_row, len(_PATIENCE)) - 1]
            return
        with self._guard():
            self.driver.finish(
                trial_id, outcome=TrialStatus.FAILED, steps_taken=self.driver.step_of(trial_id), reason=_LOST
            )

    def _request(self, suggestion: Suggestion) -> TrialRequest:
        charge = self._charge_for(suggestion.trial_id)
        return TrialRequest(
            trial_id=suggestion.trial_id,
            spec=self._spec_for(suggestion),
            charge=ActorCharge(self.charge_actor, _NAMESPACE, suggestion.trial_id, charge),
            make_training=self._make_training,
            folder=str(self.folder),
            rung_steps=suggestion.shape.rungs,
        )

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - kept, ends the run, and is raised by `run`
            self.error = self.error or error


class DriverSearcher(Searcher):  # type: ignore[misc]  # Ray has no types
    """Ray's question "what next?", passed to the driver."""

    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def suggest(self, trial_id: str) -> dict[str, object] | str | None:
        """A configuration, ``FINISHED``, or None for "ask again"."""
        return self._bridge.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: FBT001, FBT002 - Ray's signature
        """The scheduler has finished every trial that ended by itself; what is left is a trial that Ray gave up."""
        if error:
            self._bridge.lost(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the storage is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing to save."""

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Nothing to restore."""


class DriverScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray has no types
    """Ray's question "go on?", passed to the driver. Stateless, and asked for every single result."""

    _supports_buffered_results = False

    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def on_trial_add(self, tune_controller: object, trial: tune.experiment.Trial) -> None:
        """A trial was queued, for the first time or after losing its worker."""
        self._bridge.added(trial.trial_id)

    def on_trial_result(self, tune_controller: object, trial: tune.experiment.Trial, result: dict[str, Any]) -> str:
        """CONTINUE or STOP."""
        goes_on = self._bridge.result(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)


class _Stopper(tune.Stopper):  # type: ignore[misc]  # Ray has no types
    """Ends the whole run when the user or an error says so."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False  # single trials are the scheduler's affair: asked here, Ray would not ask the scheduler

    def stop_all(self) -> bool:
        return self._bridge.over


def _fit(bridge: _Bridge, resources: Mapping[str, float], *, debug: bool) -> None:
    scratch = bridge.folder / "ray"
    charge_actor = start_charge_actor(bridge.charge_actor, _NAMESPACE)
    tuner = tune.Tuner(
        tune.with_resources(TrialTrainable, dict(resources)),
        tune_config=tune.TuneConfig(
            search_alg=DriverSearcher(bridge),
            scheduler=DriverScheduler(bridge),
            num_samples=-1,
            reuse_actors=True,
            # By default Ray names folders by the whole configuration.
            trial_name_creator=_ray_id,
            trial_dirname_creator=_ray_id,
        ),
        run_config=tune.RunConfig(
            name=uuid.uuid4().hex,
            storage_path=str(scratch),
            stop=_Stopper(bridge),
            failure_config=tune.FailureConfig(max_failures=0),  # the bridge asks for a lost trial again
            # Checkpoints are the trainable's own; Ray's default would save once more at the end of every trial.
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=1 if debug else 0,
        ),
    )
    try:
        with interruptible(bridge.interrupt):
            tuner.fit()
    except tune.TuneError as error:
        # Ray's own trouble; the driver's has been kept by the bridge and says more.
        if not bridge.over:
            raise TunerError(f"Ray Tune failed: {error}") from error
    finally:
        ray.kill(charge_actor)
        shutil.rmtree(scratch, ignore_errors=True)


def _ray_id(trial: tune.experiment.Trial) -> str:
    return str(trial.trial_id)


def _nothing() -> None:
    return None
