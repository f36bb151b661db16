"""Public proxy of a charged search: a search on public records first, whose scores are a prior of the surrogate.

The public search is a sweep of its own in the folder of the charged sweep. It is not charged, and the charged sweep
enters the ledger only after it, so a search that ends before then has charged nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data import as_it_is, check_present, info
from tuner.errors import InputError, TunerError
from tuner.files import write_json, write_text
from tuner.privacy.modes import PUBLIC
from tuner.report.facts import PUBLIC_CLAIM, on_public, public_records
from tuner.runner.composition import run_open
from tuner.runner.run import RunOptions, RunResult
from tuner.sweep import folder as sweeps
from tuner.sweep.identity import admit_open_use
from tuner.sweep.preflight import ReadySearch, prepare
from tuner.sweep.registration import preview
from tuner.sweep.status import FINISHED, resume_command
from tuner.sweep.sweep_files import resolved, write_new_sweep, write_resumed_sweep
from tuner.sweep.sweep_study import open_sweep_study

if TYPE_CHECKING:
    from tuner.sweep.folder import SweepFolder

__all__ = [
    "ask_for_public",
    "check_proxy",
    "on_public_records",
    "require_public",
    "run_proxy",
    "search_facts",
    "still_public",
]


def on_public_records(prepared: ReadySearch, options: RunOptions) -> ReadySearch:
    """Return the search of a public mode's experiment on its public records, with the steps, noise and batch planned.

    An InputError is raised if the public records differ from the private records in shape.
    """
    searched = ask_for_public(prepared, options)
    return replace(searched, plan=on_public(prepared.plan))


def ask_for_public(prepared: ReadySearch, options: RunOptions) -> ReadySearch:
    """Return the search with its public records in the place of the private ones. None of them is read.

    Raises:
        InputError: the public records differ from the private records in shape.
        trainables.errors.DatasetError: the public records are missing or changed.
    """
    request = prepared.experiment.public_request(options.data_dir or prepared.request.data_dir)
    with prepared.places.at("search.public.path", "search.public.name"):
        check_present(request)
        request = as_it_is(request)
        about, private = info(request), prepared.about
    if about.input_shape != private.input_shape or about.classes != private.classes:
        raise InputError(
            "public-records-shape",
            f"`search.public` must have the same inputs and classes as the private records: {about.name} has "
            f"inputs {about.input_shape} in {about.classes} classes, but the private records have "
            f"{private.input_shape} in {private.classes}. Choose another data set.",
        )
    return replace(prepared, request=request, about=about)


def require_public(sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch, options: RunOptions) -> None:
    """Raise a BudgetRefusedError if the ledger does not admit the public records. It may hold them as private."""
    use = admit_open_use(prepared.experiment.ledger, search.request, beside=prepared.request)
    use.require(sweep.id, void=options.void_total, say=options.say)


def still_public(sweep: SweepFolder, prepared: ReadySearch, search: ReadySearch) -> None:
    """Raise a BudgetRefusedError if the ledger no longer admits the public records. No total is made void for them."""
    admit_open_use(prepared.experiment.ledger, search.request, beside=prepared.request).require(sweep.id, void=None)


def check_proxy(sweep: SweepFolder, prepared: ReadySearch, options: RunOptions) -> None:
    """Check the public records and the data set's room before a charged search with a proxy starts.

    Raises:
        InputError: the public records differ from the private records in shape.
        BudgetRefusedError: the ledger does not admit the public records, or the charged search does not fit the data
            set's cap. The cap is checked again when the search enters the ledger.
    """
    if not prepared.experiment.has_proxy:
        return
    refusal = preview(prepared).refusal
    if refusal is not None:
        raise refusal
    require_public(sweep, prepared, ask_for_public(prepared, options), options)


def run_proxy(sweep: SweepFolder, prepared: ReadySearch, options: RunOptions) -> RunResult | None:
    """Run or resume the public search of a charged sweep that is not in the ledger yet.

    This process must hold the lock of the charged sweep's folder.

    Returns:
        None if the charged search can start: there is no proxy, or its search is over. Otherwise the result of the
        public search, which was stopped or has no score.
    """
    if not prepared.experiment.has_proxy or sweep.proxy_search.exists():
        return None
    folder = sweeps.create_as(sweep.root, sweep.proxy_id, mode=PUBLIC)
    public, new = _public_search(folder, prepared, options), not folder.whole
    search = on_public_records(public, options)
    with sweeps.hold(folder):
        if new:
            write_new_sweep(folder, public)
        else:
            write_resumed_sweep(folder, public)
        options.say(f"{'searching' if new else 'resuming the search'} on public records first: {search.about.name}")
        admit = partial(still_public, sweep, prepared, search)
        ended = run_open(folder, search, None, options, claim=PUBLIC_CLAIM, admit=admit)
        if ended.state not in FINISHED:
            options.say(f"The charged search has not started. Resume with: {resume_command(sweep)}")
        if ended.code or ended.state not in FINISHED:
            return replace(ended, values=ended.values | {"charged_search": None})
        write_json(sweep.proxy_search, search_facts(folder, search))
    return None


def search_facts(folder: SweepFolder, search: ReadySearch) -> dict[str, object]:
    """Return what the ledger stores about a search on public records that is over.

    Raises:
        TunerError: no trial of it is complete.
    """
    from tuner.study.types import TrialStatus
    from tuner.study.views import read_trials

    experiment, plan = search.experiment, search.plan
    study = open_sweep_study(folder, experiment, plan)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    if not any(trial.state is TrialStatus.COMPLETE for trial in trials):
        raise TunerError(
            "public-search-empty",
            f"The public search {folder.id} has no complete trial, so there is no configuration to train on the "
            "private records. Start a new search.",
        )
    declared = experiment.search.public
    return {
        "dataset": search.about.name,
        "path": None if declared is None or declared.path is None else Path(declared.path).name,
        "sweep": folder.id,
        "trials": len(trials),
        "sampler": experiment.search.sampler.name,
        "pruner": experiment.search.pruner.name,
        "declared_by": "the experiment file",
    }


def _public_search(folder: SweepFolder, prepared: ReadySearch, options: RunOptions) -> ReadySearch:
    """Return the public search: the experiment in public mode, whose trials have the final run's noise and length.

    The final run is the committed run, or a trial of the charged search. One noise-to-signal ratio and the same
    number of steps make what the proxy teaches about the rate comparable with the final run.
    """
    from tuner.experiment.yamlfile import dump

    experiment, plan = prepared.experiment, prepared.plan
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = folder.name
    values["privacy"] |= {
        "accounting": PUBLIC.name,
        "cap": "auto",
        "noise_multiplier": (plan.commit or plan.nominal).noise_multiplier,
    }
    values["dataset"]["validation"] |= {"protected": False, "epsilon": None, "delta": None, "noise": "auto"}
    values["search"] |= {
        "trials": public_records(plan).proxy_trials,
        "full_runs": None,
        "commit": None,
        "public": values["search"]["public"] | {"trials": None},
    }
    if not folder.whole:
        write_text(folder.experiment, f"# The search on public records before {experiment.name}.\n{dump(values)}")
    return resolved(prepare(str(folder.experiment), (), data_dir=options.data_dir or prepared.request.data_dir))
