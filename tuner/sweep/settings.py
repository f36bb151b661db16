"""Settings of a sweep as plain values: which of them may change on resume, and the hash of all others."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan

__all__ = ["MAY_CHANGE", "file_values", "flat_values", "plan_hash", "settings_hash"]

# Any other change would alter the claim, or make the new trials incomparable with the old ones. The records may move to
# another folder: the ledger identifies them by their content. A search that ended because its best was found may use
# the rest of its budget.
MAY_CHANGE = ("search.trials", "search.when_sure", "resources.", "tracking.", "storage", "dataset.path")
_BY_TRIALS = ("trials", "trials_that_fit", "trials_at_most", "epsilon_planned")
# Text and figures about the cap. No claim depends on them.
_BESIDE = ("cap_reason", "alternatives")


def settings_hash(experiment: Experiment) -> str:
    """Return the SHA-256 of all settings that must not change, for the ledger: the claim holds for these.

    Paths are left out: the data are identified by their fingerprint, and the ledger by its own searches.
    """
    elsewhere = (*MAY_CHANGE, "ledger")
    return _sha256({key: value for key, value in flat_values(experiment).items() if not key.startswith(elsewhere)})


def plan_hash(plan: Plan) -> str:
    """SHA-256 of all of a plan but what follows from the number of trials, for the ledger: a card quotes the rest."""
    return _sha256({key: value for key, value in plan.as_dict().items() if key not in (*_BY_TRIALS, *_BESIDE)})


def _sha256(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


def file_values(experiment: Experiment) -> dict[str, object]:
    """Return the resolved file as plain values."""
    return experiment.model_dump(mode="json", by_alias=True)


def flat_values(experiment: Experiment) -> dict[str, object]:
    """Return the resolved file with dotted keys."""
    return _flat(file_values(experiment))


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flat(value, f"{name}.") if isinstance(value, dict) else {name: value})
    return flat
