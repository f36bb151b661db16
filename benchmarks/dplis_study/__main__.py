"""The share of smoothing in DPLIS' published gain: validation accuracy over R, next to tuned DP-SGD.

    python -m benchmarks.dplis_study --data-dir DATA [--jobs 2] [--plots DIR]     MNIST, an MLP, five seeds
    python -m benchmarks.dplis_study --cnn [--seeds 1]                            the tutorial CNN on three data sets
    python -m benchmarks.dplis_study --quick                                      two minutes, to see that it runs

Each finished training is kept in --out, and a killed run continues from there. No training holds a test record. The
noise is seeded so that the table can be repeated: the numbers measure accuracy on public data and release nothing.

The study compares, on paired seeds (same initialisation, perturbations, batches and noise), early (ε ≈ 2) and late
(ε ≈ 10):

* `mean` (equation 6) and `sum` (the authors' code) at the published rate, for R = 0 to 80. `sum` at R = 0 is clipping
  at C/K with K times the rate; the proof is at `Study.run`.
* DP-SGD at its own best rate, chosen on other seeds.
* DPLIS (mean) at its own best rate, for some R.

Why not the published setting (50 000 records, batch 256, noise 1.1, MLP 512-128)? It takes 117 691 steps to ε = 10, and
ten passes a step make that hours a run on a CPU. "Late" in that setting means a long walk of noise at a constant rate,
so this study keeps the length of that walk:

                                                  published, MLP 512-128      here, MLP 64
    length of a step's noise over C, z·sqrt(d)/b         2.9                       3.2
    walk of a weight until ε = 2, η·z·sqrt(T)/b          0.055                     0.043
    walk of a weight until ε = 10                        0.226                     0.211
    steps T early, late                                  6 947, 117 691            390, 9 543

(z is the noise multiplier, d the number of weights, b the batch.) At a given η the walk until ε = 10 takes about two
steps a training record, whatever the batch. So this study trains on 5 000 records and validates on all others, with a
sampling error of 0.13 points. The price: 12 times fewer steps carry the same noise, so accuracies are lower than the
paper's, and only differences can be compared. C and η are the published ones. R counts in lengths of the step's noise
(first row), so an R moves the weights about as far as it did in the paper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.dplis_study.arms import Known, Point, comparison, points, selection_runs, smoothed_selection
from benchmarks.dplis_study.runs import Outcome, Run, Study, train
from benchmarks.harness import Benchmark, Kept, Results, Section, Settings, Table, run

MLP = Study(name="MNIST, one hidden layer of 64")
QUICK = Study(
    name="MNIST, quick look",
    epsilons=(2.0, 2.3),
    radii=(10.0, 40.0),
    rates=(0.1536, 0.6144),
    tuned_radii=((10.0,), (10.0,)),
    seeds=(0, 1),
    selection_seeds=(100,),
)
CNNS = tuple(
    Study(
        name=f"{title}, tutorial CNN",
        dataset=dataset,
        model="tutorial_cnn",
        batch_size=128,
        noise_multiplier=1.0,
        epsilons=(2.0, 4.0),
        radii=(10.0, 40.0),
        rates=(0.0768, 0.1536, 0.3072, 0.6144),
        tuned_radii=((), ()),
        seeds=(0, 1),
        selection_seeds=(100,),
    )
    for title, dataset in (("MNIST", "mnist"), ("Fashion-MNIST", "fashion_mnist"), ("CIFAR-10", "cifar10"))
)
STAGES: Sequence[Callable[[Study, Known], Iterable[Run]]] = (selection_runs, smoothed_selection, comparison)
"""The runs of a study. The runs of each stage follow from the results of the stages before it."""


def measure(settings: Settings, results: Results) -> None:
    """Train what is missing, and add the tables of each study."""
    kept = Kept(settings.out / "runs.jsonl", Run, Outcome)
    for study in chosen(settings):
        for runs_of in STAGES:
            wanted = runs_of(study, kept.read())
            kept.complete(wanted, partial(train, settings.data_dir), jobs=settings.jobs)
        found = points(study, kept.read())
        for point in found:
            results.tables[f"{study.name}, {point.title}"] = scores_table(point)
        if settings.own.plots is not None:
            settings.own.plots.mkdir(parents=True, exist_ok=True)
            draw(settings.own.plots / f"dplis_study_{study.dataset}_{study.model}.svg", found)


def scores_table(point: Point) -> Table:
    """Return the score of every arm, and its differences from DP-SGD and from the same clip and rate at R = 0."""
    rows = []
    for arm, score in point.scores.items():
        rate = arm.learning_rate * (point.study.smoothing_samples if (arm.radius, arm.reduction) == (0, "sum") else 1)
        tried = point.smoothed_rates if arm.radius else point.study.rates
        # A better rate may be beyond the ends of those tried.
        at_end = arm.tuned and arm.learning_rate in (tried[0], tried[-1])
        unsmoothed = "–" if arm.tuned else score.minus(point.at(0.0, arm.reduction)).signed()
        rows.append(
            (
                arm.label,
                f"{'> ' if at_end else ''}{rate:g}",
                score.figure.plus_minus(),
                score.minus(point.untuned).signed(),
                score.minus(point.tuned).signed(),
                unsmoothed,
            )
        )
    columns = ("", "learning rate", "accuracy, %", "minus untuned DP-SGD", "minus tuned DP-SGD", "minus R = 0")
    return Table(columns, tuple(rows))


def draw(path: Path, found: Sequence[Point]) -> None:
    """Draw accuracy over R, early and late; whiskers and bands are one standard error."""
    picture = Figure(figsize=(5.5 * len(found), 4), layout="constrained")
    for axes, point in zip(picture.subplots(1, len(found)), found, strict=True):
        radii = (0.0, *point.study.radii)
        for reduction in point.study.reductions:
            scores = [point.at(radius, reduction).figure for radius in radii]
            means, errors = [score.value for score in scores], [score.error for score in scores]
            axes.errorbar(range(len(radii)), means, yerr=errors, fmt="o-", label=f"DPLIS, {reduction}")
        for colour, label, score in (("C2", "untuned", point.untuned.figure), ("C3", "tuned", point.tuned.figure)):
            axes.axhline(score.value, color=colour, linestyle="--", label=f"{label} DP-SGD")
            axes.axhspan(score.lower, score.upper, color=colour, alpha=0.2)
        axes.set_xticks(range(len(radii)), [f"{radius:g}" for radius in radii])
        axes.set(title=point.title, xlabel="smoothing radius R (not to scale)", ylabel="validation accuracy, %")
        axes.legend()
    picture.savefig(path)


def chosen(settings: Settings) -> list[Study]:
    """Return the studies that the options select."""
    studies = CNNS if settings.own.cnn else (QUICK if settings.quick else MLP,)
    return [replace(study, seeds=study.seeds[: settings.own.seeds]) for study in studies]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cnn", action="store_true", help="the tutorial CNN on three data sets, few points")
    parser.add_argument("--seeds", type=int, help="number of seeds; all seeds of the study by default")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw accuracy over R here")


def _problems(settings: Settings) -> Iterable[str]:
    if settings.quick and settings.own.cnn:
        yield "--quick and --cnn exclude each other. Use one of them."


BENCHMARK = Benchmark(
    name="dplis_study",
    about=__doc__,
    jobs=2,
    out=Path("runs/dplis_study"),
    add_options=_add_options,
    problems=_problems,
    sections={
        "study": Section(measure=measure, datasets=lambda settings: [study.dataset for study in chosen(settings)])
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
