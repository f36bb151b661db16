"""Composition mode: run an open sweep, record its trials in MLflow, and show them live."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from trainables.rungs import checkpoint_path, checkpoint_step, intact_checkpoint
from trainables.spec import spec_fingerprint
from tuner.errors import BudgetRefusedError, SweepInterrupted, TunerError
from tuner.privacy.card.claims import PUBLIC_SEARCH
from tuner.report.curve_watch import CurveWatch, curves_of_sweep
from tuner.report.facts import claim_headline, sweep_report, unique_name
from tuner.report.losses import LossLines
from tuner.report.text import console, summary, view_console
from tuner.report.trial_row import TrialRow
from tuner.report.wording import plural
from tuner.runner.run import RunOptions, RunResult, run_trials, sweep_info
from tuner.study.types import Stop, StopReason, Suggestion, TrialStatus, TrialView
from tuner.study.views import read_trials
from tuner.sweep.identity import admit_open_use
from tuner.sweep.ledger_head import HeadWatch
from tuner.sweep.registration import leave
from tuner.sweep.status import RESUMABLE, SweepState, resume_command
from tuner.sweep.sweep_study import open_sweep_study
from tuner.sweep.trial_spec import on_release, training_spec
from tuner.sweep.winner import Chosen, choose_winner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from optuna.study import Study

    from trainables.spec import TrainingSpec
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.privacy.ledger.state import DatasetState
    from tuner.recorder.sender import SendStatus
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch
    from tuner.sweep.releases import StoredRelease

__all__ = ["run_open"]

# Errors whose messages depend on no record, because they were made for analysts.
_FOR_ANALYSTS = ("trial-lost", "first-trials-failed", "all-trials-failed")

# Fields of the report that `--json` does not print.
_FOR_PAGES = {"accounting", "card", "card_picture", "domains", "experiment", "facts", "spending", "why"}


def run_open(
    sweep: SweepFolder,
    prepared: ReadySearch,
    ledger: Ledger | None,
    options: RunOptions,
    *,
    claim: str = "",
    release: StoredRelease | None = None,
    of_ledger: Ledger | None = None,
    admit: Callable[[], None] | None = None,
) -> RunResult:
    """Run or resume a sweep until it ends. This process must hold the lock of the sweep's folder.

    The ledger must already list the search as open. If `ledger` is None, nothing is charged, and `claim` is a sentence
    about the sweep's guarantee. With a `release`, which was charged in `of_ledger`, the trials train on it. Before each
    trial that is neither charged nor trained on a release, `admit` asks the ledger whether it still admits the records,
    by default as those of a search without privacy.

    Raises:
        BudgetRefusedError: meanwhile, another search has made the records private.
        SweepInterrupted: Ctrl-C was pressed. The sweep can be resumed.
        TunerError: the sweep failed. It can be resumed after the cause is fixed.
    """
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.recorder.recorder import MLflowRecorder
    from tuner.report.live import LiveView

    experiment, plan, metric = prepared.experiment, prepared.plan, prepared.experiment.search.metric
    budget = SearchBudget(ledger, sweep.id) if ledger is not None else None

    def not_private() -> None:
        admit_open_use(experiment.ledger, prepared.request).require(sweep.id, void=None)

    sweep.write_status(state=SweepState.RUNNING, pid=os.getpid(), started=time.time(), place=options.place)
    state, detail = SweepState.FAILED.value, ""
    study: Study | None = None
    try:
        study = open_sweep_study(sweep, experiment, plan)
        earlier = _trials(study, prepared)
        paused = [trial.id for trial in earlier if trial.state is TrialStatus.PAUSED]
        with ExitStack() as stack:
            recorder = stack.enter_context(
                MLflowRecorder(sweep.root, sweep_info(sweep, prepared, claim=claim), budget=budget)
            )
            recorder.artifact(sweep.experiment)
            recorder.artifact(sweep.plan)
            curve = stack.enter_context(
                CurveWatch(
                    partial(curves_of_sweep, study, experiment),
                    sweep,
                    metric=metric.name,
                    recorder=recorder,
                    choose=partial(_chosen, study, prepared),
                )
            )
            live = stack.enter_context(
                LiveView(
                    name=sweep.id,
                    subtitle=f"{plan.method}, {plan.model} on {plan.dataset}",
                    trials=plan.trials,
                    metric=metric.name,
                    mode=metric.mode,
                    budget_view=partial(budget.view, live=True) if budget else None,
                    searched=plan.searched,
                    earlier=earlier,
                    note=lambda: f"MLflow: {recorder.status()}",
                    console=console(quiet=True) if options.as_json else stack.enter_context(view_console()),
                    quiet=options.quiet,
                    headline=_headline(prepared, ledger or of_ledger, claim),
                    claim=claim,
                    unit=plan.unit,
                    waiting="" if options.local else "starting Ray …",
                    finding=lambda: curve.line,
                    error=plan.score_error(experiment),
                )
            )
            stop = run_trials(
                sweep,
                study,
                prepared,
                options,
                trials=plan.trials,
                spec_for=partial(_spec, sweep, study, prepared, budget, release=release, admit=admit or not_private),
                budget=budget,
                observers=(
                    *(() if ledger is None else (HeadWatch(sweep, ledger),)),
                    recorder,
                    curve,
                    live,
                    *(() if budget is None else (LossLines(budget, live.say, paused=paused),)),
                ),
            )
            stop = _with_kept_budget(stop, budget)
            recorder.finish(stop.reason.value, reason=stop.detail)
            state, detail = stop.reason.value, stop.detail
    except (SweepInterrupted, KeyboardInterrupt) as error:
        state = SweepState.INTERRUPTED
        raise SweepInterrupted(
            "interrupted",
            f"interrupted; {_what_it_costs(sweep, prepared, study, budget)} Resume with: {resume_command(sweep)}",
        ) from error
    except TunerError as error:
        detail = error.message if error.code in _FOR_ANALYSTS else type(error).__name__
        raise
    finally:
        sweep.write_status(state=state, detail=detail, trials=plan.trials, ended=time.time(), pid=None)
        leave(ledger, sweep, over=state not in RESUMABLE)
    told = ledger or of_ledger
    datasets = () if told is None else told.states_of(prepared.owners)
    return _conclude(
        sweep,
        prepared,
        ledger,
        options,
        study=study,
        stop=stop,
        sent=recorder.status(),
        claim=claim,
        datasets=datasets,
    )


def _headline(prepared: ReadySearch, ledger: Ledger | None, claim: str) -> str:
    if claim and prepared.plan.mode.searches_public:
        return PUBLIC_SEARCH
    datasets = () if ledger is None else ledger.states_of(prepared.owners)
    return claim_headline(prepared.plan, datasets, ledger=prepared.experiment.ledger)


def _trials(study: Study, prepared: ReadySearch) -> tuple[TrialView, ...]:
    mode = prepared.experiment.search.metric.mode
    return read_trials(study, mode=mode, steps_planned=prepared.plan.steps_per_trial)


def _chosen(study: Study, prepared: ReadySearch) -> Chosen | None:
    experiment = prepared.experiment
    return choose_winner(study, _trials(study, prepared), experiment, prepared.plan.score_error(experiment))


def _spec(
    sweep: SweepFolder,
    study: Study,
    prepared: ReadySearch,
    budget: SearchBudget | None,
    suggestion: Suggestion,
    *,
    release: StoredRelease | None,
    admit: Callable[[], None],
) -> TrainingSpec:
    """Return a trial's specification. The ledger must have reserved budget for its mechanism and its score noise."""
    from tuner.privacy.accountant.mechanism import SampledGaussian

    if budget is None and release is None:
        admit()
    spec = training_spec(
        prepared.experiment,
        prepared.request,
        prepared.plan,
        parameters=dict(suggestion.parameters),
        number=suggestion.number,
        committed=suggestion.committed,
    )
    start = _start_of(sweep, prepared, suggestion)
    if start is not None:
        spec = replace(spec, initial=str(start), initial_of=_fingerprint_of(study, prepared, suggestion.source))
    if release is not None:
        return on_release(spec, release)
    if budget is not None:
        budget.check_mechanism(suggestion.trial_id, SampledGaussian(spec.sample_rate, spec.noise_multiplier))
        budget.check_scores(protected=spec.score_noise is not None)
    return spec


def _fingerprint_of(study: Study, prepared: ReadySearch, trial_id: str) -> str:
    """Return the fingerprint of the training of a trial of the search."""
    trial = next(each for each in _trials(study, prepared) if each.id == trial_id)
    parameters, number = dict(trial.parameters), trial.number
    return spec_fingerprint(
        training_spec(prepared.experiment, prepared.request, prepared.plan, parameters=parameters, number=number)
    )


def _start_of(sweep: SweepFolder, prepared: ReadySearch, suggestion: Suggestion) -> Path | None:
    """Return the checkpoint from whose weights a trial starts, or None for the public initialisation.

    With `start: best_trial`, the committed run starts from the best trial's last weights that are intact. They are
    charged.
    """
    commit = prepared.plan.commit
    if not suggestion.committed or commit is None or commit.start == "scratch":
        return None
    if checkpoint_path(sweep.work, suggestion.trial_id) is not None:
        return None  # the run continues from its own checkpoint
    found = intact_checkpoint(sweep.work, suggestion.source)
    if found is None:
        raise TunerError(
            "checkpoint-missing",
            f"The committed run starts from the weights of trial {suggestion.source}, whose checkpoint is missing in "
            f"{sweep.work}. Restore the checkpoint from a copy, then resume the sweep.",
        )
    return found


def _what_it_costs(sweep: SweepFolder, prepared: ReadySearch, study: Study | None, budget: SearchBudget | None) -> str:
    """Describe what a resume costs. It repeats and recharges all steps and scores after a trial's last checkpoint."""
    if budget is None:
        return "nothing is charged; a resume continues the trials from their last checkpoints."
    if study is None:
        return "all charges remain."
    try:
        return f"all charges remain. {_paid_again(sweep, prepared, study, budget)}"
    except TunerError:  # the ledger does not answer, but the message about the interruption must be shown
        return "all charges remain, and a resume charges the steps after a trial's last checkpoint again."


def _paid_again(sweep: SweepFolder, prepared: ReadySearch, study: Study, budget: SearchBudget) -> str:
    plan = prepared.plan
    promised, more, scores, earlier = budget.outstanding(), 0, 0, 0
    for trial in _trials(study, prepared):
        if trial.state is not TrialStatus.RUNNING or trial.id not in promised:
            continue
        checkpoint = intact_checkpoint(sweep.root, trial.id)
        held = 0 if checkpoint is None else checkpoint_step(checkpoint)
        shape, kept = plan.shape_of(trial.parameters, committed=trial.committed), promised[trial.id]
        rest = shape.remaining(held)
        if trial.committed:
            earlier = max(rest.steps - kept.steps, 0)
            continue
        if trial.reserved_until:  # its reservation ends at its next pause
            rest = shape.between(held, trial.reserved_until, again=held > 0)
        more += max(rest.steps - kept.steps, 0)
        scores += max(rest.releases - kept.releases, 0)
    if earlier:
        are, them = ("is", "it") if earlier == 1 else ("are", "them")
        return (
            f"{plural(earlier, 'charged step')} of the committed run {are} in no checkpoint. A resume charges {them} "
            f"again, so it ends this run {plural(earlier, 'step')} earlier than planned."
        )
    if not more and not scores:
        return "Every charged step is in a checkpoint, so a resume repeats no step."
    view = budget.view()
    needs, left, short = [], [], False
    for number, what, part in ((more, "step", view), (scores, "protected score", view.validation)):
        if number and part is not None:
            needs.append(plural(number, what))
            left.append(plural(part.left_steps, what) if part.left_steps is not None else f"{part.left:.1%}")
            short = short or (part.left_steps is not None and number > part.left_steps)
    repeats = "Every charged step is in a checkpoint."
    if more:
        repeats = (
            f"{plural(more, 'charged step')} {'is' if more == 1 else 'are'} in no checkpoint, so a resume trains and "
            "charges them again."
        )
    if plan.has_one_trial and view.left_steps is not None and more > view.left_steps:
        return f"{repeats} It ends the trial {plural(more, 'step')} earlier than planned."
    return (
        f"{repeats} A resume takes {' and '.join(needs)} of the {' and '.join(left)} left for other trials"
        f"{', which is not enough to finish every interrupted trial.' if short else '.'}"
    )


def _with_kept_budget(stop: Stop, budget: SearchBudget | None) -> Stop:
    """Add the unspent budget to the stop's text if the search ended early because it had found the best setting.

    The claim is still the whole cap.
    """
    if stop.reason is not StopReason.FOUND or budget is None:
        return stop
    view = budget.view()
    kept = f"{view.left:.0%} of the budget" if view.left_steps is None else plural(view.left_steps, "step")
    many = "are" if view.left_steps is not None and view.left_steps != 1 else "is"
    spent = f"estimate of the ε spent so far: {view.epsilon_spent:.4g} of at most {view.epsilon_cap:g}"
    return replace(stop, detail=f"{stop.detail}; {kept} {many} not spent ({spent})")


def _conclude(
    sweep: SweepFolder,
    prepared: ReadySearch,
    ledger: Ledger | None,
    options: RunOptions,
    *,
    study: Study,
    stop: Stop,
    sent: SendStatus,
    claim: str,
    datasets: Sequence[DatasetState],
) -> RunResult:
    """Print the result of an ended sweep, and return it."""
    from tuner.privacy.ledger.search_budget import SearchBudget

    experiment, plan = prepared.experiment, prepared.plan
    trials, chosen = _trials(study, prepared), _chosen(study, prepared)
    report = sweep_report(
        sweep,
        experiment,
        plan,
        state=stop.reason.value,
        reason=stop.detail,
        trials=[TrialRow.of(trial) for trial in trials],
        budget=None if ledger is None else SearchBudget(ledger, sweep.id).view(),
        datasets=datasets,
        chosen=chosen,
        study=study,
    )
    if (
        claim and plan.mode.searches_public
    ) or not options.next_commands:  # the charged run or the export follows in this command
        report = replace(report, next_commands=())
    values = asdict(report)
    values |= {"folder": str(sweep.root), "plan": plan.as_dict(), "tracking": asdict(sent)}
    values["sealed"] = report.runs_hidden
    values["curves"] = [curve.as_dict() for curve in report.curves]
    values["best"] = None if report.winner is None else asdict(report.winner)
    values["chosen"] = None if chosen is None else chosen.as_dict()
    charged = ledger is not None or (plan.private and plan.mode.on_release)
    values["claim"] = None if not charged else {"epsilon": plan.epsilon, "delta": plan.delta}
    values = {key: value for key, value in values.items() if key not in _FOR_PAGES}
    if not options.as_json:
        console().print(summary(report))
        if not sent.complete:
            options.say(f"MLflow: {sent}. Send the rest later with: {sweep.command('sync', name=unique_name(sweep))}")
    code = 0
    if plan.commit is not None and stop.reason is StopReason.DONE and report.committed is None:
        code = TunerError.exit_code  # nothing is released
    if not any(trial.state in {TrialStatus.COMPLETE, TrialStatus.PRUNED} for trial in trials):
        refused = stop.reason is StopReason.BUDGET and not trials
        code = BudgetRefusedError.exit_code if refused else TunerError.exit_code
    return RunResult(code=code, state=stop.reason.value, values=values)
