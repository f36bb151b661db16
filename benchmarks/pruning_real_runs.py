"""The sweeps of the comparison on real data: what is searched and how, one sweep, and the file of those that finished.

Every sweep is one of the product: its plan, its driver, the local executor, a ledger of its own, and its export. All of
a search have the same noise and the same cap, so that a step that is not taken leaves room for another trial; each goes
on until no whole trial fits any more.

The noise is secret, drawn from the operating system, because only a private sweep has a ledger and an export. So a
seed fixes the initialisations and what the samplers draw at random, and the numbers of a second run are others.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from benchmarks import kept
from benchmarks.kept import append

__all__ = [
    "FASHION",
    "METHODS",
    "QUICK",
    "SEARCHES",
    "Outcome",
    "Run",
    "Workload",
    "append",
    "file_of",
    "perform",
    "read",
    "runs_of",
    "sweep",
]

DELTA: Final = 1e-5

_TPE: Final = {"name": "tpe", "n_startup_trials": 4}
"""By default its first ten trials are random, which is nearly all of so short a search."""

METHODS: Final[Mapping[str, Mapping[str, object]]] = {
    "ours": {"sampler": "unimodal", "pruner": "unimodal", "when_sure": "go_on"},
    "ours+runs": {"sampler": "unimodal", "pruner": {"name": "unimodal", "runs": 0.15}, "when_sure": "go_on"},
    "tpe+asha": {"sampler": _TPE, "pruner": {"name": "asha", "reduction_factor": 3}},
    "random": {"sampler": "random", "pruner": "none"},
}
"""Name → what differs in the experiment file; TPE and ASHA as in the simulation."""

_RADIUS: Final = {"smoothing_radius": {"uniform": [0, 100]}}
_MORE: Final = {"laplacian_sigma": {"uniform": [0, 3]}, "weight_decay": {"log_uniform": [1e-5, 0.1]}}

SEARCHES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "radius": ("dplis", _RADIUS),
    "composed": ("composed", _RADIUS | _MORE),
}
"""Name → training method and what is searched."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its records, and how much of them a sweep may have.

    Attributes:
        name: in tables and in the file of results.
        dataset: a shipped set.
        records: of its training records the first so many, which the trials and the validation share; None for all.
        validation: part of these that validates.
        model: of every trial.
        batch_size: expected.
        epochs: of a whole trial.
        rungs: at which it reports.
        noise_multiplier: of every step.
        epsilon: of every sweep in all.
        learning_rate: of every trial: R compares only at one.
        seeds: of the sweeps.
    """

    name: str
    dataset: str
    records: int | None
    validation: float
    model: str
    batch_size: int
    epochs: float
    rungs: int
    noise_multiplier: float
    epsilon: float
    learning_rate: float
    seeds: tuple[int, ...]


FASHION: Final = Workload(
    name="Fashion-MNIST, 10 000 to train and 5 000 to validate, tutorial CNN",
    dataset="fashion_mnist",
    records=15_000,
    validation=1 / 3,
    model="tutorial_cnn",
    batch_size=256,
    epochs=8,
    rungs=5,
    noise_multiplier=1.11,
    epsilon=8.0,
    learning_rate=0.5,
    seeds=(1, 2, 3),
)
"""The cap holds ten whole trials.

The learning rate was taken after a look at R = 0, 20, 60 and 100 with seed 100 at two rates: at 1.5 the left end was by
far the best, and 15 points better than anything at 0.5, where 20 was the best of the four. So plain DP-SGD at another
rate is the better model here; the searches are compared, where their top lies inside.
"""

QUICK: Final = Workload(
    name="digits, hidden layer of 64",
    dataset="digits",
    records=None,
    validation=0.2,
    model="mlp_64",
    batch_size=128,
    epochs=4,
    rungs=5,
    noise_multiplier=2.0,
    epsilon=4.0,
    learning_rate=0.5,
    seeds=(1,),
)
"""Shows that it runs, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One sweep."""

    workload: str
    search: str
    method: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep showed.

    Attributes:
        validation: accuracy of the exported winner in percent.
        test: of the same model; the export scores it once.
        highest: validation accuracy in percent of the complete trial with the highest; the winner need not be that one.
        chosen: what made it the winner, ``curve`` or ``score``.
        parameters: what was searched, of the winner.
        spent: ε of all steps that were charged, by the odometer.
        spent_until_winner: of those charged before the winner was complete; known only afterwards.
        cap: ε of the whole sweep: what is claimed.
        steps: charged.
        step_cap: all that the cap allows.
        steps_per_trial: of a whole one.
        started: trials.
        pruned: of these.
        failed: of these.
        excluded: candidates that the pruner excluded before their first step.
        state: why the sweep ended.
        seconds: from its start to its end, without the export.
        trials: of each what was searched, its state, its steps and its last score.
    """

    validation: float
    test: float
    highest: float
    chosen: str
    parameters: Mapping[str, object]
    spent: float
    spent_until_winner: float
    cap: float
    steps: int
    step_cap: int
    steps_per_trial: int
    started: int
    pruned: int
    failed: int
    excluded: int
    state: str
    seconds: float
    trials: list[Mapping[str, object]]


def runs_of(workload: Workload, searches: Iterable[str] = tuple(SEARCHES)) -> Iterator[Run]:
    """All that the tables need, seed by seed, so that a search that is cut short has some seeds whole."""
    for search in searches:
        for seed, method in product(workload.seeds, METHODS):
            yield Run(workload=workload.name, search=search, method=method, seed=seed)


def perform(
    runs: Iterable[Run], workload: Workload, *, folder: Path, data_dir: str | None, jobs: int
) -> Iterator[tuple[Run, Outcome]]:
    """Each run with its outcome, as it finishes.

    Args:
        runs: of the workload.
        workload: what they share.
        folder: in which each sweep has a folder of its own.
        data_dir: folder with the data sets.
        jobs: processes of one thread each.
    """
    dataset = _dataset(workload, folder, data_dir)
    tasks = [(run, workload, dataset, folder, data_dir) for run in runs]
    if jobs == 1 or len(tasks) < 2:
        yield from map(_one, tasks)
        return
    with get_context("spawn").Pool(min(jobs, len(tasks))) as pool:
        yield from pool.imap_unordered(_one, tasks)


def sweep(
    run: Run, workload: Workload, dataset: Mapping[str, object], *, folder: Path, data_dir: str | None
) -> Outcome:
    """One sweep with all its files in `folder`, which is made; whatever is there of an earlier one is removed.

    Args:
        run: which.
        workload: its settings.
        dataset: as in the experiment file, without the validation.
        folder: its own.
        data_dir: folder with the data sets.
    """
    from tuner.export.package import export_sweep
    from tuner.runner.execution import RunOptions
    from tuner.runner.start import start
    from tuner.sweep.preflight import check_startable
    from tuner.sweep.ready import prepare

    # What a run that was killed left is unseen and its ledger is of no use to anyone: the records are public.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "sweep.yaml").write_text(json.dumps(file_of(run, workload, dataset, folder)))  # which is YAML
    prepared = prepare(str(folder / "sweep.yaml"), (), data_dir=data_dir)
    check_startable(prepared)
    options = RunOptions(data_dir=data_dir, local=True, quiet=True, as_json=True, summary=False)
    started = time.perf_counter()
    made, ended = start(prepared, options)
    seconds = time.perf_counter() - started
    if ended.state != "budget reached":
        raise RuntimeError(f"{run} must go on until its cap is reached, got {ended.state!r}; its files are in {folder}")
    exported = export_sweep(made, folder / "export", data_dir=data_dir)
    return _outcome(made, exported, ended.state, seconds=round(seconds, 1))


def file_of(run: Run, workload: Workload, dataset: Mapping[str, object], folder: Path) -> dict[str, Any]:
    """The experiment file of a sweep."""
    method, space = SEARCHES[run.search]
    return {
        "schema": 1,
        "name": "real",
        "seed": 1000 * run.seed,
        "dataset": {**dataset, "validation": {"fraction": workload.validation}},
        "trainable": {
            "method": method,
            "model": workload.model,
            "batch_size": workload.batch_size,
            "epochs": workload.epochs,
        },
        "privacy": {"epsilon": workload.epsilon, "delta": DELTA, "noise_multiplier": workload.noise_multiplier},
        # More trials than can fit: the cap ends the sweep.
        "search": {
            "trials": 500,
            "rungs": workload.rungs,
            "space": {**space, "smoothing_samples": 1, "learning_rate": workload.learning_rate},
            **METHODS[run.method],
        },
        "storage": str(folder / "runs"),
        "ledger": f"sqlite:///{folder}/ledger.db",
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }


def read(path: Path) -> dict[Run, Outcome]:
    """All results of a file."""
    return kept.read(path, Run, Outcome)


def _one(task: tuple[Run, Workload, Mapping[str, object], Path, str | None]) -> tuple[Run, Outcome]:
    run, workload, dataset, folder, data_dir = task
    own = folder.absolute() / f"{workload.dataset}-{run.search}-{run.method}-{run.seed}"
    return run, sweep(run, workload, dataset, folder=own, data_dir=data_dir)


def _dataset(workload: Workload, folder: Path, data_dir: str | None) -> dict[str, object]:
    """The data set as in an experiment file; where it is a part of a shipped one, that part is written once."""
    if workload.records is None:
        return {"name": workload.dataset}
    name = f"{workload.dataset}_{workload.records}"
    path = folder.absolute() / f"{name}.npz"
    if not path.exists():
        import numpy as np

        from trainables.data import DatasetRequest, load

        whole = load(DatasetRequest(name=workload.dataset, data_dir=data_dir, validation_fraction=0.0))
        part = path.with_suffix(".part.npz")
        np.savez(
            part,
            x_train=whole.x_train[: workload.records].numpy(),
            y_train=whole.y_train[: workload.records].numpy(),
            x_test=whole.x_test.numpy(),
            y_test=whole.y_test.numpy(),
        )
        part.replace(path)
    return {"name": name, "path": str(path), "public_size": workload.records}


def _outcome(made: Any, exported: Mapping[str, Any], state: str, *, seconds: float) -> Outcome:  # noqa: ANN401 - a SweepFolder
    """What the sweep's storage, its ledger and its export tell."""
    from tuner.experiment import load
    from tuner.plan.plan import plan_from
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.report.facts import not_started
    from tuner.study.types import TrialState
    from tuner.study.views import best_trial, read_trials
    from tuner.sweep import folder as sweeps
    from tuner.sweep.sweep_study import open_sweep_study

    experiment = load(made.experiment)
    plan = plan_from(sweeps.read_json(made.plan), trials=experiment.search.trials)
    study = open_sweep_study(made, experiment, plan)
    trials = read_trials(study, mode="max", steps_planned=plan.steps_per_trial)
    budget = SearchBudget(Ledger.open(experiment.ledger, create=False), made.id)
    view, winner, highest = budget.view(), exported["trial"], best_trial(trials, mode="max")
    if highest is None or highest.last_score is None or view.step_cap is None:
        raise RuntimeError(f"{made.root} must have a complete trial and a cap on steps")
    # One trial after the other: what was charged until the winner was complete is its own and that of those before it.
    until = {trial.id: budget.charged_steps(trial.id) for trial in trials if trial.number <= winner["number"]}
    states = [trial.state for trial in trials]
    searched = experiment.space.searched
    return Outcome(
        validation=100 * exported["scores"]["validation_accuracy"],
        test=100 * exported["scores"]["test_accuracy"],
        highest=100 * highest.last_score,
        chosen=exported["chosen"]["by"],
        parameters={name: winner["parameters"][name] for name in searched},
        spent=view.epsilon_spent,
        spent_until_winner=budget.steps_epsilon(until),
        cap=view.epsilon_cap,
        steps=view.spent_steps,
        step_cap=view.step_cap,
        steps_per_trial=plan.steps_per_trial,
        started=len(trials),
        pruned=states.count(TrialState.PRUNED),
        failed=states.count(TrialState.FAILED),
        excluded=not_started(study).excluded,
        state=state,
        seconds=seconds,
        trials=[
            {
                **{name: trial.parameters[name] for name in searched},
                "state": trial.state.name.lower(),
                "steps": trial.step,
                "score": trial.last_score,
            }
            for trial in trials
        ],
    )
