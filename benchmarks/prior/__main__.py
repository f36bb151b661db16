"""Measurement and judgement of the shipped prior, on public data sets.

    python -m benchmarks.prior --data-dir DATA [--quick] [--json] [--write] [--only SECTION ...] [--out DIR]

Sections: `measure` trains grids of learning rates and clipping norms in random situations, and what R, σ, λ, batch
sizes and epochs add; `--write` then distils them into search_spaces/prior/measured.json. `convolutional` trains grids
of rates of convolutional models, judges each data set by the others, and with `--write` adds that family to the file;
it comes after `measure`. So does `classes`, for more than ten classes. `perceptrons` judges the prior's rule for
perceptrons. `left_out` judges the prior on each data set with the formulas that were fitted without it: one run against
the best of a grid of 60 on the same validation records. `set_aside` does the same on two data sets that were never
fitted. Only training records are read.
Finished results are kept in --out, and a killed run continues from there.

`--quick` measures ten situations and judges two small data sets, within five minutes. It writes nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Benchmark, Figure, Kept, Results, Section, Settings, Table, at_most, run
from benchmarks.prior import many_classes
from benchmarks.prior.distil import rows_of
from benchmarks.prior.document import PATH, document, with_convolutional, with_many_classes, write
from benchmarks.prior.extras import LEVELS, Gains, LengthCase, Lengths, gains_of, length_cases, lengths_of
from benchmarks.prior.judge import EPSILONS, Case, Oracle, judge_case, oracle_of
from benchmarks.prior.networks import (
    DATASETS,
    NetCase,
    NetGrid,
    capped,
    cases,
    family_fits,
    grid_of,
    loss_at,
    of_perceptrons,
)
from benchmarks.prior.records import FITTED, SET_ASIDE
from benchmarks.prior.situations import Measured, Situation, measure, situations
from search_spaces.prior.recommend import FITTED_CLASSES

SITUATIONS, GAINS, LENGTHS = 250, 20, 10
NET_CASES = {"convolutional": 10, "other": 5}  # of each data set
BAR = 1.5  # points


def complete(kept: Kept[Any, Any], wanted: Iterable[Any], perform: Callable[[Any], Any]) -> dict[Any, Any]:
    """Perform what is missing, keep each result, and return the wanted results."""
    known, found = kept.read(), {}
    for one in wanted:
        if one not in known:
            begun = time.perf_counter()
            known[one] = replace(perform(one), seconds=round(time.perf_counter() - begun, 1))
            kept.append(one, known[one])
        found[one] = known[one]
    return found


def measure_all(settings: Settings, results: Results) -> None:
    """Measure the situations, and write the file if that is wanted."""
    torch.set_num_threads(1)
    data = settings.data_dir
    out = settings.out / "quick" if settings.quick else settings.out
    wanted = situations(10 if settings.quick else SITUATIONS)
    measured = complete(Kept(out / "situations.jsonl", Situation, Measured), wanted, lambda one: measure(one, data))
    linear = [each for each in wanted if each.family == "linear" and each.optimizer == "sgd"]
    gains = complete(
        Kept(out / "gains.jsonl", Situation, Gains),
        linear[: 2 if settings.quick else GAINS],
        lambda one: gains_of(one, measured[one], data),
    )
    cases = length_cases(("iris",) if settings.quick else FITTED, 1 if settings.quick else LENGTHS // len(FITTED))
    lengths = complete(Kept(out / "lengths.jsonl", LengthCase, Lengths), cases, lambda one: lengths_of(one, data))
    results.count("situations", len(measured))
    results.count("trainings", sum(len(each.accuracies) * each.repeats for each in measured.values()))
    flat = rows_of(measured, "sgd").table.flatten(1)
    results.figures["span of a grid"] = Figure.median_of((flat.amax(1) - flat.amin(1)).tolist(), "%")
    rows = []
    for name, levels in LEVELS.items():
        for place, level in enumerate(levels):
            gain = Figure.mean_of([getattr(each, name)[place] for each in gains.values()], "")
            rows.append((name, level, gain.plus_minus(sign="+")))
    title = f"gain over 0 in points, at the best rate of each, {len(gains)} situations"
    results.tables[title] = Table(("parameter", "value", "gain"), tuple(rows))
    if settings.own.write:
        write(document(measured, gains, lengths))


def measure_convolutional(settings: Settings, results: Results) -> None:
    """Measure convolutional models, judge each data set by the others, and write the family if that is wanted."""
    torch.set_num_threads(1)
    wanted = cases(NET_CASES["convolutional"], "convolutional")
    kept = Kept(settings.out / "convolutional.jsonl", NetCase, NetGrid)
    grids = complete(kept, wanted, lambda one: grid_of(one, settings.data_dir))
    rows = []
    for name in DATASETS["convolutional"]:
        own = [grid for case, grid in grids.items() if case.dataset == name]
        most = family_fits({case: grid for case, grid in grids.items() if case.dataset != name})["most"]
        loss = {
            "as a linear model": [loss_at(grid, 0.0) for grid in own],
            f"with steps of at most {most:.2g} · √steps": [loss_at(grid, capped(grid, most)) for grid in own],
        }
        for way, losses in loss.items():
            found = Figure.mean_of(losses, "%")
            results.figures[f"convolutional: mean loss on {name} {way}"] = found
            rows.append((name, way, len(own), found.plus_minus(), f"{max(losses):.1f}"))
    title = "loss of the prior's rate against the best of ten rates, fitted without the data set; validation, points"
    results.tables[title] = Table(("data set", "rate", "situations", "mean loss", "worst"), tuple(rows))
    if settings.own.write:
        write(with_convolutional(json.loads(PATH.read_text()), grids))


def measure_perceptrons(settings: Settings, results: Results) -> None:
    """Measure perceptrons, and judge the prior on each data set with what was measured on the others."""
    torch.set_num_threads(1)
    wanted = cases(NET_CASES["other"], "other")
    kept = Kept(settings.out / "perceptrons.jsonl", NetCase, NetGrid)
    grids = complete(kept, wanted, lambda one: grid_of(one, settings.data_dir))
    losses = {case: loss_at(grid, of_perceptrons(case, grid)) for case, grid in grids.items()}
    rows = []
    for name in DATASETS["other"]:
        own = [loss for case, loss in losses.items() if case.dataset == name]
        rows.append((name, len(own), Figure.mean_of(own, "%").plus_minus(), f"{max(own):.1f}"))
    results.figures["perceptrons: mean loss"] = Figure.mean_of(list(losses.values()), "%")
    title = "perceptrons: loss of the prior's rate against the best of ten rates; validation, points"
    results.tables[title] = Table(("data set", "situations", "mean loss", "worst"), tuple(rows))


def measure_classes(settings: Settings, results: Results) -> None:
    """Measure many classes, write the exponent if that is wanted, and judge each data set by the other."""
    torch.set_num_threads(1)
    kept = Kept(settings.out / "classes.jsonl", many_classes.ClassCase, NetGrid)
    grids = complete(kept, many_classes.cases(), lambda one: many_classes.grid_of(one, settings.data_dir))
    if settings.own.write:
        write(with_many_classes(json.loads(PATH.read_text()), grids))
    rows = []
    for name in many_classes.DATASETS:
        own = [(case, grid) for case, grid in grids.items() if case.dataset == name and case.classes > FITTED_CLASSES]
        losses = {
            "as with ten classes": [many_classes.loss_of_rule(*each, classes=FITTED_CLASSES) for each in own],
            "the prior's": [many_classes.loss_of_rule(*each, classes=each[0].classes) for each in own],
        }
        for way, points in losses.items():
            found = results.figures[f"classes: mean loss on {name}, {way}"] = Figure.mean_of(points, "%")
            rows.append((name, way, len(points), found.plus_minus(), f"{max(points):.1f}"))
    title = "30 and 100 classes: loss of a rate against the best of ten rates, fitted without the data set"
    results.tables[title] = Table(("data set", "rate", "situations", "mean loss", "worst"), tuple(rows))


def judge(datasets: Sequence[str], name: str, settings: Settings, results: Results) -> None:
    """Compare one run at the prior's values with the oracle's."""
    torch.set_num_threads(1)
    cases = [Case(dataset=each, epsilon=epsilon) for each in datasets for epsilon in EPSILONS]
    kept = Kept(settings.out / "oracles.jsonl", Case, Oracle)
    oracles = complete(kept, cases, lambda one: oracle_of(one, settings.data_dir))
    rows, losses, middles = [], {}, {}
    for case, oracle in oracles.items():
        judged = judge_case(case, oracle, settings.data_dir)
        best, mine = statistics.fmean(oracle.runs), statistics.fmean(judged.runs)
        loss = Figure.mean_of([one - other for one, other in zip(oracle.runs, judged.runs, strict=True)], "")
        losses[case], middles[case] = best - mine, best - judged.middle
        rows.append(
            (
                case.dataset,
                case.epsilon,
                oracle.train_size,
                oracle.dimension,
                f"{oracle.noise_multiplier:.2f}",
                f"{best:.2f}",
                f"{mine:.2f}",
                loss.plus_minus(),
                f"{best - judged.at_clip_one:.2f}",
                f"{best - judged.middle:.2f}",
                f"{oracle.rate:.2g}, {oracle.clip:.2g}",
                f"{judged.rate:.2g}, {judged.clip:.2g}",
                "MISS" if best - mine > BAR else "",
            )
        )
    columns: tuple[str, ...] = (
        "data set",
        "ε",
        "n",
        "d",
        "noise",
        "oracle, %",
        "prior, %",
        "loss",
        "loss with C = 1",
        "loss of the middle",
    )
    columns += ("oracle's rate, clip", "prior's", "")
    title = f"{name}: one run with the prior that never saw the data set, and the best of a grid of 60; validation"
    results.tables[title] = Table(columns, tuple(rows))
    whole = {each: max(losses[case] for case in oracles if case.dataset == each) for each in datasets}
    results.count(f"{name}: data sets outside 1.5 points at some ε", sum(loss > BAR for loss in whole.values()))
    results.count(f"{name}: data sets within 1.5 points at every ε", sum(loss <= BAR for loss in whole.values()))
    results.count(f"{name}: worst loss", max(losses.values()), unit="%")
    results.count(
        f"{name}: cases outside 1.5 points", sum(loss > BAR for loss in losses.values()), note=f"of {len(losses)}"
    )
    results.figures[f"{name}: mean loss"] = Figure.mean_of(list(losses.values()), "%")
    results.figures[f"{name}: mean loss of the middle"] = Figure.mean_of(list(middles.values()), "%")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write search_spaces/prior/measured.json")


def _problems(settings: Settings) -> Iterable[str]:
    if settings.quick and settings.own.write:
        yield "--write needs all situations: leave out --quick"


def left_out(settings: Settings, results: Results) -> None:
    """Judge the prior on each data set with what was measured on the others."""
    judge(("iris", "breast_cancer_wisconsin") if settings.quick else FITTED, "left_out", settings, results)


def set_aside(settings: Settings, results: Results) -> None:
    """Judge the prior on the two data sets that were never fitted."""
    judge(SET_ASIDE, "set_aside", settings, results)


BENCHMARK = Benchmark(
    name="prior",
    about=__doc__,
    packages=("torch", "numpy"),
    out=Path("runs/prior"),
    add_options=_options,
    problems=_problems,
    sections={
        "measure": Section(measure=measure_all),
        "convolutional": Section(measure=measure_convolutional, quick=False),
        "classes": Section(measure=measure_classes, quick=False),
        "perceptrons": Section(measure=measure_perceptrons, quick=False),
        "left_out": Section(
            measure=left_out, bars={"left_out: data sets outside 1.5 points at some ε": at_most(0, quick=False)}
        ),
        "set_aside": Section(
            measure=set_aside,
            bars={"set_aside: data sets outside 1.5 points at some ε": at_most(0)},
            quick=False,
        ),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
