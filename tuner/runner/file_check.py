"""The command `validate`. It imports no more than it needs, because editors and hooks call it on every change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import DomainError
from trainables.data import DatasetRequest, check_present, info
from trainables.errors import TrainableError
from tuner.errors import TunerError
from tuner.experiment import find_file, load_experiment
from tuner.experiment.places import Places
from tuner.passwords import hide_password
from tuner.plan.shapes import rung_steps
from tuner.sweep.addresses import check_addresses
from tuner.sweep.start_weights import start_file
from tuner.sweep.sweep_study import check_search

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["CheckedFile", "check_file", "missing_data"]

_MANY_STEPS = 1000  # assumed steps of a trial, where only the order of its rungs matters


@dataclass(frozen=True, kw_only=True)
class CheckedFile:
    """Result of `tune validate` for one experiment file. `text` says that the file is valid, or lists all problems."""

    valid: bool
    text: str
    warnings: tuple[str, ...] = ()


def check_file(name: str, overrides: Sequence[str]) -> CheckedFile:
    """Check an experiment file, its own data files if they are on this machine, and the user's own code."""
    try:
        path, _ = find_file(name)
        experiment = load_experiment(path, overrides)
        places = Places(path, overrides)
        check_addresses(experiment, places)
        _check_own_files(experiment, places)
        with places.at("trainable.start.path"):
            start_file(experiment)
        if experiment.runs_own_code:
            from tuner.sweep.preflight import check_model, prepare

            check_model(prepare(name, overrides, data_dir=None, need_data=False))
        if experiment.is_auto:  # what else may be chosen is refused by name, and then not taken
            from tuner.plan.candidates import NO_SEARCH, as_candidate

            experiment = as_candidate(experiment, NO_SEARCH)
        with places.at("search"):
            check_search(experiment, rung_steps(experiment.search.rungs, _MANY_STEPS))
    except (TunerError, TrainableError, DomainError) as error:
        return CheckedFile(valid=False, text=hide_password(f"error: {error}"))
    warnings = (*experiment.warnings(), *missing_data(experiment, experiment.dataset_request()))
    return CheckedFile(
        valid=True, text=f"{path}: valid", warnings=tuple(f"{path}: warning: {warning}" for warning in warnings)
    )


def missing_data(experiment: Experiment, private: DatasetRequest) -> tuple[str, ...]:
    """Return a warning for private and for public data that are not on this machine.

    A plan needs only public facts about them.
    """
    asked = {"the records": private}
    if experiment.search.public is not None:
        asked["the public records"] = experiment.public_request(private.data_dir)
    found = []
    for what, request in asked.items():
        try:
            check_present(request)
        except TrainableError as error:
            found.append(f"a run needs {what}, and would fail now: {error}")
    return tuple(found)


def _check_own_files(experiment: Experiment, places: Places) -> None:
    """Raise a DatasetError if a file of the user's own data cannot be used. No training record is read."""
    asked = {"dataset.path": experiment.dataset_request()}
    if experiment.search.public is not None:
        asked["search.public.path"] = experiment.public_request()
    for key, request in asked.items():
        if request.path is not None and Path(request.path).exists():
            with places.at(key):
                info(request)
