"""A sealed search: run where only the operator looks, and when all of it is over the winner is let out, alone.

Formal guarantee: what is written outside `sealed/`, printed and sent is a function of the winner, of the experiment
file and of the time at which it is let out, which is not hidden. The winner has the (ε, δ) that `privacy.selection` has
for the law of K in the plan (docs/guarantees.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainables.rungs import log_for_operator
from tuner.errors import SweepInterrupted, TrackingError, TunerError
from tuner.privacy.accountant.filters import Sealed
from tuner.report.facts import resume_command, sealed_report, storage_option
from tuner.report.text import console, summary
from tuner.runner.execution import Control, Ended, RunOptions, execute, sweep_info
from tuner.study.types import StopReason, Suggestion, TrialState, TrialView
from tuner.sweep.ready import training_spec
from tuner.sweep.registration import leave
from tuner.sweep.sealed import SealedRuns, Winner, private_files, read_winner, release
from tuner.sweep.sweep_study import open_sweep_study

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.ready import Prepared

__all__ = ["run_sealed"]

_NOTICE = (
    "sealed. Nothing is told while it runs, neither how many runs there are nor how far they are; at the end the "
    "winner alone leaves: its parameters, score, model. Ctrl-C is heeded at the next checkpoint and releases nothing."
)
_ON_A_CLUSTER = "The pages and logs of a Ray cluster show how many runs there are: they are for the operator."


def run_sealed(sweep: SweepFolder, prepared: Prepared, ledger: Ledger, options: RunOptions) -> Ended:
    """Run a sealed sweep, or go on with it, until its winner is released.

    Args:
        sweep: its folder, held by this process.
        prepared: what it trains.
        ledger: in which it is open.
        options: how it is run.

    Raises:
        SweepInterrupted: Ctrl-C or `tune stop`; nothing was released, and it can be gone on with.
        TunerError: it failed; nothing was released, and it can be gone on with when the cause is fixed.
    """
    from tuner.privacy.ledger.search_budget import SearchBudget

    winner = read_winner(sweep) or _search(sweep, prepared, ledger, options)
    leave(ledger, sweep, over=True)
    budget = SearchBudget(ledger, sweep.id).view()
    _forget_the_hour(sweep)  # before anything is copied from here, for copies keep the times
    problem = _track(sweep, prepared, winner)
    sweep.write_status(state=StopReason.DONE.value, detail="", pid=None)
    _forget_the_hour(sweep)
    return _conclude(sweep, prepared, ledger, options, winner=winner, budget=budget, problem=problem)


def _search(sweep: SweepFolder, prepared: Prepared, ledger: Ledger, options: RunOptions) -> Winner:
    metric = prepared.experiment.search.metric
    options.say(f"{sweep.id}: {_NOTICE}{f' {_ON_A_CLUSTER}' if options.address else ''}")
    sweep.write_status(state="running", detail="", pid=os.getpid())
    go_on = f"Go on with: {resume_command(sweep)}{' --local' if options.local else ''}"
    state = "failed"
    try:
        runs = _begin(sweep, prepared, ledger)
        try:
            with private_files(), _unseen(sweep.operator_log):
                trials = _train(sweep, prepared, runs, options) if runs.count else ()
        except (SweepInterrupted, KeyboardInterrupt):
            state = "interrupted"
            raise SweepInterrupted(
                f"interrupted; it stays charged as a whole, and nothing is released. {go_on}"
            ) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, its words may tell of a run, and so of their number
            log_for_operator(sweep.sealed, "none", error)
            raise TunerError(
                f"the sealed search was cut off by {type(error).__name__}; it stays charged as a whole, and nothing is "
                f"released. What happened is in {sweep.operator_log}, for the operator. {go_on}"
            ) from None
        winner = release(sweep, runs, trials, metric=metric.name, mode=metric.mode)
        state = "running"  # until MLflow and the ledger know
        return winner
    finally:
        sweep.write_status(state=state, pid=os.getpid() if state == "running" else None)
        leave(ledger, sweep, over=False)


def _begin(sweep: SweepFolder, prepared: Prepared, ledger: Ledger) -> SealedRuns:
    """The number of runs, drawn before a record is touched, and the charge for all of them."""
    allowance = prepared.plan.training_allowance
    if not isinstance(allowance, Sealed):
        raise TunerError(f"a sealed sweep must have a sealed allowance, got {allowance.kind}. Restore its plan.")
    begun = ledger.search_state(sweep.id).begun
    with private_files():
        runs = SealedRuns.of(sweep, law=allowance.law, at_most=allowance.at_most, begun=begun)
    if not begun:
        ledger.begin_sealed(sweep.id)
    return runs


def _train(sweep: SweepFolder, prepared: Prepared, runs: SealedRuns, options: RunOptions) -> tuple[TrialView, ...]:
    """Make the runs that are not made yet; all of them, ended.

    Raises:
        SweepInterrupted: it was stopped before.
        TunerError: one has not ended.
    """
    from tuner.executors.base import NoCharge
    from tuner.study.driver import StudyDriver
    from tuner.study.views import read_trials

    experiment, plan, metric = prepared.experiment, prepared.plan, prepared.experiment.search.metric
    control = Control(sweep)
    study = open_sweep_study(sweep, experiment, plan)
    control.driver = driver = StudyDriver(
        study,
        experiment.space,
        trials=runs.count,
        steps_per_trial=plan.steps_per_trial,
        rung_steps=plan.rungs,
        metric=metric.name,
        mode=metric.mode,
        observers=(control,),
        max_first_failures=sys.maxsize,  # a run that fails is a run with the worst score, and tells nobody anything
        shape_of=plan.shape_of,
    )

    def spec_for(suggestion: Suggestion) -> object:
        spec = training_spec(
            experiment,
            prepared.request,
            plan,
            parameters=dict(suggestion.parameters),
            number=suggestion.number,
            seed=runs.seed_of(suggestion.trial_id),
        )
        return replace(spec, replay_key=runs.noise_key(suggestion.trial_id))

    stop = execute(
        driver,
        prepared,
        options,
        folder=sweep.sealed,
        spec_for=spec_for,
        charge_for=lambda _trial_id: NoCharge(),  # all of it was charged when it was begun
        sealed=True,
    )
    if stop.reason is not StopReason.DONE:
        raise SweepInterrupted(stop.detail)
    trials = read_trials(study, mode=metric.mode, steps_planned=plan.steps_per_trial)
    if len(trials) != runs.count or any(trial.state is TrialState.RUNNING for trial in trials):
        raise TunerError(f"a winner is chosen among {runs.count} ended runs, got {len(trials)}; please report this")
    return trials


def _track(sweep: SweepFolder, prepared: Prepared, winner: Winner) -> str:
    """Tell MLflow of the winner, for the first time of this sweep at all; why that did not work, or nothing."""
    from tuner.recorder.released_winner import record_winner
    from tuner.recorder.replay import replay

    record_winner(
        sweep.root,
        sweep_info(sweep, prepared),
        parameters=winner.parameters if winner.found else None,
        score=winner.score,
        artifacts=(sweep.experiment, sweep.plan),
        day=_day(sweep),
    )
    try:
        sent = replay(sweep.root)
    except TrackingError as error:
        return str(error)
    return "" if sent.complete else str(sent)


def _conclude(
    sweep: SweepFolder,
    prepared: Prepared,
    ledger: Ledger,
    options: RunOptions,
    *,
    winner: Winner,
    budget: BudgetView,
    problem: str,
) -> Ended:
    plan = prepared.plan
    report = sealed_report(
        sweep,
        prepared.experiment,
        plan,
        state=StopReason.DONE.value,
        winner=winner,
        budget=budget,
        dataset=ledger.dataset_state(prepared.owner),
    )
    if options.summary and not options.as_json:
        console().print(summary(report))
        if problem:
            options.say(f"MLflow: {problem}. Send it later: tune sync {sweep.name}{storage_option(sweep)}")
    values = {
        "name": report.name,
        "sweep": sweep.id,
        "state": report.state,
        "sealed": True,
        "metric": report.metric,
        "mode": report.mode,
        "winner": {"score": winner.score, "parameters": dict(winner.parameters)} if winner.found else None,
        "claim": {"epsilon": plan.epsilon, "delta": plan.delta},
        "plan": plan.as_dict(),
        "folder": str(sweep.root),
        "tracking": {"problem": problem},
        "next_commands": list(report.next_commands),
    }
    return Ended(code=0 if winner.found else TunerError.exit_code, state=report.state, values=values)


def _day(sweep: SweepFolder) -> datetime:
    """The day on which it was opened, at midnight: all that is told of its time."""
    return datetime.strptime(sweep.id[-22:-14], "%Y%m%d").replace(tzinfo=UTC)


def _forget_the_hour(sweep: SweepFolder) -> None:
    """Give what lies outside `sealed/` the day as its time: the hours between would tell how many runs there were."""
    day = _day(sweep).timestamp()
    for path in (*sweep.root.iterdir(), sweep.root):
        os.utime(path, (day, day))


@contextmanager
def _unseen(log: Path) -> Iterator[None]:
    """Whatever a model, a library or a worker prints goes to the operator's log: its lines could be counted."""
    sys.stdout.flush()
    sys.stderr.flush()
    with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as hidden:
        shown = [os.dup(1), os.dup(2)]
        try:
            os.dup2(hidden.fileno(), 1)
            os.dup2(hidden.fileno(), 2)
            with redirect_stdout(hidden), redirect_stderr(hidden):
                yield
        finally:
            hidden.flush()
            for number, kept in zip((1, 2), shown, strict=True):
                os.dup2(kept, number)
                os.close(kept)
