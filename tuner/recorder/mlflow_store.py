"""Connections to MLflow: tracking addresses, clients and experiments. MLflow is imported at first use."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path
from typing import Any

from trainables.loading import loading
from tuner.errors import InputError, TrackingError, TunerError
from tuner.files import create_private, file_lock
from tuner.passwords import has_password, hide_password

__all__ = ["absolute_uri", "cause_of", "connect", "experiment_id", "load_mlflow"]

SQLITE = "sqlite:///"
_NOISE = "(raised as a result of Query-invoked autoflush"  # SQLAlchemy puts this line before the cause
_QUIET = ("mlflow", "alembic", "urllib3.connectionpool")


def absolute_uri(uri: str) -> str:
    """Return a tracking address that does not depend on the current folder.

    Args:
        uri: ``sqlite:///path``, another SQLAlchemy address, or the http(s) address of a tracking server.

    Raises:
        InputError: the address contains a password, or is neither an SQLAlchemy nor an http(s) address, or the database
            is in memory.
    """
    if has_password(uri):
        raise InputError(
            "tracking-uri-password",
            f"MLflow's address must not contain a password (got {hide_password(uri)}), because sweep folders, reports "
            "and exported files keep the address. Remove it, and put it into MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or for PostgreSQL into ~/.pgpass or PGPASSWORD.",
        )
    if uri.startswith(SQLITE):
        path = uri.removeprefix(SQLITE)
        if not path or path.startswith(":memory:"):
            raise InputError(
                "tracking-uri-invalid",
                f"MLflow's address names no file (got {uri}), so the records would be lost. Name a file, for example "
                "sqlite:///runs/mlflow.db.",
            )
        return SQLITE + str(Path(path).resolve())
    if "://" not in uri or uri.startswith("file:"):
        raise InputError(
            "tracking-uri-invalid",
            f"MLflow's address is neither a database nor a tracking server (got {hide_password(uri)}). MLflow no "
            "longer accepts a plain folder. Write for example sqlite:///runs/mlflow.db or http://HOST:5000.",
        )
    return uri


def load_mlflow() -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return the module `mlflow`, with a client that never retries and prints nothing."""
    # The client must not retry. A request that timed out may have arrived, so a retry could create a second run. The
    # sender retries instead, and searches for an existing run before it creates a run.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with loading():
        import mlflow
        import mlflow.exceptions

    for name in _QUIET:  # log lines would break the live table; the sender's status reports problems instead
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return mlflow


def connect(uri: str) -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return an ``MlflowClient`` for an absolute tracking address (see `absolute_uri`).

    A new SQLite file is readable by this account only. Before it is used, this function lets MLflow create or migrate
    its tables. MLflow's migration fails if several processes open a new file at the same time, so a lock file admits
    one process at a time.

    Raises:
        TrackingError: MLflow cannot use the SQLite file, which exists.
    """
    if not uri.startswith(SQLITE):
        return load_mlflow().MlflowClient(tracking_uri=uri, registry_uri=uri)
    database = Path(uri.removeprefix(SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(database.with_name(database.name + ".lock")):
        if not (database.exists() and database.stat().st_size):
            _create(database)
        try:
            return _with_tables(uri)
        except Exception as error:
            if "is locked" in str(error):
                raise TrackingError(
                    "tracking-store-busy", f"Another process has locked MLflow's database {database}. Try again later."
                ) from error
            raise TrackingError(
                "tracking-store-unusable",
                f"MLflow cannot open {database} ({cause_of(error)}). If the file is damaged, or another program's, "
                "move it away, then send the records again with: tune sync NAME --uri "
                f"{shlex.quote(uri)}. No record is lost.",
            ) from error


def _create(database: Path) -> None:
    """Let MLflow make its tables in a file of another name, so that no half-made database has the name."""
    draft = database.with_name(f"{database.name}.new")
    draft.unlink(missing_ok=True)  # of a process that was killed, or for which the disk was full
    create_private(draft)
    _with_tables(f"{SQLITE}{draft}")
    draft.replace(database)


def _with_tables(uri: str) -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    client = load_mlflow().MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.search_experiments(max_results=1)  # the first request creates and migrates the tables
    return client


def cause_of(error: BaseException) -> str:
    """Return the line of an error's text that names its cause, without passwords. Our own errors are returned whole."""
    if isinstance(error, TunerError):
        return str(error)
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_NOISE)]
    return hide_password([*lines, type(error).__name__][0].strip())[:200]


def experiment_id(client: Any, *, uri: str, name: str) -> str:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return the id of the MLflow experiment with this name. Create the experiment if it does not exist.

    Raises:
        InputError: the experiment was deleted in MLflow. MLflow keeps the names of deleted experiments reserved.
    """
    mlflow = load_mlflow()
    found = client.get_experiment_by_name(name)
    if found is None:
        # By default MLflow puts the artifacts of a SQLite store under the current folder of the first process.
        database = uri.removeprefix(SQLITE)
        location = None
        if uri.startswith(SQLITE):
            artifacts = Path(database).parent / "mlartifacts"
            artifacts.mkdir(mode=0o700, exist_ok=True)
            location = artifacts.as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except mlflow.exceptions.MlflowException:
            found = client.get_experiment_by_name(name)  # another sweep created it first
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise InputError(
            "tracking-experiment-deleted",
            f"tracking.experiment: {name!r} was deleted in MLflow. Restore it with "
            f"`mlflow experiments restore --experiment-id {found.experiment_id}`, then run `tune sync`.",
        )
    return str(found.experiment_id)
