"""Public mode: a search on public records, then one charged run of the best configuration on the private records.

These are two sweeps. The search is not charged. The charged run is an ordinary search of one trial with its own entry
in the ledger. Before the charged run's folder is created, the run's id is written to the search's status file, so that
a resume finds the run.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data import check_present, info
from trainables.wall import logging_to
from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, TunerError
from tuner.experiment import load_experiment
from tuner.files import write_text
from tuner.privacy.modes import COMPOSITION, PUBLIC
from tuner.report.facts import PUBLIC_CLAIM, on_public
from tuner.runner.composition import run_open
from tuner.runner.run import RunOptions, RunResult
from tuner.runner.start import (
    continue_sweep,
    ready_to_resume,
    resolved,
    start_sweep,
    write_new_sweep,
    write_resumed_sweep,
)
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import CHARGED, SweepFolder
from tuner.sweep.identity import admit_open_use
from tuner.sweep.ledger_head import remember_head, require_head
from tuner.sweep.preflight import ReadySearch, prepare
from tuner.sweep.registration import dataset_refusal, ledger_states, open_ledger
from tuner.sweep.status import FINISHED, resume_command
from tuner.sweep.sweep_study import open_sweep_study
from tuner.sweep.trial_spec import seed_of
from tuner.sweep.winner import choose_winner

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.study.types import TrialView

__all__ = ["charged_run", "resume_public", "run_public"]


def run_public(prepared: ReadySearch, options: RunOptions) -> RunResult:
    """Search on the public records, then train the best configuration on the private records.

    Raises:
        BudgetRefusedError: the charged run does not fit the data set's cap. This is checked before the search starts,
            and again before the charged run starts.
    """
    prepared = resolved(prepared)
    search = _on_public_records(prepared, options)
    ledger = open_ledger(prepared, say=options.say)  # the charged run may start in a resume, which creates no ledger
    refusal = dataset_refusal(prepared, ledger_states(prepared))
    if refusal is not None:
        raise refusal
    sweep = sweeps.create(Path(prepared.experiment.storage), prepared.experiment.name, mode=PUBLIC)
    with sweeps.hold(sweep), logging_to(sweep.operator_log):
        try:
            _require_public(sweep, prepared, search, options)
        except (BudgetRefusedError, LedgerCorruptError):
            shutil.rmtree(sweep.root)
            raise
        write_new_sweep(sweep, prepared)
        if ledger is not None:
            remember_head(sweep, ledger, prepared.owners)
        return _run_both(sweep, prepared, search, options)


def resume_public(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> RunResult:
    """Resume a public search or its charged run. Raise an InputError if the user changed a fixed setting."""
    with sweeps.hold(sweep), logging_to(sweep.operator_log):
        prepared = ready_to_resume(sweep, wanted, options)
        if sweep.charged_run and wanted.search.trials != load_experiment(sweep.experiment).search.trials:
            raise InputError(
                "resume-changes-setting",
                f"`search.trials` of {sweep.id} cannot be changed to {wanted.search.trials}: its best "
                "configuration is chosen and its charged run has started. Start a new search. Its own charged run "
                "is an additional charge.",
            )
        search = _on_public_records(prepared, options)
        _require_public(sweep, prepared, search, options)
        write_resumed_sweep(sweep, prepared)
        options.say(f"resuming {sweep.id}")
        return _run_both(sweep, prepared, search, options)


def charged_run(sweep: SweepFolder) -> SweepFolder:
    """Return the charged run of a public search. If `sweep` is not a public search, return `sweep` itself.

    Raises:
        InputError: the charged run has not started.
    """
    if not (sweep.plan.exists() and sweep.mode.searches_public):
        return sweep
    charged = sweep.charged_run
    if charged is None or not charged.whole:
        raise InputError(
            "charged-run-missing",
            f"The charged run of {sweep.id} has not started, and only that run can be exported. Resume with: "
            f"{resume_command(sweep)}",
        )
    return charged


def _on_public_records(prepared: ReadySearch, options: RunOptions) -> ReadySearch:
    """Return the search on the public records. Its trials have the steps, noise and batch size of the charged run.

    An InputError is raised if the public records differ from the private records in shape.
    """
    request = prepared.experiment.public_request(options.data_dir or prepared.request.data_dir)
    check_present(request)
    about, private = info(request), prepared.about
    if about.input_shape != private.input_shape or about.classes != private.classes:
        raise InputError(
            "public-records-shape",
            f"`search.public` must have the same inputs and classes as the private records: {about.name} has "
            f"{about.input_shape} in {about.classes} classes, the private records have {private.input_shape} in "
            f"{private.classes}. Choose another data set.",
        )
    return replace(prepared, request=request, about=about, plan=on_public(prepared.plan))


def _require_public(sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch, options: RunOptions) -> None:
    """Raise a BudgetRefusedError if the ledger does not admit the public records. It may hold them as private."""
    use = admit_open_use(prepared.experiment.ledger, search.request, beside=prepared.request)
    use.require(sweep.id, void=options.void_total, say=options.say)


def _run_both(sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch, options: RunOptions) -> RunResult:
    searched: dict[str, Any] = {"sweep": sweep.id}
    charged = sweep.charged_run
    if charged is None:
        ended = run_open(sweep, search, None, options, claim=PUBLIC_CLAIM)
        searched |= {key: ended.values[key] for key in ("state", "best", "chosen", "trials")}
        if ended.state not in FINISHED:
            options.say(f"The charged run has not started. Resume with: {resume_command(sweep)}")
        if ended.code or ended.state not in FINISHED:
            return replace(ended, values=ended.values | {"charged_run": None})
        storage, charged_name = sweep.root.parent, _charged_name(prepared.experiment)
        name = sweeps.new_sweep_id(storage, charged_name, mode=COMPOSITION, after=sweep.id)
        sweep.write_status(charged_run=name)
        charged = SweepFolder(storage / name)
    if charged.whole:
        ended = continue_sweep(charged, load_experiment(charged.experiment), options)
    else:
        ended = _start_charged(sweep, prepared, search, charged, options)
    return replace(ended, values=ended.values | {"public_search": searched})


def _start_charged(
    sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch, charged: SweepFolder, options: RunOptions
) -> RunResult:
    from tuner.study.views import read_trials

    experiment, plan = prepared.experiment, prepared.plan
    study = open_sweep_study(sweep, experiment, search.plan)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    chosen = choose_winner(study, trials, experiment)
    if chosen is None:
        raise TunerError(
            "public-search-empty",
            f"The public search {sweep.id} has no complete trial, so there is no configuration to train on the "
            "private records. Start a new search.",
        )
    best = chosen.trial
    file = sweep.root / "charged_run.yaml"
    write_text(file, _charged_file(prepared, best))
    one = prepare(str(file), (), data_dir=options.data_dir or sweep.data_dir)
    ledger = open_ledger(one, create=False)
    if ledger is not None:
        require_head(sweep, ledger)
    if one.plan.mechanism != plan.mechanism or one.plan.steps_per_trial != plan.steps_per_trial:
        raise TunerError(
            "charged-run-differs",
            f"The charged run was planned with {plan.steps_per_trial} steps of {plan.mechanism}, but this "
            f"version of the program plans {one.plan.steps_per_trial} of {one.plan.mechanism}. Start a new "
            "search.",
        )
    which = chosen.why or f"trial {best.number} was the best"
    options.say(
        f"{which}; the chosen configuration is now trained once on the private records, and that run is charged"
    )
    declared = experiment.search.public
    facts: dict[str, object] = {
        "dataset": search.about.name,
        "path": None if declared is None or declared.path is None else Path(declared.path).name,
        "sweep": sweep.id,
        "trials": len(trials),
        "sampler": experiment.search.sampler.name,
        "pruner": experiment.search.pruner.name,
        "declared_by": "the experiment file",
    }
    return start_sweep(one, options, sweep_id=charged.id, public_search=facts)[1]


def _charged_name(experiment: Experiment) -> str:
    return f"{experiment.name[:55]}{CHARGED}"


def _charged_file(prepared: ReadySearch, best: TrialView) -> str:
    """Return the experiment file of the charged run, which is one trial with the best configuration."""
    from tuner.experiment.yamlfile import dump

    experiment, plan = prepared.experiment, prepared.plan
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = _charged_name(experiment)
    values["seed"] = seed_of(experiment, best.number)
    values["privacy"]["accounting"] = COMPOSITION.name
    if plan.noise_source == "calibrated":
        values["privacy"]["noise_multiplier"] = "auto"
    one: dict[str, object] = {"trials": 1, "sampler": "random", "pruner": "none", "when_sure": "go_on"}
    values["search"] |= one | {"space": dict(best.parameters), "public": None}
    values["resources"]["concurrent_trials"] = 1
    return f"# The charged run of {experiment.name}: its best configuration on the public records.\n{dump(values)}"
