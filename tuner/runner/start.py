"""Start and resumption of a sweep: its folder, its entry in the ledger, and the mode that runs it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tuner
from tuner.errors import BudgetRefusedError, InputError
from tuner.experiment import load_experiment
from tuner.files import write_json, write_text
from tuner.plan.plan import plan_from
from tuner.privacy.modes import COMPOSITION, SELECTION
from tuner.runner.composition import run_open
from tuner.runner.options import RunOptions, RunResult
from tuner.runner.selection import run_sealed
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.preflight import ReadySearch, check_startable, prepare_again
from tuner.sweep.registration import enter, open_ledger, return_to
from tuner.sweep.resume import check_same, located
from tuner.sweep.sealed import read_winner
from tuner.sweep.status import SweepState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.experiment import Experiment
    from tuner.privacy.ledger.ledger import Ledger

__all__ = [
    "RUNNERS",
    "continue_sweep",
    "ready_to_resume",
    "resolved",
    "start_sweep",
    "write_new_sweep",
    "write_resumed_sweep",
]

RUNNERS: Mapping[str, Callable[[SweepFolder, ReadySearch, Ledger | None, RunOptions], RunResult]] = {
    COMPOSITION.name: run_open,
    SELECTION.name: run_sealed,
}
"""The function that runs a sweep, by the mode of its plan. A search of public mode is two sweeps (`public`)."""


def resolved(prepared: ReadySearch) -> ReadySearch:
    """Return the search with its noise as a number and absolute paths, so that it can be resumed from any folder."""
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


def start_sweep(
    prepared: ReadySearch, options: RunOptions, *, sweep_id: str = "", public_search: Mapping[str, object] | None = None
) -> tuple[SweepFolder, RunResult]:
    """Create the sweep's folder and its entry in the ledger, then run it.

    Args:
        prepared: the search.
        options: options of this run.
        sweep_id: id of the sweep; a new one when empty.
        public_search: facts about the public search that chose the configuration; None for every other sweep.

    Raises:
        BudgetRefusedError: the search does not fit the data set's cap; its folder is removed.
    """
    prepared = resolved(prepared)
    experiment, mode = prepared.experiment, prepared.plan.mode
    ledger = open_ledger(prepared)
    sweep = sweeps.create_as(
        Path(experiment.storage), sweep_id or sweeps.new_sweep_id(experiment.name, mode=mode), mode=mode
    )
    with sweeps.hold(sweep):
        try:
            if public_search is not None:
                write_json(sweep.public_search, public_search)
            write_new_sweep(sweep, prepared)
            if ledger is not None:
                enter(ledger, sweep, prepared)
        except BudgetRefusedError:
            shutil.rmtree(sweep.root)
            raise
        return sweep, _run(sweep, prepared, ledger, options)


def continue_sweep(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> RunResult:
    """Resume a sweep with its own noise, data and cap.

    Raises:
        InputError: a setting was changed that must stay.
    """
    sweep.require_whole()
    with sweeps.hold(sweep):
        prepared = ready_to_resume(sweep, wanted, options)
        ledger = return_to(sweep, prepared, reopen=read_winner(sweep) is None)
        write_resumed_sweep(sweep, prepared)
        options.say(f"resuming {sweep.id}")
        return _run(sweep, prepared, ledger, options)


def ready_to_resume(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> ReadySearch:
    """Check that a sweep may be resumed with these settings, and return it ready to run. Nothing is written.

    Raises:
        InputError: a setting was changed that must stay.
    """
    stored = load_experiment(sweep.experiment)
    check_same(stored, wanted)
    if stored.mode.runs_hidden and wanted.search.trials != stored.search.trials:
        raise InputError(
            "resume-changes-setting",
            "`search.trials` of a sealed search cannot be changed: its number of runs was drawn for "
            f"{stored.search.trials} (got {wanted.search.trials}). Start a new sweep; it is charged in addition.",
        )
    plan = plan_from(sweeps.read_json(sweep.plan), trials=wanted.search.trials)
    experiment = located(wanted.with_noise(plan.nominal.noise_multiplier))
    prepared = prepare_again(sweep.experiment, experiment, plan, data_dir=options.data_dir or sweep.data_dir)
    check_startable(prepared)
    return prepared


def write_resumed_sweep(sweep: SweepFolder, prepared: ReadySearch) -> None:
    """Write what may have changed since the sweep started, and remove a request to stop."""
    write_text(sweep.experiment, prepared.experiment.to_yaml())
    write_json(sweep.plan, prepared.plan.as_dict())
    sweep.stop_request.unlink(missing_ok=True)


def _run(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger | None, options: RunOptions) -> RunResult:
    return RUNNERS[prepared.plan.accounting](sweep, prepared, ledger, options)
