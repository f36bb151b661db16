"""The arms of the price of search: each is one experiment file that the product runs and exports.

Every arm has the same total ε and δ, the same records, the same space, epochs and batch size. The oracle is told the
best point of a grid, which was searched at the noise of one run and is not charged, and spends all of ε on one run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import nan, prod
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.price.workloads import DELTA, HELD_OUT, WORKLOADS, Workload
from benchmarks.prior.records import training_records
from search_spaces.prior import leaving_out
from tuner.experiment.loading import parse_experiment
from tuner.experiment.prior import recommended
from tuner.export.package import export_sweep
from tuner.runner.public import run_public
from tuner.runner.run import RunOptions
from tuner.runner.start import start_sweep
from tuner.sweep.folder import find_sweep
from tuner.sweep.preflight import check_startable, prepare

__all__ = ["ARMS", "GRID", "Outcome", "Run", "arms_of", "perform", "seeds_of"]

GRID = "grid"
"""The oracle's uncharged grid. It is no arm: its best point is what the oracle is told."""

# By default the first ten trials of TPE are random, which is nearly all of so short a search.
_TPE = {"name": "tpe", "n_startup_trials": 4}
_TRAINED_AGAIN = 6  # points of the oracle's grid
_HALVING = {"sampler": "random", "pruner": {"name": "asha", "reduction_factor": 2}, "rungs": [0.125, 0.25, 0.5, 1.0]}

ARMS: Mapping[str, str] = {
    "oracle": "oracle: told the best of a grid, one run",
    "middle": "one run in the middle of the space",
    "composition": "whole trials (TPE), composed",
    "selection": "random search, sealed",
    "proxy": "searched on a public proxy, one charged run",
    "full_runs": "halving, planned for the full runs that it takes",
    "commit": "cheap search, then one committed run",
    "prior": "one run at the shipped prior, no search",
    "gen": "one run whose rate sets itself, no search",
    "auto": "`accounting: auto`",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One arm at one ε with one seed. The seed fixes the split, the initialisation and the search, not the noise."""

    workload: str
    arm: str
    epsilon: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run; accuracies are in percent.

    `test` is NaN for the grid, which never sees a test record.
    """

    validation: float
    test: float
    noise_multiplier: float
    parameters: Mapping[str, Any]
    seconds: float = 0.0


def arms_of(workload: Workload) -> tuple[str, ...]:
    """Return the arms of the workload: a proxy needs public records of the same shape."""
    left_out = {*workload.left_out, *(() if workload.proxy else ("proxy",))}
    return tuple(arm for arm in ARMS if arm not in left_out)


def seeds_of(workload: Workload, arm: str) -> range:
    """Return the seeds with which the arm is run: five for arms that train whole trials, which take long."""
    return range(1, 1 + (5 if arm in {"composition", "selection", "proxy"} else workload.price_seeds))


def workload_of(name: str) -> Workload:
    """Return a workload by its name."""
    return {**WORKLOADS, **HELD_OUT}[name]


def perform(data_dir: str | None, told: Mapping[tuple[str, float], Mapping[str, Any]], run: Run) -> Outcome:
    """Run one arm with the commands' own functions, and export its winner, which scores the test set once.

    `told` has the best point of each finished grid by workload and ε.
    """
    workload = workload_of(run.workload)
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        if run.arm == GRID:
            return _grid(workload, run, folder, data_dir)
        parameters = told.get((run.workload, run.epsilon), {})
        dataset = _dataset(workload, folder, data_dir)
        with leaving_out(workload.dataset):  # no arm knows what was measured on the data set on which it is judged
            file = _write(folder, experiment_file(workload, run, parameters, dataset))
            ready = prepare(str(file), (), data_dir=data_dir)
            check_startable(ready)
            options = RunOptions(data_dir=data_dir, local=True, quiet=True, as_json=True)
            if ready.plan.mode.searches_public:
                ended = run_public(ready, options)
                sweep = find_sweep(folder / "runs", ended.values["name"])
            else:
                sweep, ended = start_sweep(ready, options)
        if ended.code:
            raise RuntimeError(f"{run} ended as {ended.state!r} with exit code {ended.code}")
        exported = export_sweep(sweep, folder / "export", data_dir=data_dir)
    return Outcome(
        validation=100 * exported["scores"].get("validation_accuracy", nan),
        test=100 * exported["scores"]["test_accuracy"],
        noise_multiplier=(ready.plan.commit or ready.plan.nominal).noise_multiplier,
        parameters=exported["trial"]["parameters"],
    )


def experiment_file(
    workload: Workload, run: Run, told: Mapping[str, Any], dataset: Mapping[str, object]
) -> dict[str, Any]:
    """Return the experiment file of an arm. `dataset` is its section about the records."""
    file = _one_run(workload, run, workload.middle, dataset)
    whole = {"trials": workload.trials, "space": {**workload.space, **workload.fixed}}
    match run.arm:
        case "oracle":
            file["search"]["space"] = {name: told[name] for name in (*workload.space, *workload.fixed)}
        case "composition":
            file["search"] |= {**whole, "sampler": _TPE}
        case "selection":
            file["search"] |= {**whole, "sampler": "random"}
            file["privacy"]["accounting"] = "selection"
        case "proxy":
            file["search"] |= {**whole, "sampler": _TPE, "public": {"name": workload.proxy}}
            file["privacy"]["accounting"] = "public"
        case "full_runs":
            file["search"] |= {**whole, **_HALVING, "full_runs": "auto"}
        case "commit":
            file["search"] |= {**whole, "sampler": "surrogate", "commit": 0.05}
        case "prior":
            file["search"]["space"] = {**workload.middle, **_recommended(workload, file), **workload.fixed}
        case "gen":
            file["search"]["space"] = {**workload.fixed, "clipping": "automatic", "schedule": "gen"}
        case "auto":
            file["search"] |= whole
            file["privacy"]["accounting"] = "auto"
    return file


def _one_run(
    workload: Workload, run: Run, space: Mapping[str, object], dataset: Mapping[str, object]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "price",
        "seed": 1000 * run.seed,
        "dataset": dict(dataset),
        "trainable": {
            "method": workload.method,
            "model": workload.model,
            "batch_size": workload.batch_size,
            "epochs": workload.epochs,
        },
        "privacy": {"epsilon": run.epsilon, "delta": DELTA},
        "search": {"trials": 1, "sampler": "random", "rungs": 1, "space": {**space, **workload.fixed}},
    }


def _grid(workload: Workload, run: Run, folder: Path, data_dir: str | None) -> Outcome:
    """Return the point of the oracle's grid with the best mean validation score at the noise of one charged run.

    Every point is trained once, and the best ones again.
    """
    file = _one_run(workload, run, workload.middle, _dataset(workload, folder, data_dir))
    noise = _noise_of_one(json.dumps(_placed(folder, file)), data_dir)

    def trained(seed: int, search: Mapping[str, Any]) -> dict[str, float]:
        file["privacy"] |= {"private": False, "noise_multiplier": noise, "noise_seed": seed}
        ready = prepare(str(_write(folder, {**file, "search": {**file["search"], **search}})), (), data_dir=data_dir)
        _, ended = start_sweep(ready, RunOptions(data_dir=data_dir, local=True, quiet=True, as_json=True))
        trials = [trial for trial in ended.values["trials"] if trial["score"] is not None]
        return {json.dumps(trial["parameters"]): trial["score"] for trial in trials}

    choices = {name: {"choice": list(values)} for name, values in workload.grid.items() if len(values) > 1}
    single = {name: values[0] for name, values in workload.grid.items() if len(values) == 1}
    points = prod(map(len, workload.grid.values()))
    space = {**choices, **single, **workload.fixed}
    first = trained(0, {"trials": points, "sampler": "grid", "space": space})
    again = {}
    for point in sorted(first, key=first.__getitem__)[-_TRAINED_AGAIN:]:
        more = [trained(seed, {"space": json.loads(point)}) for seed in range(1, 1 + workload.repeats)]
        again[point] = fmean([first[point], *(score for scores in more for score in scores.values())])
    best = max(again, key=again.__getitem__)
    return Outcome(validation=100 * again[best], test=nan, noise_multiplier=noise, parameters=json.loads(best))


def _recommended(workload: Workload, file: Mapping[str, Any]) -> dict[str, float]:
    """Return the rate and the clip of the shipped prior."""
    wanted = {name: "default" for name in ("learning_rate", "max_grad_norm") if name in workload.space}
    found = recommended({**wanted, **workload.fixed}, parse_experiment(json.dumps(file)))
    return {name: found[name].value for name in wanted}


def _dataset(workload: Workload, folder: Path, data_dir: str | None) -> dict[str, object]:
    """Return the `dataset` section. A user's own file is written first, with a fifth of the records as test records."""
    name = workload.dataset
    if not workload.own_file:
        return {"name": name}
    x, y = training_records(name, data_dir)
    test, train = np.split(np.random.default_rng(1).permutation(len(y)), [len(y) // 5])
    path = folder / f"{name}.npz"
    np.savez(path, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])
    return {"name": name, "path": str(path), "public_size": len(train)}


@lru_cache
def _noise_of_one(file: str, data_dir: str | None) -> float:
    """Return the noise with which one run of the experiment file takes all of ε."""
    with tempfile.TemporaryDirectory() as inside:
        path = Path(inside) / "one.yaml"
        path.write_text(file)
        return prepare(str(path), (), data_dir=data_dir).plan.nominal.noise_multiplier


def _placed(folder: Path, file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file with its own ledger, tracking and storage in the folder."""
    return {
        **file,
        "storage": str(folder / "runs"),
        "ledger": f"sqlite:///{folder}/ledger.db",
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }


def _write(folder: Path, file: Mapping[str, Any]) -> Path:
    path = folder / "price.yaml"
    path.write_text(json.dumps(_placed(folder, file)))  # JSON is YAML
    return path
