"""One arm of the comparison of what a budget buys, at one ε with one seed, by the product's plan and driver."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from trainables import data
from trainables.charge import NoCharge
from trainables.data import DatasetRequest, Splits
from trainables.rungs import checkpoint_path
from trainables.training import PrivateTraining
from tuner.executors.base import TrialSetup
from tuner.executors.local import LocalExecutor
from tuner.privacy.accountant.filters import Sealed
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import SearchBudget
from tuner.report.facts import on_public
from tuner.study.best import best_trial
from tuner.study.driver import StudyDriver
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.storage import open_storage, open_study
from tuner.study.types import Suggestion, TrialView
from tuner.study.views import read_trials
from tuner.sweep.preflight import ReadySearch, prepare
from tuner.sweep.trial_spec import training_spec

DELTA = 1e-5
ARMS: Mapping[str, str] = {
    "published": "one run at the published settings",
    "middle": "one run in the middle of the space",
    "composition": "adaptive search (TPE), composed",
    "selection": "random search, sealed (geometric)",
    "public": "searched on the public proxy, one charged run",
}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, its records, and its search, all chosen before any run that is shown."""

    name: str
    dataset: str  # the private records
    proxy: str  # the public records
    model: str
    batch_size: int  # expected, in every arm except the published one
    epochs: float  # of a trial, in every arm except the published one
    trials: int  # of every search; the mean number for the sealed one
    space: Mapping[str, object]  # searched, as in an experiment file
    middle: Mapping[str, object]  # of the space
    published: tuple[Mapping[str, object], Mapping[str, object]]  # trainable and fixed parameters
    seeds: int  # their number; seed 0 was used to try the arms, and is not among them


@dataclass(frozen=True, kw_only=True)
class Run:
    """One arm at one ε with one seed; equal runs give equal numbers."""

    workload: str
    arm: str
    epsilon: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run; accuracies are in percent."""

    test: float  # of the winner, scored once
    noise_multiplier: float  # of every step
    claim: float  # ε of the whole arm, by the plan
    trainings: int  # trials on the private records
    seconds: float = 0.0


def train(workload: Workload, run: Run, folder: Path, data_dir: str | None) -> Outcome:
    """Train one arm at one ε with one seed, with its files in `folder`."""
    (folder / "buys.yaml").write_text(json.dumps(experiment_file(workload, run)))  # JSON is YAML
    prepared = prepare(str(folder / "buys.yaml"), (), data_dir=data_dir)
    plan = prepared.plan
    if run.arm == "public":
        chosen = _search(_on_proxy(prepared, data_dir), run, folder / "proxy", trials=workload.trials, charged=False)
        fixed = {name: chosen.parameters[name] for name in workload.space}
        (folder / "one.yaml").write_text(json.dumps(single_file(workload, run, {}, fixed)))
        one = prepare(str(folder / "one.yaml"), (), data_dir=data_dir)
        if one.plan.mechanism != plan.mechanism:
            raise RuntimeError("the charged run must have the planned mechanism")
        prepared, trials = one, 1
    elif run.arm == "selection":
        sealed = plan.training_filter
        assert isinstance(sealed, Sealed)
        # K is secret in a sweep. Here it is seeded: the records are public and the table must be repeatable.
        trials = sealed.law.draw(sealed.at_most, bits=random.Random(f"runs/{run.seed}").getrandbits)
    else:
        trials = plan.trials
    winner = _search(prepared, run, folder / "private", trials=trials, charged=run.arm != "selection")
    return Outcome(
        test=_test(prepared, run, winner, folder / "private"),
        noise_multiplier=plan.nominal.noise_multiplier,
        claim=plan.epsilon_at_cap,
        trainings=trials,
    )


def experiment_file(workload: Workload, run: Run) -> dict[str, Any]:
    """Return the experiment file of an arm."""
    if run.arm == "published":
        return single_file(workload, run, *workload.published)
    if run.arm == "middle":
        return single_file(workload, run, {}, workload.middle)
    file = single_file(workload, run, {}, workload.space)
    # By default the first ten trials of TPE are random, which is nearly all of so short a search.
    adaptive = {"name": "tpe", "n_startup_trials": 4}
    file["search"] |= {"trials": workload.trials, "sampler": "random" if run.arm == "selection" else adaptive}
    file["privacy"] |= {"accounting": run.arm}
    if run.arm == "public":
        file["search"] |= {"public": {"name": workload.proxy}}
    return file


def single_file(
    workload: Workload, run: Run, trainable: Mapping[str, object], space: Mapping[str, object]
) -> dict[str, Any]:
    """Return the experiment file of one trial, with changes to the trainable and with the parameters in `space`."""
    known = {"method": "dp_sgd", "model": workload.model, "batch_size": workload.batch_size, "epochs": workload.epochs}
    return {
        "schema": 1,
        "name": "buys",
        "seed": 1000 * run.seed,
        "dataset": {"name": workload.dataset},
        "trainable": {**known, **trainable},
        "privacy": {"epsilon": run.epsilon, "delta": DELTA},
        "search": {"trials": 1, "sampler": "random", "rungs": 1, "space": dict(space)},
    }


def _on_proxy(prepared: ReadySearch, data_dir: str | None) -> ReadySearch:
    """Return the search on the public records, as in public mode."""
    return replace(prepared, request=prepared.experiment.public_request(data_dir), plan=on_public(prepared.plan))


def _search(prepared: ReadySearch, run: Run, folder: Path, *, trials: int, charged: bool) -> TrialView:
    """Run a search with the driver of the product; return its best trial."""
    experiment, plan = prepared.experiment, prepared.plan
    folder.mkdir()
    budget = None
    if charged:
        ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
        ledger.open_search(prepared.owner, "buys", filter=plan.training_filter, epsilon=plan.epsilon, delta=plan.delta)
        budget = SearchBudget(ledger, "buys")
    sampler = experiment.search.sampler
    study = open_study(
        open_storage(folder),
        "buys",
        mode="max",
        sampler=lambda before: make_sampler(sampler.name, sampler.options, seed=experiment.seed, trials_before=before),
        pruner=make_pruner("none"),
    )
    driver = StudyDriver(
        study,
        experiment.space,
        trials=trials,
        steps_per_trial=plan.steps_per_trial,
        rung_steps=plan.rungs,
        metric="validation_accuracy",
        mode="max",
        budget=budget,
        shape_of=plan.shape_of,
        max_first_failures=trials,
    )

    def spec_for(suggestion: Suggestion) -> object:
        return _spec(prepared, run, dict(suggestion.parameters), suggestion.number)

    setup = TrialSetup(
        spec_for=spec_for,
        charge_for=(lambda _trial: NoCharge()) if budget is None else budget.charge_for,
        folder=folder,
        make_training=partial(_training, prepared.request),
    )
    stop = LocalExecutor().run(driver, setup)
    views = read_trials(study, mode="max", steps_planned=plan.steps_per_trial)
    best = best_trial(views, mode="max")
    if best is None or len(views) != trials:
        raise RuntimeError(f"{run} must run {trials} trials (got {len(views)}: {stop.reason.value}, {stop.detail})")
    return best


def _spec(prepared: ReadySearch, run: Run, parameters: dict[str, object], number: int) -> Any:  # noqa: ANN401 - a spec
    spec = training_spec(prepared.experiment, prepared.request, prepared.plan, parameters=parameters, number=number)
    on = list(ARMS).index(run.arm) + 10 * (prepared.request.name != prepared.experiment.dataset.name)
    return replace(spec, private=False, noise_seed=1_000_000 * on + 1_000 * run.seed + number, threads=1, device="cpu")


def _training(request: DatasetRequest, spec: Any, charge: Any) -> Any:  # noqa: ANN401 - as MakeTraining
    whole = _splits(request)
    # A search holds no test record.
    return PrivateTraining(spec, charge, splits=replace(whole, x_test=whole.x_test[:0], y_test=whole.y_test[:0]))


def _test(prepared: ReadySearch, run: Run, winner: TrialView, folder: Path) -> float:
    """Return the test accuracy of the winner's model in percent; the test records are used only here."""
    checkpoint = checkpoint_path(folder, winner.id)
    assert checkpoint is not None
    spec = _spec(prepared, run, dict(winner.parameters), winner.number)
    training = PrivateTraining(spec, NoCharge(), splits=_splits(prepared.request))
    training.load(checkpoint)
    return 100 * training.evaluate("test")["test_accuracy"]


@lru_cache(maxsize=2)
def _splits(request: DatasetRequest) -> Splits:
    return data.load_records(request)
