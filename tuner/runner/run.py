"""One run of a sweep: its options, its result, its trials, and its description for MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

import tuner
from tuner.errors import InputError
from tuner.study.names import canonical_sampler
from tuner.study.types import Observer, Stop, TrialView
from tuner.sweep.sweep_study import search_setting

if TYPE_CHECKING:
    from optuna.study import Study

    from trainables.charge import Charge
    from trainables.rungs import MakeTraining
    from tuner.executors.base import SpecFor
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.recorder.recorder import SweepInfo
    from tuner.study.committed import Commitment, Committed
    from tuner.study.driver import StudyDriver
    from tuner.study.types import Observer
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["RunOptions", "RunResult", "check_machines", "run_trials", "sweep_info"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run, as `tune run --help` describes them. They do not change what the sweep computes.

    If `next_commands` is True, the printed summary ends with commands that the user may run next. `void_total` is the
    reason for which the owner gives up the total of data sets that the ledger holds as private, or None.
    """

    data_dir: str | None = None
    local: bool = False
    address: str | None = None
    quiet: bool = False
    as_json: bool = False
    next_commands: bool = True
    void_total: str | None = None

    def __post_init__(self) -> None:
        if self.local and self.address is not None:
            raise InputError(
                "options-conflict",
                f"`--local` runs all trials in this process, so `--address {self.address}` has no effect. Leave one of "
                "the two out.",
            )

    @property
    def place(self) -> str:
        """The options that say where the trials run, as a command names them."""
        return "--local" if self.local else "" if self.address is None else f"--address {self.address}"

    def say(self, text: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self.as_json:
            click.echo(text)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of one run of a sweep: the exit code, the sweep's state, and the values that ``--json`` prints."""

    code: int
    state: str
    values: dict[str, Any]


def check_machines(prepared: ReadySearch, options: RunOptions) -> None:
    """Check this machine, or those of the cluster that `--address` names. Raise an InputError if one is too small."""
    from tuner.sweep.cluster_check import require_cluster
    from tuner.sweep.own_machine import check_own_machine

    if options.local and prepared.experiment.resources.workers_per_trial > 1:
        raise InputError(
            "workers-local",
            f"{prepared.places.of('resources.workers_per_trial')}: `--local` runs every trial in this process, so it "
            "cannot give a trial several workers. Leave out --local, or set the key to 1.",
        )
    if options.address is not None:
        options.say(require_cluster(prepared, options.address))
    elif found := check_own_machine(prepared.experiment.resources, prepared.places, local=options.local):
        options.say(found)


class _StopOnRequest(Observer):
    """Observer that stops the driver if `tune stop` has put a file into the sweep's folder."""

    driver: StudyDriver

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        self.trial_finished(trial)

    def trial_finished(self, trial: TrialView) -> None:
        if self._sweep.stop_request.exists():
            self.driver.stop("asked by `tune stop`")


def run_trials(
    sweep: SweepFolder,
    study: Study,
    prepared: ReadySearch,
    options: RunOptions,
    *,
    trials: int,
    spec_for: SpecFor,
    budget: SearchBudget | None,
    observers: Sequence[Observer] = (),
    max_first_failures: int | None = 3,
    stops_when_lost: bool = False,
) -> Stop:
    """Run a sweep's trials, in this process or on Ray, until they end or `tune stop` is called.

    Each trial is charged to `budget`. If `budget` is None, this function charges nothing: the search is not private, or
    it is sealed and was charged before its first trial. The sweep fails if its first `max_first_failures` trials fail.
    With `stops_when_lost`, a trial that the infrastructure fails stops the sweep instead of ending (`TrialSetup`).
    """
    from trainables.charge import NoCharge
    from trainables.rungs import private_training
    from tuner.executors.base import ExecutorSettings, TrialSetup
    from tuner.executors.registry import EXECUTORS
    from tuner.plan.full_runs import search_levels
    from tuner.study.driver import StudyDriver
    from tuner.study.rung_wise import asks_pruner

    experiment, plan = prepared.experiment, prepared.plan
    control = _StopOnRequest(sweep)
    control.driver = driver = StudyDriver(
        study,
        experiment.space,
        trials=trials,
        steps_per_trial=plan.steps_per_trial,
        rung_steps=plan.rungs,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        budget=budget,
        observers=(*observers, control),
        max_first_failures=max_first_failures,
        shape_of=plan.shape_of,
        cheapest=() if budget is None else plan.cheapest(),
        when_sure=experiment.search.when_sure,
        committed=_committed(sweep, prepared, study, options),
        sole=plan.has_one_trial,
        levels=None
        if plan.full_runs is None
        else search_levels(experiment.search, plan.rungs, trials=trials, full_runs=plan.full_runs),
        asks_pruner=asks_pruner(experiment.search.pruner.name),
    )

    def charge_for(trial_id: str) -> Charge:
        return NoCharge() if budget is None else budget.charge_for(trial_id)

    resources = experiment.resources
    settings = ExecutorSettings(
        concurrent_trials=resources.concurrent_trials,
        cpus_per_trial=resources.cpus_per_trial,
        gpus_per_trial=resources.gpus_per_trial,
        hung_after=resources.hung_after,
        on_loss=resources.on_loss,
        workers_per_trial=resources.workers_per_trial,
        address=options.address,
        hide_logs=plan.mode.runs_hidden,
    )
    setup = TrialSetup(
        spec_for=spec_for,
        charge_for=charge_for,
        folder=sweep.work,
        make_training=_training_on_release() if plan.mode.on_release else private_training,
        stops_when_lost=stops_when_lost,
    )
    return EXECUTORS["local" if options.local else "ray"](settings).run(driver, setup)


def _training_on_release() -> MakeTraining:
    from trainables.release.training import ReleasedTraining

    return ReleasedTraining


def _committed(sweep: SweepFolder, prepared: ReadySearch, study: Study, options: RunOptions) -> Committed | None:
    """Return the committed run that follows the search, or None if no run follows.

    With the sampler `surrogate`, the surrogate of all scores chooses its configuration, for its noise and length.
    Otherwise, a rule scales the best trial's rate. A network's rate is at most what measured networks bear, and a line
    says so.
    """
    from tuner.experiment.prior import largest_rate
    from tuner.study.committed import Committed, choose_commit, commit_proposed, with_rate_below

    experiment, plan = prepared.experiment, prepared.plan
    if plan.commit is None:
        return None
    shape = plan.shape_of({}, committed=True)
    space, mode = experiment.space, experiment.search.metric.mode

    def by_rule(trials: Sequence[TrialView]) -> Commitment | None:
        return choose_commit(trials, space, mode=mode, search=plan.shape_of({}), committed=shape)

    def by_surrogate(trials: Sequence[TrialView]) -> Commitment | None:
        from tuner.study.surrogate.stored import choose_final

        setting = search_setting(experiment, plan.rungs, plan, sweep)
        found = choose_final(study, space, setting, seed=experiment.seed)
        if found is None:
            return None
        return commit_proposed(trials, space, mode=mode, proposed=found.parameters)

    def choose(trials: Sequence[TrialView]) -> Commitment | None:
        surrogate = canonical_sampler(experiment.search.sampler.name) == "surrogate"
        found = by_surrogate(trials) if surrogate else by_rule(trials)
        if found is None:
            return None
        most = largest_rate(found.parameters, experiment, steps=shape.steps)
        limited = with_rate_below(most, found, space)
        if limited != found:
            rate, wanted = (float(str(each.parameters["learning_rate"])) for each in (limited, found))
            options.say(
                f"the committed run's learning_rate is {rate:.3g} instead of {wanted:.3g}, because networks that we "
                f"measured collapsed above {most:.3g}"
            )
        return limited

    return Committed(shape=shape, choose=choose)


def sweep_info(sweep: SweepFolder, prepared: ReadySearch, *, claim: str = "") -> SweepInfo:
    """Return a sweep's description for MLflow. A non-empty `claim` replaces the sentence about the search's budget.

    The description of a public search names its public records, and the private records of its charged run.
    """
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.recorder import SweepInfo

    experiment, about, declared = prepared.experiment, prepared.about, prepared.experiment.search.public
    tags = {"code_version": tuner.__version__, "dataset": about.name, "method": experiment.trainable.method}
    if about.content_sha256:  # only published data have one: a checksum of private records would help to guess them
        tags["dataset_checksum"] = about.content_sha256
    settings = experiment.model_dump(mode="json", by_alias=True)
    if declared is not None and prepared.plan.mode.searches_public:
        settings["charged_run"] = {"dataset": settings["dataset"]}
        settings["dataset"] = {**declared.model_dump(mode="json", by_alias=True), "declared": "public"}
    return SweepInfo(
        id=sweep.id,
        uri=absolute_uri(experiment.tracking.uri),
        experiment=experiment.tracking.experiment or experiment.name,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        settings=settings,
        tags=tags,
        data={
            "name": about.name,
            "digest": (about.content_sha256 or "private")[:36],
            "training records (public)": str(prepared.plan.train_size),
        },
        claim=claim,
        error=prepared.plan.score_error(experiment),
    )
