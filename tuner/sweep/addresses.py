"""Checks of the addresses in an experiment file. They open nothing, and import little."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tuner.errors import InputError
from tuner.files import require_kept
from tuner.passwords import hide_password

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.experiment.places import Places

__all__ = ["check_addresses", "check_tracking", "require_no_file"]

_TRACKING_KINDS = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")


def check_addresses(experiment: Experiment, places: Places) -> None:
    """Raise an InputError if MLflow's address, the ledger's or the storage cannot be used. Nothing is opened.

    `places` names the line of the address.
    """
    from tuner.privacy.ledger.stores import require_folder
    from tuner.privacy.ledger.stores.file_url import file_of

    with places.at("tracking.uri"):
        check_tracking(experiment.tracking.uri)
        require_kept(file_of(experiment.tracking.uri))  # MLflow's file has a URL of the same form
    with places.at("ledger"):
        require_folder(experiment.ledger, made=Path(experiment.storage))
    with places.at("storage"):
        require_no_file(Path(experiment.storage))
        require_kept(Path(experiment.storage))


def require_no_file(storage: Path) -> None:
    """Raise an InputError if the folder of sweeps, or a folder above it, is a file. It need not exist."""
    blocking = next((each for each in (storage, *storage.parents) if each.exists()), Path())
    if not blocking.is_dir():
        raise InputError(
            "storage-unwritable",
            f"The folder of sweeps cannot be {storage}, because {blocking} is a file. Choose another folder.",
        )


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
            f"MLflow's address {problem}. Write sqlite:///runs/mlflow.db or http://HOST:5000.",
        )


def _has_host(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
