"""PATE (Papernot et al. 2018; DPLIS, section 5.7): Table 13 by our accountants, and students with smoothed losses.

    python -m benchmarks.pate --data-dir DATA [--only table13 student] [--quick] [--json]

`table13` computes ε of the twelve cells on the real votes of 250 teachers on SVHN, at δ = 1e-5: by the formula that
gives the printed values, by the claim that is true, and given the votes. An ε given the votes is a function of the
votes, so it is NOT private itself: it is shown here because these votes are public, and no claim may use it.

`student` trains on MNIST's public inputs with labels by Confident-GNMax on the real votes (SVHN's images are not
here): threshold 300, σ₁ 200, 4 000 queries, batch 100, rate 0.01 and then 0.001, SGD with momentum 0.9, K = 10. The
smoothing's σ, and the checkpoint in the row "stopped", are chosen by the mean of 2 000 validation records over the
seeds, with and without smoothing alike. The paper takes the highest test accuracy instead. Noise is seeded, so that
the table can be repeated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import ceil, sqrt
from pathlib import Path

import numpy as np

from benchmarks.harness import Benchmark, Kept, Results, Section, Settings, Table, at_most, run
from benchmarks.pate.student import CHECKPOINTS, Outcome, Run, train
from benchmarks.pate.table import PRINTED, cells
from trainables.data import data_folder
from trainables.data.votes import read_votes

SIGMAS = (0.0, 0.025, 0.04, 0.1)
SEEDS = (0, 1, 2, 3, 4)
_SVHN = "pate_votes.npz"


def table13(settings: Settings, results: Results) -> None:
    """Add the table, and the largest difference from a printed ε."""
    found = cells(read_votes(data_folder(settings.data_dir) / _SVHN, "svhn"))
    rows = [
        (
            f"{cell.noise:g}",
            cell.queries,
            cell.labelled,
            f"{cell.printed:.2f}",
            f"{cell.mean:.4f}",
            f"{cell.claim:.4f}",
            f"{cell.given:.4f}",
            f"{cell.given_mean:.4f}",
            f"{cell.expected:.1f}",
        )
        for cell in found
    ]
    columns = (
        "σ₂",
        "queries",
        "labelled (printed)",
        "ε (printed)",
        "ε by the mean, no guarantee",
        "ε that is true, for at most the printed labels",
        "ε given the votes, NOT private",
        "the same by the mean",
        "expected labels, NOT private",
    )
    results.tables["Table 13, SVHN, δ = 1e-5"] = Table(columns, tuple(rows))
    results.count("largest difference from a printed ε", max(abs(cell.mean - cell.printed) for cell in found))
    rounded = [(round(cell.mean, 2), ceil(100 * cell.mean) / 100) for cell in found]
    near = sum(abs(each - cell.printed) < 1e-9 for (each, _), cell in zip(rounded, found, strict=True))
    above = sum(abs(each - cell.printed) < 1e-9 for (_, each), cell in zip(rounded, found, strict=True))
    results.count("cells as printed, rounded to the nearest", near)
    results.count("cells as printed, rounded up", above)
    results.remarks.append(
        "The printed ε follow from Gaussian bounds that hold for all votes, times the EXPECTED number of answers, and "
        "the conversion ε = min over real orders of divergence + log(1/δ)/(order - 1). So they are not data-dependent "
        "bounds, but they are not private either: the expected number is a function of the votes. They are no "
        "guarantee, because a mean over the tests is below what a query can cost."
    )


def student(settings: Settings, results: Results) -> None:
    """Train what is missing, and add the table of gains."""
    own = settings.own
    noises = tuple(PRINTED)[-1:] if settings.quick else tuple(PRINTED)
    sigmas, seeds = (SIGMAS[0], SIGMAS[2]) if settings.quick else SIGMAS, SEEDS[:2] if settings.quick else SEEDS
    steps = 200 if settings.quick else own.steps
    wanted = [
        Run(noise=noise, sigma=sigma, seed=seed, model=own.model, steps=steps)
        for noise in noises
        for sigma in sigmas
        for seed in seeds
    ]
    kept = Kept(settings.out / "students.jsonl", Run, Outcome)
    known = kept.complete(wanted, partial(train, settings.data_dir), jobs=settings.jobs)
    rows = [row for noise in noises for row in gains([run for run in wanted if run.noise == noise], known)]
    columns = (
        "σ₂",
        "labels",
        "right, %",
        "scored",
        "σ of the smoothing",
        "without, %",
        "with, %",
        "gain, 95 % interval",
    )
    results.tables[f"Student on MNIST ({own.model}), test accuracy, {len(seeds)} seeds"] = Table(columns, tuple(rows))


def gains(runs: Sequence[Run], known: Mapping[Run, Outcome]) -> Iterable[tuple[object, ...]]:
    """Return a row for the last step, and one for the checkpoint that validation records choose for each σ."""
    sigmas = sorted({run.sigma for run in runs})
    scores = {
        sigma: np.array([[known[run].validation, known[run].test] for run in runs if run.sigma == sigma])
        for sigma in sigmas
    }
    first = [known[run] for run in runs if run.sigma == 0]
    head = (
        f"{runs[0].noise:g}",
        round(statistics.fmean(each.labels for each in first)),
        f"{statistics.fmean(each.right for each in first):.1f}",
    )
    for scored in ("last step", "stopped"):
        at = {
            sigma: CHECKPOINTS - 1 if scored == "last step" else int(each[:, 0].mean(0).argmax())
            for sigma, each in scores.items()
        }
        best = max(sigmas[1:], key=lambda sigma: scores[sigma][:, 0, at[sigma]].mean())
        plain, smooth = (scores[sigma][:, 1, at[sigma]] for sigma in (0.0, best))
        yield *head, scored, f"{best:g}", f"{plain.mean():.2f}", f"{smooth.mean():.2f}", _interval(smooth - plain)


def _interval(differences: np.ndarray) -> str:
    from scipy.stats import t

    n, mean = len(differences), float(differences.mean())
    half = float(t.ppf(0.975, n - 1)) * float(differences.std(ddof=1)) / sqrt(n)
    return f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="mlp_64", help="network of the student: mlp_64 (default), or tutorial_cnn")
    parser.add_argument("--steps", type=int, default=500, metavar="N", help="steps of a student")


BENCHMARK = Benchmark(
    name="pate",
    about=__doc__,
    jobs=1,
    out=Path("runs/pate"),
    add_options=_add_options,
    sections={
        "table13": Section(
            measure=table13,
            bars={"largest difference from a printed ε": at_most(0.01)},
            datasets=lambda _settings: ["mnist_votes"],
        ),
        "student": Section(measure=student, datasets=lambda _settings: ["mnist_votes"]),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
