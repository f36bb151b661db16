"""A sweep whose trials may all be seen: driven, recorded and shown as it runs."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tuner.entering import leave
from tuner.errors import BudgetRefusedError, SweepInterrupted, TunerError
from tuner.executing import Control, Ended, RunOptions, execute, sweep_info
from tuner.prepare import training_spec
from tuner.presenting import resume_command, storage_option, sweep_report
from tuner.report.text import console, summary
from tuner.search.types import Stop, StopReason, Suggestion, TrialState
from tuner.study import open_sweep_study

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.prepare import Prepared
    from tuner.privacy.budget import SearchBudget
    from tuner.privacy.ledger import Ledger
    from tuner.search.driver import StudyDriver
    from tuner.sweeps import SweepFolder
    from tuner.tracking.sender import SendStatus

__all__ = ["run_open"]


def run_open(
    sweep: SweepFolder, prepared: Prepared, ledger: Ledger | None, options: RunOptions, *, claim: str = ""
) -> Ended:
    """Run a sweep, or go on with it, until it ends.

    Args:
        sweep: its folder, held by this process.
        prepared: what it trains.
        ledger: in which it is open; None when nothing is charged.
        options: how it is run.
        claim: what is said of the guarantee when nothing is charged; empty when there is none.

    Raises:
        SweepInterrupted: Ctrl-C; it can be gone on with.
        TunerError: it failed; it can be gone on with when the cause is mended.
    """
    from tuner.privacy.budget import SearchBudget
    from tuner.report.live import LiveView
    from tuner.search.driver import StudyDriver
    from tuner.search.views import read_trials
    from tuner.tracking.recorder import MLflowRecorder

    experiment, plan, metric = prepared.experiment, prepared.plan, prepared.experiment.search.metric
    budget = SearchBudget(ledger, sweep.id) if ledger is not None else None
    control = Control(sweep)
    sweep.write_status(state="running", pid=os.getpid(), started=time.time())
    state, detail = "failed", ""
    try:
        study = open_sweep_study(sweep, experiment, plan)
        earlier = read_trials(study, mode=metric.mode, steps_planned=plan.steps_per_trial)
        with ExitStack() as stack:
            recorder = stack.enter_context(
                MLflowRecorder(
                    sweep.root,
                    sweep_info(sweep, prepared, claim=claim),
                    budget_view=budget.view if budget else None,
                    trial_epsilon=budget.trial_epsilon if budget else None,
                    charged_steps=budget.charged_steps if budget else None,
                )
            )
            recorder.artifact(sweep.experiment)
            recorder.artifact(sweep.plan)
            live = stack.enter_context(
                LiveView(
                    name=sweep.id,
                    subtitle=f"{plan.method}, {plan.model} on {plan.dataset}",
                    trials=plan.trials,
                    metric=metric.name,
                    mode=metric.mode,
                    budget_view=budget.view if budget else None,
                    searched=plan.searched,
                    earlier=earlier,
                    note=lambda: f"MLflow: {recorder.status()}",
                    console=console(quiet=True) if options.as_json else None,
                    quiet=options.quiet,
                    claim=claim,
                )
            )
            driver = StudyDriver(
                study,
                experiment.space,
                trials=plan.trials,
                steps_per_trial=plan.steps_per_trial,
                rung_steps=plan.rungs,
                metric=metric.name,
                mode=metric.mode,
                budget=budget,
                observers=(recorder, live, control),
                shape_of=plan.shape_of,
                cheapest=plan.cheapest(),
            )
            control.driver = driver
            stop = _execute(driver, sweep, prepared, budget, options)
            recorder.finish(stop.reason.value, reason=stop.detail)
            state, detail = stop.reason.value, stop.detail
    except (SweepInterrupted, KeyboardInterrupt) as error:
        state = "interrupted"
        raise SweepInterrupted(
            "interrupted; what was charged stays charged, and nothing is lost but the steps since the last report. "
            f"Go on with: {resume_command(sweep)}{' --local' if options.local else ''}"
        ) from error
    except TunerError as error:
        detail = type(error).__name__
        raise
    finally:
        sweep.write_status(state=state, detail=detail, ended=time.time(), pid=None)
        leave(ledger, sweep, over=state not in {"interrupted", "failed"})
    return _conclude(sweep, prepared, ledger, options, study=study, stop=stop, sent=recorder.status(), claim=claim)


def _execute(
    driver: StudyDriver, sweep: SweepFolder, prepared: Prepared, budget: SearchBudget | None, options: RunOptions
) -> Stop:
    from tuner.execution.common import Charge, NoCharge

    def spec_for(suggestion: Suggestion) -> object:
        spec = training_spec(
            prepared.experiment,
            prepared.request,
            prepared.plan,
            parameters=dict(suggestion.parameters),
            number=suggestion.number,
        )
        if budget is not None:
            budget.hold(
                suggestion.trial_id,
                sample_rate=spec.sample_rate,
                noise_multiplier=spec.noise_multiplier,
                score_noise=spec.score_noise,
            )
        return spec

    def charge_for(trial_id: str) -> Charge:
        return NoCharge() if budget is None else budget.charge_for(trial_id)

    return execute(driver, prepared, options, folder=sweep.root, spec_for=spec_for, charge_for=charge_for)


def _conclude(
    sweep: SweepFolder,
    prepared: Prepared,
    ledger: Ledger | None,
    options: RunOptions,
    *,
    study: Study,
    stop: Stop,
    sent: SendStatus,
    claim: str,
) -> Ended:
    """Say how it ended."""
    from tuner.privacy.budget import SearchBudget
    from tuner.search.views import read_trials

    experiment, plan = prepared.experiment, prepared.plan
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    report = sweep_report(
        sweep,
        experiment,
        plan,
        state=stop.reason.value,
        reason=stop.detail,
        trials=trials,
        budget=None if ledger is None else SearchBudget(ledger, sweep.id).view(),
        dataset=None if ledger is None else ledger.dataset_state(prepared.owner),
        claim=claim,
    )
    if claim:  # what comes next is the charged run
        report = replace(report, next_commands=())
    values = asdict(report)
    values |= {"folder": str(sweep.root), "plan": plan.as_dict(), "tracking": asdict(sent)}
    values["best"] = None if report.best is None else asdict(report.best)
    values["claim"] = None if ledger is None else {"epsilon": plan.epsilon, "delta": plan.delta}
    values = {key: value for key, value in values.items() if key not in {"card", "experiment", "facts"}}
    if options.summary and not options.as_json:
        console().print(summary(report))
        if not sent.complete:
            options.say(f"MLflow: {sent}. Send the rest later: tune sync {sweep.name}{storage_option(sweep)}")
    code = 0
    if not any(trial.state in {TrialState.COMPLETE, TrialState.PRUNED} for trial in trials):
        refused = stop.reason is StopReason.BUDGET and not trials
        code = BudgetRefusedError.exit_code if refused else TunerError.exit_code
    return Ended(code=code, state=stop.reason.value, values=values)
