"""Turns the records of one spool into requests to MLflow. Every step may be repeated: it changes nothing twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TrackingError
from tuner.files import take_lock
from tuner.recorder import mlflow_store as store
from tuner.recorder.records import decode_metrics
from tuner.recorder.spool import Acknowledgement, Entry, read

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = ["SPOOL", "TAG_SWEEP", "TAG_TRIAL", "Shipper"]

SPOOL = "spool.jsonl"
TAG_SWEEP = "dp_tuner.sweep"
TAG_TRIAL = "dp_tuner.trial"
PARENT = ""  # stands in TAG_TRIAL of the parent run, which is no trial

_METRICS_A_REQUEST = 800  # MLflow takes 1000 things in one request, 100 of them parameters and 100 of them tags
_OTHERS_A_REQUEST = 100
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"})


@dataclass
class _Pending:
    """What waits to be logged to one run, in one request where it fits."""

    metrics: list[Any] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class Shipper:
    """Sends a spool, from where it was last acknowledged. One shipper at a time per sweep, held by a lock file.

    Args:
        folder: the sweep's folder, with the spool and the files that are logged as artifacts.
        uri: another tracking address than the one in the spool.
        connect: makes the MLflow client.
    """

    def __init__(self, folder: Path, *, uri: str | None = None, connect: Callable[[str], Any] = store.connect) -> None:
        self._folder = folder
        self._spool = folder / SPOOL
        self._given_uri = uri
        self._connect = connect
        self._lock: FileLock | None = None
        self._client: Any = None
        self._target: Acknowledgement | None = None
        self._header: dict[str, object] = {}
        self._experiment = ""
        self._runs: dict[str, str] = {}
        self._offset = 0
        self.sent = 0
        self.refused = 0

    def waiting(self) -> int:
        """How many records are on the disk and not yet acknowledged."""
        return sum(1 for _ in read(self._spool, start=self._offset))

    def ship(self, limit: int = 500) -> int:
        """Sends up to ``limit`` records and returns how many were acknowledged; 0 when nothing waits.

        Raises:
            Exception: whatever MLflow, its database or the network raises. Nothing is lost, call again later.
        """
        self._open()
        entries = list(itertools.islice(read(self._spool, start=self._offset), limit))
        if not entries:
            return 0
        try:
            self._send(entries)
        except Exception as error:
            if getattr(error, "error_code", "") not in _REFUSALS:
                raise
            self._send_what_can_be(entries, error)
        return len(entries)

    def close(self) -> None:
        """Lets another shipper have this sweep."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open(self) -> None:
        if self._target is not None:
            return
        if self._lock is None:
            lock = take_lock(self._folder / "spool.sender.lock")
            if lock is None:
                raise TrackingError(
                    f"{self._folder}: one process sends the records of a sweep, another one is doing it now. "
                    "Nothing is lost: they arrive with that one"
                )
            self._lock = lock
        headers = [entry.record for entry in read(self._spool) if entry.record.get("kind") == "sweep_started"]
        if not headers:
            return  # nothing was recorded yet
        self._header = headers[-1]  # a resume may have moved the sweep to another server: then all is sent there
        uri = self._given_uri or str(self._header["uri"])
        target = Acknowledgement(self._folder / "spool.acknowledged.json", spool=self._spool, target=uri)
        client = self._connect(uri)
        self._experiment = store.experiment_id(client, uri=uri, name=str(self._header["experiment"]))
        self._client, self._offset, self._target = client, target.load(), target

    def _send(self, entries: list[Entry]) -> None:
        pending: dict[str, _Pending] = {}
        for entry in entries:
            self._apply(entry.record, pending)
        for run in list(pending):
            self._log(run, pending)
        self._acknowledge(entries[-1], len(entries))

    def _acknowledge(self, last: Entry, count: int) -> None:
        if self._target is not None:
            self._target.store(last)
        self._offset = last.end
        self.sent += count

    def _send_what_can_be(self, entries: list[Entry], error: Exception) -> None:
        """One by one, so that a record which MLflow will never take is set aside and holds up no other."""
        if not self._runs_stand():
            # Somebody deleted a run of ours in MLflow: find or make the runs again and send everything again.
            self._runs.clear()
            self._offset = 0
            raise error
        for entry in entries:
            try:
                self._send([entry])
            except Exception as refusal:
                if getattr(refusal, "error_code", "") not in _REFUSALS:
                    raise
                self._set_aside(entry, refusal)

    def _set_aside(self, entry: Entry, refusal: Exception) -> None:
        line = json.dumps({"record": entry.record, "refused": store.hide_password(str(refusal))})
        with (self._folder / "spool.refused.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.refused += 1
        self._acknowledge(entry, 0)

    def _runs_stand(self) -> bool:
        for run in self._runs.values():
            try:
                if self._client.get_run(run).info.lifecycle_stage != "active":
                    return False
            except Exception as error:
                if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return False
        return True

    def _apply(self, record: dict[str, Any], pending: dict[str, _Pending]) -> None:
        kind = record["kind"]
        if kind == "sweep_started":
            self._sweep_started(record, pending)
        elif kind == "artifact":
            self._artifact(record)
        else:
            run = self._run(record)
            mine = pending.setdefault(run, _Pending())
            mine.params.update(record.get("params", {}))
            mine.tags.update(record.get("tags", {}))
            self._add_metrics(mine, record)
            if kind == "trial_started":
                self._log(run, pending)
                self._client.update_run(run, status="RUNNING")
            elif kind in ("trial_finished", "sweep_finished"):
                self._log(run, pending)
                self._client.set_terminated(run, status=record["status"], end_time=record["t"])

    def _sweep_started(self, record: dict[str, Any], pending: dict[str, _Pending]) -> None:
        run = self._run(record)
        self._log(run, pending)
        # MLflow refuses to change a parameter. A resumed sweep may have more trials: the new value becomes a tag.
        there: dict[str, str] = self._client.get_run(run).data.params
        settings: dict[str, str] = record.get("params", {})
        mine = pending.setdefault(run, _Pending())
        for name, value in settings.items():
            if there.get(name, value) == value:
                mine.params[name] = value
            else:
                mine.tags[f"resumed.{name}"] = value
        mine.tags.update(record.get("tags", {}))
        self._add_metrics(mine, record)
        self._log(run, pending)
        self._client.update_run(run, status="RUNNING")

    def _artifact(self, record: dict[str, Any]) -> None:
        path = self._folder / str(record["path"])  # an absolute path stays itself
        if not path.exists():
            raise _MissingArtifactError(f"{path}: it was to be logged as an artifact and is gone")
        self._client.log_artifact(self._run(record), str(path), record.get("under") or None)

    def _add_metrics(self, mine: _Pending, record: dict[str, Any]) -> None:
        values = decode_metrics(record.get("values"))
        if values:
            from mlflow.entities import Metric

            mine.metrics += [Metric(name, value, record["t"], record["step"]) for name, value in values.items()]

    def _log(self, run: str, pending: dict[str, _Pending]) -> None:
        mine = pending.pop(run, None)
        if mine is None:
            return
        from mlflow.entities import Param, RunTag

        params = [Param(name, value) for name, value in mine.params.items()]
        tags = [RunTag(name, value) for name, value in mine.tags.items()]
        metrics = mine.metrics
        while metrics or params or tags:
            self._client.log_batch(
                run,
                metrics=metrics[:_METRICS_A_REQUEST],
                params=params[:_OTHERS_A_REQUEST],
                tags=tags[:_OTHERS_A_REQUEST],
            )
            metrics, params, tags = (
                metrics[_METRICS_A_REQUEST:],
                params[_OTHERS_A_REQUEST:],
                tags[_OTHERS_A_REQUEST:],
            )

    def _run(self, record: dict[str, Any]) -> str:
        """The MLflow run of a trial, or the parent's: found by our tags, and only made when it is not there."""
        trial = str(record.get("trial") or PARENT)
        if trial not in self._runs:
            self._runs[trial] = self._find(trial) or self._create(trial, record)
        return self._runs[trial]

    def _find(self, trial: str) -> str | None:
        found = self._client.search_runs(
            [self._experiment],
            filter_string=f"tags.`{TAG_SWEEP}` = '{self._header['sweep']}' and tags.`{TAG_TRIAL}` = '{trial or '-'}'",
            order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
        )
        for extra in found[1:]:
            # A request to create it timed out, arrived late, and was made again. The first one is the run.
            self._client.set_tag(extra.info.run_id, "state", "duplicate")
            self._client.set_terminated(extra.info.run_id, status="KILLED", end_time=extra.info.start_time)
        return str(found[0].info.run_id) if found else None

    def _create(self, trial: str, record: dict[str, Any]) -> str:
        tags = {TAG_SWEEP: str(self._header["sweep"]), TAG_TRIAL: trial or "-", "mlflow.source.name": "tune run"}
        if trial:
            tags["mlflow.parentRunId"] = self._run(self._header)
            name = f"trial {int(record['number']):03d}" if "number" in record else str(record.get("name", trial))
        else:
            name = str(self._header["sweep"])
        run = self._client.create_run(self._experiment, start_time=record["t"], tags=tags, run_name=name)
        return str(run.info.run_id)


class _MissingArtifactError(TrackingError):
    """A file that was to be logged is gone. It is set aside as refused, because waiting will not bring it back."""

    error_code = "RESOURCE_DOES_NOT_EXIST"
