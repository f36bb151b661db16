"""Status of a sweep: its state, whether it is finished, the request to stop, and the command that resumes it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from tuner.experiment import load_experiment
from tuner.study.types import StopReason
from tuner.sweep.folder import is_held, read_json

if TYPE_CHECKING:
    from tuner.recorder.ui import TrackedRuns
    from tuner.sweep.folder import SweepFolder

__all__ = [
    "FINISHED",
    "RESUMABLE",
    "RUNNING",
    "SweepState",
    "is_finished",
    "request_stop",
    "resume_command",
    "state_of",
    "tracked_runs",
]


class SweepState(StrEnum):
    """States of a sweep that has not ended. The state of an ended sweep is a `StopReason`."""

    STARTING = "starting"
    """The sweep is not in the ledger yet. In every other state, it is in the ledger."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CRASHED = "crashed"
    """The status file says that the sweep is running, but no process holds its lock.

    This state is inferred. It is never written to the file.
    """


RUNNING = (SweepState.RUNNING, SweepState.STARTING)
"""States in which a process runs the sweep."""

RESUMABLE = (SweepState.INTERRUPTED, SweepState.CRASHED, SweepState.FAILED)
"""States in which a sweep must be resumed before it can be exported."""

FINISHED = (StopReason.DONE, StopReason.GRID, StopReason.FOUND)
"""Reasons for which a sweep ends with no trial left to run."""


def state_of(sweep: SweepFolder) -> str:
    """Return the state in the status file, or ``crashed`` if the file says running but no process holds the lock.

    A search whose public proxy was stopped has the proxy's state.
    """
    state = str(sweep.read_status().get("state", SweepState.STARTING))
    if state == SweepState.STARTING and not is_held(sweep) and sweep.proxy.whole and not sweep.proxy_search.exists():
        return state_of(sweep.proxy)  # it ended before the charged search
    return SweepState.CRASHED if state in RUNNING and not is_held(sweep) else state


def is_finished(sweep: SweepFolder, overrides: Sequence[str]) -> bool:
    """Return whether a resume of the sweep would do nothing.

    A public search is finished when its charged run is finished. With `overrides` (``key=value``), for example more
    trials, a sweep never counts as finished.
    """
    if overrides or not sweep.whole or not _is_over(sweep):
        return False
    if not sweep.mode.searches_public:
        return True
    charged = sweep.charged_run
    return charged is not None and charged.whole and _is_over(charged)


def _is_over(sweep: SweepFolder) -> bool:
    """Return whether the sweep has ended by both its status file and its ledger.

    The sweep may have died after it wrote only one of the two.

    A resume with more trials first changes the experiment file. If it died early, the status file still has the old
    number of trials, and the sweep has not ended.
    """
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.sweep.ledger_head import charged_search

    status, experiment = sweep.read_status(), load_experiment(sweep.experiment)
    asked = experiment.search.trials
    if status.get("state") not in FINISHED or status.get("trials", asked) != asked:
        return False
    if not read_json(sweep.plan).get("private") or not sweep.mode.charges_trials:
        return True
    if not Ledger.exists(experiment.ledger):
        return False  # resuming reports the missing ledger
    return charged_search(sweep, Ledger.open(experiment.ledger, create=False), sweep.id).status != "open"


def request_stop(sweep: SweepFolder) -> str:
    """Ask a running sweep to stop, and return what will happen. The sweep sees the request at its next report."""
    state = state_of(sweep)
    if state not in RUNNING:
        return f"{sweep.id} is not running ({state}); nothing to stop"
    sweep.stop_request.touch()
    if sweep.proxy.root.is_dir():
        sweep.proxy.stop_request.touch()
    if sweep.hides_runs:
        return (
            f"{sweep.id} stops soon and releases nothing. The whole search stays charged. Resume with: "
            f"{resume_command(sweep)}"
        )
    if load_experiment(sweep.experiment).search.commit is not None:
        return (
            f"{sweep.id}: running trials finish, and no new trial starts. If the committed run has not started, it "
            f"does not start now, so there is no winner yet. Resume with: {resume_command(sweep)}"
        )
    return (
        f"{sweep.id}: running trials finish, no new trial starts, and the rest of the budget is kept. Resume with: "
        f"{resume_command(sweep)}"
    )


def tracked_runs(sweep: SweepFolder) -> TrackedRuns:
    """Return where MLflow has the runs of the sweep."""
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.ui import TrackedRuns

    experiment = load_experiment(sweep.experiment)
    return TrackedRuns(
        uri=absolute_uri(experiment.tracking.uri),
        experiment=experiment.tracking.experiment or experiment.name,
        sweep=sweep.id,
        sync=sweep.command("sync"),
        metric=experiment.search.metric.name,
        ascending=experiment.search.metric.mode == "min",
    )


def resume_command(sweep: SweepFolder) -> str:
    """Return the command that resumes the sweep where it ran last.

    A public proxy is resumed with the search that it belongs to.
    """
    place = {**sweep.proxy.read_status(), **sweep.read_status()}.get("place")
    sweep = sweep.charged_search or sweep
    return f"{sweep.command('resume')}{f' {place}' if place else ''}"
