"""How much of DPLIS' published gain is smoothing? Accuracy over R on validation records, beside tuned DP-SGD.

    python -m benchmarks.dplis_study --data-dir DATA [--jobs 2] [--resume] [--write docs/dplis_study.md]
    python -m benchmarks.dplis_study --quick          two minutes: does it run
    python -m benchmarks.dplis_study --cnn            the tutorial CNN on three data sets, few points
    python -m benchmarks.dplis_study --published      the published setting; 118 000 steps a run: for a GPU

Each result is added to --out (default dplis_study.jsonl) as its run finishes; --resume goes on from there. No run holds
a test record. The noise is seeded so that the table can be repeated: the numbers measure accuracy on public data and
release nothing.

What is compared, on paired seeds (same initialisation, perturbations, batches and noise), early (ε ≈ 2) and late
(ε ≈ 10): `mean` (equation 6) and `sum` (the authors' code) at the published rate for R = 0 to 80; DP-SGD at its own
best rate, chosen on other seeds; DPLIS (mean) at a rate of its own for some R. `sum` at R = 0 IS clipping at C/K with K
times the rate (proof at `Study.run`), so that arm is both.

Why this setting. The published one (50 000 records, batch 256, noise 1.1, MLP 512-128) takes 117 691 steps to ε = 10;
ten passes a step make that hours a run on a CPU. "Late" in it means a long walk of noise at a constant rate: so that
is kept.

                                                  published, MLP 512-128      here, MLP 64
    length of a step's noise over C, z·sqrt(d)/b         2.9                       3.2
    walk of a weight until ε = 2, η·z·sqrt(T)/b          0.055                     0.043
    walk of a weight until ε = 10                        0.226                     0.211
    steps T early, late                                  6 947, 117 691            390, 9 543

(z is the noise multiplier, d the number of weights, steps by our accountant.) At a given η that walk until ε = 10 takes
about two steps a training record, whatever the batch; so the records are fewer, 5 000. All others are validation, with
a sampling error of 0.13 points. The price: 12 times fewer steps carry the same noise, so accuracies are lower than the
paper's, and only differences can be compared. With 50 000 records and the minutes of a CPU, the walk would stop near
the published EARLY point. R counts in lengths of the step's noise, which is nearly the published one (first row), and C
and η are the published ones; so an R moves the weights about as far as it did in the paper.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from benchmarks.dplis_arms import Point, arm_run, arms, points, selection_runs, tuned_selection_runs
from benchmarks.dplis_chart import chart
from benchmarks.dplis_report import section
from benchmarks.dplis_runs import Results, Run, Study, append, measure, read

__all__ = ["main", "perform"]

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
PUBLISHED = Study(
    name="MNIST, MLP 512-128, the published setting",
    records=50_000,
    model="mlp_512_128",
    batch_size=256,
    noise_multiplier=1.1,
    epsilons=(1.99, 10.0),
)
_PREAMBLE = """# How much of DPLIS' gain is smoothing?

Written by `python -m benchmarks.dplis_study --write`, text and numbers; change it there. Its docstring says what is
compared, and why in this setting. All accuracies are on validation records, in percent, mean ± one standard error over
the seeds; differences are paired by seed, and a * marks a 95 % interval (Student's t) that leaves out 0.

`sum`, the reduction of DPLIS' published code, equals `mean` at the clip C/K with K times the learning rate, for every
R; without smoothing it is DP-SGD there. Where the best R is named, it was picked on the seeds that are reported, which
favours smoothing; and DP-SGD's own rate was chosen at the published C only. DPLIS' own rate is the best of that of
DP-SGD, its half, its double and its fourfold (as far as DP-SGD's grid goes); late it was chosen on one seed. All rates
were chosen on the same validation records as the scores, on other seeds.
"""


def perform(study: Study, *, out: Path, data_dir: str | None, jobs: int) -> tuple[Point, Point]:
    """Trains what `out` does not hold yet, adds it there, and returns both points."""
    stages: tuple[tuple[str, Callable[[Study, Results], Iterable[Run]]], ...] = (
        ("rates of DP-SGD", lambda study, _results: selection_runs(study)),
        ("rates of DPLIS", _smoothed_selection),
        ("comparison", _comparison),
    )
    for title, runs_of in stages:
        known = read(out)
        runs = set(runs_of(study, known))
        done = len(runs & set(known))
        print(f"{study.name}: {title}, {done} of {len(runs)} known", flush=True)
        start = time.perf_counter()
        for run, accuracies, seconds in measure(runs, known=known, data_dir=data_dir, jobs=jobs):
            append(out, run, accuracies, seconds)
            done += 1
            scores = " ".join(f"{value:.2f}" for value in accuracies)
            print(
                f"  {done}/{len(runs)} after {time.perf_counter() - start:.0f} s: {_short(run)}: {scores}", flush=True
            )
    return points(study, read(out))


def _smoothed_selection(study: Study, results: Results) -> Iterable[Run]:
    return chain.from_iterable(
        tuned_selection_runs(study, results, index, radius) for index in (0, 1) for radius in study.tuned_radii[index]
    )


def _comparison(study: Study, results: Results) -> Iterable[Run]:
    return (
        arm_run(study, arm, index, seed)
        for index in (0, 1)
        for arm in arms(study, results, index)
        for seed in study.seeds
    )


def _short(run: Run) -> str:
    return (
        f"{run.smoothing_reduction} R={run.smoothing_radius:g} C={run.max_grad_norm:g} rate={run.learning_rate:g} "
        f"seed={run.seed} steps={run.scored[-1]}"
    )


def document(studies: Sequence[Study], out: Path, picture: str, *, note: str = "") -> tuple[str, str]:
    """The page and the picture of its first study.

    Args:
        studies: in the order of the page, each with as many seeds as have all results; without one it is left out.
        out: the results.
        picture: the address that the page has for the picture.
        note: a line of the reader's own, such as where it was measured.
    """
    results = read(out)
    complete = [part for study in studies if (part := _as_far_as_known(study, results)) is not None]
    parts, drawn = [_PREAMBLE, *([f"{note}\n"] if note else [])], ""
    for study in complete:
        parts.append(f"## {study.name}\n")
        if not drawn:
            drawn = chart(points(study, results))
            parts.append(f"![Validation accuracy over R, early and late]({picture})\n")
        parts.append(section(study, results))
    return "\n".join(parts), drawn


def _as_far_as_known(study: Study, results: Results) -> Study | None:
    counts = range(len(study.seeds), 0, -1)
    parts = (replace(study, seeds=study.seeds[:count]) for count in counts)
    return next((part for part in parts if _is_complete(part, results)), None)


def _is_complete(study: Study, results: Results) -> bool:
    try:
        points(study, results)
    except KeyError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then print or write the page."""
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    if out.exists() and out.stat().st_size and not options.resume:
        print(f"{out} must not hold results already: say --resume to go on from it, or another --out", file=sys.stderr)
        return 2
    out.parent.mkdir(parents=True, exist_ok=True)
    studies = [_changed(study, options) for study in _chosen(options)]
    found = {study.name: perform(study, out=out, data_dir=options.data_dir, jobs=options.jobs) for study in studies}
    for study in studies:
        print(f"\n## {study.name}\n\n{section(study, read(out))}")
    if options.write:
        page = Path(options.write)
        shipped = (MLP, *CNNS)
        whole = shipped if {study.name for study in studies} <= {study.name for study in shipped} else studies
        text, drawn = document(whole, out, page.with_suffix(".svg").name, note=options.note)
        page.write_text(text)
        page.with_suffix(".svg").write_text(drawn)
    if options.json:
        print(json.dumps({name: [_as_json(point) for point in both] for name, both in found.items()}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", default=None)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--quick", action="store_true", help="few steps and points: does it run")
    kind.add_argument("--cnn", action="store_true", help="the tutorial CNN on three data sets, few points")
    kind.add_argument("--published", action="store_true", help="the published setting, for a GPU")
    parser.add_argument("--dataset", default=None, help="another data set in the same setting")
    parser.add_argument("--model", default=None, help="another model in the same setting")
    parser.add_argument("--seeds", type=int, default=None, help="only the first so many seeds")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--out", default="dplis_study.jsonl", help="results are added here as runs finish")
    parser.add_argument("--resume", action="store_true", help="go on from the results in --out")
    parser.add_argument("--write", default=None, help="write the page here, and its picture beside it")
    parser.add_argument("--note", default="", help="a line for that page: where and when it was measured")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return parser


def _chosen(options: argparse.Namespace) -> Sequence[Study]:
    if options.cnn:
        return [study for study in CNNS if options.dataset in (None, study.dataset)]
    return [QUICK if options.quick else PUBLISHED if options.published else MLP]


def _changed(study: Study, options: argparse.Namespace) -> Study:
    """The study with what the command line changes; a change of the data set or the model shows in the name."""
    if options.seeds is not None:
        study = replace(study, seeds=study.seeds[: options.seeds])
    if options.cnn or not (options.dataset or options.model):
        return study
    dataset, model = options.dataset or study.dataset, options.model or study.model
    return replace(study, name=f"{dataset}, {model}", dataset=dataset, model=model)


def _as_json(point: Point) -> dict[str, object]:
    return {
        "point": point.name,
        "epsilon": point.epsilon,
        "steps": point.steps,
        "arms": [
            {
                "arm": arm.label,
                "smoothing_radius": arm.radius,
                "smoothing_reduction": arm.reduction,
                "learning_rate": arm.learning_rate,
                "tuned": arm.tuned,
                "validation_accuracy": [value if math.isfinite(value) else None for value in score.values],
            }
            for arm, score in point.scores.items()
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
