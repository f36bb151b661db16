"""The published tables of the papers, measured again: theirs next to ours.

    python -m benchmarks.papers --data-dir DATA [--only PAPER ...] [--seeds N] [--minutes N] [--quick] [--json]

A section is a paper. Every choice (rate, radius) is made on validation records, with seeds that are used for nothing
else; the test records are scored once. Unless a table says otherwise: Poisson batches, add or remove one record,
δ = 1e-5, noise calibrated by a privacy loss distribution to the ε of one run. The choices are not charged, as in the
papers. The noise is seeded, so that the tables can be repeated: they measure accuracy on public data and release
nothing.

Finished trainings are kept in --out. A killed run continues from there, `--minutes` stops after a while, and a table
shows what is there; a cell that was never run is left out, with the reason. `--write FILE` writes the page of all that
is kept. `--quick` trains few cells, within five minutes.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.harness import Benchmark, Results, Section, Settings, run
from benchmarks.papers import dp_lssgd, dplis, input_perturbation, weight_decay
from benchmarks.papers.document import write
from benchmarks.papers.paper import Paper

PAPERS: Mapping[str, Paper] = {
    "dp_lssgd": dp_lssgd.PAPER,
    "dplis": dplis.PAPER,
    "weight_decay": weight_decay.PAPER,
    "input_perturbation": input_perturbation.PAPER,
}


def measure(paper: Paper, settings: Settings, results: Results) -> None:
    """Run what is missing, and add the tables of what is there, also when a training fails."""
    try:
        if not settings.own.report:
            paper.measure(settings)
    finally:
        paper.report(settings.out, results, quick=settings.quick)


def write_page(settings: Settings, _results: Results) -> None:
    """Write the page of all results that are kept, if that is wanted."""
    if settings.own.write is not None:
        write(settings.own.write, PAPERS, settings.out)


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds that score the test records")
    parser.add_argument("--minutes", type=float, metavar="N", help="start no training of a paper after N minutes")
    parser.add_argument("--report", action="store_true", help="train nothing, and show what is kept")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page of all results that are kept")


BENCHMARK = Benchmark(
    name="papers",
    about=__doc__,
    out=Path("runs/papers"),
    quick_seconds=270.0,
    add_options=_add_options,
    sections={
        **{
            name: Section(measure=partial(measure, paper), bars=paper.bars, datasets=paper.datasets)
            for name, paper in PAPERS.items()
        },
        "page": Section(measure=write_page, quick=False),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
