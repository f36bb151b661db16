"""The cost of the budget in time: admission, the odometer, plans, and the ledger's share of a sweep."""

from __future__ import annotations

import itertools
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Results, Settings, at_least, at_most
from benchmarks.harness.machine import python_output
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import SearchBudget
from tuner.study.types import Ask

ENTRIES, TRIALS = 10_000, 10_000
_MECHANISM = SampledGaussian(0.001, 2.0)
_DELTA = 1e-5
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # else the disk for temporary files

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
"""Filter of a plan → settings that are added to the file of a thousand trials."""


_SWEEP = """schema: 1
name: timed
dataset: {{name: {dataset}}}
trainable: {{method: {method}, model: {model}, batch_size: {batch_size}, epochs: {epochs}}}
privacy: {{epsilon: 100}}
search:
  trials: {trials}
  space: {{learning_rate: {{log_uniform: [0.1, 1.0]}}}}
"""


@dataclass(frozen=True)
class Sweep:
    """A sweep whose time at the ledger is measured."""

    name: str
    method: str
    model: str
    dataset: str
    batch_size: int
    epochs: float
    trials: int
    judged: bool = True  # whether its steps are as long as those of real trainings
    quick: bool = True  # whether `--quick` runs it


SWEEPS: tuple[Sweep, ...] = (
    # As the shipped mnist_dplssgd.yaml: trials of few steps, with five reports that each end a lease.
    Sweep("logistic_mnist", "dp_lssgd", "logistic_regression", "mnist", 4096, 10, 6),
    Sweep("cnn_fashion", "dp_sgd", "tutorial_cnn", "fashion_mnist", 256, 5, 2, quick=False),
    Sweep("logistic_digits", "dp_sgd", "logistic_regression", "digits", 64, 100, 3, judged=False, quick=False),
)
"""A step of `logistic_mnist` takes 9 ms, of `cnn_fashion` 20 ms, of `logistic_digits` half a millisecond."""

BARS = {
    "speed.admission_ms": at_most(1.0),
    "speed.epsilon_ms.after_a_lease": at_most(100.0),
    "speed.composition_first_over_again": at_least(100.0),
    **{f"speed.{what}.{plan}": at_most(2_000.0) for plan in PLANS for what in ("plan_ms", "plan_command_ms")},
    **{f"speed.ledger_percent.{sweep.name}": at_most(1.0, quick=sweep.quick) for sweep in SWEEPS if sweep.judged},
}


def datasets(settings: Settings) -> set[str]:
    """Return the data sets of the sweeps."""
    return {sweep.dataset for sweep in SWEEPS if sweep.quick or not settings.quick}


def measure(settings: Settings, results: Results) -> None:
    """Measure everything; bars judge CPU time, which other processes hardly change."""
    _admission(results)
    _odometer(results)
    _cached(results)
    _plans(results, repeats=1 if settings.quick else 5)
    for sweep in SWEEPS:
        if sweep.quick or not settings.quick:
            _share(sweep, settings, results)


Seconds = tuple[float, float]
"""CPU time and wall clock."""


def _seconds(function: Callable[[], object]) -> Seconds:
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


def _milliseconds(found: Sequence[Seconds], *, note: str = "") -> Figure:
    """Return the median of the CPU time, with the median of the wall clock."""
    return Figure.median_of([1e3 * cpu for cpu, _ in found], "ms", wall=[1e3 * wall for _, wall in found], note=note)


def _timed(function: Callable[[], object], *, repeats: int) -> Figure:
    return _milliseconds([_seconds(function) for _ in range(repeats)])


def filled(url: str, *, trials: int, leases: int) -> Ledger:
    """Return a ledger with a search of `trials` trials, each reserved, leased in parts and settled."""
    ledger, steps = Ledger.open(url), 10
    cap = steps * leases * trials + 1_000
    claim = epsilon(_MECHANISM, cap, _DELTA)
    ledger.open_search("data", "search", filter=TotalSteps(_MECHANISM, cap), epsilon=claim, delta=_DELTA)
    for trial in map(str, range(trials)):
        ledger.reserve("search", trial, steps * leases)
        for _ in range(leases):
            ledger.lease("search", trial, steps, _MECHANISM)
        ledger.settle("search", trial, steps * leases)
    return ledger


def _admission(results: Results) -> None:
    """Measure the check whether a trial fits, and the writes after it, in memory and on a real disk."""
    ask, numbers = Ask(steps=1), itertools.count()
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as memory, tempfile.TemporaryDirectory() as disk:
        url = f"sqlite:///{memory}/ledger.db"
        budget = SearchBudget(filled(url, trials=ENTRIES // 4, leases=2), "search")
        shutil.copy(f"{memory}/ledger.db", disk)  # 10 000 durable writes would take minutes
        for _ in range(5):
            budget.fits(ask)
        results.figures["speed.admission_ms"] = _timed(lambda: budget.fits(ask), repeats=300)
        results.figures["speed.open_ledger_ms"] = _timed(lambda: Ledger.open(url, create=False), repeats=3)
        writes = _timed(lambda: budget.reserve(f"new {next(numbers)}", ask), repeats=60)
        results.figures["speed.reserve_ms.no_disk"] = writes
        ledger = Ledger.open(f"sqlite:///{disk}/ledger.db", create=False)
        ledger.reserve("search", "new", 1_000)
        seconds = [_seconds(lambda: ledger.lease("search", "new", 1, _MECHANISM))[1] for _ in range(60)]
        results.figures["speed.lease_ms.disk"] = Figure.median_of(
            [1e3 * each for each in seconds], "ms", note="by the wall clock, durable on this disk"
        )


def _odometer(results: Results) -> None:
    """Measure the time of the spent ε of a search, for a new number of steps and for a known one."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as inside:
        ledger = filled(f"sqlite:///{inside}/one.db", trials=TRIALS, leases=1)
        budget = SearchBudget(ledger, "search")
        budget.view()  # imports the accountant's libraries
        budget.reserve("last", Ask(steps=500))
        first, again = [], []
        for _ in range(9):
            ledger.lease("search", "last", 7, _MECHANISM)  # a number of steps that was never composed
            first.append(_seconds(budget.view))
            again.append(_seconds(budget.view))
        results.figures["speed.epsilon_ms.after_a_lease"] = _milliseconds(first)
        results.figures["speed.epsilon_ms.again"] = _milliseconds(again)


def _cached(results: Results) -> None:
    """Measure the time of a new composition, of a known one, and of a known one at another δ."""
    first, again, another = [], [], []
    for number in range(7):
        ask = partial(epsilon, SampledGaussian(0.01 + number * 1e-5, 1.1), 3_000)
        first.append(_seconds(partial(ask, _DELTA))[0])
        hundreds = [_seconds(lambda ask=ask: [ask(_DELTA) for _ in range(100)])[0] for _ in range(3)]  # type: ignore[misc]
        again.append(statistics.median(hundreds) / 100)
        another.append(_seconds(partial(ask, 1e-6))[0])
    for name, seconds in (("first", first), ("again", again), ("another_delta", another)):
        results.figures[f"speed.composition_ms.{name}"] = Figure.median_of([1e3 * each for each in seconds], "ms")
    ratios = [a / b for a, b in zip(first, again, strict=True)]
    results.figures["speed.composition_first_over_again"] = Figure.median_of(ratios, "x")


_MAKE_PLAN = """
import sys, time
from pathlib import Path
import dp_accounting.pld.privacy_loss_distribution
from tuner.experiment import load_experiment
from tuner.plan.plan import make_plan
experiment = load_experiment(Path("thousand.yaml"), sys.argv[1:])
cpu, wall = time.process_time(), time.perf_counter()
plan = make_plan(experiment, experiment.dataset_request(None))
print(plan.cap, time.process_time() - cpu, time.perf_counter() - wall)
"""
_IMPORTS = "import torch, optuna, dp_accounting.pld.privacy_loss_distribution"


def _plans(results: Results, *, repeats: int) -> None:
    """Measure plans of a thousand trials, each in a new process without caches, and the whole command."""
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        (folder / "thousand.yaml").write_text(_PLAN)
        for name, added in PLANS.items():
            found = [python_output(folder, ["-c", _MAKE_PLAN, *added]).split() for _ in range(repeats)]
            seconds = [(float(cpu), float(wall)) for _, cpu, wall in found]
            results.figures[f"speed.plan_ms.{name}"] = _milliseconds(seconds, note=f"cap: {found[0][0]}")
            words = ["-m", "tuner", "plan", "thousand.yaml", "--no-timing", "--json"]
            words += [word for each in added for word in ("--set", each)]
            results.figures[f"speed.plan_command_ms.{name}"] = _child(folder, words, repeats=repeats)
        results.figures["speed.plan_imports_ms"] = _child(folder, ["-c", _IMPORTS], repeats=repeats)


def _child(folder: Path, words: list[str], *, repeats: int) -> Figure:
    """Return the CPU time of a process and of its children, and its wall time."""
    found = []
    for _ in range(repeats):
        before, started = _cpu_of_children(), time.perf_counter()
        python_output(folder, words)
        found.append((_cpu_of_children() - before, time.perf_counter() - started))
    return _milliseconds(found)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _share(sweep: Sweep, settings: Settings, results: Results) -> None:
    """Measure the share of a sweep's wall time that is spent at the ledger, on this disk."""
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        (folder / "timed.yaml").write_text(_SWEEP.format_map(asdict(sweep)))
        words = ["-m", "benchmarks.budget.program", "--times", "times.json", "run", "timed.yaml", "--local", "--quiet"]
        words += ["--data-dir", settings.data_dir] if settings.data_dir else []
        python_output(folder, words)
        found = json.loads((folder / "times.json").read_text())
    whole, writes = sum(found["sweep"]), found["writes"]
    note = f"{len(writes)} writes of {1e3 * statistics.median(writes):.2g} ms in {whole:.1f} s"
    note += "" if sweep.judged else "; reported, not judged"
    results.count(f"speed.ledger_percent.{sweep.name}", 100 * sum(writes) / whole, unit="%", note=note)
