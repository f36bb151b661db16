"""What every sweep is run with, however its budget is accounted: options, the way to stop it, and its executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

import tuner
from tuner.study.types import NullObserver, Stop, TrialView
from tuner.sweep.settings import file_values

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.executors.base import ChargeFor, SpecFor
    from tuner.recorder.recorder import SweepInfo
    from tuner.study.driver import StudyDriver
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.ready import Prepared

__all__ = ["Control", "Ended", "RunOptions", "execute", "sweep_info"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a sweep is run here and now; no part of what it is.

    Attributes:
        data_dir: folder with the data sets.
        local: in this process, without Ray.
        address: of a running Ray cluster.
        quiet: plain lines, only those that matter.
        as_json: one JSON object at the end, nothing else on standard output.
        summary: whether the end of the sweep is told at all.
        next_commands: whether that end says what to run next.
    """

    data_dir: str | None = None
    local: bool = False
    address: str | None = None
    quiet: bool = False
    as_json: bool = False
    summary: bool = True
    next_commands: bool = True

    def say(self, text: str) -> None:
        """Tell the user, unless a program is reading."""
        if not self.as_json:
            click.echo(text)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run of a sweep ended.

    Attributes:
        code: exit code.
        state: of the sweep, for example ``done``.
        values: what ``--json`` tells of it.
    """

    code: int
    state: str
    values: dict[str, Any]


class Control(NullObserver):
    """Lets `tune stop` reach the driver: its request is a file in the sweep's folder."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self.driver: StudyDriver | None = None

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Look for a request."""
        self._look()

    def trial_finished(self, trial: TrialView) -> None:
        """Look for a request."""
        self._look()

    def _look(self) -> None:
        if self.driver is not None and self._sweep.stop_request.exists():
            self.driver.stop("asked by `tune stop`")


def execute(
    driver: StudyDriver,
    prepared: Prepared,
    options: RunOptions,
    *,
    folder: Path,
    spec_for: SpecFor,
    charge_for: ChargeFor,
    sealed: bool = False,
) -> Stop:
    """Run trials, in this process or on Ray, until the driver says stop.

    Args:
        driver: decides.
        prepared: says what one trial gets.
        options: where it runs.
        folder: for checkpoints and the operator's log.
        spec_for: what to train for a suggestion.
        charge_for: what pays for a trial.
        sealed: whether what Ray writes by itself is for the operator alone.
    """
    if options.local:
        from tuner.executors import local

        return local.run(driver, spec_for, charge_for, folder=folder)
    from tuner.executors.ray import runner as ray_runner

    resources = prepared.experiment.resources
    return ray_runner.run(
        driver,
        spec_for,
        charge_for,
        folder=folder,
        concurrent_trials=resources.concurrent_trials,
        cpus_per_trial=resources.cpus_per_trial,
        gpus_per_trial=resources.gpus_per_trial,
        address=options.address,
        sealed=sealed,
    )


def sweep_info(sweep: SweepFolder, prepared: Prepared, *, claim: str = "") -> SweepInfo:
    """What MLflow is told about a sweep.

    Args:
        sweep: the sweep.
        prepared: what it trains, on which records.
        claim: what is guaranteed, where that is not read from the search's own budget.
    """
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.recorder import SweepInfo

    experiment, about = prepared.experiment, prepared.about
    tags = {"code_version": tuner.__version__, "dataset": about.name, "method": experiment.trainable.method}
    if about.content_sha256:  # a published data set; the checksum of private records would tell who is among them
        tags["dataset_checksum"] = about.content_sha256
    return SweepInfo(
        id=sweep.id,
        uri=absolute_uri(experiment.tracking.uri),
        experiment=experiment.tracking.experiment or experiment.name,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        settings=file_values(experiment),
        tags=tags,
        claim=claim,
    )
