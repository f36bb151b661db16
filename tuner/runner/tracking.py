"""A sweep's description for MLflow, and the upload of records that MLflow has not received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tuner
from tuner.errors import InputError
from tuner.sweep.preflight import check_tracking
from tuner.sweep.sealed import read_winner
from tuner.sweep.settings import file_values

if TYPE_CHECKING:
    from tuner.recorder.recorder import SweepInfo
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["sweep_info", "sync_tracking"]


def sweep_info(sweep: SweepFolder, prepared: ReadySearch, *, claim: str = "") -> SweepInfo:
    """Return the description of a sweep for MLflow.

    Args:
        sweep: the sweep.
        prepared: the search and its records.
        claim: sentence about the guarantee if the search has no budget; else it is read from the budget.
    """
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.recorder import SweepInfo

    experiment, about = prepared.experiment, prepared.about
    tags = {"code_version": tuner.__version__, "dataset": about.name, "method": experiment.trainable.method}
    if (
        about.content_sha256
    ):  # only of published data: the checksum of private records would help to guess who is among them
        tags["dataset_checksum"] = about.content_sha256
    return SweepInfo(
        id=sweep.id,
        uri=absolute_uri(experiment.tracking.uri),
        experiment=experiment.tracking.experiment or experiment.name,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        settings=file_values(experiment),
        tags=tags,
        claim=claim,
    )


def sync_tracking(sweep: SweepFolder, uri: str | None = None) -> str:
    """Upload the records that MLflow has not acknowledged, or all of them to another address.

    Raises:
        InputError: the address is malformed, or the sweep is sealed and has not ended.
        TrackingError: the server does not answer; no record is lost.
    """
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.sync import send_unsent

    if sweep.hides_runs and read_winner(sweep) is None:
        raise InputError(
            "sweep-not-finished",
            f"MLflow receives the records of a sealed sweep when it has ended, and {sweep.id} has not. Resume it.",
        )
    if uri is not None:
        check_tracking(uri)
        uri = absolute_uri(uri)
    return f"{sweep.id}, MLflow: {send_unsent(sweep.root, uri=uri)}"
