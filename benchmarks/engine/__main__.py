"""The private step against plain SGD, Opacus, torch.func and the naive loop: its cost, and the bars that it clears.

    python -m benchmarks.engine [--quick] [--json] [--only SECTION ...] [--device cpu|cuda] [--plots DIR]

Every ratio comes from one race in one process: the contenders take turns, A B C A B C ..., on one thread, and glibc
keeps freed memory for all of them. Each takes its step from drawing and gathering the batch to the update. CPU time
(wall time on a GPU) is compared round by round: the median, with the quartiles in brackets. Before the race, a private
contender must compute the same clipped sum as ours on one batch, to 1e-4. The records are Gaussians of the data sets'
shapes: speed does not depend on their values.

Sections: `parts` (noise and draws), `memory`, `steps` (all contenders on each workload), `wide` (rivals that take
gigabytes), `choices` (the engine's choices by shape against the other way) and `lines` (cost against K and the batch,
which `--plots` draws).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from benchmarks.engine import choices, own_process, parts, steps
from benchmarks.engine.workloads import LINE_BARS, MEMORY_BARS, PART_BARS, STEP_BARS, WIDE, WORKLOADS
from benchmarks.harness import Benchmark, Figure, Results, Section, Settings, Table, run
from benchmarks.harness.report import digits, spread

TABLES: Mapping[str, Mapping[str, str]] = {
    "A private step: milliseconds, in non-private steps, and how many times longer the others take": {
        "non-private ms": "non_private_ms",
        "step ms": "step_ms",
        "in non-private": "step_over_non_private",
        "the same with torch's noise": "open_noise_over_non_private",
        "hooks": "hooks_over_step",
        "hooks, channels-last": "hooks_nhwc_over_step",
        "functorch": "functorch_over_step",
        "ew": "ew_over_step",
        "ghost": "ghost_over_step",
        "vmap(grad)": "vmap_over_step",
        "naive loop": "naive_over_step",
    },
    "DPLIS, K = 10, R = 10, mean": {
        "ms": "dplis_ms",
        "in ten non-private steps": "dplis_over_ten_non_private",
        "in our own steps": "dplis_over_step",
        "K passes of hooks": "hooks_passes_over_dplis",
        "K naive loops": "naive_passes_over_dplis",
    },
    "Parts, as shares of our own step": {
        "step with weight decay": "weight_decay_over_step",
        "smoothing, layer": "laplacian_layer_share",
        "smoothing, model": "laplacian_model_share",
        "smoothing, model, ms": "laplacian_model_ms",
    },
}
"""Titles of tables with a row for each workload: heading → prefix of the figures."""

WIDE_BARS = tuple(f"{rival}.{WIDE.name}" for rival in ("hooks_over_step", "hooks_passes_over_dplis"))


def _tables(_settings: Settings, results: Results) -> None:
    for title, columns in TABLES.items():
        rows = []
        for workload in WORKLOADS:
            found = [results.figures.get(f"{prefix}.{workload.name}") for prefix in columns.values()]
            if any(found):
                rows.append((workload.name, *map(_cell, found)))
        if rows:
            results.tables[title] = Table(("", *columns), tuple(rows))


def _cell(figure: Figure | None) -> str:
    return "–" if figure is None else f"{digits(figure.value)}{spread(figure)}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw cost against K and against the batch here")


def _problems(settings: Settings) -> Iterable[str]:
    if settings.own.device == "cuda" and not torch.cuda.is_available():
        yield "--device cuda needs a GPU, and torch finds none. Leave the option out or use a machine with a GPU."


BENCHMARK = Benchmark(
    name="engine",
    about=__doc__,
    packages=("torch", "opacus"),
    seed=0,
    quick_seconds=240.0,
    add_options=_add_options,
    problems=_problems,
    finish=_tables,
    sections={
        "parts": Section(measure=parts.measure, bars=PART_BARS),
        "memory": Section(measure=own_process.measure_memory, bars=MEMORY_BARS),
        "steps": Section(
            measure=steps.measure, bars={name: bar for name, bar in STEP_BARS.items() if name not in WIDE_BARS}
        ),
        "wide": Section(
            measure=own_process.measure_wide, bars={name: STEP_BARS[name] for name in WIDE_BARS}, quick=False
        ),
        "choices": Section(measure=choices.measure, quick=False),
        "lines": Section(measure=parts.measure_lines, bars=LINE_BARS, quick=False),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
