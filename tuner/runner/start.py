"""How a sweep is begun and how it is gone on with: its folder, its entry in the ledger, and who then runs it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tuner
from tuner.errors import BudgetRefusedError, InputError, TunerError
from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.runner.composition import run_open
from tuner.runner.execution import Ended, RunOptions
from tuner.runner.selection import run_sealed
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.preflight import check_startable
from tuner.sweep.ready import Prepared, prepare_again
from tuner.sweep.registration import STARTING, enter, open_ledger, return_to
from tuner.sweep.resume import check_same, located
from tuner.sweep.sealed import read_winner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.experiment import Experiment
    from tuner.privacy.ledger.ledger import Ledger

__all__ = ["go_on", "make", "make_again", "pick_up", "settle", "start"]


def settle(prepared: Prepared) -> Prepared:
    """The search with its noise as a number and its paths absolute: as it is stored, and gone on with from anywhere."""
    return replace(prepared, experiment=located(prepared.experiment.with_noise(prepared.plan.nominal.noise_multiplier)))


def make(sweep: SweepFolder, prepared: Prepared) -> None:
    """Write what a sweep is into its new folder."""
    sweep.write_status(
        state=STARTING,
        file=str(prepared.path),
        version=tuner.__version__,
        pid=os.getpid(),
        data_dir=prepared.request.data_dir,
    )
    sweeps.write_text(sweep.experiment, prepared.experiment.to_yaml())
    sweeps.write_json(sweep.plan, prepared.plan.as_dict())


def start(
    prepared: Prepared, options: RunOptions, *, sweep_id: str = "", public_search: Mapping[str, object] | None = None
) -> tuple[SweepFolder, Ended]:
    """Make the sweep's folder and its entry in the ledger, then run it.

    Args:
        prepared: what is searched.
        options: how it is run.
        sweep_id: of the sweep; a new one when empty.
        public_search: the search on public records that chose its one configuration; None for every other sweep.

    Raises:
        BudgetRefusedError: it does not fit the data set's cap; its folder is removed.
    """
    prepared = settle(prepared)
    experiment, sealed = prepared.experiment, prepared.plan.accounting == "selection"
    ledger = open_ledger(prepared)
    sweep = sweeps.create_as(
        Path(experiment.storage), sweep_id or sweeps.new_id(experiment.name, sealed=sealed), sealed=sealed
    )
    with sweeps.hold(sweep):
        try:
            if public_search is not None:
                sweeps.write_json(sweep.public_search, public_search)
            make(sweep, prepared)
            if ledger is not None:
                enter(ledger, sweep, prepared)
        except BudgetRefusedError:
            shutil.rmtree(sweep.root)
            raise
        return sweep, _run(sweep, prepared, ledger, options)


def go_on(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> Ended:
    """Continue a sweep with its own noise, data and cap.

    Raises:
        InputError: it must not be changed as is asked.
    """
    sweep.require_whole()
    with sweeps.hold(sweep):
        prepared = pick_up(sweep, wanted, options)
        ledger = return_to(sweep, prepared, reopen=read_winner(sweep) is None)
        make_again(sweep, prepared)
        options.say(f"going on with {sweep.id}")
        return _run(sweep, prepared, ledger, options)


def pick_up(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> Prepared:
    """A sweep that was begun, as it may be gone on with. Nothing is written.

    Raises:
        InputError: it must not be changed as is asked.
    """
    stored = load_experiment(sweep.experiment)
    check_same(stored, wanted)
    if stored.privacy.accounting == "selection" and wanted.search.trials != stored.search.trials:
        raise InputError(
            f"a sealed search goes on with the runs that it drew, got search.trials {wanted.search.trials} where the "
            f"law was set for {stored.search.trials}. Start a new sweep; it is charged beside this one."
        )
    plan = plan_from(sweeps.read_json(sweep.plan), trials=wanted.search.trials)
    experiment = located(wanted.with_noise(plan.nominal.noise_multiplier))
    prepared = prepare_again(sweep.experiment, experiment, plan, data_dir=options.data_dir or sweep.data_dir)
    check_startable(prepared)
    return prepared


def make_again(sweep: SweepFolder, prepared: Prepared) -> None:
    """Write down what may have changed since the sweep was begun, and forget that it was asked to stop."""
    sweeps.write_text(sweep.experiment, prepared.experiment.to_yaml())
    sweeps.write_json(sweep.plan, prepared.plan.as_dict())
    sweep.stop_request.unlink(missing_ok=True)


def _run(sweep: SweepFolder, prepared: Prepared, ledger: Ledger | None, options: RunOptions) -> Ended:
    if prepared.plan.accounting != "selection":
        return run_open(sweep, prepared, ledger, options)
    if ledger is None:
        raise TunerError(f"a sealed sweep must be private, got {sweep.id} which is not. Restore its files.")
    return run_sealed(sweep, prepared, ledger, options)
