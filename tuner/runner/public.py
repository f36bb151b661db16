"""Public mode: a search on public records, then one charged run of the best configuration on the private records.

These are two sweeps. The search is not charged. The charged run is an ordinary search of one trial with its own entry
in the ledger. Before the charged run's folder is created, the run's id is written to the search's status file, so that
a resume finds the run.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.wall import logging_to
from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, TunerError
from tuner.experiment import load_experiment
from tuner.files import write_text
from tuner.privacy.modes import COMPOSITION, PUBLIC
from tuner.report.facts import PUBLIC_CLAIM
from tuner.report.wording import plural
from tuner.runner.composition import run_open
from tuner.runner.proxy import on_public_records, require_public, search_facts, still_public
from tuner.runner.run import RunOptions, RunResult, check_machines
from tuner.runner.start import continue_sweep, ready_to_resume, start_sweep
from tuner.study.names import canonical_sampler
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import CHARGED, SweepFolder
from tuner.sweep.ledger_head import remember_head, require_head
from tuner.sweep.preflight import ReadySearch, prepare
from tuner.sweep.registration import open_ledger, preview
from tuner.sweep.status import FINISHED, resume_command
from tuner.sweep.sweep_files import resolved, write_new_sweep, write_resumed_sweep
from tuner.sweep.sweep_study import open_sweep_study, search_setting
from tuner.sweep.trial_spec import seed_of
from tuner.sweep.winner import choose_winner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.study.types import TrialView
    from tuner.sweep.winner import Chosen

__all__ = ["charged_run", "resume_public", "run_public"]


def run_public(prepared: ReadySearch, options: RunOptions) -> RunResult:
    """Search on the public records, then train the best configuration on the private records.

    Raises:
        BudgetRefusedError: the charged run does not fit the data set's cap. This is checked before the search starts,
            and again before the charged run starts.
    """
    prepared = resolved(prepared)
    search = on_public_records(prepared, options)
    ledger = open_ledger(prepared, say=options.say)  # the charged run may start in a resume, which creates no ledger
    refusal = preview(prepared).refusal
    if refusal is not None:
        raise refusal
    sweep = sweeps.create(Path(prepared.experiment.storage), prepared.experiment.name, mode=PUBLIC)
    with sweeps.hold(sweep), logging_to(sweep.operator_log):
        try:
            require_public(sweep, prepared, search, options)
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
                f"`search.trials` of {sweep.id} cannot be changed to {wanted.search.trials}: the best "
                "configuration was chosen for its charged run. Start a new search, whose charged run is charged in "
                "addition.",
            )
        search = on_public_records(prepared, options)
        require_public(sweep, prepared, search, options)
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


def _run_both(sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch, options: RunOptions) -> RunResult:
    searched: dict[str, Any] = {"sweep": sweep.id}
    charged = sweep.charged_run
    if charged is None:
        admit = partial(still_public, sweep, prepared, search)
        ended = run_open(sweep, search, None, options, claim=PUBLIC_CLAIM, admit=admit)
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
    chosen = choose_winner(study, trials, experiment, plan.score_error(experiment))
    if chosen is None:
        raise TunerError(
            "public-search-empty",
            f"The public search {sweep.id} has no complete trial, so there is no configuration to train on the "
            "private records. Start a new search.",
        )
    best = chosen.trial
    parameters, which = _parameters(study, prepared, search, chosen)
    file = sweep.root / "charged_run.yaml"
    write_text(file, _charged_file(prepared, best, parameters))
    one = prepare(str(file), (), data_dir=options.data_dir or sweep.data_dir)
    ledger = open_ledger(one, create=False)
    if ledger is not None:
        require_head(sweep, ledger)
    if one.plan.mechanism != plan.mechanism or one.plan.steps_per_trial != plan.steps_per_trial:
        raise TunerError(
            "charged-run-differs",
            f"The charged run was planned with {plan.steps_per_trial} steps of {plan.mechanism}, but this "
            f"version of the program plans {one.plan.steps_per_trial} steps of {one.plan.mechanism}. Start a new "
            "search.",
        )
    check_machines(one, options)
    options.say(
        f"{which}; the chosen configuration is now trained once on the private records, and that run is charged"
    )
    facts = search_facts(sweep, search)
    return start_sweep(one, options, sweep_id=charged.id, public_search=facts)[1]


def _parameters(
    study: Study, prepared: ReadySearch, search: ReadySearch, chosen: Chosen
) -> tuple[dict[str, object], str]:
    """Return the configuration of the charged run, and a sentence that says why.

    It is the winner's. With the sampler `surrogate`, it is the one with the greatest expected score on private records,
    of which the public ones are a proxy. The noise and the length of the trials are those of the charged run, so the
    two searches differ in the data only.
    """
    from tuner.study.committed import completed
    from tuner.study.surrogate.stored import choose_by_proxy

    experiment = prepared.experiment
    if canonical_sampler(experiment.search.sampler.name) == "surrogate":
        setting = search_setting(experiment, search.plan.rungs, search.plan)
        found = choose_by_proxy(study, experiment.space, setting, seed=experiment.seed)
        if found is not None:
            which = f"the surrogate chose the configuration after {plural(len(study.trials), 'public trial')}"
            return completed(experiment.space, found.parameters), which
    return dict(chosen.trial.parameters), chosen.why or f"trial {chosen.trial.number} was the best"


def _charged_name(experiment: Experiment) -> str:
    return f"{experiment.name[:55]}{CHARGED}"


def _charged_file(prepared: ReadySearch, best: TrialView, parameters: Mapping[str, object]) -> str:
    """Return the experiment file of the charged run, which is one trial with these parameters, seeded as the winner."""
    from tuner.experiment.yamlfile import dump

    experiment, plan = prepared.experiment, prepared.plan
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = _charged_name(experiment)
    values["seed"] = seed_of(experiment, best.number)
    values["privacy"]["accounting"] = COMPOSITION.name
    if plan.noise_source == "calibrated":
        values["privacy"]["noise_multiplier"] = "auto"
    one: dict[str, object] = {"trials": 1, "sampler": "random", "pruner": "none", "when_sure": "go_on"}
    values["search"] |= one | {"space": dict(parameters), "public": None}
    values["resources"]["concurrent_trials"] = 1
    return f"# The charged run of {experiment.name}, with the configuration of the public search.\n{dump(values)}"
