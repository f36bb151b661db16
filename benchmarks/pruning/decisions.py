"""The decisions of the unimodal search by themselves: their time, and the error rate of the bracket."""

from __future__ import annotations

import math
import time

import numpy as np

from benchmarks.harness import Figure, Results, Settings
from benchmarks.pruning.curves import DOMAIN, EPOCHS, RUNGS, problem
from benchmarks.pruning.methods import TOLERANCE
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Rules, believe
from tuner.study.unimodal.inference.bracket import bracket, deviation_of_neighbours, threshold
from tuner.study.unimodal.inference.records import Record, Seen, Standing


def times(settings: Settings, results: Results) -> None:
    """Time a decision on a known curve, and a refit after a record is added to 250."""
    random, axis = np.random.default_rng(settings.seed), ParameterAxis(*DOMAIN)
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
        beliefs = believe(Seen.of(now, trials), rules)
        beliefs.near(0.5)
        refits.append(time.process_time() - begun)
        for place in (0.1, 0.5, 0.9):
            begun = time.process_time()
            beliefs.excluded(place, 0.3)
            decisions.append(1e3 * (time.process_time() - begun))
        begun = time.process_time()
        beliefs.propose(random)
        decisions.append(1e3 * (time.process_time() - begun))
    results.figures["times.refit_s"] = Figure.median_of(refits, "s", note=f"{len(records)} records")
    results.figures["times.decision_ms"] = Figure.median_of(decisions, "ms")


def bracket_misses(settings: Settings, results: Results) -> None:
    """Count how often the bracket excludes the left end of a constant curve, at any look of a search of 40 trials."""
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
        name = f"bracket.misses_{'known' if known else 'estimated'}"
        results.figures[name] = Figure(
            share, lower=share - error, upper=share + error, note=f"{runs} runs of {looks} looks"
        )
