"""What is done to a sweep's records from outside: sending them late (`tune sync`), and adding what was exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TrackingError
from tuner.recorder.history import History, fold
from tuner.recorder.records import Clock, closed_trial, encode_metrics, key, text
from tuner.recorder.sender import SendStatus, drain
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import Spool, is_being_written

__all__ = ["attach", "replay"]


def replay(folder: Path, *, uri: str | None = None) -> SendStatus:
    """Sends what a sweep has recorded and MLflow has not (`tune sync`). Running it again changes nothing.

    A sweep whose process is gone without an end gets one first: it and its open trials are ``KILLED``, state
    ``crashed``; a resume opens them again.

    Args:
        folder: the sweep's folder.
        uri: another tracking address than the sweep's own; then everything is sent there.

    Raises:
        TrackingError: no spool, a damaged one, or MLflow cannot be reached; nothing is lost.
    """
    path = folder / SPOOL
    if not path.exists():
        raise TrackingError(f"{folder}: a sweep's folder has a {SPOOL}, this one has none. Give the folder of a sweep")
    if not is_being_written(path):
        with Spool(path) as spool:
            history = fold(path)
            _end_what_crashed(spool, history)
    return drain(folder, uri=uri)


def _end_what_crashed(spool: Spool, history: History) -> None:
    if not history.started or history.ended:
        return
    clock = Clock(last=history.last_tick)
    sweep: dict[str, Any] = {
        "kind": "sweep_finished",
        "trial": "",
        "status": "KILLED",
        "tags": {"state": "crashed", "reason": "its process ended without a word; `tune run --resume` goes on"},
    }
    records = [*(closed_trial(trial, "crashed") for trial in history.open_trials()), sweep]
    spool.append(*({**record, "t": clock.tick()} for record in records))


def attach(
    folder: Path,
    paths: Sequence[Path | str],
    *,
    under: str = "",
    tags: Mapping[str, str] | None = None,
    metrics: Mapping[str, float] | None = None,
) -> None:
    """Adds files, tags and final metrics to the parent run of an ended sweep, for example what was exported.

    They are on the disk when this returns; `replay` sends them.

    Args:
        folder: the sweep's folder.
        paths: files or folders, relative to the sweep's folder or absolute.
        under: folder among the artifacts.
        tags: for example ``exported``.
        metrics: for example ``test_accuracy``, which the test set gives once, at export.

    Raises:
        TrackingError: the sweep is running, or the spool cannot be written.
    """
    with Spool(folder / SPOOL) as spool:
        history = fold(spool.path)
        clock = Clock(last=history.last_tick)
        records: list[dict[str, object]] = [{"kind": "artifact", "path": str(path), "under": under} for path in paths]
        if tags or metrics:
            records.append(
                {
                    "kind": "metrics",
                    "trial": "",
                    "step": history.steps_seen(),
                    "values": encode_metrics(metrics or {}),
                    "tags": {key(name): text(value) for name, value in (tags or {}).items()},
                }
            )
        if records:
            spool.append(*({**record, "t": clock.tick()} for record in records))
