"""The settings of a sweep as plain values: which of them may change when it goes on, and the hash of all others."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan import Plan

__all__ = ["MAY_CHANGE", "file_values", "flat_values", "plan_hash", "settings_hash"]

# All else would change what was claimed, or what the trials that have ended can be compared with. Records may lie
# elsewhere than before: the ledger knows them by what they are.
MAY_CHANGE = ("search.trials", "resources.", "tracking.", "storage", "dataset.path")
# What a file could not say when earlier searches were entered, with the value that means what they did. It is left out
# of the hash, so that they go on and export under it; any other value is hashed like every setting.
_ADDED: dict[str, object] = {
    "search.space.clipping": "flat",
    "search.space.augmentation": "none",
    "search.space.augmentation_multiplicity": 1,
    "search.space.ema_decay": 0.0,
    "trainable.precision": "float32",
}
_BY_TRIALS = ("trials", "trials_that_fit", "epsilon_planned")


def settings_hash(experiment: Experiment) -> str:
    """SHA-256 of all settings that may not change, for the ledger: what was claimed was claimed for these.

    Where the files lie is left out: the data are held by their fingerprint, and the ledger knows its own searches.
    """
    elsewhere = (*MAY_CHANGE, "ledger")
    values = {key: value for key, value in flat_values(experiment).items() if not key.startswith(elsewhere)}
    return _sha256({key: value for key, value in values.items() if key not in _ADDED or value != _ADDED[key]})


def plan_hash(plan: Plan) -> str:
    """SHA-256 of all of a plan but what follows from the number of trials, for the ledger: a card quotes the rest."""
    return _sha256({key: value for key, value in plan.as_dict().items() if key not in _BY_TRIALS})


def _sha256(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


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
