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
from rich.console import Console

import tuner
from trainables.data import fingerprint
from tuner import sweeps
from tuner.errors import BudgetRefusedError, InputError, SweepInterrupted, TrackingError, TunerError
from tuner.experiment import load
from tuner.plan import plan_from
from tuner.planning import ledger_state
from tuner.prepare import Prepared, check_model, prepare, training_spec
from tuner.presenting import plan_text, sweep_report
from tuner.report.text import plan as plan_panel
from tuner.report.text import summary
from tuner.resuming import check_same, file_values
from tuner.search.types import NullObserver, Stop, StopReason, Suggestion, TrialState, TrialView
from tuner.study import open_sweep_study
from tuner.sweeps import SweepFolder

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.privacy.budget import SearchBudget
    from tuner.privacy.ledger import Ledger
    from tuner.search.driver import StudyDriver
    from tuner.tracking.recorder import SweepInfo

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
    """

    data_dir: str | None = None
    local: bool = False
    address: str | None = None
    quiet: bool = False
    as_json: bool = False

    def say(self, text: str) -> None:
        """Tell the user, unless a program is reading."""
        if not self.as_json:
            click.echo(text)


def run_file(
    file: str, overrides: Sequence[str], options: RunOptions, *, resume: bool = False, dry_run: bool = False
) -> int:
    """`tune run`: returns the exit code."""
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    if resume:
        sweep = sweeps.find(_storage(prepared.experiment), prepared.experiment.name)
        return _go_on(sweep, prepared.experiment, options)
    _show_plan(prepared, options)
    check_model(prepared)
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
    _show_plan(prepared, options)
    check_model(prepared)
    sweep, code = _start(prepared, options)
    if code == 0:
        export_command(sweep, out, options)
    return code


def export_command(sweep: SweepFolder, out: Path | None, options: RunOptions) -> int:
    """`tune export`: the exit code. A tracking server that is down stops no export."""
    from tuner.export import export_sweep, export_text
    from tuner.tracking.replay import attach, replay

    values = export_sweep(sweep, out or Path("exports") / sweep.name, data_dir=options.data_dir)
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
    return _go_on(sweep, load(sweep.experiment, overrides), options)


def _show_plan(prepared: Prepared, options: RunOptions) -> None:
    if not options.as_json:
        words = plan_text(
            prepared.plan,
            source=prepared.source,
            dataset=ledger_state(prepared),
            warnings=prepared.experiment.warnings(),
        )
        Console().print(plan_panel(words))


def _storage(experiment: Experiment) -> Path:
    return Path(experiment.storage)


def _open_ledger(url: str) -> Ledger:
    from tuner.privacy.ledger import Ledger

    return Ledger.open(url)


def _start(prepared: Prepared, options: RunOptions) -> tuple[SweepFolder, int]:
    """Make the sweep's folder and its entry in the ledger, then run it."""
    experiment, plan = prepared.experiment, prepared.plan
    ledger = _open_ledger(experiment.ledger) if plan.private else None
    sweep = sweeps.create(_storage(experiment), experiment.name)
    try:
        sweep.experiment.write_text(experiment.with_noise(plan.noise_multiplier).to_yaml())
        sweeps.write_json(sweep.plan, plan.as_dict())
        sweep.write_status(state="starting", file=str(prepared.path), version=tuner.__version__)
        if ledger is not None:
            _enter(ledger, sweep, prepared)
    except BudgetRefusedError:
        shutil.rmtree(sweep.root)
        raise
    return sweep, _run(sweep, prepared, ledger, options)


def _enter(ledger: Ledger, sweep: SweepFolder, prepared: Prepared) -> None:
    plan = prepared.plan
    ledger.open_search(
        prepared.owner,
        sweep.id,
        mechanism=plan.mechanism,
        epsilon=plan.epsilon,
        delta=plan.delta,
        step_cap=plan.step_cap,
        fingerprint=fingerprint(prepared.request),
        details={"experiment": plan.name, "method": plan.method, "model": plan.model, "trials": plan.trials},
    )


def _go_on(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> int:
    """Continue a sweep with its own noise, data and cap."""
    stored = load(sweep.experiment)
    check_same(stored, wanted)
    request = wanted.dataset_request(options.data_dir)
    prepared = prepare(str(sweep.experiment), (), data_dir=options.data_dir)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=wanted.search.trials)
    experiment = wanted.with_noise(plan.noise_multiplier)
    prepared = Prepared(
        path=sweep.experiment,
        shipped=False,
        experiment=experiment,
        request=request,
        about=prepared.about,
        plan=plan,
    )
    ledger = _open_ledger(experiment.ledger) if plan.private else None
    if ledger is not None:
        known = {search.search for search in ledger.dataset_state(prepared.owner).searches}
        if sweep.id not in known:  # it died between making its folder and entering the ledger
            _enter(ledger, sweep, prepared)
        state = ledger.search_state(sweep.id)
        if state.mechanism != plan.mechanism or state.step_cap != plan.step_cap:
            raise TunerError(
                f"the plan of a sweep must be the one its ledger holds, got {plan.mechanism} with {plan.step_cap} "
                f"steps where the ledger has {state.mechanism} with {state.step_cap}. Restore {sweep.plan} from a copy."
            )
        ledger.reopen_search(sweep.id)
    sweep.experiment.write_text(experiment.to_yaml())
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
    from tuner.tracking.recorder import MLflowRecorder

    experiment, plan, metric = prepared.experiment, prepared.plan, prepared.experiment.search.metric
    budget = SearchBudget(ledger, sweep.id) if ledger is not None else None
    study = open_sweep_study(sweep, experiment, plan)
    control = _Control(sweep)
    sweep.write_status(state="running", pid=os.getpid(), started=time.time())
    state, detail = "failed", ""
    try:
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
                    note=lambda: f"MLflow: {recorder.status()}",
                    console=Console(quiet=True) if options.as_json else None,
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
    except SweepInterrupted:
        state = "interrupted"
        raise
    except TunerError as error:
        detail = type(error).__name__
        raise
    finally:
        sweep.write_status(state=state, detail=detail, ended=time.time(), pid=None)
        # What failed or was interrupted may go on, so its cap stays committed.
        if ledger is not None and state not in {"interrupted", "failed"}:
            ledger.close_search(sweep.id)
    return _conclude(sweep, prepared, ledger, options, study=study, stop=stop)


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
    if options.as_json:
        values = asdict(replace(report, card="", experiment=""))
        click.echo(
            json.dumps({"sweep": sweep.id, "folder": str(sweep.root), **values, "plan": plan.as_dict()}, indent=2)
        )
    else:
        Console().print(summary(report))
    if any(trial.state in {TrialState.COMPLETE, TrialState.PRUNED} for trial in trials):
        return 0
    return BudgetRefusedError.exit_code if stop.reason is StopReason.BUDGET and not trials else TunerError.exit_code
