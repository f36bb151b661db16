"""Rules for resuming a sweep: whether it is finished, and which settings may change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.experiment import load_experiment
from tuner.sweep.folder import SweepFolder, read_json
from tuner.sweep.settings import MAY_CHANGE, flat_values
from tuner.sweep.status import FINISHED

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["check_same", "is_finished", "located"]


def is_finished(sweep: SweepFolder, overrides: Sequence[str] = ()) -> bool:
    """Return whether a sweep has nothing left to do.

    Args:
        sweep: the sweep; a public search is finished when its charged run is.
        overrides: ``key=value`` each; with any of them there may be more to do.

    Raises:
        TunerError: its status cannot be read.
    """
    if overrides or not sweep.whole or not _is_over(sweep):
        return False
    if not sweep.mode.searches_public:
        return True
    known = sweep.read_status().get("charged_run")
    charged = SweepFolder(sweep.root.parent / known) if isinstance(known, str) else None
    return charged is not None and charged.whole and _is_over(charged)


def _is_over(sweep: SweepFolder) -> bool:
    """Return whether the sweep has ended in its status and in its ledger; it may have died between the two.

    A resume with more trials that died early has changed the experiment file but not the status.
    """
    from tuner.privacy.ledger.ledger import Ledger

    status, experiment = sweep.read_status(), load_experiment(sweep.experiment)
    asked = experiment.search.trials
    if status.get("state") not in FINISHED or status.get("trials", asked) != asked:
        return False
    if not read_json(sweep.plan).get("private") or sweep.mode.searches_public:
        return True
    if not Ledger.exists(experiment.ledger):
        return False  # resuming reports the missing ledger
    return Ledger.open(experiment.ledger, create=False).search_state(sweep.id).status != "open"


def check_same(stored: Experiment, wanted: Experiment) -> None:
    """Compare the settings of a resumed sweep with those of its start.

    Raises:
        InputError: a setting differs that must not change; the message names every difference.
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
            "resume-changes-setting",
            "A resumed sweep may only change search.trials, search.when_sure, resources, tracking, storage and "
            f"where the data are (got: {'; '.join(changed)}). Start a new sweep without `--resume`; it is "
            "charged in addition.",
        )


def located(experiment: Experiment) -> Experiment:
    """Return the experiment with absolute paths, so that the sweep can be resumed from any folder.

    Raises:
        InputError: an address is malformed.
    """
    from tuner.privacy.ledger.stores import absolute_url
    from tuner.recorder.mlflow_store import absolute_uri

    dataset = experiment.dataset.model_copy(update={"path": _absolute(experiment.dataset.path)})
    search, declared = experiment.search, experiment.search.public
    if declared is not None:
        search = search.model_copy(update={"public": declared.model_copy(update={"path": _absolute(declared.path)})})
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
