"""Sealed search: only the operator can see the runs, and only the winner is released.

Formal guarantee: everything that is printed, uploaded, or written outside `sealed/` is a function of the winner, the
experiment file and the time of the release. The time is not hidden. The winner is (ε, δ)-differentially private, where
`tuner.privacy.accountant.selection` computes (ε, δ) from the plan's distribution of the number of runs
(docs/guarantees.md).
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainables.wall import log_traceback, output_to
from tuner.errors import SweepInterrupted, TrackingError, TunerError
from tuner.report.facts import sealed_report
from tuner.report.text import console, summary
from tuner.runner.run import RunOptions, RunResult, run_trials, sweep_info
from tuner.study.types import StopReason, Suggestion, TrialStatus, TrialView
from tuner.sweep.ledger_head import remember_head
from tuner.sweep.registration import leave
from tuner.sweep.sealed import SealedRuns, SealedWinner, private_files, read_winner, release
from tuner.sweep.status import SweepState, resume_command
from tuner.sweep.sweep_study import open_sweep_study
from tuner.sweep.trial_spec import training_spec

if TYPE_CHECKING:
    from trainables.spec import TrainingSpec
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["run_sealed"]

_NOTICE = (
    "this search is sealed. Neither the number of runs nor their progress is shown. At the end, only the winner is "
    "released: its parameters, score and model. Ctrl-C takes effect at the next checkpoint and releases nothing."
)
_ON_A_CLUSTER = "The pages and logs of a Ray cluster show the number of runs, so only the operator may see them."


def run_sealed(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger | None, options: RunOptions) -> RunResult:
    """Run or resume a sealed sweep until its winner is released. This process must hold the folder's lock.

    Raises:
        SweepInterrupted: Ctrl-C or `tune stop` was used. Nothing was released, and the sweep can be resumed.
        TunerError: the sweep failed or has no ledger. Nothing was released. It can be resumed after a fix.
    """
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.recorder.sender_process import end_early

    end_early()  # nothing is sent while the search runs
    if ledger is None:
        raise TunerError(
            "sweep-files-changed",
            f"The plan of the sealed sweep {sweep.id} says that the sweep is not private. Restore its "
            "files from a copy.",
        )
    winner = read_winner(sweep) or _search(sweep, prepared, ledger, options)
    leave(ledger, sweep, over=True)
    budget = SearchBudget(ledger, sweep.id).view()
    _forget_the_hour(sweep)  # before anything is copied, because copies keep the times
    problem = _track(sweep, prepared, winner)
    sweep.write_status(state=StopReason.DONE.value, detail="", pid=None)
    _forget_the_hour(sweep)
    return _conclude(sweep, prepared, ledger, options, winner=winner, budget=budget, problem=problem)


def _search(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger, options: RunOptions) -> SealedWinner:
    options.say(f"{sweep.id}: {_NOTICE}{f' {_ON_A_CLUSTER}' if options.address else ''}")
    sweep.write_status(state=SweepState.RUNNING, detail="", pid=os.getpid(), place=options.place)
    resume = f"Resume with: {resume_command(sweep)}"
    state = SweepState.FAILED
    try:
        runs = _draw_and_charge(sweep, prepared, ledger)
        try:
            with private_files(), output_to(sweep.operator_log):
                trials = _train(sweep, prepared, runs, options) if runs.count else ()
        except SweepInterrupted:
            raise
        except Exception as error:  # noqa: BLE001 - any message may reveal a run, and so their number
            log_traceback(sweep.operator_log, "sealed search", error)
            raise TunerError(
                "sealed-search-failed",
                f"The sealed search failed{_cause(error)}. It stays charged as a whole and nothing is released. "
                f"The operator finds the cause in {sweep.operator_log}. {resume}",
            ) from None
        winner = _release(sweep, prepared, runs, trials)
    except (SweepInterrupted, KeyboardInterrupt):
        state = SweepState.INTERRUPTED
        released = "" if read_winner(sweep) else " and nothing is released"
        raise SweepInterrupted("interrupted", f"interrupted; all charges remain{released}. {resume}") from None
    else:
        state = SweepState.RUNNING  # until MLflow and the ledger have the winner
        return winner
    finally:
        sweep.write_status(state=state, pid=os.getpid() if state == SweepState.RUNNING else None)
        leave(ledger, sweep, over=False)


def _cause(error: Exception) -> str:
    """Return the cause if it is the infrastructure, as one of a few fixed texts, which name no run."""
    if isinstance(error, TunerError) and error.code == "trial-lost":
        return " (the machine, a disk or a worker failed)"
    if isinstance(error, OSError) and error.errno is not None:
        return f" ({os.strerror(error.errno)})"
    return ""


def _draw_and_charge(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger) -> SealedRuns:
    """Draw the random number of runs, and charge all runs, before any record is read."""
    hidden = prepared.plan.training_filter.hidden_runs
    if hidden is None:
        raise TunerError(
            "sweep-files-changed",
            f"The plan of the sealed sweep {sweep.id} has the cap of a search that is not sealed. Restore plan.json "
            "from a copy.",
        )
    law, at_most = hidden
    charged = ledger.search_state(sweep.id)
    with private_files():
        runs = SealedRuns.of(sweep, law=law, at_most=at_most, begun=charged.begun)
    if not charged.begun:
        ledger.begin_sealed(sweep.id, runs.digest)
        remember_head(sweep, ledger)
    elif charged.secrets != runs.digest:
        raise TunerError(
            "ledger-mismatch",
            f"The number or the key of the runs of {sweep.id} changed after the search was charged. Other runs would "
            "be a second search. Restore the sweep's files from a copy.",
        )
    return runs


def _train(sweep: SweepFolder, prepared: ReadySearch, runs: SealedRuns, options: RunOptions) -> tuple[TrialView, ...]:
    """Train the runs that have not ended, and return all runs. Raise SweepInterrupted if the sweep was stopped."""
    from tuner.study.views import place_of, read_trials

    experiment, plan = prepared.experiment, prepared.plan
    study = open_sweep_study(sweep, experiment, plan)
    study.sampler.generator_of = runs.candidates  # type: ignore[union-attr]  # of every sampler of a sealed search

    def spec_for(suggestion: Suggestion) -> object:
        run = place_of(study, suggestion.number)
        return replace(
            _spec(prepared, runs, suggestion, run),
            replay_key=runs.noise_key(run),
            replay_on=str(sweep.sealed / "devices" / f"{suggestion.trial_id}.pt"),
        )

    stop = run_trials(
        sweep,
        study,
        prepared,
        options,
        trials=runs.count,
        spec_for=spec_for,
        budget=None,  # the whole search was charged before its first run
        max_first_failures=None,  # a failed run counts as the worst score and is not reported
        stops_when_lost=True,  # a run that the infrastructure fails is made again from the same key
    )
    if stop.reason is not StopReason.DONE:
        raise SweepInterrupted("interrupted", stop.detail)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    if len(trials) != runs.count or any(trial.state is TrialStatus.RUNNING for trial in trials):
        raise TunerError(
            "internal-error",
            f"The winner needs {runs.count} finished runs, but {len(trials)} were found. Please report this.",
        )
    return trials


def _spec(prepared: ReadySearch, runs: SealedRuns, suggestion: Suggestion, run: int) -> TrainingSpec:
    return training_spec(
        prepared.experiment,
        prepared.request,
        prepared.plan,
        parameters=dict(suggestion.parameters),
        number=suggestion.number,
        seed=runs.seed_of(run),
    )


def _release(
    sweep: SweepFolder, prepared: ReadySearch, runs: SealedRuns, trials: tuple[TrialView, ...]
) -> SealedWinner:
    metric, plan = prepared.experiment.search.metric, prepared.plan

    def spec_of(trial: TrialView, run: int) -> TrainingSpec:
        shape = plan.shape_of(trial.parameters)
        return _spec(prepared, runs, Suggestion(trial.id, trial.number, dict(trial.parameters), shape), run)

    return release(sweep, runs, trials, metric=metric.name, mode=metric.mode, spec_of=spec_of)


def _track(sweep: SweepFolder, prepared: ReadySearch, winner: SealedWinner) -> str:
    """Upload the winner to MLflow. If the upload fails, describe the problem, else return an empty string.

    Before this upload, MLflow receives nothing about the sweep.
    """
    from tuner.recorder.released_winner import record_winner
    from tuner.recorder.sync import send_unsent

    record_winner(
        sweep.root,
        sweep_info(sweep, prepared),
        parameters=winner.parameters if winner.found else None,
        score=winner.score,
        artifacts=(sweep.experiment, sweep.plan),
        day=_day(sweep),
    )
    try:
        sent = send_unsent(sweep.root)
    except TrackingError as error:
        return str(error)
    return "" if sent.complete else str(sent)


def _conclude(
    sweep: SweepFolder,
    prepared: ReadySearch,
    ledger: Ledger,
    options: RunOptions,
    *,
    winner: SealedWinner,
    budget: BudgetView,
    problem: str,
) -> RunResult:
    plan = prepared.plan
    report = sealed_report(
        sweep,
        prepared.experiment,
        plan,
        state=StopReason.DONE.value,
        winner=winner,
        budget=budget,
        datasets=ledger.states_of(prepared.owners),
    )
    if not options.as_json:
        console().print(summary(report))
        if problem:
            options.say(f"MLflow: {problem}. Send it later with: {sweep.command('sync')}")
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
    return RunResult(code=0 if winner.found else TunerError.exit_code, state=report.state, values=values)


def _day(sweep: SweepFolder) -> datetime:
    """Return midnight of the day on which the sweep started. The time of day must not be shown."""
    return datetime.strptime(sweep.id[-22:-14], "%Y%m%d").replace(tzinfo=UTC)


def _forget_the_hour(sweep: SweepFolder) -> None:
    """Set the times of the files outside `sealed/` to midnight. The time of day would reveal the number of runs."""
    day = _day(sweep).timestamp()
    for path in (*sweep.root.iterdir(), sweep.root):
        os.utime(path, (day, day))
