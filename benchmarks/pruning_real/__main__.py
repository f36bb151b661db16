"""Searches for the smoothing radius on real data for one total ε: ours, TPE with ASHA, and random search.

    python -m benchmarks.pruning_real --data-dir DATA [--quick] [--json] [--only SECTION ...] [--jobs N] [--out DIR]

Sections: `radius` searches R from 0 to 100; `composed` searches R, the Laplacian σ and the weight decay λ. Every method
runs each search with three seeds, at the same noise and under the same cap. Each finished sweep is kept in --out, and a
killed run continues from there. There are no bars: the results are reported, not judged.

`--quick` runs each sweep once on digits, in two minutes, to see that it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.harness import Benchmark, Figure, Kept, Results, Section, Settings, Table, run
from benchmarks.pruning_real.sweeps import (
    DELTA,
    FASHION,
    METHODS,
    QUICK,
    SEARCHES,
    Outcome,
    Run,
    Workload,
    experiment_dataset,
    runs_of,
    sweep_in,
)

COLUMNS: Mapping[str, tuple[str, int]] = {
    "validation": ("validation, %", 2),
    "test": ("its test, %", 2),
    "spent": ("ε spent", 2),
    "started": ("trials", 1),
    "pruned": ("stopped", 1),
    "excluded": ("excluded", 1),
    "steps": ("steps", 0),
}
"""Fields of an outcome: heading, and digits after the point."""


def measure(search: str, settings: Settings, results: Results) -> None:
    """Run the missing sweeps of a search, and report all of them."""
    workload = QUICK if settings.quick else FASHION
    kept = Kept(settings.out / "sweeps.jsonl", Run, Outcome)
    wanted = list(runs_of(workload, search))
    dataset = experiment_dataset(workload, settings.out, settings.data_dir)
    perform = partial(sweep_in, settings.out, workload, dataset, settings.data_dir)
    known = kept.complete(wanted, perform, jobs=settings.jobs)
    report({run: known[run] for run in wanted}, workload, search, results)


def report(found: Mapping[Run, Outcome], workload: Workload, search: str, results: Results) -> None:
    """Add a table of means and a table of every sweep."""
    headings = [heading for heading, _ in COLUMNS.values()]
    means, single = [], []
    for method in METHODS:
        mine = {run.seed: outcome for run, outcome in found.items() if run.method == method}
        over_seeds = {name: [float(getattr(outcome, name)) for outcome in mine.values()] for name in COLUMNS}
        cells = [Figure.mean_of(over_seeds[name], "").plus_minus(digits) for name, (_, digits) in COLUMNS.items()]
        means.append((method, len(mine), *cells))
        for seed, outcome in sorted(mine.items()):
            values = [f"{getattr(outcome, name):.{digits}f}" for name, (_, digits) in COLUMNS.items()]
            winner = [f"{outcome.parameters[name]:.3g}" for name in SEARCHES[search].space]
            single.append((method, seed, *values, *winner))
    title = (
        f"{search}: {workload.name}; noise multiplier {workload.noise_multiplier:g}, cap ε = {workload.epsilon:g} at "
        f"δ = {DELTA:g}; mean ± standard error"
    )
    results.tables[title] = Table(("method", "sweeps", *headings), tuple(means))
    columns = ("method", "seed", *headings, *SEARCHES[search].space)
    results.tables[f"{search}: every sweep, with the parameters of its winner"] = Table(columns, tuple(single))


BENCHMARK = Benchmark(
    name="pruning_real",
    about=__doc__,
    packages=("torch", "optuna"),
    jobs=1,
    out=Path("runs/pruning_real"),
    sections={
        search: Section(
            measure=partial(measure, search),
            datasets=lambda settings: () if settings.quick else (FASHION.dataset,),
        )
        for search in SEARCHES
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
