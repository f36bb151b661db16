"""The private step against plain SGD, Opacus, torch.func and the naive loop: what it costs and which bars it clears.

    python -m benchmarks.engine [--quick] [--json] [--device cpu|cuda] [--plots DIR]

Every ratio comes from one race in one process: the contenders take turns, A B C A B C ..., on one thread, with glibc
told to keep freed memory for all of them alike, and each takes its step from drawing and gathering the batch to the
update. What is compared is CPU time (wall time on a GPU), round by round: the median, with the quartiles in brackets.
Before it is timed, a private contender must compute the same clipped sum as ours on one batch, to 1e-4. The records
are Gaussians of the data sets' shapes: speed does not depend on what they show.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.engine_alone import ALONE, MEMORY, measure_alone
from benchmarks.engine_bars import LINES, judge
from benchmarks.engine_choices import measure_choices
from benchmarks.engine_gpu import fills_the_gpu
from benchmarks.engine_measure import one_thread, tune_malloc
from benchmarks.engine_parts import measure_draws, measure_lines, measure_noise, measure_smoothing
from benchmarks.engine_report import as_json, as_svg, as_text
from benchmarks.engine_sections import Results, Settings, measure_workload
from trainables.engine.sums import LARGE, SMALL

__all__ = ["main", "measure", "processor"]

# `--quick` begins nothing after this, so that what is under way ends within five minutes.
_QUICK_SECONDS = 240.0
# What a plot's horizontal axis is, and what must be known to read it.
_PLOTS = (
    ("k", "K, perturbed points a step", ""),
    (
        "batch",
        "expected batch size",
        f"sums in float32 up to {SMALL.largest_batch} (small models) or {LARGE.largest_batch} (large); above, float64",
    ),
)


def measure(settings: Settings) -> Results:
    """All sections, the cheap ones first, so that a deadline leaves out what takes longest."""
    results = Results()
    chosen = [workload for workload in settings.workloads if workload.quick or not settings.quick]
    measure_noise(settings, results)
    for name in ("logistic_mnist", "tutorial_cnn_cifar10"):  # one of each data set's shape
        for workload in settings.workloads:
            if workload.name == name:
                measure_draws(workload, settings, results)
    if settings.device == "cpu":
        for what in MEMORY:
            measure_alone(what, settings, results)
    for workload in chosen:
        measure_workload(workload, settings, results)
        if workload.family != "logistic":
            measure_smoothing(workload, settings, results)
    if settings.quick:
        return results
    if settings.device == "cpu":
        for what in ALONE:
            measure_alone(what, settings, results)
    for workload in chosen:
        measure_choices(workload, settings, results)
        if workload.name in LINES:
            measure_lines(workload, settings, results)
            fills_the_gpu(workload, settings, results)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; exit code 1 when a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="within five minutes; says which bars it left out")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write the plots of cost against K and batch here")
    parser.add_argument("--seed", type=int, default=0, help="of the records and of draws that are not secret")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU that torch can use; there is none here: leave it out")
    started = time.perf_counter()
    one_thread()
    tuned = tune_malloc()
    rounds, seconds = (7, 5.0) if options.quick else (15, 40.0)
    settings = Settings(
        quick=options.quick,
        device=options.device,
        seed=options.seed,
        rounds=rounds,
        seconds=seconds,
        deadline=started + _QUICK_SECONDS if options.quick else float("inf"),
    )
    results = measure(settings)
    verdict = judge(results.figures)
    environment = _environment(options.device, options.seed, started, tuned="tuned" if tuned else "as it is")
    if options.plots is not None:
        results.remarks += _write_plots(results, options.plots)
    print(as_text(results, verdict, environment))
    if options.json:
        print(as_json(results, verdict, environment))
    return 1 if verdict.falls_short else 0


def _environment(device: str, seed: int, started: float, *, tuned: str) -> dict[str, object]:
    machine = torch.cuda.get_device_name() if device == "cuda" else processor()
    return {
        "machine": machine,
        "threads": torch.get_num_threads(),
        "malloc": tuned,
        "versions": f"python {platform.python_version()}, torch {torch.__version__}, opacus {version('opacus')}",
        "seed": seed,
        "command": "python -m benchmarks.engine " + " ".join(sys.argv[1:]),
        "seconds": round(time.perf_counter() - started),
    }


def processor() -> str:
    """Cores and name of this machine's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.processor()


def _write_plots(results: Results, folder: Path) -> list[str]:
    """Writes a plot for each kind of line that was measured; remarks on what was written, and on what was not."""
    remarks = []
    for prefix, label, note in _PLOTS:
        lines = {name.partition(".")[2]: line for name, line in results.lines.items() if name.startswith(prefix + ".")}
        missing = [name for name in LINES if name not in lines]
        path = folder / f"engine_cost_{prefix}.svg"
        if missing:
            remarks.append(
                f"not in {path.name}, since it was not measured: {', '.join(missing)} (--quick leaves it out)"
            )
        if lines:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(as_svg(lines, label=label, note=note), encoding="utf-8")
            remarks.append(f"wrote {path}")
        else:
            remarks.append(f"{path} was not written")
    return remarks


if __name__ == "__main__":
    sys.exit(main())
