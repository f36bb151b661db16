"""What the budget costs in time: admission, the odometer, plans, and the share of a sweep that goes to the ledger."""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.budget_common import Results, Settings, child_environment
from benchmarks.engine_measure import Figure, figure_of

if TYPE_CHECKING:
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.ledger.ledger import Ledger

__all__ = ["PLANS", "SWEEPS", "measure"]

ENTRIES, TRIALS, PLANNED = 10_000, 10_000, 1_000
_DELTA = 1e-5
_IN_MEMORY = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)  # else the disk for temporary files

_PLAN = """schema: 1
name: thousand
dataset: {name: mnist}
trainable: {method: dp_lssgd, model: logistic_regression, batch_size: 4096, epochs: 10}
privacy: {epsilon: 8.0}
search:
  trials: 1000
  space: {learning_rate: {log_uniform: [1.0, 6.0]}}
"""
PLANS: Mapping[str, tuple[str, ...]] = {
    "total_steps": (),
    "coupon_book": ("search.space.batch_size={choice: [2048, 4096]}",),
    "fixed_order": ("search.space.epochs={log_uniform: [2, 10]}", "privacy.noise_multiplier={log_uniform: [8, 30]}"),
    "selection": ("privacy.accounting=selection", "search.sampler=random"),
}
"""What is said beside the file of a thousand trials, by the cap that the plan then has."""


@dataclass(frozen=True)
class Sweep:
    """A sweep whose time at the ledger is taken.

    Attributes:
        name: of its figure.
        method: of every trial.
        model: of every trial.
        dataset: a shipped one.
        batch_size: expected.
        epochs: passes of a trial.
        trials: one after the other.
        judged: whether its steps are of a length that people train with; the others are told only.
        quick: whether `--quick` runs it.
    """

    name: str
    method: str
    model: str
    dataset: str
    batch_size: int
    epochs: float
    trials: int
    judged: bool = True
    quick: bool = True

    def file(self, folder: Path) -> str:
        """An experiment file in `folder`; its name."""
        (folder / "timed.yaml").write_text(
            f"schema: 1\nname: timed\ndataset: {{name: {self.dataset}}}\n"
            f"trainable: {{method: {self.method}, model: {self.model}, batch_size: {self.batch_size}, "
            f"epochs: {self.epochs}}}\nprivacy: {{epsilon: 100}}\nsearch:\n  trials: {self.trials}\n"
            "  space: {learning_rate: {log_uniform: [0.1, 1.0]}}\n"
        )
        return "timed.yaml"


SWEEPS: tuple[Sweep, ...] = (
    # As the shipped mnist_dplssgd.yaml: the steps of its trials are few, and each of five reports ends a lease.
    Sweep("logistic_mnist", "dp_lssgd", "logistic_regression", "mnist", 4096, 10, 6),
    Sweep("cnn_fashion", "dp_sgd", "tutorial_cnn", "fashion_mnist", 256, 5, 2, quick=False),
    Sweep("logistic_digits", "dp_sgd", "logistic_regression", "digits", 64, 100, 3, judged=False, quick=False),
)
"""A step of `logistic_mnist` takes 9 ms, of `cnn_fashion` 20 ms, of `logistic_digits` half a millisecond."""


def measure(settings: Settings, results: Results) -> None:
    """All of it; what is computed in this process is judged by CPU time, so that a busy machine judges alike."""
    _admission(results)
    _odometer(results, many=not settings.quick)
    _cached(results)
    _plans(results, repeats=1 if settings.quick else 5)
    for sweep in SWEEPS:
        if sweep.quick or not settings.quick:
            _share(sweep, settings, results)


def timed(function: Callable[[], object], *, repeats: int, warm: int = 0) -> Figure:
    """Milliseconds of CPU time of a call, median and quartiles; beside it the wall clock's."""
    for _ in range(warm):
        function()
    both = [_seconds(function) for _ in range(repeats)]
    return figure_of([1e3 * cpu for cpu, _ in both], unit="ms", wall=[1e3 * wall for _, wall in both])


def _seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Of CPU time and by the wall clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


def filled(url: str, *, trials: int, leases: int, searches: int = 1) -> Ledger:
    """A ledger with `trials` settled trials, each reserved, leased `leases` times and settled, over some searches.

    The entries are those that the ledger itself writes, in one transaction, for a disk would take minutes.
    """
    from tuner.privacy.accountant.filters import TotalSteps
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon
    from tuner.privacy.ledger.ledger import Ledger

    ledger = Ledger.open(url)
    each, steps = trials // searches, 10
    mechanisms = [SampledGaussian(0.001 * (1 + number % 4), 2.0) for number in range(searches)]
    for number, mechanism in enumerate(mechanisms):
        cap = steps * leases * each + 1_000
        ledger.open_search(
            "data",
            f"search {number}",
            allowance=TotalSteps(mechanism, cap),
            epsilon=epsilon(mechanism, cap, _DELTA),
            delta=_DELTA,
        )
    with ledger._chain.write() as write:
        for number, mechanism in enumerate(mechanisms):
            for index in range(each):
                _trial(write, f"search {number}", f"{index:05d}", mechanism, steps=steps, leases=leases)
    return ledger


def _trial(
    write: Callable[..., None], search: str, trial: str, mechanism: SampledGaussian, *, steps: int, leases: int
) -> None:
    body = {"search": search, "trial": trial}
    named = {"sample_rate": mechanism.sample_rate, "noise_multiplier": mechanism.noise_multiplier}
    write("data", "reserve", {**body, "pool": "training", "steps": steps * leases, "mechanism": named})
    for _ in range(leases):
        write("data", "lease", {**body, "pool": "training", "steps": steps})
    write("data", "settle", {**body, "steps_taken": steps * leases})


def _admission(results: Results) -> None:
    """The question whether a trial fits, and the writes that follow it, on a disk in memory and on a real one."""
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.study.types import Ask

    ask, numbers = Ask(steps=1), itertools.count()
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as inside:
        url = f"sqlite:///{inside}/ledger.db"
        budget = SearchBudget(filled(url, trials=ENTRIES // 4, leases=2), "search 0")
        results.figures["speed.admission_ms"] = timed(lambda: budget.fits(ask), repeats=300, warm=5)
        results.figures["speed.open_ledger_ms"] = timed(lambda: Ledger.open(url, create=False), repeats=3)
        # Where writing to the disk costs nothing: what the program itself takes.
        writes = timed(lambda: budget.reserve(f"new {next(numbers)}", ask), repeats=60)
        results.figures["speed.reserve_ms.no_disk"] = writes
    with tempfile.TemporaryDirectory() as inside:
        ledger = filled(f"sqlite:///{inside}/ledger.db", trials=ENTRIES // 4, leases=2)
        ledger.reserve("search 0", "new", 1_000)
        seconds = [_seconds(lambda: ledger.lease("search 0", "new", 1))[1] for _ in range(60)]
        results.figures["speed.lease_ms.disk"] = figure_of(
            [1e3 * each for each in seconds], unit="ms", note="by the wall clock, durable on this disk"
        )


def _odometer(results: Results, *, many: bool) -> None:
    """ε of what a search has spent, when it was never asked for at this number of steps and when it was."""
    from tuner.privacy.ledger.odometer import read_dataset
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.study.types import Ask

    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as inside:
        ledger = filled(f"sqlite:///{inside}/one.db", trials=TRIALS, leases=1)
        budget = SearchBudget(ledger, "search 0")
        budget.view()  # brings the accountant's libraries
        budget.reserve("last", Ask(steps=500))
        first, again = [], []
        for _ in range(9):
            ledger.lease("search 0", "last", 7)  # so that this number of steps was never composed
            first.append(_seconds(budget.view))
            again.append(_seconds(budget.view))
        for name, both in (("after_a_lease", first), ("again", again)):
            cpu, wall = ([1e3 * each[place] for each in both] for place in (0, 1))
            results.figures[f"speed.epsilon_ms.{name}"] = figure_of(cpu, unit="ms", wall=wall)
        if many:
            other = filled(f"sqlite:///{inside}/many.db", trials=TRIALS, leases=1, searches=20)
            read = timed(lambda: read_dataset(other.dataset_state("data")), repeats=1)
            results.figures["speed.epsilon_ms.twenty_searches"] = read


def _cached(results: Results) -> None:
    """A composition that was made before is not made again; one at another δ is not either, only read."""
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    times: dict[str, list[float]] = {"first": [], "again": [], "another_delta": []}
    for number in range(7):
        ask = partial(epsilon, SampledGaussian(0.01 + number * 1e-5, 1.1), 3_000)
        times["first"].append(timed(lambda: ask(_DELTA), repeats=1).median)  # noqa: B023 - called here
        hundred = timed(lambda: [ask(_DELTA) for _ in range(100)], repeats=3).median  # noqa: B023
        times["again"].append(hundred / 100)
        times["another_delta"].append(timed(lambda: ask(1e-6), repeats=1).median)  # noqa: B023
    results.figures |= {f"speed.composition_ms.{name}": figure_of(each, unit="ms") for name, each in times.items()}
    ratios = [a / b for a, b in zip(times["first"], times["again"], strict=True)]
    results.figures["speed.composition_first_over_again"] = figure_of(ratios, unit="x")


_MAKE_PLAN = """
import sys, time
from pathlib import Path
import dp_accounting.pld.privacy_loss_distribution
from tuner.experiment import load
from tuner.plan.plan import make_plan
experiment = load(Path("thousand.yaml"), sys.argv[1:])
cpu, wall = time.process_time(), time.perf_counter()
plan = make_plan(experiment, experiment.dataset_request(None))
print(plan.cap, 1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall))
"""
_IMPORTS = "import torch, optuna, dp_accounting.pld.privacy_loss_distribution"


def _plans(results: Results, *, repeats: int) -> None:
    """Of a thousand trials, in a fresh process each: nothing is cached. The command imports, and tries the model."""
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        (folder / "thousand.yaml").write_text(_PLAN)
        for name, said in PLANS.items():
            alone = [_answer(folder, ["-c", _MAKE_PLAN, *said]).split() for _ in range(repeats)]
            cpu, wall = ([float(each[place]) for each in alone] for place in (1, 2))
            results.figures[f"speed.plan_ms.{name}"] = figure_of(cpu, unit="ms", wall=wall, note=f"cap: {alone[0][0]}")
            words = ["-m", "tuner", "plan", "thousand.yaml", "--no-timing", "--json"]
            words += [word for each in said for word in ("--set", each)]
            results.figures[f"speed.plan_command_ms.{name}"] = _child(folder, words, repeats=repeats)
        results.figures["speed.plan_imports_ms"] = _child(folder, ["-c", _IMPORTS], repeats=repeats)


def _child(folder: Path, words: list[str], *, repeats: int) -> Figure:
    """CPU time of a process and of all that it started, and its wall time."""
    cpu, wall = [], []
    for _ in range(repeats):
        before, started = _of_children(), time.perf_counter()
        _answer(folder, words)
        cpu.append(1e3 * (_of_children() - before))
        wall.append(1e3 * (time.perf_counter() - started))
    return figure_of(cpu, unit="ms", wall=wall)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answer(folder: Path, words: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=child_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])[:80]} must answer, it said: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


def _share(sweep: Sweep, settings: Settings, results: Results) -> None:
    """What part of a sweep's wall time is spent at the ledger, with the disk's own fsync."""
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        words = ["-m", "benchmarks.budget_timed", "report.json", "run", sweep.file(folder), "--local", "--quiet"]
        words += ["--data-dir", settings.data_dir] if settings.data_dir else []
        _answer(folder, words)
        found = json.loads((folder / "report.json").read_text())
    whole = sum(found["sweep"])
    note = f"{len(found['writes'])} writes of {1e3 * statistics.median(found['writes']):.2g} ms in {whole:.1f} s"
    judged = "" if sweep.judged else "; told, not judged"
    name = f"speed.ledger_percent.{sweep.name}"
    results.figures[name] = Figure(100 * sum(found["writes"]) / whole, unit="%", note=note + judged)
    opened = Figure(100 * sum(found["opened"]) / whole, unit="%", note=f"{len(found['opened'])} times opened")
    results.figures[f"speed.ledger_opening_percent.{sweep.name}"] = opened
