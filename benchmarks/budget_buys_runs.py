"""How the table of what a budget buys is trained: one arm at one ε with one seed, by the product's plan and driver."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.budget_buys import (
    ARMS,
    WORKLOADS,
    Outcome,
    Run,
    Workload,
    append,
    file_of,
    note_tables,
    read,
    runs_of,
    single_file,
)
from benchmarks.budget_common import Results, Settings

if TYPE_CHECKING:
    from trainables.data import DatasetRequest, Splits
    from tuner.study.types import Suggestion, TrialView
    from tuner.sweep.ready import Prepared

__all__ = ["measure", "perform", "train"]


def measure(settings: Settings, results: Results) -> None:
    """Train what is not known yet, and make the tables of what is; `--quick` has no hour for it."""
    if settings.quick:
        results.remarks.append("buys: left out by --quick")
        return
    path = settings.out / "buys.jsonl"
    settings.out.mkdir(parents=True, exist_ok=True)
    wanted = list(runs_of())
    known = read(path)
    missing = [run for run in wanted if run not in known]
    print(f"buys: {len(wanted) - len(missing)} of {len(wanted)} known in {path}", flush=True)
    for run, outcome in perform(missing, data_dir=settings.data_dir, jobs=settings.jobs):
        append(path, run, outcome)
        print(f"buys: {run.workload}, ε = {run.epsilon:g}, {run.arm}, seed {run.seed}: "
              f"{outcome.test:.2f} % ({outcome.seconds:.0f} s)", flush=True)  # fmt: skip
    note_tables(read(path), results)


def perform(runs: Iterable[Run], *, data_dir: str | None, jobs: int) -> Iterator[tuple[Run, Outcome]]:
    """Each run with its outcome, as it finishes; `jobs` processes of one thread each."""
    tasks = [(run, data_dir) for run in runs]
    if jobs == 1 or len(tasks) < 2:
        yield from map(_one, tasks)
        return
    with get_context("spawn").Pool(min(jobs, len(tasks))) as pool:
        yield from pool.imap_unordered(_one, tasks)


def _one(task: tuple[Run, str | None]) -> tuple[Run, Outcome]:
    run, data_dir = task
    started = time.perf_counter()
    workload = next(each for each in WORKLOADS if each.name == run.workload)
    with tempfile.TemporaryDirectory() as inside:
        outcome = train(workload, run, Path(inside), data_dir)
    return run, replace(outcome, seconds=round(time.perf_counter() - started, 1))


def train(workload: Workload, run: Run, folder: Path, data_dir: str | None) -> Outcome:
    """One arm at one ε with one seed, its files in `folder`; `seconds` is left 0."""
    from tuner.sweep.ready import prepare

    (folder / "buys.yaml").write_text(json.dumps(file_of(workload, run)))  # which is YAML
    prepared = prepare(str(folder / "buys.yaml"), (), data_dir=data_dir)
    plan = prepared.plan
    if run.arm == "public":
        chosen = _search(_on_proxy(prepared, data_dir), run, folder / "proxy", trials=workload.trials, charged=False)
        fixed = {name: chosen.parameters[name] for name in workload.space}
        (folder / "one.yaml").write_text(json.dumps(single_file(workload, run, {}, fixed)))
        one = prepare(str(folder / "one.yaml"), (), data_dir=data_dir)
        if one.plan.mechanism != plan.mechanism:
            raise RuntimeError("the charged run must be the one that was planned")
        prepared, trials = one, 1
    elif run.arm == "selection":
        from tuner.privacy.accountant.filters import Sealed

        sealed = plan.training_allowance
        assert isinstance(sealed, Sealed)
        # K is secret in a sweep; here it is seeded, for the records are public and the table shall be repeatable.
        trials = sealed.law.draw(sealed.at_most, bits=random.Random(f"runs/{run.seed}").getrandbits)
    else:
        trials = plan.trials
    winner = _search(prepared, run, folder / "private", trials=trials, charged=run.arm != "selection")
    return Outcome(
        test=_test(prepared, run, winner, folder / "private"),
        validation=100 * (winner.last_score or 0.0),
        noise_multiplier=plan.noise_multiplier,
        claim=plan.epsilon_at_cap,
        trainings=trials,
        parameters={name: winner.parameters[name] for name in workload.space},
        seconds=0.0,
    )


def _on_proxy(prepared: Prepared, data_dir: str | None) -> Prepared:
    """The same steps, batch size and noise on the public records, as public mode has them."""
    public = prepared.plan.public
    assert public is not None
    plan = replace(prepared.plan, train_size=int(public["train_size"]), sample_rate=float(public["sample_rate"]))
    return replace(prepared, request=prepared.experiment.public_request(data_dir), plan=plan)


def _search(prepared: Prepared, run: Run, folder: Path, *, trials: int, charged: bool) -> TrialView:
    """Run a search with the product's driver; its best trial."""
    from tuner.executors import local
    from tuner.executors.base import NoCharge
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.study.driver import StudyDriver
    from tuner.study.pruners import make_pruner
    from tuner.study.samplers import make_sampler
    from tuner.study.storage import open_storage, open_study
    from tuner.study.views import best_trial, read_trials

    experiment, plan = prepared.experiment, prepared.plan
    folder.mkdir()
    budget = None
    if charged:
        ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
        ledger.open_search(
            prepared.owner, "buys", allowance=plan.training_allowance, epsilon=plan.epsilon, delta=plan.delta
        )
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

    stop = local.run(
        driver,
        spec_for,
        (lambda _trial: NoCharge()) if budget is None else budget.charge_for,
        folder=folder,
        make_training=partial(_training, prepared.request),
    )
    views = read_trials(study, mode="max", steps_planned=plan.steps_per_trial)
    best = best_trial(views, mode="max")
    if best is None or len(views) != trials:
        raise RuntimeError(f"{run} must run {trials} trials, {len(views)} ran, and {stop.reason.value}: {stop.detail}")
    return best


def _spec(prepared: Prepared, run: Run, parameters: dict[str, object], number: int) -> Any:  # noqa: ANN401 - a spec
    from tuner.sweep.ready import training_spec

    spec = training_spec(prepared.experiment, prepared.request, prepared.plan, parameters=parameters, number=number)
    on = list(ARMS).index(run.arm) + 10 * (prepared.request.name != prepared.experiment.dataset.name)
    return replace(spec, private=False, noise_seed=1_000_000 * on + 1_000 * run.seed + number, threads=1, device="cpu")


def _training(request: DatasetRequest, spec: Any, charge: Any) -> Any:  # noqa: ANN401 - as MakeTraining has it
    from trainables.training import PrivateTraining

    whole = _splits(request)
    # No test record is within reach of a search.
    return PrivateTraining(spec, charge, splits=replace(whole, x_test=whole.x_test[:0], y_test=whole.y_test[:0]))


def _test(prepared: Prepared, run: Run, winner: TrialView, folder: Path) -> float:
    """Test accuracy of the winner's model in percent: the one time that these records are looked at."""
    from trainables.rungs import checkpoint_path
    from trainables.training import PrivateTraining
    from tuner.executors.base import NoCharge

    checkpoint = checkpoint_path(folder, winner.id)
    assert checkpoint is not None
    spec = _spec(prepared, run, dict(winner.parameters), winner.number)
    training = PrivateTraining(spec, NoCharge(), splits=_splits(prepared.request))
    training.load(checkpoint)
    return 100 * training.evaluate("test")["test_accuracy"]


@lru_cache(maxsize=2)
def _splits(request: DatasetRequest) -> Splits:
    from trainables import data

    return data.load(request)
