"""Start and resume of a sweep: its folder, its entry in the ledger, and the function that runs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data import as_it_is, check_present, info
from trainables.wall import logging_to
from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, SweepInterrupted
from tuner.experiment import load_experiment
from tuner.files import write_json
from tuner.plan.plan import plan_from
from tuner.privacy.ledger.amounts import amounts
from tuner.privacy.modes import COMPOSITION, RELEASE, SELECTION, VOTES
from tuner.runner.composition import run_open
from tuner.runner.proxy import check_proxy, run_proxy
from tuner.runner.release import run_on_release
from tuner.runner.run import RunOptions, RunResult, check_machines
from tuner.runner.selection import run_sealed
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.identity import admit_open_use
from tuner.sweep.preflight import ReadySearch, check_startable
from tuner.sweep.registration import enter, open_ledger, return_to
from tuner.sweep.releases import draw_unprotected, has_release, take_release
from tuner.sweep.sealed import read_winner
from tuner.sweep.settings import check_same, located
from tuner.sweep.status import resume_command
from tuner.sweep.sweep_files import resolved, write_new_sweep, write_resumed_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.experiment import Experiment
    from tuner.privacy.ledger.ledger import Ledger

__all__ = ["RUNNERS", "continue_sweep", "ready_to_resume", "start_sweep"]

RUNNERS: Mapping[str, Callable[[SweepFolder, ReadySearch, Ledger | None, RunOptions], RunResult]] = {
    COMPOSITION.name: run_open,
    SELECTION.name: run_sealed,
    RELEASE.name: run_on_release,
    VOTES.name: run_on_release,
}
"""Functions that run a sweep, by the name of its mode. `tuner.runner.public` runs the two sweeps of public mode."""


def start_sweep(
    prepared: ReadySearch, options: RunOptions, *, sweep_id: str = "", public_search: Mapping[str, object] | None = None
) -> tuple[SweepFolder, RunResult]:
    """Create the sweep's folder and its entry in the ledger, then run the sweep.

    For the charged run of a public search, `sweep_id` is the run's stored id, and `public_search` contains facts about
    the public search. A search with a public proxy searches the public records first, and enters the ledger after it.

    Raises:
        BudgetRefusedError: the search does not fit the data set's cap, or the ledger does not admit the records for a
            search that is not private. The folder is removed, unless it has a public proxy's search.
        LedgerCorruptError: a data set is damaged. The folder of a search that is not private is removed.
    """
    prepared = resolved(prepared)
    experiment, mode = prepared.experiment, prepared.plan.mode
    # The charged run of a public search may start in a resume, which makes no ledger.
    ledger = open_ledger(prepared, create=public_search is None, say=options.say)
    storage = Path(experiment.storage)
    sweep_id = sweep_id or sweeps.new_sweep_id(storage, experiment.name, mode=mode)
    check_proxy(SweepFolder(storage / sweep_id), prepared, options)
    sweep = sweeps.create_as(storage, sweep_id, mode=mode)
    with sweeps.hold(sweep), _resumable(sweep), logging_to(sweep.operator_log):
        try:
            if public_search is not None:
                write_json(sweep.public_search, public_search)
            write_new_sweep(sweep, prepared)
            stopped = run_proxy(sweep, prepared, options)
            if stopped is not None:
                return sweep, stopped
            if ledger is None:
                admit_open_use(experiment.ledger, prepared.request).require(
                    sweep.id, void=options.void_total, say=options.say
                )
                if mode.on_release:
                    draw_unprotected(sweep, prepared)
            elif mode.on_release:
                taken = take_release(ledger, sweep, prepared)
                plan = prepared.plan
                cost = f"charged {amounts(plan.epsilon, plan.delta)} for" if taken.new else "no charge: using"
                options.say(f"{cost} the release {taken.search}")
            else:
                enter(ledger, sweep, prepared)
        except (BudgetRefusedError, LedgerCorruptError) as error:
            if sweep.proxy.whole:
                options.say(f"The public search is kept. To charge the search later, use: {resume_command(sweep)}")
            elif ledger is None or isinstance(error, BudgetRefusedError):  # else the entry may have been written
                shutil.rmtree(sweep.root)
            raise
        return sweep, _run(sweep, prepared, ledger, options)


def continue_sweep(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> RunResult:
    """Resume a sweep with its stored noise, data and cap. Raise an InputError if the user changed one of these."""
    with sweeps.hold(sweep), _resumable(sweep), logging_to(sweep.operator_log):
        prepared = ready_to_resume(sweep, wanted, options)
        stopped = _resume_proxy(sweep, prepared, options)
        if stopped is not None:
            return stopped
        ledger = return_to(sweep, prepared, reopen=read_winner(sweep) is None)
        write_resumed_sweep(sweep, prepared)
        options.say(f"resuming {sweep.id}")
        return _run(sweep, prepared, ledger, options)


@contextmanager
def _resumable(sweep: SweepFolder) -> Iterator[None]:
    """Say how to resume after a Ctrl-C while the sweep is opened or closed."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not sweep.whole:
            raise
        go_on = f"Resume with: {resume_command(sweep)}"
        if sweep.mode.on_release and not has_release(sweep):
            go_on = "Start the search again. It uses the release if this was stored."
        raise SweepInterrupted("interrupted", f"interrupted; all charges remain. {go_on}") from error


def _resume_proxy(sweep: SweepFolder, prepared: ReadySearch, options: RunOptions) -> RunResult | None:
    """Resume the public search of a search that was left before its first charge, as `run_proxy` does."""
    if not prepared.experiment.has_proxy or sweep.proxy_search.exists():
        return None
    check_proxy(sweep, prepared, options)
    write_resumed_sweep(sweep, prepared)
    return run_proxy(sweep, prepared, options)


def ready_to_resume(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> ReadySearch:
    """Return a stored search with the user's new settings. Raise an InputError if the user changed a fixed setting."""
    stored = load_experiment(sweep.experiment)
    check_same(stored, wanted)
    if stored.mode.runs_hidden and wanted.search.trials != stored.search.trials:
        raise InputError(
            "resume-changes-setting",
            "`search.trials` of a sealed search cannot change, because the random number of runs was already "
            f"drawn with mean {stored.search.trials} (got {wanted.search.trials}). Start a new sweep, "
            "which is charged in addition.",
        )
    if stored.search.commit is not None and wanted.search.trials != stored.search.trials:
        _require_uncommitted(sweep)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=wanted.search.trials)
    experiment = located(wanted.with_noise(plan.nominal.noise_multiplier))
    request = experiment.dataset_request(options.data_dir or sweep.data_dir)
    check_present(request)
    request = as_it_is(request)
    about = info(request)
    prepared = ReadySearch(path=sweep.experiment, experiment=experiment, request=request, about=about, plan=plan)
    check_startable(prepared)
    check_machines(prepared, options)
    return prepared


def _require_uncommitted(sweep: SweepFolder) -> None:
    """Raise an InputError if the committed run has started. Then no further trial can change its configuration."""
    from tuner.study.storage import stored_charges

    if any(trial.committed for trial in stored_charges(sweep.work, sweep.id)):
        raise InputError(
            "resume-changes-setting",
            f"`search.trials` of {sweep.id} cannot change, because its committed run has started. Start a new sweep, "
            "which is charged in addition.",
        )


def _run(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger | None, options: RunOptions) -> RunResult:
    return RUNNERS[prepared.plan.accounting](sweep, prepared, ledger, options)
