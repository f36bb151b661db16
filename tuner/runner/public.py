"""Public mode: the search runs on records that anyone may see, and one run of the best on the private ones.

Two sweeps: the search, which is charged nowhere, and the charged run, an ordinary search of one trial with an entry of
its own in the ledger. Which one goes on after an interruption stands in the status of the first.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data import check_present, info, same_records
from tuner.errors import BudgetRefusedError, InputError, TunerError
from tuner.experiment import load_experiment
from tuner.report.facts import CHARGED, PUBLIC_CLAIM, on_public, resume_command
from tuner.runner.composition import run_open
from tuner.runner.execution import Ended, RunOptions
from tuner.runner.planning import dataset_refusal, ledger_state
from tuner.runner.start import go_on, make, make_again, pick_up, settle, start
from tuner.study.types import StopReason
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.ready import Prepared, prepare
from tuner.sweep.sweep_study import open_sweep_study
from tuner.sweep.winner import winner_of

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.study.types import TrialView

__all__ = ["charged_run", "go_on_public", "is_public_search", "run_public"]

_CHARGED = "charged_run"  # in the status: the id of the charged run, from before its folder is made
_OVER = {StopReason.DONE.value, StopReason.GRID.value, StopReason.FOUND.value}


def run_public(prepared: Prepared, options: RunOptions) -> Ended:
    """Search on the public records, then train the best on the private ones.

    Raises:
        BudgetRefusedError: the charged run does not fit the data set's cap; nothing was begun.
        InputError: the public records are the private ones, or of another shape.
    """
    prepared = settle(prepared)
    refusal = dataset_refusal(prepared, ledger_state(prepared))
    if refusal is not None:
        raise BudgetRefusedError(refusal)
    search = _searching(prepared, options)
    sweep = sweeps.create(Path(prepared.experiment.storage), prepared.experiment.name)
    with sweeps.hold(sweep):
        make(sweep, prepared)
        return _both(sweep, prepared, search, options)


def go_on_public(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> Ended:
    """Go on in the phase in which it was left.

    Raises:
        InputError: it must not be changed as is asked.
    """
    sweep.require_whole()
    with sweeps.hold(sweep):
        prepared = pick_up(sweep, wanted, options)
        if (
            sweep.read_status().get(_CHARGED)
            and wanted.search.trials != load_experiment(sweep.experiment).search.trials
        ):
            raise InputError(
                f"the best configuration of {sweep.id} is chosen, and its charged run was begun: got search.trials "
                f"{wanted.search.trials}. Start a new search; its charged run is charged beside this one."
            )
        search = _searching(prepared, options)
        make_again(sweep, prepared)
        options.say(f"going on with {sweep.id}")
        return _both(sweep, prepared, search, options)


def is_public_search(sweep: SweepFolder) -> bool:
    """Whether a sweep is the search of public mode, which is charged nowhere."""
    return sweep.plan.exists() and sweeps.read_json(sweep.plan).get("accounting") == "public"


def charged_run(sweep: SweepFolder) -> SweepFolder:
    """The charged run of a public search; every other sweep is its own.

    Raises:
        InputError: it was not begun yet.
    """
    if not is_public_search(sweep):
        return sweep
    charged = _charged(sweep)
    if charged is None or not charged.whole:
        raise InputError(
            f"only the charged run of a public search can be exported, and that of {sweep.id} was not begun. "
            f"Go on: {resume_command(sweep)}"
        )
    return charged


def _charged(sweep: SweepFolder) -> SweepFolder | None:
    known = sweep.read_status().get(_CHARGED)
    return SweepFolder(sweep.root.parent / known) if isinstance(known, str) else None


def _searching(prepared: Prepared, options: RunOptions) -> Prepared:
    """The search itself: the steps, noise and batch size of the charged run, on the public records.

    Raises:
        InputError: the public records are the private ones, or of another shape.
    """
    request = prepared.experiment.public_request(options.data_dir or prepared.request.data_dir)
    check_present(request)
    about, private = info(request), prepared.about
    if about.input_shape != private.input_shape or about.classes != private.classes:
        raise InputError(
            f"search.public must have the inputs and classes of the private records, {private.input_shape} in "
            f"{private.classes} classes, got {about.input_shape} in {about.classes} of {about.name}. Name another set."
        )
    if same_records(request, prepared.request):
        raise InputError(
            f"search.public must name other records than the private ones, got {about.name}, which holds the records "
            f"of {private.name}. Name a data set that anyone may see."
        )
    return replace(prepared, request=request, about=about, plan=on_public(prepared.plan))


def _both(sweep: SweepFolder, prepared: Prepared, search: Prepared, options: RunOptions) -> Ended:
    searched: dict[str, Any] = {"sweep": sweep.id}
    if _charged(sweep) is None:
        ended = run_open(sweep, search, None, options, claim=PUBLIC_CLAIM)
        searched |= {key: ended.values[key] for key in ("state", "best", "chosen", "trials")}
        if ended.state not in _OVER:
            options.say(f"The charged run was not begun. Go on with: {resume_command(sweep)}")
        if ended.code or ended.state not in _OVER:
            return replace(ended, values=ended.values | {"charged_run": None})
        sweep.write_status(**{_CHARGED: sweeps.new_id(_charged_name(prepared.experiment), after=sweep.id)})
    charged = _charged(sweep)
    if charged is None:
        raise TunerError(f"{sweep.status} must name the charged run, and does not. Restore it from a copy.")
    if charged.whole:
        ended = go_on(charged, load_experiment(charged.experiment), options)
    else:
        ended = _begin_charged(sweep, prepared, search, charged, options)
    return replace(ended, values=ended.values | {"public_search": searched})


def _begin_charged(
    sweep: SweepFolder, prepared: Prepared, search: Prepared, charged: SweepFolder, options: RunOptions
) -> Ended:
    from tuner.study.views import read_trials

    experiment, plan = prepared.experiment, prepared.plan
    study = open_sweep_study(sweep, experiment, search.plan)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    chosen = winner_of(study, trials, experiment)
    if chosen is None:
        raise TunerError(f"a public search must have a complete trial before the charged run, got none in {sweep.id}.")
    best = chosen.trial
    file = sweep.root / "charged_run.yaml"
    sweeps.write_text(file, _charged_file(prepared, best))
    one = prepare(str(file), (), data_dir=options.data_dir or sweep.data_dir)
    if one.plan.mechanism != plan.mechanism or one.plan.steps_per_trial != plan.steps_per_trial:
        raise TunerError(
            f"the charged run must be the one that was planned, {plan.steps_per_trial} steps of {plan.mechanism}, got "
            f"{one.plan.steps_per_trial} of {one.plan.mechanism}. Start again."
        )
    which = chosen.why or f"trial {best.number} was the best"
    options.say(f"{which}; it is trained once on the private records, and that is charged")
    public = experiment.search.public
    facts: dict[str, object] = {
        "dataset": search.about.name,
        "path": None if public is None or public.path is None else Path(public.path).name,
        "sweep": sweep.id,
        "trials": len(trials),
        "sampler": experiment.search.sampler.name,
        "pruner": experiment.search.pruner.name,
        "declared_by": "the experiment file",
    }
    _, ended = start(one, options, sweep_id=charged.id, public_search=facts)
    return ended


def _charged_name(experiment: Experiment) -> str:
    return f"{experiment.name[:55]}{CHARGED}"


def _charged_file(prepared: Prepared, best: TrialView) -> str:
    """The experiment file of the charged run: one trial with the best configuration, and the whole of the budget."""
    from tuner.experiment.yamlfile import dump

    experiment, plan = prepared.experiment, prepared.plan
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = _charged_name(experiment)
    values["seed"] = (experiment.seed + best.number) % 2**32  # the trial's own
    values["privacy"]["accounting"] = "composition"
    if plan.noise_source == "calibrated":
        values["privacy"]["noise_multiplier"] = "auto"
    values["search"] |= {
        "trials": 1,
        "sampler": "random",
        "pruner": "none",
        "space": dict(best.parameters),
        "public": None,
        "when_sure": "go_on",
    }
    values["resources"]["concurrent_trials"] = 1
    return f"# The charged run of {experiment.name}: its best configuration on the public records.\n{dump(values)}"
