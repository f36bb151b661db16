"""Functions for the records of an ended sweep: upload unsent records, and add exported files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TrackingError
from tuner.recorder.history import History, read_history
from tuner.recorder.records import Clock, artifact_record, metrics_record, unfinished_trial
from tuner.recorder.sender import SendStatus, drain
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import Spool, is_being_written

__all__ = ["attach", "send_unsent"]


def send_unsent(folder: Path, *, uri: str | None = None) -> SendStatus:
    """Upload the unsent records of a sweep to MLflow. A second call changes nothing.

    If the sweep's process died, the sweep and its running trials first get the status ``KILLED`` and the state
    ``crashed``. A resume opens them again. With a `uri`, every record is sent to that address instead of the sweep's
    own address.

    Raises:
        TrackingError: the spool is missing or damaged, or MLflow cannot be reached. Unsent records stay on the disk.
    """
    path = folder / SPOOL
    if not path.exists():
        raise TrackingError(
            "records-not-found", f"{folder} has no file {SPOOL} with the records of a sweep. Give a sweep's folder."
        )
    if not is_being_written(path):
        with Spool(path) as spool:
            _end_crashed_sweep(spool, read_history(path))
    return drain(folder, uri=uri)


def _end_crashed_sweep(spool: Spool, history: History) -> None:
    if not history.started or history.ended:
        return
    sweep: dict[str, Any] = {
        "kind": "sweep_finished",
        "trial": "",
        "status": "KILLED",
        "tags": {"state": "crashed", "reason": "the process of the sweep died; `tune resume` continues the sweep"},
    }
    trials = [unfinished_trial(trial, "crashed") for trial in history.open_trials()]
    spool.append(*Clock(last=history.last_tick).stamp(*trials, sweep))


def attach(
    folder: Path,
    paths: Sequence[Path | str],
    *,
    under: str = "",
    tags: Mapping[str, str] | None = None,
    metrics: Mapping[str, float] | None = None,
    model: Mapping[str, Any] | None = None,
) -> None:
    """Add files, tags and metrics to the parent run of a sweep that has ended. `send_unsent` uploads them.

    Relative `paths` are relative to the sweep's folder. They are uploaded to the folder `under` of the run's artifacts.
    With a `model` (its ``name``, its ``tags``, and what it says ``about`` itself), that folder is registered as one.

    Raises:
        TrackingError: the sweep is running, or the spool cannot be written.
    """
    with Spool(folder / SPOOL) as spool:
        history = read_history(spool.path)
        records = [artifact_record(path, under=under) for path in paths]
        if tags or metrics:
            records.append(metrics_record(metrics or {}, step=history.steps, tags=tags))
        if model is not None:
            records.append({"kind": "model", "trial": "", "under": under, **model})
        if records:
            spool.append(*Clock(last=history.last_tick).stamp(*records))
