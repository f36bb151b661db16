"""Where tracking goes: absolute addresses, a ready database, and MLflow imported quietly and on demand."""

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
    """The text without the user names and passwords of the addresses in it."""
    return _USER_INFO.sub("***@", text)


def absolute_uri(uri: str) -> str:
    """The tracking address, independent of the current folder.

    Args:
        uri: ``sqlite:///path``, another SQLAlchemy address, or the http(s) address of a tracking server.

    Raises:
        InputError: MLflow's file store, which MLflow itself refuses since version 3, or no address at all.
    """
    if uri.startswith(SQLITE):
        path = uri.removeprefix(SQLITE)
        if not path or path.startswith(":memory:"):
            raise InputError(
                f"tracking.uri: a sweep is tracked in a file that outlives it, got {uri}. "
                "Write sqlite:///runs/mlflow.db"
            )
        return SQLITE + str(Path(path).resolve())
    if "://" not in uri or uri.startswith("file:"):
        raise InputError(
            f"tracking.uri: a database or a tracking server is needed, MLflow no longer takes a plain folder, "
            f"got {uri}. Write sqlite:///runs/mlflow.db or http://HOST:5000"
        )
    return uri


def _mlflow() -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    # Our sender looks a run up before it creates it, which a hidden retry of the client would undo: a request that
    # timed out and did arrive would be sent, and create a run, twice. Waiting and trying again is the sender's work.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow
    import mlflow.exceptions

    for name in _QUIET:  # their lines would tear the live table; what went wrong stands in the sender's status
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return mlflow


def connect(uri: str) -> Any:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """An ``MlflowClient`` for the address, with a database that is ready to be used.

    Several processes that open a fresh SQLite file together fail in MLflow's migration, so a lock beside the file lets
    one at a time through.

    Args:
        uri: an absolute address (`absolute_uri`).
    """
    mlflow = _mlflow()
    if not uri.startswith(SQLITE):
        return mlflow.MlflowClient(tracking_uri=uri)
    database = Path(uri.removeprefix(SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(database.with_name(database.name + ".lock")):
        client = mlflow.MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # the first request makes and migrates the tables
        return client


def experiment_id(client: Any, *, uri: str, name: str) -> str:  # noqa: ANN401 - mlflow has no types that mypy could follow
    """Finds or makes the MLflow experiment.

    Raises:
        InputError: the experiment was deleted in MLflow, which keeps its name taken.
    """
    mlflow = _mlflow()
    found = client.get_experiment_by_name(name)
    if found is None:
        # MLflow would put the artifacts of a SQLite store under the current folder of whoever is first.
        database = uri.removeprefix(SQLITE)
        location = (Path(database).parent / "mlartifacts").as_uri() if uri.startswith(SQLITE) else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except mlflow.exceptions.MlflowException:
            found = client.get_experiment_by_name(name)  # another sweep was faster
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise InputError(
            f"tracking.experiment: it must not be deleted in MLflow, got {name!r}. Restore it in MLflow "
            f"(`mlflow experiments restore --experiment-id {found.experiment_id}`), then run `tune sync`"
        )
    return str(found.experiment_id)
