"""The settings of a sweep as plain values: which of them may change when it goes on, and the hash of all others."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["MAY_CHANGE", "file_values", "flat_values", "settings_hash"]

# All else would change what was claimed, or what the trials that have ended can be compared with.
MAY_CHANGE = ("search.trials", "resources.", "tracking.", "storage")


def settings_hash(experiment: Experiment) -> str:
    """SHA-256 of all settings that may not change, for the ledger: what was claimed was claimed for these.

    Where the files lie is left out: the data are held by their fingerprint, and the ledger knows its own searches.
    """
    elsewhere = (*MAY_CHANGE, "ledger", "dataset.path")
    kept = {key: value for key, value in flat_values(experiment).items() if not key.startswith(elsewhere)}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, allow_nan=False).encode()).hexdigest()


def file_values(experiment: Experiment) -> dict[str, object]:
    """The resolved file as plain values."""
    return experiment.model_dump(mode="json", by_alias=True)


def flat_values(experiment: Experiment) -> dict[str, object]:
    """The resolved file with dotted keys."""
    return _flat(file_values(experiment))


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flat(value, f"{name}.") if isinstance(value, dict) else {name: value})
    return flat
