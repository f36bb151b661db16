"""What a sweep may change when it goes on: nothing that was claimed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.settings import MAY_CHANGE, flat_values

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["check_same", "located"]


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
            "a sweep goes on as it was started: only search.trials, resources, tracking, storage and where data lie "
            f"may change, got: {'; '.join(changed)}. "
            "Start a new sweep without --resume for another setting; it is charged beside this one."
        )


def located(experiment: Experiment) -> Experiment:
    """The experiment with every path made absolute, so that a sweep goes on, from any folder, with its own ledger.

    Raises:
        InputError: an address is malformed.
    """
    from tuner.privacy.store import absolute_url
    from tuner.tracking.store import absolute_uri

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
