"""The only place where everything is wired together: file, plan, ledger, study, executor, records and view."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

import tuner
from tuner import sweeps
from tuner.checking import check_startable
from tuner.entering import STARTING, enter, leave, open_ledger, return_to
from tuner.errors import BudgetRefusedError, InputError, SweepInterrupted, TrackingError, TunerError
from tuner.experiment import load
from tuner.plan import plan_from
from tuner.planning import ledger_state, split_warnings
from tuner.prepare import Prepared, prepare, prepare_again, training_spec
from tuner.presenting import plan_text, resume_command, storage_option, sweep_report
from tuner.report.text import console, summary
from tuner.report.text import plan as plan_panel
from tuner.resuming import check_same, located
from tuner.search.types import NullObserver, Stop, StopReason, Suggestion, TrialState, TrialView
from tuner.settings import file_values
from tuner.study import open_sweep_study
from tuner.sweeps import SweepFolder

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.privacy.budget import SearchBudget
    from tuner.privacy.ledger import Ledger
    from tuner.search.driver import StudyDriver
    from tuner.tracking.recorder import SweepInfo
    from tuner.tracking.sender import SendStatus

__all__ = ["RunOptions", "export_command", "resume_sweep", "run_file", "train_file"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a sweep is run here and now; no part of what it is.

    Attributes:
        data_dir: folder with the data sets.
        local: in this process, without Ray.
        address: of a running Ray cluster.
        quiet: plain lines, only those that matter.
        as_json: one JSON object at the end, nothing else on standard output.
        summary: whether the end of the sweep is told at all.
    """

    data_dir: str | None = None
    local: bool = False
    address: str | None = None
    quiet: bool = False
    as_json: bool = False
    summary: bool = True

    def say(self, text: str) -> None:
        """Tell the user, unless a program is reading."""
        if not self.as_json:
            click.echo(text)


def run_file(
    file: str, overrides: Sequence[str], options: RunOptions, *, resume: bool = False, dry_run: bool = False
) -> int:
    """`tune run`: returns the exit code."""
    if resume and dry_run:
        raise InputError("--dry-run shows what would be started, got it with --resume. See: tune status")
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    if resume:
        sweep = sweeps.find(_storage(prepared.experiment), prepared.experiment.name)
        return _go_on(sweep, prepared.experiment, options)
    check_startable(prepared)
    _show_plan(prepared, options)
    if dry_run:
        if options.as_json:
            click.echo(json.dumps(prepared.plan.as_dict(), indent=2))
        return 0
    _, code = _start(prepared, options)
    return code


def train_file(file: str, overrides: Sequence[str], options: RunOptions, *, out: Path | None) -> int:
    """`tune train`: one configuration, charged like any run, exported at its end."""
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    searched = prepared.experiment.space.searched
    if searched or prepared.experiment.search.trials != 1:
        raise InputError(
            f"a file to train must hold one configuration, got {prepared.experiment.search.trials} trials"
            f"{' over ' + ', '.join(searched) if searched else ''}. Use `tune run` to search, then `tune export`."
        )
    check_startable(prepared)
    _show_plan(prepared, options)
    sweep, code = _start(prepared, replace(options, summary=not options.as_json))
    return export_command(sweep, out, options) if code == 0 else code


def export_command(sweep: SweepFolder, out: Path | None, options: RunOptions) -> int:
    """`tune export`: the exit code. A tracking server that is down stops no export."""
    from tuner.export import export_sweep, export_text
    from tuner.tracking.replay import attach, replay

    values = export_sweep(sweep, out or Path("exports") / sweep.name, data_dir=options.data_dir or sweep.data_dir)
    files = [Path(file).resolve() for file in values["files"]]
    test = {name: score for name, score in values["scores"].items() if name.startswith("test_")}
    try:
        attach(sweep.root, files, under="export", tags={"exported": "yes"}, metrics=test)
        values["tracking"] = str(replay(sweep.root))
    except TrackingError as error:
        values["tracking"] = f"not sent ({error}); later: tune sync {sweep.id}"
    click.echo(json.dumps(values, indent=2)) if options.as_json else click.echo(export_text(values))
    return 0


def resume_sweep(sweep: SweepFolder, overrides: Sequence[str], options: RunOptions) -> int:
    """`tune resume`: returns the exit code."""
    sweep.require_whole()
    return _go_on(sweep, load(sweep.experiment, overrides), options)


def _show_plan(prepared: Prepared, options: RunOptions) -> None:
    if not options.as_json:
        dataset = ledger_state(prepared)
        words = plan_text(
            prepared.plan,
            source=prepared.source,
            dataset=dataset,
            warnings=(*prepared.experiment.warnings(), *split_warnings(prepared, dataset)),
        )
        console().print(plan_panel(words))


def _storage(experiment: Experiment) -> Path:
    return Path(experiment.storage)


def _start(prepared: Prepared, options: RunOptions) -> tuple[SweepFolder, int]:
    """Make the sweep's folder and its entry in the ledger, then run it."""
    experiment, plan = located(prepared.experiment.with_noise(prepared.plan.noise_multiplier)), prepared.plan
    prepared = replace(prepared, experiment=experiment)
    ledger = open_ledger(prepared)
    sweep = sweeps.create(_storage(experiment), experiment.name)
    with sweeps.hold(sweep):
        try:
            sweep.write_status(
                state=STARTING,
                file=str(prepared.path),
                version=tuner.__version__,
                pid=os.getpid(),
                data_dir=prepared.request.data_dir,
            )
            sweeps.write_text(sweep.experiment, experiment.to_yaml())
            sweeps.write_json(sweep.plan, plan.as_dict())
            if ledger is not None:
                enter(ledger, sweep, prepared)
        except BudgetRefusedError:
            shutil.rmtree(sweep.root)
            raise
        return sweep, _run(sweep, prepared, ledger, options)


def _go_on(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> int:
    """Continue a sweep with its own noise, data and cap."""
    sweep.require_whole()
    with sweeps.hold(sweep):
        check_same(load(sweep.experiment), wanted)
        plan = plan_from(sweeps.read_json(sweep.plan), trials=wanted.search.trials)
        experiment = located(wanted.with_noise(plan.noise_multiplier))
        prepared = prepare_again(sweep.experiment, experiment, plan, data_dir=options.data_dir or sweep.data_dir)
        check_startable(prepared)
        ledger = return_to(sweep, prepared)
        sweeps.write_text(sweep.experiment, experiment.to_yaml())
        sweeps.write_json(sweep.plan, plan.as_dict())
        sweep.stop_request.unlink(missing_ok=True)
        options.say(f"going on with {sweep.id}")
        return _run(sweep, prepared, ledger, options)


class _Control(NullObserver):
    """Lets `tune stop` reach the driver: its request is a file in the sweep's folder."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self.driver: StudyDriver | None = None

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Look for a request."""
        self._look()

    def trial_finished(self, trial: TrialView) -> None:
        """Look for a request."""
        self._look()

    def _look(self) -> None:
        if self.driver is not None and self._sweep.stop_request.exists():
            self.driver.stop("asked by `tune stop`")


def _run(sweep: SweepFolder, prepared: Prepared, ledger: Ledger | None, options: RunOptions) -> int:
    from tuner.privacy.budget import SearchBudget
    from tuner.report.live import LiveView
    from tuner.search.driver import StudyDriver
    from tuner.search.views import read_trials
    from tuner.tracking.recorder import MLflowRecorder

    experiment, plan, metric = prepared.experiment, prepared.plan, prepared.experiment.search.metric
    budget = SearchBudget(ledger, sweep.id) if ledger is not None else None
    control = _Control(sweep)
    sweep.write_status(state="running", pid=os.getpid(), started=time.time())
    state, detail = "failed", ""
    try:
        study = open_sweep_study(sweep, experiment, plan)
        earlier = read_trials(study, mode=metric.mode, steps_planned=plan.steps_per_trial)
        with ExitStack() as stack:
            recorder = stack.enter_context(
                MLflowRecorder(
                    sweep.root,
                    _sweep_info(sweep, prepared),
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
                    searched=plan.free,
                    earlier=earlier,
                    note=lambda: f"MLflow: {recorder.status()}",
                    console=console(quiet=True) if options.as_json else None,
                    quiet=options.quiet,
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
    return _conclude(sweep, prepared, ledger, options, study=study, stop=stop, sent=recorder.status())


def _execute(
    driver: StudyDriver, sweep: SweepFolder, prepared: Prepared, budget: SearchBudget | None, options: RunOptions
) -> Stop:
    from tuner.execution.common import Charge, NoCharge

    experiment, request, plan, resources = (
        prepared.experiment,
        prepared.request,
        prepared.plan,
        prepared.experiment.resources,
    )

    def spec_for(suggestion: Suggestion) -> object:
        return training_spec(
            experiment, request, plan, parameters=dict(suggestion.parameters), number=suggestion.number
        )

    def charge_for(trial_id: str) -> Charge:
        return NoCharge() if budget is None else budget.charge_for(trial_id)

    if options.local:
        from tuner.execution import local

        return local.run(driver, spec_for, charge_for, folder=sweep.root)
    from tuner.execution import ray_runner

    return ray_runner.run(
        driver,
        spec_for,
        charge_for,
        folder=sweep.root,
        concurrent_trials=resources.concurrent_trials,
        cpus_per_trial=resources.cpus_per_trial,
        gpus_per_trial=resources.gpus_per_trial,
        address=options.address,
    )


def _sweep_info(sweep: SweepFolder, prepared: Prepared) -> SweepInfo:
    from tuner.tracking.recorder import SweepInfo
    from tuner.tracking.store import absolute_uri

    experiment, about = prepared.experiment, prepared.about
    tags = {"code_version": tuner.__version__, "dataset": about.name, "method": experiment.trainable.method}
    if about.content_sha256:  # a published data set; the checksum of private records would tell who is among them
        tags["dataset_checksum"] = about.content_sha256
    return SweepInfo(
        id=sweep.id,
        uri=absolute_uri(experiment.tracking.uri),
        experiment=experiment.tracking.experiment or experiment.name,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        settings=file_values(experiment),
        tags=tags,
    )


def _conclude(
    sweep: SweepFolder,
    prepared: Prepared,
    ledger: Ledger | None,
    options: RunOptions,
    *,
    study: Study,
    stop: Stop,
    sent: SendStatus,
) -> int:
    """Say how it ended; the exit code."""
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
    )
    if options.as_json and options.summary:
        values = asdict(report)
        values |= {"folder": str(sweep.root), "plan": plan.as_dict(), "tracking": asdict(sent)}
        values["best"] = None if report.best is None else asdict(report.best)
        values["claim"] = {"epsilon": plan.epsilon, "delta": plan.delta} if plan.private else None
        values = {key: value for key, value in values.items() if key not in {"card", "experiment", "facts"}}
        click.echo(json.dumps(values, indent=2))
    elif options.summary:
        console().print(summary(report))
        if not sent.complete:
            options.say(f"MLflow: {sent}. Send the rest later: tune sync {sweep.name}{storage_option(sweep)}")
    if any(trial.state in {TrialState.COMPLETE, TrialState.PRUNED} for trial in trials):
        return 0
    return BudgetRefusedError.exit_code if stop.reason is StopReason.BUDGET and not trials else TunerError.exit_code
