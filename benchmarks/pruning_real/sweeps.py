"""The sweeps of the comparison on real data: their settings, their experiment files, and one sweep.

Each is a sweep of the product with its own ledger, ended by an export. All sweeps of a search have the same noise and
the same cap, so each saved step leaves room for another trial. A sweep continues until no whole trial fits any more.

The noise is secret, because only a private sweep has a ledger and an export. So a seed fixes initialisations and the
draws of the samplers, and a second run gives other numbers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data import DatasetRequest, load_records
from tuner.export.package import export_sweep
from tuner.report.facts import read_sweep
from tuner.runner.run import RunOptions
from tuner.runner.start import start_sweep
from tuner.sweep.preflight import check_startable, prepare

DELTA = 1e-5

# By default the first ten trials of TPE are random, which is nearly all of so short a search.
_TPE = {"name": "tpe", "n_startup_trials": 4}

METHODS: Mapping[str, Mapping[str, object]] = {
    "ours": {"sampler": "unimodal", "pruner": "unimodal", "when_sure": "go_on"},
    "tpe+asha": {"sampler": _TPE, "pruner": {"name": "asha", "reduction_factor": 3}},
    "random": {"sampler": "random", "pruner": "none"},
}
"""Method → its part of the experiment file; TPE and ASHA as in the simulation."""


@dataclass(frozen=True)
class Search:
    """A training method and the space that is searched."""

    method: str
    space: Mapping[str, object]


_RADIUS = {"smoothing_radius": {"uniform": [0, 100]}}
_MORE = {"laplacian_sigma": {"uniform": [0, 3]}, "weight_decay": {"log_uniform": [1e-5, 0.1]}}

SEARCHES: Mapping[str, Search] = {
    "radius": Search("dplis", _RADIUS),
    "composed": Search("composed", _RADIUS | _MORE),
}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, its records, and the budget of each sweep."""

    name: str
    dataset: str
    records: int | None  # number of first records of the set that train or validate; None for all
    validation: float  # the share of these records that validates
    model: str
    batch_size: int
    epochs: float
    rungs: int
    noise_multiplier: float
    epsilon: float  # of a whole sweep
    learning_rate: float  # of every trial: radii can be compared only at one rate
    seeds: tuple[int, ...]


FASHION = Workload(
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
"""The cap holds ten whole trials."""

QUICK = Workload(
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
"""A workload that shows only that the sweeps run."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One sweep."""

    workload: str
    search: str
    method: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a sweep; accuracies are in percent."""

    validation: float  # of the exported winner
    test: float  # of the same model; the export scores it once
    parameters: Mapping[str, float]  # the searched parameters of the winner
    spent: float  # ε of all charged steps, by the odometer
    steps: int  # charged
    started: int  # trials
    pruned: int  # trials
    excluded: int  # candidates that the pruner excluded before their first step
    seconds: float = 0.0


def runs_of(workload: Workload, search: str) -> Iterator[Run]:
    """Yield the sweeps of a search, seed by seed, so that an interrupted search has some complete seeds."""
    for seed, method in product(workload.seeds, METHODS):
        yield Run(workload=workload.name, search=search, method=method, seed=seed)


def sweep_in(
    folder: Path, workload: Workload, dataset: Mapping[str, object], data_dir: str | None, run: Run
) -> Outcome:
    """Run one sweep in a folder inside `folder`, which it replaces, and export its winner."""
    own = folder.absolute() / f"{workload.dataset}-{run.search}-{run.method}-{run.seed}"
    # A killed sweep is started anew; its ledger is not needed, because the records are public.
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    (own / "sweep.yaml").write_text(json.dumps(experiment_file(run, workload, dataset, own)))  # JSON is YAML
    ready = prepare(str(own / "sweep.yaml"), (), data_dir=data_dir)
    check_startable(ready)
    options = RunOptions(data_dir=data_dir, local=True, quiet=True, as_json=True)
    made, ended = start_sweep(ready, options)
    if ended.state != "budget reached":
        raise RuntimeError(f"{run} must end at its cap (got {ended.state!r}). Its files are in {own}.")
    exported = export_sweep(made, own / "export", data_dir=data_dir)
    found = read_sweep(made, spent=True)
    if found.budget is None or found.spending is None:
        raise RuntimeError(f"{made.root} must have a ledger and a trial with a score")
    return Outcome(
        validation=100 * exported["scores"]["validation_accuracy"],
        test=100 * exported["scores"]["test_accuracy"],
        parameters={name: exported["trial"]["parameters"][name] for name in found.searched},
        spent=found.budget.epsilon_spent,
        steps=found.budget.spent_steps,
        started=len(found.trials),
        pruned=sum(trial.state == "pruned" for trial in found.trials),
        excluded=found.spending.excluded,
    )


def experiment_file(run: Run, workload: Workload, dataset: Mapping[str, object], folder: Path) -> dict[str, Any]:
    """Return the experiment file of a sweep."""
    search = SEARCHES[run.search]
    fixed = {"smoothing_samples": 1, "learning_rate": workload.learning_rate}
    return {
        "schema": 1,
        "name": "real",
        "seed": 1000 * run.seed,
        "dataset": {**dataset, "validation": {"fraction": workload.validation}},
        "trainable": {
            "method": search.method,
            "model": workload.model,
            "batch_size": workload.batch_size,
            "epochs": workload.epochs,
        },
        "privacy": {"epsilon": workload.epsilon, "delta": DELTA, "noise_multiplier": workload.noise_multiplier},
        "search": {
            "trials": 500,  # more than fit: the cap ends the sweep
            "rungs": workload.rungs,
            "space": {**search.space, **fixed},
            **METHODS[run.method],
        },
        "storage": str(folder / "runs"),
        "ledger": f"sqlite:///{folder}/ledger.db",
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }


def experiment_dataset(workload: Workload, folder: Path, data_dir: str | None) -> dict[str, object]:
    """Return the data set for the experiment file; a part of a shipped set is written to `folder` once."""
    if workload.records is None:
        return {"name": workload.dataset}
    name = f"{workload.dataset}_{workload.records}"
    path = folder.absolute() / f"{name}.npz"
    if not path.exists():
        whole = load_records(DatasetRequest(name=workload.dataset, data_dir=data_dir, validation_fraction=0.0))
        folder.mkdir(parents=True, exist_ok=True)
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
