"""The private step against plain SGD, Opacus, torch.func and the naive loop: its cost, and its bars.

    python -m benchmarks.engine [--quick] [--json] [--only SECTION ...] [--device cpu|cuda] [--plots DIR]

Every ratio comes from one race in one process: the contenders take turns, A B C A B C ..., on one thread, and glibc
keeps freed memory for all of them. A step includes drawing and gathering the batch and the update. CPU time (wall time
on a GPU) is compared round by round: the median, with the quartiles in brackets. Before the race, a private contender
must compute the same clipped sum as ours, to 1e-4. The records are Gaussians of the data sets' shapes: speed does not
depend on their values.

Sections: `parts` (noise and draws), `memory`, `steps` (all contenders on each workload), `choices` (the engine's
choices by shape against the other way) and `lines` (cost against K and the batch, which `--plots` draws).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from benchmarks.engine import choices, memory, parts, steps
from benchmarks.engine.workloads import LINE_BARS, MEMORY_BARS, PART_BARS, STEP_BARS
from benchmarks.harness import Benchmark, Section, Settings, run


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the steps run")
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
    sections={
        "parts": Section(measure=parts.measure, bars=PART_BARS),
        "memory": Section(measure=memory.measure, bars=MEMORY_BARS),
        "steps": Section(measure=steps.measure, bars=STEP_BARS),
        "choices": Section(measure=choices.measure, quick=False),
        "lines": Section(measure=parts.measure_lines, bars=LINE_BARS, quick=False),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
