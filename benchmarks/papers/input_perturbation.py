"""Input perturbation: the order of the methods on six tables. The paper prints curves and no numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.convex.__main__ import METHODS, SETS, load
from benchmarks.convex.__main__ import measure as compare
from benchmarks.harness import Figure, Kept, Results, Settings, Table
from benchmarks.papers.paper import Paper

SMALL = ("breast_cancer_wisconsin", "iris", "credit_card")
EPSILONS = (0.05, 0.25, 1.0)
REPEATS = 5


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All methods on one set at one ε."""

    dataset: str
    epsilon: float
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Test accuracies in [0, 1] and optimality gaps of `methods`, and δ; the first method is not private.

    Attributes:
        cpu: processor seconds of all methods, with their choices.
        seconds: wall seconds.
    """

    methods: tuple[str, ...]
    accuracies: tuple[float, ...]
    gaps: tuple[float, ...]
    delta: float
    cpu: float
    seconds: float


def comparisons(*, quick: bool, repeats: int | None = None) -> Iterator[Comparison]:
    """Yield what is measured, small sets first."""
    sets = SMALL[:2] if quick else (*SMALL, *(name for name in SETS if name not in SMALL))
    for repeat, name, epsilon in product(range(1 if quick else repeats or REPEATS), sets, EPSILONS):
        yield Comparison(dataset=name, epsilon=epsilon, repeat=repeat)


def _kept(out: Path, *, quick: bool) -> Kept[Comparison, Compared]:
    return Kept(out / ("quick" if quick else "") / "input_perturbation.jsonl", Comparison, Compared)


def measure(settings: Settings) -> None:
    """Compare the methods where that is missing."""
    kept = _kept(settings.out, quick=settings.quick)
    minutes = settings.own.minutes
    until = min(settings.deadline, time.perf_counter() + 60 * minutes if minutes else float("inf"))
    known = kept.read()
    for wanted in comparisons(quick=settings.quick, repeats=settings.own.seeds):
        if wanted in known or time.perf_counter() > until:
            continue
        cpu, wall = time.process_time(), time.perf_counter()
        task = load(wanted.dataset, settings.data_dir)
        rows = list(compare(task, (wanted.epsilon,), 1))
        found = Compared(
            methods=tuple(str(row["method"]) for row in rows),
            accuracies=tuple(float(str(row["accuracy"])) for row in rows),
            gaps=tuple(float(str(row["gap"])) for row in rows),
            delta=task.delta,
            cpu=round(time.process_time() - cpu, 1),
            seconds=round(time.perf_counter() - wall, 1),
        )
        kept.append(wanted, found)
        print(f"{wanted}: {found}", flush=True)


def report(out: Path, results: Results, *, quick: bool) -> None:
    """Add the accuracies of all methods, the best private one in bold."""
    known = _kept(out, quick=quick).read()
    methods, rows = ("not private", *METHODS), []
    for dataset, epsilon in dict.fromkeys((each.dataset, each.epsilon) for each in comparisons(quick=quick)):
        found = [each for run, each in known.items() if (run.dataset, run.epsilon) == (dataset, epsilon)]
        if not found:
            results.leave_out(f"input_perturbation.{dataset}.{epsilon:g}", "not run yet")
            continue
        means = {name: mean for name in methods if (mean := _mean(found, name, 100)) is not None}
        best = max((name for name in means if name != "not private"), key=lambda name: means[name])
        for method, mean in means.items():
            results.figures[f"input_perturbation.{dataset}.{epsilon:g}.{method.replace(', ', '_')}"] = Figure(mean, "%")
        bold = {name: f"**{mean:.1f}**" if name == best else f"{mean:.1f}" for name, mean in means.items()}
        cells = [bold.get(name, "–") for name in methods]
        cpu, wall = fmean(each.cpu for each in found), fmean(each.seconds for each in found)
        gaps = [_mean(found, name, 1, gap=True) for name in METHODS]
        shown = ", ".join("–" if gap is None else f"{gap:.2g}" for gap in gaps)
        rows.append(
            (dataset, f"{epsilon:g}", f"{found[0].delta:.1g}", *cells, shown, len(found), f"{cpu:.0f} ({wall:.0f})")
        )
    columns = ("set", "ε", "δ", *methods, "optimality gaps of the private ones", "repeats", "CPU (wall) s")
    if rows:
        results.tables["Input perturbation, figures 2 to 4: test accuracy, %"] = Table(columns, tuple(rows))


def _mean(found: list[Compared], method: str, scale: float, *, gap: bool = False) -> float | None:
    """Return the mean accuracy or gap of a method; None if it was not there at every comparison."""
    if any(method not in each.methods for each in found):
        return None
    return fmean(scale * (each.gaps if gap else each.accuracies)[each.methods.index(method)] for each in found)


ABOUT = """\
The paper's figures 2 to 4 are curves over ε without printed numbers, so that only their order can be compared: it
finds its method as good as output perturbation and the better gradient perturbation, and better than objective
perturbation. Its noise gives no guarantee (its Theorem 1 is false, and labels are in the clear:
docs/methods.md). Ours is calibrated for features and labels: `local` by the noise of
each row alone, `central` also by the secret order of the rows. Every method is logistic regression for ONE run at
that ε and δ = n^-1.1, with its settings chosen on validation records. Adult keeps its rows with missing values, and
a hash chooses KDD Cup's rows. The whole comparison, with its plots, is `python -m benchmarks.convex`; the network
of the paper is left out here."""

PAPER = Paper(
    title="Input perturbation (Kang et al.), figures 2 to 4",
    about=ABOUT,
    measure=measure,
    report=report,
    datasets=lambda settings: {each.dataset for each in comparisons(quick=settings.quick)},
)
