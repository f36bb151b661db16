"""Settings of a sweep: those that may change in a resume, absolute paths, and hashes for the ledger."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.tasks import REGRESSION
from tuner.errors import InputError
from tuner.experiment.model import absolute_path

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan

__all__ = ["changes_nothing", "check_same", "located", "plan_hash", "settings_hash", "split_of", "stated_use"]

# Any other change would alter the claim, or make the new trials incomparable with the old ones. The records may move to
# another folder, because the ledger identifies them by their content, and public weights, because they have a hash. A
# search that ended because it found the best configuration may use the rest of its budget.
_PATHS = ("storage", "dataset.path", "search.public.path", "trainable.start.path")
_MAY_CHANGE = ("search.trials", "search.when_sure", "resources.", "tracking.", *_PATHS)
_GPUS = "resources.gpus_per_trial"  # may change, but not from or to 0: the card names the device
# May not change in a sealed search. Other numbers of threads and workers round in other ways, but a copy of the sweep's
# folder must come to the same winner: the difference of two winners with the same noise would contain no noise.
_ROUNDING = ("resources.cpus_per_trial", "resources.workers_per_trial")
_BY_TRIALS = ("trials", "trials_that_fit", "trials_at_most", "epsilon_planned")
# Text and figures about the cap. No claim depends on them.
_BESIDE = ("cap_reason", "alternatives", "rung_wise")


def check_same(stored: Experiment, wanted: Experiment) -> None:
    """Raise an InputError if a resume changes settings that must stay the same. The error lists all of them."""
    before, after = _stored_and_wanted(stored, wanted)
    changed = [
        f"{key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        and (not _may_change(key, stored) or (key == _GPUS and bool(before[key]) != bool(after[key])))
    ]
    if changed:
        raise InputError(
            "resume-changes-setting",
            "A resume may change only `search.trials`, `search.when_sure`, `resources` (but no change between CPU and "
            "GPU, nor of `cpus_per_trial` and `workers_per_trial` in a sealed search), `tracking`, `storage`, "
            "`dataset.path` and "
            f"`trainable.start.path` (got: {'; '.join(changed)}). "
            "Start a new search with `tune run`, which is charged in addition.",
        )


def changes_nothing(stored: Experiment, wanted: Experiment) -> bool:
    """Return whether a resume with the settings `wanted` changes none of the stored settings."""
    before, after = _stored_and_wanted(stored, wanted)
    return before == after


def _stored_and_wanted(stored: Experiment, wanted: Experiment) -> tuple[dict[str, object], dict[str, object]]:
    before, after = _values(located(stored)), _values(located(wanted))
    if after.get("privacy.noise_multiplier") == "auto":  # the sweep has calibrated it already
        after["privacy.noise_multiplier"] = before["privacy.noise_multiplier"]
    return before, after


def _may_change(key: str, experiment: Experiment) -> bool:
    return key.startswith(_MAY_CHANGE) and not (experiment.mode.runs_hidden and key in _ROUNDING)


def located(experiment: Experiment) -> Experiment:
    """Return the experiment with absolute paths, so that the sweep can be resumed from any folder."""
    from tuner.privacy.ledger.stores import absolute_url
    from tuner.recorder.mlflow_store import absolute_uri

    dataset = experiment.dataset.model_copy(update={"path": absolute_path(experiment.dataset.path)})
    search, declared = experiment.search, experiment.search.public
    if declared is not None:
        public = declared.model_copy(update={"path": absolute_path(declared.path)})
        search = search.model_copy(update={"public": public})
    trainable = experiment.trainable
    if trainable.start is not None:
        start = trainable.start.model_copy(update={"path": absolute_path(trainable.start.path)})
        trainable = trainable.model_copy(update={"start": start})
    return experiment.model_copy(
        update={
            "dataset": dataset,
            "trainable": trainable,
            "search": search,
            "tracking": experiment.tracking.model_copy(update={"uri": absolute_uri(experiment.tracking.uri)}),
            "storage": str(Path(experiment.storage).resolve()),
            "ledger": absolute_url(experiment.ledger),
        }
    )


def settings_hash(experiment: Experiment, ledger_id: str) -> str:
    """Return the SHA-256 hash of all settings that must not change. The ledger stores it with the claim.

    The hash does not cover paths, because the data are identified by their fingerprint, and the ledger by its id, which
    the hash covers.
    """
    kept = {
        key: value for key, value in _values(experiment).items() if key != "ledger" and not _may_change(key, experiment)
    }
    return _sha256(kept | {"ledger": ledger_id})


def plan_hash(plan: Plan) -> str:
    """Return a plan's SHA-256 hash for the ledger. Values that depend on the number of trials are not hashed."""
    return _sha256({key: value for key, value in plan.as_dict().items() if key not in (*_BY_TRIALS, *_BESIDE)})


def _sha256(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _values(experiment: Experiment) -> dict[str, object]:
    """Return the settings of the resolved file as a flat mapping with dotted keys."""
    return _flat(experiment.model_dump(mode="json", by_alias=True))


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flat(value, f"{name}.") if isinstance(value, dict) else {name: value})
    return flat


def stated_use(experiment: Experiment) -> dict[str, object]:
    """Return the purpose of a search and its contact, which the ledger stores; empty where the file states none."""
    stated = {"purpose": experiment.privacy.purpose, "contact": experiment.privacy.contact}
    return {name: words for name, words in stated.items() if words is not None}


def split_of(request: DatasetRequest) -> dict[str, object]:
    """Return the settings of the validation split, which the ledger stores.

    If two searches have different splits, each may train on validation records of the other. The split hashes the
    labels' bytes, and those of a regression are other numbers.
    """
    labels = {"labels": "numbers"} if request.task == REGRESSION else {}
    split = {"set": request.name, "fraction": request.validation_fraction, "seed": request.split_seed}
    return {**split, **labels}
