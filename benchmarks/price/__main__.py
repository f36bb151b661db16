"""The price of search: what a search costs in test accuracy, against an oracle that tunes for nothing.

    python -m benchmarks.price --data-dir DATA [--quick] [--json] [--only SECTION ...] [--out DIR] [--jobs N]

A section is a workload. Each arm is run at a total ε of 0.3, 1, 3 and 8 with several seeds, by the product's plan,
driver and ledger, and scores the test set once. The price of an arm is the oracle's accuracy minus its own, in points.
The noise is secret, so another run gives other numbers within the standard errors. Finished runs are kept in --out, and
a killed benchmark continues from there. `--quick` runs one seed at ε = 1 of the logistic regression on digits. The
sections from `cifar100_features` on came last. `simulated` looks the trainings up in tables, so it compares the arms
in many random situations; `--write` stores its prices. `rule` judges the rule of `auto` on the stored prices.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from math import isfinite, sqrt
from pathlib import Path

from benchmarks.harness import Bar, Benchmark, Figure, Kept, Results, Section, Settings, Table, at_least, at_most, run
from benchmarks.price import document, rule
from benchmarks.price.arms import ARMS, GRID, Outcome, Run, arms_of, perform, seeds_of
from benchmarks.price.workloads import EPSILONS, HELD_OUT, WORKLOADS, Workload
from trainables.data import DATASETS

QUICK = "digits"
_REGISTERED = tuple(name for name in document.DATASETS if name in DATASETS)
_OTHERS = tuple(arm for arm in ARMS if arm not in {"oracle", "auto"})


def measure(workloads: Mapping[str, Workload], settings: Settings, results: Results) -> None:
    """Run what is missing, and add the tables, also when a run fails."""
    kept = Kept(settings.out / "price.jsonl", Run, Outcome)
    for name, workload in workloads.items():
        epsilons = (1.0,) if settings.quick else EPSILONS
        try:
            grids = [Run(workload=name, arm=GRID, epsilon=epsilon, seed=0) for epsilon in epsilons]
            grids = grids if "oracle" in settings.own.arms else []
            known = kept.complete(grids, partial(perform, settings.data_dir, {}), jobs=settings.jobs)
            told = {(run.workload, run.epsilon): out.parameters for run, out in known.items() if run.arm == GRID}
            wanted = [
                Run(workload=name, arm=arm, epsilon=epsilon, seed=seed)
                for epsilon, arm in product(epsilons, arms_of(workload))
                if arm in settings.own.arms
                for seed in ((1,) if settings.quick else seeds_of(workload, arm))
            ]
            wanted.sort(key=lambda run: run.seed)
            kept.complete(wanted, partial(perform, settings.data_dir, told), jobs=settings.jobs)
        finally:
            report(name, workload, kept.read(), results)


def report(name: str, workload: Workload, known: Mapping[Run, Outcome], results: Results) -> None:
    """Add a table of test accuracies, one of prices, one of noises, and the figures that are judged."""
    found = {
        (arm, epsilon): [
            out for run, out in known.items() if (run.workload, run.arm, run.epsilon) == (name, arm, epsilon)
        ]
        for arm, epsilon in product(ARMS, EPSILONS)
    }
    tests = {key: Figure.mean_of([out.test for out in outs], "%") for key, outs in found.items() if outs}
    columns = ("", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))

    def rows(cell: Callable[[str, float], str]) -> tuple[tuple[str, ...], ...]:
        return tuple((ARMS[arm], *(cell(arm, epsilon) for epsilon in EPSILONS)) for arm in arms_of(workload))

    results.tables[f"{workload.title}: test accuracy, %"] = Table(columns, rows(partial(_score, tests)))
    results.tables[f"{workload.title}: price of search, points"] = Table(columns, rows(partial(_price_cell, tests)))
    results.tables[f"{workload.title}: noise of the released run"] = Table(columns, rows(partial(_noise, found)))
    for (arm, epsilon), figure in tests.items():
        results.figures[f"test.{name}.{arm}.{epsilon:g}"] = figure
        if (price := _price(tests, arm, epsilon)) is not None:
            results.figures[f"price.{name}.{arm}.{epsilon:g}"] = price
    for epsilon in EPSILONS:
        _compare(name, tests, epsilon, results)


def _compare(name: str, tests: Mapping[tuple[str, float], Figure], epsilon: float, results: Results) -> None:
    """Add how far `auto` is above the middle of the space, and how far the best other arm is above `auto`."""
    auto = tests.get(("auto", epsilon))
    if auto is None:
        return
    if middle := tests.get(("middle", epsilon)):
        results.figures[f"above_middle.{name}.{epsilon:g}"] = _difference(auto, middle)
    others = [figure for arm in _OTHERS if (figure := tests.get((arm, epsilon))) is not None]
    if others:
        best = max(others, key=lambda figure: figure.value)
        results.figures[f"below_best.{name}.{epsilon:g}"] = _difference(best, auto)


def _price(tests: Mapping[tuple[str, float], Figure], arm: str, epsilon: float) -> Figure | None:
    oracle, own = tests.get(("oracle", epsilon)), tests.get((arm, epsilon))
    return None if oracle is None or own is None or arm == "oracle" else _difference(oracle, own)


def _difference(first: Figure, second: Figure) -> Figure:
    """Return the difference of two means with its standard error; the runs are independent."""
    value, errors = first.value - second.value, [first.error, second.error]
    error = sqrt(sum(each**2 for each in errors)) if all(map(isfinite, errors)) else float("nan")
    return Figure(value, "points", value - error, value + error, note="difference of means and its standard error")


def _score(tests: Mapping[tuple[str, float], Figure], arm: str, epsilon: float) -> str:
    return tests[arm, epsilon].plus_minus() if (arm, epsilon) in tests else "–"


def _price_cell(tests: Mapping[tuple[str, float], Figure], arm: str, epsilon: float) -> str:
    price = _price(tests, arm, epsilon)
    return "–" if price is None else price.plus_minus(sign="+")


def _noise(found: Mapping[tuple[str, float], list[Outcome]], arm: str, epsilon: float) -> str:
    noises = sorted({round(out.noise_multiplier, 3) for out in found[arm, epsilon]})
    return ", ".join(f"{noise:g}" for noise in noises) or "–"


def _bars(workloads: Mapping[str, Workload]) -> dict[str, Bar]:
    """Return the bars of `auto`; one seed is too few to judge, so a quick run judges none of them."""
    bars = {}
    for name, workload in workloads.items():
        for epsilon in workload.judged:
            bars[f"price.{name}.auto.{epsilon:g}"] = at_most(workload.bar, quick=False)
            bars[f"above_middle.{name}.{epsilon:g}"] = at_least(0.0, quick=False)
    return bars


def _datasets(workloads: Mapping[str, Workload], _settings: Settings) -> set[str]:
    return {
        name
        for workload in workloads.values()
        for name in (workload.proxy, "" if workload.own_file else workload.dataset)
        if name
    }


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write tuner/plan/prices/measured.json (simulated)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=tuple(ARMS), help="run these arms only")


BENCHMARK = Benchmark(
    name="price",
    about=__doc__,
    packages=("torch", "optuna", "dp-accounting"),
    jobs=1,
    out=Path("runs/price"),
    quick_seconds=290.0,
    add_options=_add_options,
    sections={
        **{
            name: Section(
                measure=partial(measure, {name: workload}),
                bars=_bars({name: workload}),
                quick=name == QUICK,
                datasets=partial(_datasets, {name: workload}),
            )
            for name, workload in {**WORKLOADS, **HELD_OUT}.items()
        },
        "simulated": Section(measure=document.measure, quick=False, datasets=lambda _settings: _REGISTERED),
        "rule": Section(measure=rule.measure, bars={"rule.auto.minus_never": at_most(0.0)}),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
