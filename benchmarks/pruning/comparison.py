"""The comparison of the methods: simulated sweeps of each, and the figures and tables that follow."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from benchmarks.harness import Results, Settings, Table
from benchmarks.pruning.curves import RUNGS
from benchmarks.pruning.methods import ABLATIONS, METHODS, TOLERANCE
from benchmarks.pruning.random_curves import FAMILIES, JUDGED
from benchmarks.pruning.simulation import BUDGET, Played, one_sweep
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon

SWEEPS, QUICK_SWEEPS = 200, 15
CHUNK = 5
"""Sweeps between two looks at the clock in a quick run."""
LOOKS_AT = (108, 200, 270)
SHARES = (0.5, 0.8, 0.9)


SHAPES = (
    "unimodal",
    "best_at_zero",
    "best_at_the_end",
    "unequal_tops",
    "uneven_noise",
    "drifting",
    "plateau",
    "bump",
    "collapsing",
    "wide_second_peak",
    "narrow_second_peak",
)
"""All shapes, the most telling first, because a run may be cut short."""

MIXED = tuple(shape for shape in SHAPES if "second_peak" not in shape)
"""The shapes of the ablations, in turn. Two separate peaks are left out: nothing here is made for them."""


def unimodal(settings: Settings, results: Results) -> None:
    """Compare all methods on unimodal curves."""
    methods = _within(tuple(METHODS), ("ours", "random", "tpe", "asha", "tpe+asha"), "methods", settings, results)
    found = _compare("unimodal", methods, settings, results)
    mine = found.get("ours")
    if mine is None:
        return
    for other, share in (("asha", 0.8), ("bohb", 0.8), ("gp", 0.9)):
        if other in found:
            theirs = _epochs(found[other], share)
            note = "" if math.isfinite(theirs) else f"{other} does not get there, so its whole budget {BUDGET} is used"
            ratio = _epochs(mine, share) / min(theirs, BUDGET)
            results.count(f"unimodal.ours_over_{other}_{share * 100:.0f}", ratio, unit="x", note=note)


def other_shapes(settings: Settings, results: Results) -> None:
    """Compare ours with the short rule on all curves and with other noise."""
    for shape in _within(SHAPES, SHAPES[1:4], "shapes", settings, results):
        _compare(shape, ("ours",) if settings.quick else ("ours", "lite"), settings, results)
    if settings.quick:
        return
    for noise in (0.5, 2.0):
        _compare("unimodal", ("ours", "lite"), settings, results, noise=noise, name=f"noise_{noise:g}")


def random_curves(settings: Settings, results: Results) -> None:
    """Compare ours with the short rule on random curves, those that the rules were not set on first."""
    for family in (*JUDGED, *(name for name in FAMILIES if name not in JUDGED)):
        _compare(family, ("ours", "lite"), settings, results)


def _within(
    every: tuple[str, ...], quick: tuple[str, ...], what: str, settings: Settings, results: Results
) -> tuple[str, ...]:
    """Return those that are measured, and name those that a quick run leaves out."""
    if not settings.quick:
        return every
    left = ", ".join(name for name in every if name not in quick)
    results.remarks.append(f"{what} left out by --quick: {left}")
    return quick


def ablations(settings: Settings, results: Results) -> None:
    """Change one thing at a time. The sweeps of every row have the same curves, of all shapes in turn."""
    found = _compare(None, tuple(ABLATIONS), settings, results, name="ablations")
    whole = np.array([_loss(each) for each in found["ours"]])
    rows = []
    for name, played in found.items():
        apart = np.array([_loss(each) for each in played]) - whole
        error = float(apart.std(ddof=1) / math.sqrt(apart.size))
        results.count(f"ablations.{name}.worse_by", float(apart.mean()), unit="points", note=f"± {error:.3f}")
        rows.append((name, f"{apart.mean():+.3f} ± {error:.3f}"))
    results.tables["ablations: mean regret at 108, 200 and 270 against ours, paired"] = Table(
        ("rule", "points"), tuple(rows)
    )


def _loss(played: Played) -> float:
    """Return the mean regret at the looks. A sweep without a complete trial counts as ten points."""
    return statistics.fmean(min(played.sweep.regret_at(at), 10.0) for at in LOOKS_AT)


def one_slot(settings: Settings, results: Results) -> None:
    """Compare two methods that run one trial at a time."""
    _compare("unimodal", ("random", "ours"), settings, results, slots=1, name="one_slot")


def _compare(
    shape: str | None,
    methods: Iterable[str],
    settings: Settings,
    results: Results,
    *,
    noise: float = 1.0,
    slots: int = 4,
    name: str | None = None,
) -> dict[str, list[Played]]:
    """Simulate every method, and add its figures and a table. Without a shape, each sweep has the next of `MIXED`."""
    name, rows, found = name or shape or "mixed", [], {}
    sweeps = QUICK_SWEEPS if settings.quick else SWEEPS
    with ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool:
        for method in methods:
            job = partial(one_sweep, method=method, seed=settings.seed, noise=noise, slots=slots)
            shapes = [shape or MIXED[number % len(MIXED)] for number in range(sweeps)]
            try:
                found[method] = _played(pool, job, shapes, settings)
            except Exception as error:  # noqa: BLE001 - the other methods are measured
                results.failed[f"{name}: {method}"] = f"{type(error).__name__}: {error}"
                continue
            if len(found[method]) < sweeps:
                results.remarks.append(f"{name}: {method}: {len(found[method])} of {sweeps} sweeps, for want of time")
            if not found[method]:
                del found[method]
                continue
            rows.append((method, *_note(f"{name}.{method}", found[method], results)))
            print(f"{name}: {' | '.join(map(str, rows[-1]))}", file=sys.stderr, flush=True)  # a run takes an hour
    columns = (
        "method",
        *(f"{share:.0%}" for share in SHARES),
        *(f"ε at {share:.0%}" for share in SHARES),
        *(f"regret at {at}" for at in LOOKS_AT),
        *("best pruned", "near pruned", "stopped", "right", "median"),
    )
    results.tables[f"{name}: {sweeps} sweeps, {slots} slots"] = Table(columns, tuple(rows))
    return found


def _played(
    pool: ProcessPoolExecutor, job: Callable[..., Played], shapes: Sequence[str], settings: Settings
) -> list[Played]:
    """Simulate a sweep of each shape. A quick run simulates only as many as fit into its time."""
    if not settings.quick:
        return list(pool.map(job, range(len(shapes)), shapes, chunksize=CHUNK))
    found: list[Played] = []
    slowest = 0.0
    for first in range(0, len(shapes), CHUNK):
        if not settings.time_for(2 * slowest):
            break
        begun, numbers = time.perf_counter(), range(first, min(first + CHUNK, len(shapes)))
        found += pool.map(job, numbers, shapes[first : first + CHUNK])
        slowest = max(slowest, time.perf_counter() - begun)
    return found


def _note(name: str, played: Sequence[Played], results: Results) -> tuple[object, ...]:
    """Add the figures of one method, and return its row of the table."""
    reached = [_epochs(played, share) for share in SHARES]
    for share, epochs in zip(SHARES, reached, strict=True):
        results.count(f"{name}.epochs_{share * 100:.0f}", epochs, unit="trial-epochs")
    regrets = [_regret(played, at) for at in LOOKS_AT]
    for at, regret in zip(LOOKS_AT, regrets, strict=True):
        results.count(f"{name}.regret_{at}", regret, unit="points")
    best = statistics.fmean(each.best_pruned for each in played)
    near = sum(each.near_pruned for each in played) / max(sum(each.near for each in played), 1)
    results.count(f"{name}.best_pruned", best)
    results.count(f"{name}.near_pruned", near)
    stops = [each.stopped for each in played if each.stopped is not None]
    ended: tuple[object, ...] = ("–", "–", "–")
    if stops:
        right = statistics.fmean(regret <= TOLERANCE for _, regret in stops)
        # A sweep that never stops spends its whole budget.
        median = statistics.median([*(epochs for epochs, _ in stops), *[BUDGET] * (len(played) - len(stops))])
        results.count(f"{name}.stop_right", right, note=f"of {len(stops)} that stopped")
        results.count(f"{name}.stop_median", median, unit="trial-epochs")
        ended = (len(stops), f"{right:.2f}", median)
    return (
        *(f"{epochs:.0f}" if math.isfinite(epochs) else f"> {BUDGET}" for epochs in reached),
        *(_epsilon(epochs) for epochs in reached),
        *(f"{regret:.2f}" for regret in regrets),
        *(f"{best:.3f}", f"{near:.3f}"),
        *ended,
    )


def _epochs(played: Sequence[Played], share: float) -> float:
    """Return the trial-epochs after which a share of the sweeps keeps a trial within the tolerance; inf if never."""
    for epochs in range(RUNGS[0], BUDGET + 1, 3):
        if statistics.fmean(each.sweep.regret_at(epochs) <= TOLERANCE for each in played) >= share:
            return epochs
    return math.inf


def _regret(played: Sequence[Played], epochs: int) -> float:
    return statistics.fmean(each.sweep.regret_at(epochs) for each in played)


def _epsilon(epochs: float) -> str:
    """Return the ε of `epochs` trial-epochs: batch 256 of 50 000 records, noise 1.1, δ = 1e-5 (DPLIS, Table 1)."""
    if not math.isfinite(epochs):
        return "–"
    return f"{epsilon(SampledGaussian(256 / 50_000, 1.1), round(epochs * 50_000 / 256), 1e-5):.2f}"
