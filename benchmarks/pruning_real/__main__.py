"""What a search for the smoothing radius finds on real data for one total ε: ours, TPE with ASHA, and random search.

    python -m benchmarks.pruning_real --data-dir DATA [--quick] [--json] [--only SEARCH ...] [--jobs N] [--out FOLDER]

`radius` searches R from 0 to 100 alone, `composed` R with the Laplacian σ and the weight decay λ. Every method runs
each search with three seeds, at the same noise and under the same cap. FOLDER keeps each sweep that finishes, and a
killed run continues from there. There are no bars: the results are reported, not judged.

`--quick` runs each sweep once on digits, in two minutes, and says nothing about which method is good.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
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
    "test": ("test, %", 2),
    "highest": ("highest validation, %", 2),
    "spent": ("ε spent", 2),
    "spent_until_winner": ("ε until the winner", 2),
    "started": ("trials", 1),
    "pruned": ("pruned", 1),
    "excluded": ("excluded", 1),
    "steps": ("steps", 0),
    "seconds": ("seconds", 0),
}
"""Fields of an outcome: heading, and digits after the point."""


def measure(search: str, settings: Settings, results: Results) -> None:
    """Run the sweeps of a search that are missing, and report all of them."""
    workload = QUICK if settings.quick else FASHION
    kept = Kept(settings.out / "sweeps.jsonl", Run, Outcome)
    wanted = list(runs_of(workload, search))
    dataset = experiment_dataset(workload, settings.out, settings.data_dir)
    perform = partial(sweep_in, settings.out, workload, dataset, settings.data_dir)
    known = kept.complete(wanted, perform, jobs=settings.jobs, shown=_line)
    report({run: known[run] for run in wanted}, workload, search, results)


def report(found: Mapping[Run, Outcome], workload: Workload, search: str, results: Results) -> None:
    """Add a table of means, a table of every sweep, and the means as figures."""
    headings = [heading for heading, _ in COLUMNS.values()]
    means, single = [], []
    for method in METHODS:
        mine = {run.seed: outcome for run, outcome in found.items() if run.method == method}
        means.append((method, len(mine), *_means(f"{search}.{method}", list(mine.values()), results)))
        for seed, outcome in sorted(mine.items()):
            values = [f"{getattr(outcome, name):.{digits}f}" for name, (_, digits) in COLUMNS.items()]
            winner = [f"{outcome.parameters[name]:.3g}" for name in SEARCHES[search].space]
            single.append((method, seed, *values, *winner))
    one = next(iter(found.values()))
    title = (
        f"{search}: {workload.name}; noise multiplier {workload.noise_multiplier:g}, cap ε = {one.cap:g} at "
        f"δ = {DELTA:g}: {one.step_cap} steps, {one.step_cap / one.steps_per_trial:.1f} whole trials; mean ± standard "
        "error"
    )
    results.tables[title] = Table(("method", "sweeps", *headings), tuple(means))
    columns = ("method", "seed", *headings, *SEARCHES[search].space)
    results.tables[f"{search}: every sweep, with the parameters of its winner"] = Table(columns, tuple(single))


def _means(name: str, outcomes: Sequence[Outcome], results: Results) -> list[str]:
    cells = []
    for field, (_, digits) in COLUMNS.items():
        figure = Figure.mean_of([float(getattr(outcome, field)) for outcome in outcomes], "", what="sweeps")
        results.figures[f"real.{name}.{field}"] = figure
        cells.append(figure.plus_minus(digits))
    return cells


def _line(run: Run, outcome: Outcome) -> str:
    return (
        f"{run.search}, {run.method}, seed {run.seed}: "
        f"validation {outcome.validation:.2f} %, test {outcome.test:.2f} %, ε {outcome.spent:.2f} of {outcome.cap:g}, "
        f"{outcome.started} trials, {outcome.pruned} pruned, {outcome.excluded} excluded ({outcome.seconds:.0f} s)"
    )


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
