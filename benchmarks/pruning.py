"""How many trial-epochs, and how much ε, a search needs to find a good smoothing radius, in simulated sweeps.

    python -m benchmarks.pruning [--quick] [--json] [--only SECTION ...] [--jobs N] [--seed N]

Sections: `sweeps` (all methods on unimodal curves), `shapes` (curves for which the assumption fails or only just holds,
and other noise), `slots` (one trial at a time), `bracket` (how often the simultaneous bracket misses the mode),
`times`. What is simulated, and what is assumed, stands in `benchmarks/pruning_curves.py`.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from typing import Final

import numpy as np

from benchmarks.budget_common import Results, Table, count
from benchmarks.budget_report import as_json, as_text
from benchmarks.engine import processor
from benchmarks.engine_bars import Bar, judge
from benchmarks.engine_measure import Figure, figure_of
from benchmarks.pruning_curves import DOMAIN, EPOCHS, RUNGS, problem
from benchmarks.pruning_methods import METHODS, TOLERANCE
from benchmarks.pruning_sweeps import Sweep, play

__all__ = ["BARS", "SECTIONS", "main"]

BUDGET: Final = 540
SWEEPS, QUICK_SWEEPS = 200, 150
LOOKS_AT: Final = (108, 270, 540)
SHARES: Final = (0.5, 0.8, 0.9)

BARS: Final[tuple[Bar, ...]] = (
    Bar("unimodal.ours.epochs_80", 165, "at most"),
    Bar("unimodal.ours.epochs_90", 185, "at most"),
    Bar("unimodal.ours_over_asha_80", 0.5, "at most", quick=False),
    Bar("unimodal.ours_over_bohb_80", 0.5, "at most", quick=False),
    Bar("unimodal.ours_over_gp_90", 0.55, "at most", quick=False),
    Bar("unimodal.ours.stop_right", 0.95, "at least"),
    Bar("unimodal.ours.stop_median", 180, "at most"),
    Bar("unimodal.ours.best_pruned", 0.02, "at most"),
    Bar("unimodal.ours.near_pruned", 0.03, "at most"),
    Bar("drifting.ours.epochs_90", 200, "at most", quick=False),
    Bar("one_slot.ours.epochs_90", 160, "at most", quick=False),
    Bar("bracket.misses_known", 0.05, "at most", quick=False),
    Bar("bracket.misses_estimated", 0.05, "at most", quick=False),
    Bar("wide_second_peak.ours_less_random_540", 0.0, "at most", quick=False),
    Bar("narrow_second_peak.ours_over_asha_540", 2.0, "at most", quick=False),
    Bar("times.decision_ms", 20.0, "at most"),
    Bar("times.refit_s", 1.0, "at most"),
)
"""What a run must show."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured.

    Attributes:
        quick: within five minutes.
        seed: of the curves, the deviations and the methods.
        jobs: processes.
    """

    quick: bool
    seed: int
    jobs: int

    @property
    def sweeps(self) -> int:
        """Of every method on every curve."""
        return QUICK_SWEEPS if self.quick else SWEEPS


@dataclass(frozen=True)
class Played:
    """What the tables need of a sweep.

    Attributes:
        sweep: what was spent and found.
        best_pruned: whether the best of the launched trials was stopped.
        near: how many launched trials were within the tolerance of the best.
        near_pruned: how many of these were stopped.
    """

    sweep: Sweep
    best_pruned: bool
    near: int
    near_pruned: int


def one_sweep(number: int, *, shape: str, method: str, seed: int, noise: float, slots: int) -> Played:
    """Sweep `number` of a method: the same number has the same curve for every method."""
    random = np.random.default_rng([seed, number])
    truth = problem(shape, random, noise=noise)
    sweep = play(truth, METHODS[method](seed * 100_000 + number), random, budget=BUDGET, slots=slots)
    regrets = {trial: truth.regret(radius) for trial, radius in sweep.launched.items()}
    near = [trial for trial, regret in regrets.items() if regret <= TOLERANCE]
    best = min(regrets, key=lambda trial: regrets[trial])
    return Played(sweep, best in sweep.pruned, len(near), sum(trial in sweep.pruned for trial in near))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; exit code 1 when a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="within five minutes; says which bars it left out")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=list(SECTIONS), help="these sections alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes that simulate at a time")
    parser.add_argument("--seed", type=int, default=5, help="of the curves, the deviations and the methods")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    settings = Settings(quick=options.quick, seed=options.seed, jobs=options.jobs)
    results = Results()
    for name in SECTIONS:
        if name in options.only:
            begun = time.perf_counter()
            _MEASURES[name](settings, results)
            results.remarks.append(f"{name}: {time.perf_counter() - begun:.0f} s")
    verdict = judge(results.figures, BARS)
    environment = {
        "machine": processor(),
        "versions": f"python {platform.python_version()}, optuna {version('optuna')}, numpy {version('numpy')}",
        "seed": options.seed,
        "command": "python -m benchmarks.pruning " + " ".join(sys.argv[1:]),
        "seconds": round(time.perf_counter() - started),
    }
    print(as_text(results, verdict, environment, BARS))
    if options.json:
        print(as_json(results, verdict, environment, BARS))
    return 1 if verdict.falls_short else 0


def _sweeps(settings: Settings, results: Results) -> None:
    """Every method on unimodal curves."""
    methods = ("random", "asha", "ours") if settings.quick else tuple(METHODS)
    found = _table("unimodal", methods, settings, results)
    mine = found["ours"]
    for other, share in (("asha", 0.8), ("bohb", 0.8), ("gp", 0.9)):
        if other in found:
            theirs, name = _epochs(found[other], share), f"unimodal.ours_over_{other}_{share * 100:.0f}"
            note = "" if math.isfinite(theirs) else f"theirs is not reached in {BUDGET}, which is taken for it"
            results.figures[name] = count(_epochs(mine, share) / min(theirs, BUDGET), unit="x", note=note)


def _shapes(settings: Settings, results: Results) -> None:
    """Other curves and noise."""
    methods = ("random", "asha", "ours")
    if settings.quick:
        results.remarks.append("shapes: left out")
        return
    for shape in ("drifting", "plateau", "best_at_zero", "best_at_the_end", "bump", "collapsing"):
        _table(shape, methods, settings, results)
    wide = _table("wide_second_peak", methods, settings, results)
    narrow = _table("narrow_second_peak", methods, settings, results)
    gap = _regret(wide["ours"], BUDGET) - _regret(wide["random"], BUDGET)
    results.figures["wide_second_peak.ours_less_random_540"] = count(gap, unit="points")
    ratio = _regret(narrow["ours"], BUDGET) / _regret(narrow["asha"], BUDGET)
    results.figures["narrow_second_peak.ours_over_asha_540"] = count(ratio, unit="x")
    for noise in (0.5, 2.0):
        _table("unimodal", methods, settings, results, noise=noise, name=f"noise_{noise:g}")


def _slots(settings: Settings, results: Results) -> None:
    if settings.quick:
        results.remarks.append("slots: left out")
        return
    _table("unimodal", ("random", "ours"), settings, results, slots=1, name="one_slot")


def _bracket(settings: Settings, results: Results) -> None:
    """A constant curve whose mode is said to be at the left end: the worst case, over all looks of a search of 40."""
    from tuner.study.unimodal.bracket import bracket, deviation_of_neighbours, threshold

    runs, looks = (200 if settings.quick else 2_000), 40
    for known in (True, False):
        random, misses = np.random.default_rng([settings.seed, int(known)]), 0
        for _ in range(runs):
            places, scores = random.random(looks), random.standard_normal(looks)
            places[0] = 0.0
            for values in range(2, looks + 1):
                spread = 1.0 if known else deviation_of_neighbours(places[:values], scores[:values])
                step = threshold(0.05, looks, values=values, known=known) * spread
                if not bracket(places[:values], scores[:values], step=step).holds(0.0):
                    misses += 1
                    break
        share = misses / runs
        error = math.sqrt(max(share * (1 - share), 1e-12) / runs)
        name = f"bracket.{'quick_' if settings.quick else ''}misses_{'known' if known else 'estimated'}"
        results.figures[name] = Figure(share, share - error, share + error, note=f"{runs} runs of {looks} looks")


def _times(settings: Settings, results: Results) -> None:
    """A decision when the curve is known already, and after 250 records were added to."""
    from tuner.study.unimodal.axis import Axis
    from tuner.study.unimodal.beliefs import Beliefs, Rules, believe
    from tuner.study.unimodal.records import Record, Seen, Standing

    random, axis = np.random.default_rng(settings.seed), Axis(*DOMAIN)
    truth, records, trials = problem("unimodal", random), [], []
    for trial in range(50):
        radius = axis.value(float(random.random()))
        place = axis.place(radius)
        scores = truth.trial(radius, random)
        records += [Record(place, e / EPOCHS, s, trial) for e, s in zip(RUNGS, scores, strict=True)]
        trials.append(Standing(place, trial, "complete"))
    rules, refits, decisions = Rules(axis=axis, tolerance=TOLERANCE), [], []
    for extra in range(5):
        now = [*records, Record(0.5, 3 / EPOCHS, truth.best + 0.01 * extra, 99)]
        begun = time.process_time()
        beliefs: Beliefs = believe(Seen.of(now, trials), rules)
        beliefs.near(0.5)
        refits.append(time.process_time() - begun)
        for place in (0.1, 0.5, 0.9):
            begun = time.process_time()
            beliefs.excluded(place, 0.3)
            decisions.append(1e3 * (time.process_time() - begun))
        begun = time.process_time()
        beliefs.propose(random)
        decisions.append(1e3 * (time.process_time() - begun))
    results.figures["times.refit_s"] = figure_of(refits, unit="s", note=f"{len(records)} records")
    results.figures["times.decision_ms"] = figure_of(decisions, unit="ms")


SECTIONS: Final = ("times", "bracket", "sweeps", "slots", "shapes")
_MEASURES: Mapping[str, Callable[[Settings, Results], None]] = {
    "times": _times,
    "bracket": _bracket,
    "sweeps": _sweeps,
    "slots": _slots,
    "shapes": _shapes,
}


def _table(
    shape: str,
    methods: Iterable[str],
    settings: Settings,
    results: Results,
    *,
    noise: float = 1.0,
    slots: int = 4,
    name: str | None = None,
) -> dict[str, list[Played]]:
    """Play, note every figure, and add a table."""
    name, rows, found = name or shape, [], {}
    with ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool:
        for method in methods:
            job = partial(one_sweep, shape=shape, method=method, seed=settings.seed, noise=noise, slots=slots)
            played = list(pool.map(job, range(settings.sweeps), chunksize=5))
            found[method] = played
            print(f"{name}: {method}", file=sys.stderr, flush=True)  # a whole run takes most of an hour
            rows.append((method, *_note(f"{name}.{method}", played, results)))
    heads = (
        "method", *(f"{share:.0%}" for share in SHARES), *(f"ε at {share:.0%}" for share in SHARES),
        *(f"regret at {at}" for at in LOOKS_AT), "best pruned", "near pruned", "stopped", "right", "median",
    )  # fmt: skip
    results.tables[f"{name}: {settings.sweeps} sweeps, {slots} slots"] = Table(heads, tuple(rows))
    return found


def _note(name: str, played: Sequence[Played], results: Results) -> tuple[object, ...]:
    figures = results.figures
    reached = [_epochs(played, share) for share in SHARES]
    for share, epochs in zip(SHARES, reached, strict=True):
        figures[f"{name}.epochs_{share * 100:.0f}"] = count(epochs, unit="trial-epochs")
    regrets = [_regret(played, at) for at in LOOKS_AT]
    for at, regret in zip(LOOKS_AT, regrets, strict=True):
        figures[f"{name}.regret_{at}"] = count(regret, unit="points")
    best = statistics.fmean(each.best_pruned for each in played)
    near = sum(each.near_pruned for each in played) / max(sum(each.near for each in played), 1)
    figures[f"{name}.best_pruned"], figures[f"{name}.near_pruned"] = count(best), count(near)
    stops = [each.sweep.stopped for each in played if each.sweep.stopped is not None]
    right = statistics.fmean(regret <= TOLERANCE for _, regret in stops) if stops else math.nan
    # Over all sweeps: one that never stops has the whole budget.
    ends = [each.sweep.stopped[0] if each.sweep.stopped else BUDGET for each in played]
    if stops:
        figures[f"{name}.stop_right"] = count(right, note=f"of {len(stops)} that stopped")
        figures[f"{name}.stop_median"] = count(statistics.median(ends), unit="trial-epochs")
    ended = (len(stops), f"{right:.2f}", statistics.median(ends)) if stops else ("–", "–", "–")
    shown = [f"{epochs:.0f}" if math.isfinite(epochs) else f"> {BUDGET}" for epochs in reached]
    return (
        *shown, *map(_epsilon, reached), *(f"{regret:.2f}" for regret in regrets), f"{best:.3f}", f"{near:.3f}", *ended
    )  # fmt: skip


def _epochs(played: Sequence[Played], share: float) -> float:
    """The first trial-epochs at which so many sweeps would keep a trial within the tolerance; inf if never."""
    for epochs in range(RUNGS[0], BUDGET + 1, 3):
        if statistics.fmean(each.sweep.regret_at(epochs) <= TOLERANCE for each in played) >= share:
            return epochs
    return math.inf


def _regret(played: Sequence[Played], epochs: int) -> float:
    return statistics.fmean(each.sweep.regret_at(epochs) for each in played)


def _epsilon(epochs: float) -> str:
    """Of so many trial-epochs in all, composed: batch 256 of 50 000 records, noise 1.1, δ = 1e-5 (DPLIS, Table 1)."""
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    if not math.isfinite(epochs):
        return "–"
    return f"{epsilon(SampledGaussian(256 / 50_000, 1.1), round(epochs * 50_000 / 256), 1e-5):.2f}"


if __name__ == "__main__":
    sys.exit(main())
