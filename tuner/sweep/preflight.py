"""What must hold before a sweep is charged: its model, its sampler and pruner, and every place that it writes to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tuner.errors import InputError
from tuner.sweep.ready import check_model
from tuner.sweep.sweep_study import check_search

if TYPE_CHECKING:
    from tuner.sweep.ready import Prepared

__all__ = ["check_startable", "check_tracking"]

_SERVERS = ("http", "https")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def check_startable(prepared: Prepared) -> None:
    """Refuse now what would fail after the ledger has been written to.

    Raises:
        InputError: an option, an address or a folder cannot be used, or the model cannot be trained privately.
    """
    from tuner.privacy.ledger.ledger import Ledger

    experiment = prepared.experiment
    check_tracking(experiment.tracking.uri)
    Ledger.exists(experiment.ledger)  # refuses what is no address of a ledger
    check_search(experiment, prepared.plan.rungs)
    check_model(prepared)
    _check_storage(Path(experiment.storage))


def check_tracking(uri: str) -> None:
    """Refuse an address that MLflow can never answer at. A server that is down is no error: records wait on disk.

    Raises:
        InputError: the address is malformed, or of a kind that MLflow does not know.
    """
    from tuner.recorder.mlflow_store import absolute_uri, hide_password

    kind = absolute_uri(uri).partition("://")[0].partition("+")[0]
    fix = "Write sqlite:///runs/mlflow.db or http://HOST:5000."
    if kind not in (*_SERVERS, *_DATABASES):
        raise InputError(
            f"tracking.uri must begin with one of {', '.join((*_SERVERS, *_DATABASES))}, got {hide_password(uri)}. "
            f"{fix}"
        )
    try:
        parts = urlsplit(uri)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if kind != "sqlite" and not host:
        raise InputError(f"tracking.uri must name a host, and a port in 1..65535, got {hide_password(uri)}. {fix}")
    if kind == "sqlite" and not uri.startswith("sqlite:///"):
        raise InputError(f"tracking.uri of an SQLite file must begin with sqlite:///, got {uri}. {fix}")


def _check_storage(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"storage must be a folder that can be written, got {folder}: {error.strerror}.") from error
