"""The time of the decisions of the unimodal search."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Figure, Results, Settings
from benchmarks.pruning.curves import DOMAIN, EPOCHS, RUNGS, problem
from benchmarks.pruning.methods import TOLERANCE
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Rules, believe
from tuner.study.unimodal.inference.records import Record, Seen, Standing


def measure(settings: Settings, results: Results) -> None:
    """Measure the time of a decision on a known curve, and of a refit after a record is added to 250."""
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
