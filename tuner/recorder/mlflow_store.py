"""Access to MLflow: absolute addresses, connections and experiments. MLflow is imported quietly, on first use."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.files import file_lock

__all__ = ["absolute_uri", "connect", "experiment_id", "hide_password"]

SQLITE = "sqlite:///"
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_QUIET = ("mlflow", "alembic", "urllib3.connectionpool")


def hide_password(text: str) -> str:
    """Return the text without the user names and passwords of its addresses."""
    return _USER_INFO.sub("***@", text)


def absolute_uri(uri: str) -> str:
    """Return the tracking address, independent of the current folder.

    Args:
        uri: ``sqlite:///path``, another SQLAlchemy address, or the http(s) address of a tracking server.

    Raises:
        InputError: the address is no SQLAlchemy or http(s) address, or names a database in memory.
    """
    if uri.startswith(SQLITE):
        path = uri.removeprefix(SQLITE)
        if not path or path.startswith(":memory:"):
            raise InputError(
                "tracking-uri-invalid",
                f"tracking.uri: {uri} names no file, so its records would be lost. Write for example "
                "sqlite:///runs/mlflow.db.",
            )
        return SQLITE + str(Path(path).resolve())
    if "://" not in uri or uri.startswith("file:"):
        raise InputError(
            "tracking-uri-invalid",
            f"tracking.uri: {uri} is neither a database nor a tracking server, and MLflow no longer accepts a plain "
            "folder. Write for example sqlite:///runs/mlflow.db or http://HOST:5000.",
        )
    return uri


def _mlflow() -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    # The client must not retry, because a request that timed out may have arrived: a retry would create a second run.
    # The sender retries instead, and looks for a run before it creates one.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow
    import mlflow.exceptions

    for name in _QUIET:  # their lines would break the live table, and the sender's status reports problems
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return mlflow


def connect(uri: str) -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return an ``MlflowClient`` for an absolute address (`absolute_uri`), after MLflow has created its database.

    MLflow's migration fails if several processes open a new SQLite file together, so a lock file admits one at a time.
    """
    mlflow = _mlflow()
    if not uri.startswith(SQLITE):
        return mlflow.MlflowClient(tracking_uri=uri)
    database = Path(uri.removeprefix(SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(database.with_name(database.name + ".lock")):
        client = mlflow.MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # the first request creates and migrates the tables
        return client


def experiment_id(client: Any, *, uri: str, name: str) -> str:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Return the id of the MLflow experiment with this name, or create it.

    Raises:
        InputError: the experiment was deleted in MLflow, which reserves the names of deleted experiments.
    """
    mlflow = _mlflow()
    found = client.get_experiment_by_name(name)
    if found is None:
        # By default MLflow puts the artifacts of a SQLite store under the current folder of the first process.
        database = uri.removeprefix(SQLITE)
        location = (Path(database).parent / "mlartifacts").as_uri() if uri.startswith(SQLITE) else None
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
