"""Files of a sweep that starts or resumes: its status, its experiment, its plan and what `auto` compared."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import tuner
from tuner.files import write_json, write_text
from tuner.sweep.settings import located
from tuner.sweep.status import SweepState

if TYPE_CHECKING:
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["resolved", "write_new_sweep", "write_resumed_sweep"]


def resolved(prepared: ReadySearch) -> ReadySearch:
    """Return the search with its noise multiplier as a number and with absolute paths.

    The returned search can be resumed from any folder.
    """
    return replace(prepared, experiment=located(prepared.experiment.with_noise(prepared.plan.nominal.noise_multiplier)))


def write_new_sweep(sweep: SweepFolder, prepared: ReadySearch) -> None:
    """Write the status, experiment file and plan of a new sweep."""
    sweep.write_status(
        state=SweepState.STARTING,
        file=str(prepared.path),
        version=tuner.__version__,
        pid=os.getpid(),
        data_dir=prepared.request.data_dir,
    )
    write_text(sweep.experiment, prepared.experiment.to_yaml())
    write_json(sweep.plan, prepared.plan.as_dict())
    if prepared.compared is not None:
        write_json(sweep.comparison, {"rows": [asdict(row) for row in prepared.compared.rows]})


def write_resumed_sweep(sweep: SweepFolder, prepared: ReadySearch) -> None:
    """Write the experiment file and plan of a resumed sweep, and delete an old stop request."""
    write_text(sweep.experiment, prepared.experiment.to_yaml())
    write_json(sweep.plan, prepared.plan.as_dict())
    sweep.stop_request.unlink(missing_ok=True)
