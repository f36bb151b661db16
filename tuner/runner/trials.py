"""Execution of a sweep's trials, in this process or on Ray, until they end or `tune stop` asks them to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.types import NullObserver, Stop, TrialView

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.executors.base import ChargeFor, SpecFor
    from tuner.runner.options import RunOptions
    from tuner.study.driver import StudyDriver
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["StopOnRequest", "run_trials"]


class StopOnRequest(NullObserver):
    """Observer that stops the driver when `tune stop` has put a file into the sweep's folder."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self.driver: StudyDriver | None = None

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Check for a request."""
        self._check()

    def trial_finished(self, trial: TrialView) -> None:
        """Check for a request."""
        self._check()

    def _check(self) -> None:
        if self.driver is not None and self._sweep.stop_request.exists():
            self.driver.stop("asked by `tune stop`")


def run_trials(
    driver: StudyDriver,
    prepared: ReadySearch,
    options: RunOptions,
    *,
    folder: Path,
    spec_for: SpecFor,
    charge_for: ChargeFor,
    hide_logs: bool = False,
) -> Stop:
    """Run trials, in this process or on Ray, until the driver stops.

    Args:
        driver: decides which trials run.
        prepared: the search, with the resources of one trial.
        options: where to run.
        folder: folder for checkpoints and the operator's log.
        spec_for: returns what to train for a suggestion.
        charge_for: returns the charge of a trial.
        hide_logs: whether only the operator may see Ray's own logs.
    """
    from tuner.executors.base import ExecutorSettings, TrialSetup
    from tuner.executors.registry import make_executor

    resources = prepared.experiment.resources
    settings = ExecutorSettings(
        concurrent_trials=resources.concurrent_trials,
        cpus_per_trial=resources.cpus_per_trial,
        gpus_per_trial=resources.gpus_per_trial,
        address=options.address,
        hide_logs=hide_logs,
    )
    setup = TrialSetup(spec_for=spec_for, charge_for=charge_for, folder=folder)
    return make_executor("local" if options.local else "ray", settings).run(driver, setup)
