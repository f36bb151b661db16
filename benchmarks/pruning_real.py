"""What a search for the smoothing radius finds on real data for one total ε: ours, TPE with ASHA, and random search.

    python -m benchmarks.pruning_real --data-dir DATA [--quick] [--json] [--only SEARCH ...] [--jobs N] [--out FOLDER]

Searches: `radius` (R from 0 to 100 alone) and `composed` (R with the Laplacian σ and the weight decay λ). Each is made
by every method with three seeds, at the same noise and under the same cap. Each sweep that finishes is kept in FOLDER,
and a run that was cut off goes on from there. There are no bars: what is found is told, not judged.

`--quick` makes each sweep once on digits, in two minutes, and says nothing about which method is good.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.budget_common import Results, Table, count
from benchmarks.budget_report import as_json, table_text
from benchmarks.engine import processor
from benchmarks.engine_bars import judge
from benchmarks.engine_measure import Figure
from benchmarks.pruning_real_runs import (
    DELTA,
    FASHION,
    METHODS,
    QUICK,
    SEARCHES,
    Outcome,
    Run,
    Workload,
    append,
    perform,
    read,
    runs_of,
)

__all__ = ["main", "note_tables"]

_COLUMNS: Mapping[str, tuple[str, int]] = {
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
"""Fields of an outcome: heading, and digits behind the point."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and print what is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", default=None, help="folder with the data sets")
    parser.add_argument("--quick", action="store_true", help="each sweep once on digits: does it run")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--only", choices=SEARCHES, nargs="+", default=list(SEARCHES), help="these searches alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes that sweep at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/pruning_real"), help="where sweeps are kept")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    workload, results = QUICK if options.quick else FASHION, Results()
    searches = [name for name in SEARCHES if name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "sweeps.jsonl"
    wanted, known = list(runs_of(workload, searches)), read(path)
    missing = [run for run in wanted if run not in known]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} sweeps known in {path}", flush=True)
    sweeping = perform(missing, workload, folder=options.out, data_dir=options.data_dir, jobs=options.jobs)
    for run, outcome in sweeping if missing else ():
        append(path, run, outcome)
        print(_line(run, outcome), flush=True)
    if options.quick:
        results.remarks.append(f"--quick: {FASHION.name} was left out; digits says nothing about which method is good")
    note_tables(read(path), workload, searches, results)
    results.remarks.append("told, not judged: there are no bars")
    environment = {
        "machine": processor(),
        "versions": f"python {platform.python_version()}, torch {version('torch')}, optuna {version('optuna')}",
        "seeds": ", ".join(map(str, workload.seeds)),
        "command": "python -m benchmarks.pruning_real " + " ".join(sys.argv[1:]),
        "seconds": round(time.perf_counter() - started),
    }
    lines = [f"{name}: {value}" for name, value in environment.items()]
    for title, table in results.tables.items():
        lines += ["", title, "", *table_text(table)]
    print("\n".join([*lines, "", *results.remarks]))
    if options.json:
        print(as_json(results, judge(results.figures, ()), environment, ()))
    return 0


def note_tables(known: Mapping[Run, Outcome], workload: Workload, searches: Sequence[str], results: Results) -> None:
    """A table of means and one of every sweep, for each search, and the means as figures."""
    wanted = list(runs_of(workload, searches))
    results.figures["real.missing"] = count(sum(run not in known for run in wanted), unit="sweeps")
    for search in searches:
        found = {
            method: {
                run.seed: known[run] for run in wanted if (run.search, run.method) == (search, method) and run in known
            }
            for method in METHODS
        }
        if not any(found.values()):
            continue
        heads = [heading for heading, _ in _COLUMNS.values()]
        means = [(method, len(mine), *_means(f"{search}.{method}", mine, results)) for method, mine in found.items()]
        title = f"{search}: {workload.name}; {_budget(found, workload)}"
        results.tables[f"{title}; mean ± standard error"] = Table(("method", "sweeps", *heads), tuple(means))
        searched = tuple(SEARCHES[search][1])
        single = [
            (method, seed, *_values(outcome), *(f"{float(str(outcome.parameters[name])):.3g}" for name in searched))
            for method, mine in found.items()
            for seed, outcome in sorted(mine.items())
        ]
        results.tables[f"{search}: every sweep, with what its winner has"] = Table(
            ("method", "seed", *heads, *searched), tuple(single)
        )


def _means(name: str, outcomes: Mapping[int, Outcome], results: Results) -> list[str]:
    """A cell for each column; each is noted as a figure too."""
    cells = []
    for field, (_, digits) in _COLUMNS.items():
        values = [float(getattr(outcome, field)) for outcome in outcomes.values()]
        if not values:
            cells.append("–")
            continue
        mean = statistics.fmean(values)
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        cells.append(f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}"))
        note = f"mean and one standard error, {len(values)} sweep{'s' * (len(values) > 1)}"
        results.figures[f"real.{name}.{field}"] = Figure(mean, mean - error, mean + error, unit="", note=note)
    return cells


def _values(outcome: Outcome) -> list[str]:
    return [f"{float(getattr(outcome, field)):.{digits}f}" for field, (_, digits) in _COLUMNS.items()]


def _budget(found: Mapping[str, Mapping[int, Outcome]], workload: Workload) -> str:
    """What all of them may spend."""
    one = next(outcome for mine in found.values() for outcome in mine.values())
    return (
        f"noise multiplier {workload.noise_multiplier:g}, cap ε = {one.cap:g} at δ = {DELTA:g}: {one.step_cap} steps, "
        f"{one.step_cap / one.steps_per_trial:.1f} whole trials"
    )


def _line(run: Run, outcome: Outcome) -> str:
    return (
        f"{run.search}, {run.method}, seed {run.seed}: "
        f"validation {outcome.validation:.2f} %, test {outcome.test:.2f} %, ε {outcome.spent:.2f} of {outcome.cap:g}, "
        f"{outcome.started} trials, {outcome.pruned} pruned, {outcome.excluded} excluded ({outcome.seconds:.0f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
