"""Simulated prices of many random situations: their tables, and the file that the product ships."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import tuner.plan
from benchmarks.harness import Figure, Kept, Results, Settings, Table
from benchmarks.price.arms import Outcome, Run
from benchmarks.price.simulated import ARMS, LENGTH, SHARE, TRIALS, Lookup, Simulated, price
from benchmarks.price.tables import EPSILONS, Case, Measured, cases
from benchmarks.price.tables import measure as tabulate
from benchmarks.price.workloads import EPSILONS as WORKLOAD_EPSILONS
from benchmarks.price.workloads import WORKLOADS
from benchmarks.prior.records import checksums
from trainables.data import DatasetRequest, public_train_size
from trainables.model_sizes import family_of
from tuner.plan.prices import ARMS as PRICED

__all__ = ["DATASETS", "PATH", "measure"]

PATH = Path(tuner.plan.__file__).parent / "prices" / "measured.json"
DATASETS = sorted({case.dataset for case in cases(16)})
_CASES, _DRAWS = 150, 4
_BANDS = (0.0, 2.0, 6.0, 20.0, float("inf"))
_SLACK = 0.05  # points by which an arm must be below another one to count as below it


@dataclass(frozen=True, kw_only=True)
class Search:
    """One arm in one case."""

    case: Case
    arm: str


def measure(settings: Settings, results: Results) -> None:
    """Train the tables that are missing, simulate every arm, and add the results. `--write` stores them."""
    kept = Kept(settings.out / "tables.jsonl", Case, Measured)
    wanted = cases(_CASES)
    known = kept.complete(wanted, partial(tabulate, data_dir=settings.data_dir), jobs=settings.jobs)
    tables = {case: known[case] for case in wanted if known[case].train_size}
    found: dict[Search, Simulated] = {}
    for case, measured in tables.items():
        about = Lookup(case, measured)
        for arm in ARMS:
            found[Search(case=case, arm=arm)] = price(about, arm, _DRAWS)
    report(found, results)
    if settings.own.write:
        write(tables, found, trained(Kept(settings.out / "price.jsonl", Run, Outcome).read()))
        results.remarks.append(f"written: {PATH}")


def report(found: Mapping[Search, Simulated], results: Results) -> None:
    """Add mean prices by ε and by noise, and how often an arm is below the middle and the prior."""

    def cell(arm: str, kept: list[Case]) -> str:
        return _mean([found[Search(case=case, arm=arm)].price for case in kept]).plus_minus(sign="+") if kept else "–"

    every = list(dict.fromkeys(search.case for search in found))
    noise = {search.case: each.noise for search, each in found.items()}
    epsilons = {epsilon: [case for case in every if case.epsilon == epsilon] for epsilon in EPSILONS}
    columns = ("", "all", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    results.tables[f"Price in points, mean of {len(every)} simulated situations"] = Table(
        columns, tuple((arm, cell(arm, every), *(cell(arm, kept) for kept in epsilons.values())) for arm in ARMS)
    )
    bands = [[case for case in every if low <= noise[case] < high] for low, high in pairwise(_BANDS)]
    names = [f"r√T {low:g}–{high:g} ({len(kept)})" for (low, high), kept in zip(pairwise(_BANDS), bands, strict=True)]
    rows = tuple((arm, *(cell(arm, kept) for kept in bands)) for arm in ARMS)
    results.tables["Price in points by the noise of one run"] = Table(("", *names), rows)
    for arm in ARMS:
        own = [found[Search(case=case, arm=arm)].price for case in every]
        results.figures[f"simulated.{arm}"] = _mean(own)
        for other in ("prior", "middle"):
            theirs = [found[Search(case=case, arm=other)].price for case in every]
            results.figures[f"simulated.{arm}.minus_{other}"] = _mean([a - b for a, b in zip(own, theirs, strict=True)])
            below = float(np.mean([a > b + _SLACK for a, b in zip(own, theirs, strict=True)]))
            results.figures[f"simulated.{arm}.below_{other}"] = Figure(below, "", below, below)


def trained(known: Mapping[Run, Outcome]) -> list[dict[str, Any]]:
    """Return the mean price of each arm and ε of the workloads, but not of those that are held out.

    The accuracies are those on the validation records, so that `accounting: auto` follows no test set.
    """
    rows = []
    for (name, workload), epsilon in product(WORKLOADS.items(), WORKLOAD_EPSILONS):
        own = {run: out for run, out in known.items() if (run.workload, run.epsilon) == (name, epsilon)}
        scores = {arm: [out.validation for run, out in own.items() if run.arm == arm] for arm in (*PRICED, "oracle")}
        size = public_train_size(DatasetRequest(name=workload.dataset))
        rows += [
            {
                "arm": arm,
                "trials": 1 if arm in ("prior", "middle", "gen") else workload.trials,
                "axes": len(workload.space),
                "family": family_of(workload.model),
                "train_size": size,
                "dataset": workload.dataset,
                "epsilon": epsilon,
                "price": round(fmean(scores["oracle"]) - fmean(scores[arm]), 3),
            }
            for arm in PRICED
            if scores[arm] and scores["oracle"]
        ]
    return rows


def write(
    tables: Mapping[Case, Measured], found: Mapping[Search, Simulated], searched: Sequence[Mapping[str, Any]]
) -> None:
    """Write the file that the product ships. `searched` are the rows of searches by the product itself."""
    searches = [
        {
            "arm": search.arm,
            "trials": 1 if search.arm in ("prior", "middle") else TRIALS,
            "axes": search.case.axes,
            "family": search.case.family,
            "train_size": tables[search.case].train_size,
            "dataset": search.case.dataset,
            "epsilon": search.case.epsilon,
            "price": round(each.price, 3),
        }
        for search, each in found.items()
    ]
    searches += searched
    provenance = {
        "command": "python -m benchmarks.price --only simulated --write",
        "what": "searches simulated on tables of measured trainings in random situations on public training records, "
        "and the mean prices of the searches of this benchmark by the product, on validation records",
        "optimizer": "sgd",
        "data_sets": {name: checksums()[name] for name in DATASETS},
        "situations": len(tables),
        "searches_by_the_product": len(searched),
        "searches_per_situation": _DRAWS,
        "commit": {"share": SHARE, "length": LENGTH},
        "seeds": [min(case.seed for case in tables), max(case.seed for case in tables)],
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
    }
    lines = ",\n".join("  " + json.dumps(row) for row in searches)
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(f'{{\n "provenance": {json.dumps(provenance)},\n "searches": [\n{lines}\n ]\n}}\n')


def _mean(values: list[float]) -> Figure:
    return Figure.mean_of(values, "points")
