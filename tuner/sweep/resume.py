"""What a sweep may change when it goes on: nothing that was claimed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.experiment import load_experiment
from tuner.study.types import StopReason
from tuner.sweep.folder import SweepFolder, read_json
from tuner.sweep.settings import MAY_CHANGE, flat_values

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["check_same", "is_finished", "located"]

_FINISHED = {StopReason.DONE.value, StopReason.GRID.value, StopReason.FOUND.value}


def is_finished(sweep: SweepFolder, overrides: Sequence[str] = ()) -> bool:
    """Whether a sweep has nothing left to do, so that going on would only write that it was gone on with.

    Args:
        sweep: the sweep; a public search is finished when its charged run is.
        overrides: ``key=value`` each; with any there may be more to do.

    Raises:
        TunerError: its status cannot be read.
    """
    if overrides or not sweep.whole or not _is_over(sweep):
        return False
    if read_json(sweep.plan).get("accounting") != "public":
        return True
    known = sweep.read_status().get("charged_run")
    charged = SweepFolder(sweep.root.parent / known) if isinstance(known, str) else None
    return charged is not None and charged.whole and _is_over(charged)


def _is_over(sweep: SweepFolder) -> bool:
    """Whether it ended, in its status and in its ledger: it may have died between the two.

    A resume with more trials that died before it began has changed the file and not the status.
    """
    from tuner.privacy.ledger.ledger import Ledger

    status, experiment = sweep.read_status(), load_experiment(sweep.experiment)
    asked, plan = experiment.search.trials, read_json(sweep.plan)
    if status.get("state") not in _FINISHED or status.get("trials", asked) != asked:
        return False
    if not plan.get("private") or plan.get("accounting") == "public":
        return True
    if not Ledger.exists(experiment.ledger):
        return False  # whoever goes on is told so
    return Ledger.open(experiment.ledger, create=False).search_state(sweep.id).status != "open"


def check_same(stored: Experiment, wanted: Experiment) -> None:
    """Hold the file or options with which a sweep goes on against those it was started with.

    Raises:
        InputError: more differs than trials, resources, tracking or where the files lie; every difference is named.
    """
    before, after = flat_values(located(stored)), flat_values(located(wanted))
    if after.get("privacy.noise_multiplier") == "auto":  # the sweep has calibrated it already
        after["privacy.noise_multiplier"] = before["privacy.noise_multiplier"]
    changed = [
        f"{key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not key.startswith(MAY_CHANGE)
    ]
    if changed:
        raise InputError(
            "a sweep goes on as it was started: only search.trials, search.when_sure, resources, tracking, storage and "
            f"where data lie may change, got: {'; '.join(changed)}. "
            "Start a new sweep without --resume for another setting; it is charged beside this one."
        )


def located(experiment: Experiment) -> Experiment:
    """The experiment with every path made absolute, so that a sweep goes on, from any folder, with its own ledger.

    Raises:
        InputError: an address is malformed.
    """
    from tuner.privacy.ledger.stores import absolute_url
    from tuner.recorder.mlflow_store import absolute_uri

    dataset = experiment.dataset.model_copy(update={"path": _absolute(experiment.dataset.path)})
    search, public = experiment.search, experiment.search.public
    if public is not None:
        search = search.model_copy(update={"public": public.model_copy(update={"path": _absolute(public.path)})})
    tracking = experiment.tracking.model_copy(update={"uri": absolute_uri(experiment.tracking.uri)})
    return experiment.model_copy(
        update={
            "dataset": dataset,
            "search": search,
            "tracking": tracking,
            "storage": str(Path(experiment.storage).resolve()),
            "ledger": absolute_url(experiment.ledger),
        }
    )


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())
