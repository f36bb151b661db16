"""The comparison of the methods: simulated sweeps of each, and the figures and tables that follow."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks.harness import Results, Settings, Table
from benchmarks.pruning.curves import RUNGS
from benchmarks.pruning.methods import METHODS, TOLERANCE
from benchmarks.pruning.simulation import BUDGET, Played, one_sweep
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon

SWEEPS, QUICK_SWEEPS = 200, 150
LOOKS_AT = (108, 270, 540)
SHARES = (0.5, 0.8, 0.9)


def unimodal(settings: Settings, results: Results) -> None:
    """Compare all methods on unimodal curves."""
    methods = ("random", "asha", "ours") if settings.quick else tuple(METHODS)
    found = _compare("unimodal", methods, settings, results)
    mine = found["ours"]
    for other, share in (("asha", 0.8), ("bohb", 0.8), ("gp", 0.9)):
        if other in found:
            theirs = _epochs(found[other], share)
            note = "" if math.isfinite(theirs) else f"{other} does not get there, so its whole budget {BUDGET} is used"
            ratio = _epochs(mine, share) / min(theirs, BUDGET)
            results.count(f"unimodal.ours_over_{other}_{share * 100:.0f}", ratio, unit="x", note=note)


def other_shapes(settings: Settings, results: Results) -> None:
    """Compare three methods on other curves and with other noise."""
    methods = ("random", "asha", "ours")
    for shape in ("drifting", "plateau", "best_at_zero", "best_at_the_end", "bump", "collapsing"):
        _compare(shape, methods, settings, results)
    wide = _compare("wide_second_peak", methods, settings, results)
    narrow = _compare("narrow_second_peak", methods, settings, results)
    gap = _regret(wide["ours"], BUDGET) - _regret(wide["random"], BUDGET)
    results.count("wide_second_peak.ours_less_random_540", gap, unit="points")
    ratio = _regret(narrow["ours"], BUDGET) / _regret(narrow["asha"], BUDGET)
    results.count("narrow_second_peak.ours_over_asha_540", ratio, unit="x")
    for noise in (0.5, 2.0):
        _compare("unimodal", methods, settings, results, noise=noise, name=f"noise_{noise:g}")


def one_slot(settings: Settings, results: Results) -> None:
    """Compare two methods that run one trial at a time."""
    _compare("unimodal", ("random", "ours"), settings, results, slots=1, name="one_slot")


def _compare(
    shape: str,
    methods: Iterable[str],
    settings: Settings,
    results: Results,
    *,
    noise: float = 1.0,
    slots: int = 4,
    name: str | None = None,
) -> dict[str, list[Played]]:
    """Simulate every method, and add its figures and a table."""
    name, rows, found = name or shape, [], {}
    sweeps = QUICK_SWEEPS if settings.quick else SWEEPS
    with ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool:
        for method in methods:
            job = partial(one_sweep, shape=shape, method=method, seed=settings.seed, noise=noise, slots=slots)
            found[method] = list(pool.map(job, range(sweeps), chunksize=5))
            print(f"{name}: {method}", file=sys.stderr, flush=True)  # a whole run takes most of an hour
            rows.append((method, *_note(f"{name}.{method}", found[method], results)))
    columns = (
        "method",
        *(f"{share:.0%}" for share in SHARES),
        *(f"ε at {share:.0%}" for share in SHARES),
        *(f"regret at {at}" for at in LOOKS_AT),
        *("best pruned", "near pruned", "stopped", "right", "median"),
    )
    results.tables[f"{name}: {sweeps} sweeps, {slots} slots"] = Table(columns, tuple(rows))
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
    stops = [each.sweep.stopped for each in played if each.sweep.stopped is not None]
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
