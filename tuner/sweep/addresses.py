"""Checks of the addresses in an experiment file. They open nothing, and import little."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tuner.errors import InputError
from tuner.passwords import hide_password

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["check_addresses", "check_tracking"]

_TRACKING_KINDS = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")


def check_addresses(experiment: Experiment) -> None:
    """Raise an InputError if MLflow's address or the ledger's cannot be used. Nothing is opened."""
    from tuner.privacy.ledger.stores import require_folder

    check_tracking(experiment.tracking.uri)
    require_folder(experiment.ledger, made=Path(experiment.storage))


def check_tracking(uri: str) -> None:
    """Raise an InputError if MLflow cannot use the address.

    A server that is down is not an error, because records wait on disk until it is up.
    """
    from tuner.recorder.mlflow_store import absolute_uri

    kind, problem = absolute_uri(uri).partition("://")[0].partition("+")[0], ""
    if kind not in _TRACKING_KINDS:
        problem = f"must begin with one of {', '.join(_TRACKING_KINDS)} (got {hide_password(uri)})"
    elif kind != "sqlite" and not _has_host(uri):
        problem = f"must name a host and a port in 1..65535 (got {hide_password(uri)})"
    elif kind == "sqlite" and not uri.startswith("sqlite:///"):
        problem = f"must begin with sqlite:/// if it is an SQLite file (got {uri})"
    if problem:
        raise InputError(
            "tracking-uri-invalid",
            f"`tracking.uri` {problem}. Write sqlite:///runs/mlflow.db or http://HOST:5000.",
        )


def _has_host(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
