"""What a sweep may change when it goes on: nothing that was claimed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["check_same", "file_values", "located"]

# All else would change what was claimed, or what the trials that have ended can be compared with.
_MAY_CHANGE = ("search.trials", "resources.", "tracking.", "storage")


def check_same(stored: Experiment, wanted: Experiment) -> None:
    """Hold the file or options with which a sweep goes on against those it was started with.

    Raises:
        InputError: something else than the number of trials, resources or tracking differs; every difference is named.
    """
    before, after = _flat(file_values(located(stored))), _flat(file_values(located(wanted)))
    if after.get("privacy.noise_multiplier") == "auto":  # the sweep has calibrated it already
        after["privacy.noise_multiplier"] = before["privacy.noise_multiplier"]
    changed = [
        f"{key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not key.startswith(_MAY_CHANGE)
    ]
    if changed:
        raise InputError(
            f"a sweep goes on as it was started, only {', '.join(_MAY_CHANGE)} may change, got: {'; '.join(changed)}. "
            "Start a new sweep without --resume for another setting; it is charged beside this one."
        )


def located(experiment: Experiment) -> Experiment:
    """The experiment with every path made absolute, so that a sweep goes on, from any folder, with its own ledger.

    Raises:
        InputError: an address is malformed.
    """
    from tuner.privacy.store import path_of
    from tuner.tracking.store import absolute_uri

    own = experiment.dataset.path
    dataset = experiment.dataset.model_copy(
        update={"path": None if own is None else str(Path(own).expanduser().absolute())}
    )
    tracking = experiment.tracking.model_copy(update={"uri": absolute_uri(experiment.tracking.uri)})
    return experiment.model_copy(
        update={
            "dataset": dataset,
            "tracking": tracking,
            "storage": str(Path(experiment.storage).resolve()),
            "ledger": f"sqlite:///{path_of(experiment.ledger)}",
        }
    )


def file_values(experiment: Experiment) -> dict[str, object]:
    """The resolved file as plain values."""
    return experiment.model_dump(mode="json", by_alias=True)


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flat(value, f"{name}.") if isinstance(value, dict) else {name: value})
    return flat
