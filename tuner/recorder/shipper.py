"""Requests that send the records of a spool to MLflow. A repeated request has no further effect."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TrackingError
from tuner.files import take_lock
from tuner.passwords import hide_password
from tuner.recorder import mlflow_store as store
from tuner.recorder.spool import Acknowledgement, SpoolLine, read_spool

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = ["ACKNOWLEDGED", "RECORDS_A_CALL", "SPOOL", "Shipper"]

SPOOL = "spool.jsonl"
ACKNOWLEDGED = "spool.acknowledged.json"
_TAG_SWEEP = "dp_tuner.sweep"
_TAG_TRIAL = "dp_tuner.trial"
_PARENT = ""  # trial id in records of the parent run
_METRICS_A_REQUEST = 800  # MLflow accepts 1000 items in a request, at most 100 parameters and 100 tags
_OTHERS_A_REQUEST = 100
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"})


RECORDS_A_CALL = 500


@dataclass
class _Pending:
    """Collected metrics, parameters and tags of one run. They are logged together, in few requests."""

    metrics: list[Any] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class Shipper:
    """Connection to MLflow that sends the records of a spool, starting after the last acknowledged record.

    A lock file makes sure that only one process sends the records of a sweep.

    Args:
        folder: the sweep's folder, which contains the spool and the artifacts.
        uri: tracking address to use instead of the address in the spool.
        connect: returns the MLflow client for an address.
    """

    def __init__(self, folder: Path, *, uri: str | None = None, connect: Callable[[str], Any] = store.connect) -> None:
        self._folder = folder
        self._spool = folder / SPOOL
        self._given_uri = uri
        self._connect = connect
        self._lock: FileLock | None = None
        self._client: Any = None
        self._target: Acknowledgement | None = None
        self._header: dict[str, Any] = {}
        self._experiment = ""
        self._runs: dict[str, str] = {}  # of the trials met so far, by trial id
        self._found: dict[str, str] | None = None  # the sweep's runs that were in MLflow before; None if not known
        self._created: set[str] = set()  # by this process, and not ended since
        self._offset = 0
        self.sent = 0
        self.refused = 0

    def waiting(self) -> int:
        """Return the number of unacknowledged records."""
        return sum(1 for _ in read_spool(self._spool, start=self._offset))

    def ship(self, limit: int = RECORDS_A_CALL) -> int:
        """Send up to `limit` records, and return how many were sent or refused.

        Raises:
            Exception: any error of MLflow, its database or the network. A later call sends the records again.
        """
        self._open()
        lines = list(itertools.islice(read_spool(self._spool, start=self._offset), limit))
        if not lines:
            return 0
        try:
            self._send(lines)
        except Exception as error:
            if getattr(error, "error_code", "") not in _REFUSALS:
                raise
            self._send_one_by_one(lines, error)
        return len(lines)

    def close(self) -> None:
        """Release the lock, so that another process can send the records."""
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
                    "records-being-sent",
                    f"{self._folder}: another process is sending the records of this sweep. Wait until it ends.",
                )
            self._lock = lock
        headers = [line.record for line in read_spool(self._spool) if line.record.get("kind") == "sweep_started"]
        if not headers:
            return  # the spool has no record yet
        self._header = headers[-1]  # a resumed sweep may use another server, to which every record is then sent
        uri = self._given_uri or str(self._header["uri"])
        target = Acknowledgement(self._folder / ACKNOWLEDGED, spool=self._spool, target=uri)
        client = self._connect(uri)
        self._experiment = store.experiment_id(client, uri=uri, name=str(self._header["experiment"]))
        self._client, self._offset, self._target = client, target.load(), target

    def _send(self, lines: list[SpoolLine]) -> None:
        pending: dict[str, _Pending] = {}
        for line in lines:
            self._apply(line.record, pending)
        for run in list(pending):
            self._log(run, pending)
        self._acknowledge(lines[-1], len(lines))

    def _acknowledge(self, last: SpoolLine, count: int) -> None:
        if self._target is not None:
            self._target.store(last)
        self._offset = last.end
        self.sent += count

    def _send_one_by_one(self, lines: list[SpoolLine], error: Exception) -> None:
        """Send each record in its own request. If MLflow will never accept a record, move it to the refused records."""
        if not self._runs_exist():
            # A run was deleted in MLflow. The next call finds or creates the runs again, and sends every record again.
            self._runs.clear()
            self._found, self._offset = None, 0
            raise error
        for line in lines:
            try:
                self._send([line])
            except Exception as refusal:
                if getattr(refusal, "error_code", "") not in _REFUSALS:
                    raise
                self._set_aside(line, refusal)

    def _set_aside(self, line: SpoolLine, refusal: Exception) -> None:
        refused = json.dumps({"record": line.record, "refused": hide_password(str(refusal))})
        path = self._folder / "spool.refused.jsonl"
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
            file.write(refused + "\n")
        self.refused += 1
        self._acknowledge(line, 0)

    def _runs_exist(self) -> bool:
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
        if kind == "artifact":
            self._artifact(record)
            return
        if kind == "model":
            self._register(record)
            return
        known = str(record.get("trial") or _PARENT) in self._runs
        run = self._run(record)
        tagged = not known and run in self._created  # a new run has the tags of its first record
        if kind == "sweep_started":
            self._log(run, pending)
            record = self._without_changed_parameters(run, record)
        mine = pending.setdefault(run, _Pending())
        mine.params.update(record.get("params", {}))
        mine.tags.update({} if tagged else record.get("tags", {}))
        mine.metrics += _metrics(record)
        if kind == "sweep_started" and record.get("data"):
            self._client.log_inputs(run, datasets=[_data(record["data"])])
        if kind in ("sweep_started", "trial_started") and run not in self._created:  # a new run is running already
            self._client.update_run(run, status="RUNNING")
        elif kind in ("trial_finished", "sweep_finished"):
            self._log(run, pending)
            self._client.set_terminated(run, status=record["status"], end_time=record["t"])
            self._created.discard(run)

    def _without_changed_parameters(self, run: str, record: dict[str, Any]) -> dict[str, Any]:
        """If a resumed sweep changed a parameter, record it as a tag. MLflow refuses to change a parameter."""
        logged: dict[str, str] = self._client.get_run(run).data.params
        settings: dict[str, str] = record["params"]
        changed = {name: value for name, value in settings.items() if logged.get(name, value) != value}
        params = {name: value for name, value in settings.items() if name not in changed}
        tags = {f"resumed.{name}": value for name, value in changed.items()}
        return {**record, "params": params, "tags": {**tags, **record["tags"]}}

    def _artifact(self, record: dict[str, Any]) -> None:
        path = self._folder / str(record["path"])  # an absolute path stays unchanged
        if not path.exists():
            raise _MissingArtifactError("artifact-missing", f"The recorded artifact {path} no longer exists.")
        self._client.log_artifact(self._run(record), str(path), record.get("under") or None)

    def _register(self, record: dict[str, Any]) -> None:
        """Register the exported model, unless a version of it is registered already."""
        from mlflow.exceptions import MlflowException

        run, name = self._run(record), str(record["name"])
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        if not self._client.search_model_versions(f"name = '{name}' and run_id = '{run}'"):
            source = f"{self._client.get_run(run).info.artifact_uri}/{record['under']}"
            self._client.create_model_version(
                name, source=source, run_id=run, tags=record["tags"], description=record["about"]
            )

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
            metrics = metrics[_METRICS_A_REQUEST:]
            params, tags = params[_OTHERS_A_REQUEST:], tags[_OTHERS_A_REQUEST:]

    def _run(self, record: dict[str, Any]) -> str:
        """Return the id of the record's MLflow run: the run of its trial, or the parent run. Create missing runs."""
        trial = str(record.get("trial") or _PARENT)
        if trial not in self._runs:
            self._runs[trial] = self._find(trial) or self._create(trial, record)
        return self._runs[trial]

    def _find(self, trial: str) -> str | None:
        if self._found is None:
            self._found = self._all_runs()
        return self._found.get(trial)

    def _all_runs(self) -> dict[str, str]:
        """Return the ids of the sweep's runs in MLflow by trial id. Mark runs that were created twice."""
        found = dict(self._runs)  # those that this process writes
        token, pages = None, []
        while True:
            page = self._client.search_runs(
                [self._experiment],
                filter_string=f"tags.`{_TAG_SWEEP}` = '{self._header['sweep']}'",
                order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
                page_token=token,
            )
            pages += page
            token = page.token
            if not token:
                break
        for run in sorted(pages, key=lambda run: not run.data.params):  # a run with records before an empty one
            trial = run.data.tags.get(_TAG_TRIAL)
            if trial is None:
                continue  # a run of the user's own
            first = found.setdefault(_PARENT if trial == "-" else trial, str(run.info.run_id))
            if first != run.info.run_id:
                # A request to create the run timed out and was repeated, but then arrived late.
                self._client.set_tag(run.info.run_id, "state", "duplicate")
                self._client.set_terminated(run.info.run_id, status="KILLED", end_time=run.info.start_time)
        return found

    def _create(self, trial: str, record: dict[str, Any]) -> str:
        tags = {
            **record.get("tags", {}),
            _TAG_SWEEP: str(self._header["sweep"]),
            _TAG_TRIAL: trial or "-",
            "mlflow.source.name": "tune run",
        }
        if trial:
            tags["mlflow.parentRunId"] = self._run(self._header)
            name = str(record.get("name", trial))
            if "number" in record:
                name = f"{self._header['params'].get('name', 'trial')} {int(record['number']):03d}"
        else:
            name = str(self._header["sweep"])
        before, self._found = self._found, None  # a request that fails may still create the run
        created = self._client.create_run(self._experiment, start_time=record["t"], tags=tags, run_name=name)
        self._found = before
        self._created.add(created.info.run_id)
        return str(created.info.run_id)


def _metrics(record: dict[str, Any]) -> list[Any]:
    from mlflow.entities import Metric

    values: dict[str, float | str] = record.get("values", {})
    return [Metric(name, float(value), record["t"], record["step"]) for name, value in values.items()]


def _data(facts: dict[str, str]) -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return the records as an input of a run, by public facts alone."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    profile = json.dumps({name: value for name, value in facts.items() if name not in ("name", "digest")})
    data = Dataset(facts["name"], facts["digest"], source_type="local", source="{}", profile=profile)
    return DatasetInput(data, tags=[InputTag("mlflow.data.context", "training")])


class _MissingArtifactError(TrackingError):
    """A recorded artifact no longer exists. A retry cannot succeed, so its record is moved to the refused records."""

    error_code = "RESOURCE_DOES_NOT_EXIST"
