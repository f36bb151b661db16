"""How much of DPLIS' published gain is smoothing? Accuracy over R on validation records, next to tuned DP-SGD.

    python -m benchmarks.dplis_study --data-dir DATA [--jobs 2] [--resume] [--write docs/dplis_study.md]
    python -m benchmarks.dplis_study --quick          two minutes, to see that it runs
    python -m benchmarks.dplis_study --cnn            the tutorial CNN on three data sets, few points
    python -m benchmarks.dplis_study --published      the published setting; 118 000 steps a run: for a GPU

Each result is added to --out (default dplis_study.jsonl) as its run finishes; --resume continues from there. No run
holds a test record. The noise is seeded so that the table can be repeated: the numbers measure accuracy on public data
and release nothing.

The study compares, on paired seeds (same initialisation, perturbations, batches and noise), early (ε ≈ 2) and late
(ε ≈ 10): `mean` (equation 6) and `sum` (the authors' code) at the published rate for R = 0 to 80; DP-SGD at its own
best rate, chosen on other seeds; DPLIS (mean) at a rate of its own for some R. `sum` at R = 0 IS clipping at C/K with K
times the rate (proof at `Study.run`), so that arm is both.

Why this setting. The published one (50 000 records, batch 256, noise 1.1, MLP 512-128) takes 117 691 steps to ε = 10;
ten passes a step make that hours a run on a CPU. "Late" in it means a long walk of noise at a constant rate, so
this study keeps the length of that walk.

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
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.dplis_study import page
from benchmarks.dplis_study.arms import Results as Known
from benchmarks.dplis_study.arms import arm_run, arms, points, selection_runs, tuned_selection_runs
from benchmarks.dplis_study.runs import Outcome, Run, Study, train
from benchmarks.harness import Benchmark, Figure, Kept, Results, Section, Settings, run

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
STAGES: tuple[Callable[[Study, Known], Iterable[Run]], ...] = (
    lambda study, _known: selection_runs(study),
    lambda study, known: smoothed_selection(study, known),
    lambda study, known: comparison(study, known),
)
"""The runs of a study: each stage follows from the results of the stages before it."""


def smoothed_selection(study: Study, known: Known) -> Iterable[Run]:
    """Return the runs that choose the rates of DPLIS."""
    return chain.from_iterable(
        tuned_selection_runs(study, known, index, radius) for index in (0, 1) for radius in study.tuned_radii[index]
    )


def comparison(study: Study, known: Known) -> list[Run]:
    """Return the runs of all arms: seed by seed, so that an interrupted study has complete seeds, long runs first."""
    runs = [
        arm_run(study, arm, index, seed)
        for index in (0, 1)
        for arm in arms(study, known, index)
        for seed in study.seeds
    ]
    return sorted(runs, key=lambda run: (run.seed, -run.work, repr(run)))


def measure(settings: Settings, results: Results) -> None:
    """Train what is missing, add the tables of each study, and write the page if asked."""
    kept = Kept(settings.out, Run, Outcome)
    studies = chosen(settings)
    for study in studies:
        for runs_of in STAGES:
            wanted = runs_of(study, kept.read())
            kept.complete(wanted, partial(train, settings.data_dir), jobs=settings.jobs, shown=_line)
        for point in points(study, kept.read()):
            results.tables[f"{study.name}, {point.name}: ε = {point.epsilon:.2f}, {point.steps} steps"] = (
                page.scores_table(point)
            )
            for arm, score in point.scores.items():
                values = ", ".join(f"{value:.2f}" for value in score.values)
                name = f"{study.name}.{point.name}.{arm.label}.rate_{arm.learning_rate:g}"
                results.figures[name] = replace(Figure.mean_of(score.values, "%"), note=f"seeds: {values}")
    if settings.own.write:
        shipped = (MLP, *CNNS)
        whole = shipped if {study.name for study in studies} <= {study.name for study in shipped} else studies
        write_page(Path(settings.own.write), whole, kept.read(), note=settings.own.note)


def write_page(path: Path, studies: Sequence[Study], known: Known, *, note: str = "") -> None:
    """Write the page, and the picture of its first study as a file next to it.

    Args:
        path: of the page.
        studies: in the order of the page, each with the seeds that have all results; without one it is left out.
        known: the results.
        note: a line for the page, such as where and when the results were measured.
    """
    parts = [page.PREAMBLE, *([f"{note}\n"] if note else [])]
    complete = [part for study in studies if (part := _as_far_as_known(study, known)) is not None]
    for place, study in enumerate(complete):
        found = points(study, known)
        parts.append(f"## {study.name}\n")
        if place == 0:
            page.draw(path.with_suffix(".svg"), found)
            parts.append(f"![Validation accuracy over R, early and late]({path.with_suffix('.svg').name})\n")
        parts.append(page.section(study, found))
    path.write_text("\n".join(parts))


def _as_far_as_known(study: Study, known: Known) -> Study | None:
    """Return the study with the most first seeds that have all results."""
    for count in range(len(study.seeds), 0, -1):
        part = replace(study, seeds=study.seeds[:count])
        try:
            points(part, known)
        except KeyError:
            continue
        return part
    return None


def chosen(settings: Settings) -> list[Study]:
    """Return the studies that the options select; another data set or model shows in the name."""
    own = settings.own
    if own.cnn:
        studies = [study for study in CNNS if own.dataset in (None, study.dataset)]
    else:
        study = QUICK if settings.quick else PUBLISHED if own.published else MLP
        if own.dataset or own.model:
            dataset, model = own.dataset or study.dataset, own.model or study.model
            study = replace(study, name=f"{dataset}, {model}", dataset=dataset, model=model)
        studies = [study]
    return studies if own.seeds is None else [replace(study, seeds=study.seeds[: own.seeds]) for study in studies]


def _line(run: Run, outcome: Outcome) -> str:
    scores = " ".join(f"{value:.2f}" for value in outcome.accuracies)
    return (
        f"  {run.smoothing_reduction} R={run.smoothing_radius:g} C={run.max_grad_norm:g} rate={run.learning_rate:g} "
        f"seed={run.seed} steps={run.scored[-1]}: {scores} ({outcome.seconds:.0f} s)"
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cnn", action="store_true", help="the tutorial CNN on three data sets, few points")
    parser.add_argument("--published", action="store_true", help="the published setting, for a GPU")
    parser.add_argument("--dataset", help="another data set in the same setting")
    parser.add_argument("--model", help="another model in the same setting")
    parser.add_argument("--seeds", type=int, help="only the first seeds, this many")
    parser.add_argument("--resume", action="store_true", help="continue from the results in --out")
    parser.add_argument("--write", help="write the page to this file, and its picture next to it")
    parser.add_argument("--note", default="", help="a line for that page: where and when it was measured")


def _problems(settings: Settings) -> Iterable[str]:
    if sum((settings.quick, settings.own.cnn, settings.own.published)) > 1:
        yield "--quick, --cnn and --published exclude each other. Use one of them."
    if settings.out.exists() and settings.out.stat().st_size and not settings.own.resume:
        yield f"{settings.out} holds results already. Add --resume to continue from it, or use another --out."


BENCHMARK = Benchmark(
    name="dplis_study",
    about=__doc__,
    jobs=2,
    out=Path("dplis_study.jsonl"),
    add_options=_add_options,
    problems=_problems,
    sections={
        "study": Section(measure=measure, datasets=lambda settings: [study.dataset for study in chosen(settings)])
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
