"""Plain Optuna studies along R, whose scores are a hill at R = 30 that grows with training."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.records import Record, Seen, Standing
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

RUNGS = (3, 9, 18, 27)
DOMAIN = FloatDistribution(0.0, 100.0)
TOLERANCE = 0.2


def score(radius: float, step: int) -> float:
    return (step / 27) ** 0.5 * (2.0 - 4.0 * (np.log1p(radius) - np.log1p(30.0)) ** 2)


def made(number: int, radius: float, upto: int = 4, state: TrialState | None = None, sign: float = 1.0) -> FrozenTrial:
    """A trial with scores at this many rungs: complete with all of them, and else pruned."""
    noise = np.random.default_rng(number).normal(0, 0.05, len(RUNGS))
    seen = {step: sign * (score(radius, step) + float(noise[i])) for i, step in enumerate(RUNGS[:upto])}
    if state is None:
        state = TrialState.COMPLETE if upto == len(RUNGS) else TrialState.PRUNED
    value = seen[27] if state is TrialState.COMPLETE else None
    return create_trial(
        state=state, value=value, params={"R": radius}, distributions={"R": DOMAIN}, intermediate_values=seen
    )


def study_of(trials: Iterable[FrozenTrial], direction: str = "maximize") -> Study:
    study = optuna.create_study(direction=direction, sampler=sampler(), pruner=optuna.pruners.NopPruner())
    for trial in trials:
        study.add_trial(trial)
    return study


def sampler(**more: object) -> UnimodalSampler:
    return UnimodalSampler("R", tolerance=TOLERANCE, last_step=27, base=RandomSampler(seed=1), **more)  # type: ignore[arg-type]


def pruner(**more: object) -> UnimodalPruner:
    return UnimodalPruner("R", tolerance=TOLERANCE, last_step=27, **more)  # type: ignore[arg-type]


def beliefs_of(places: Iterable[float], scores: Iterable[float], rules: Rules) -> Beliefs:
    """What is believed after a complete trial at each of these places."""
    rows = list(enumerate(zip(map(float, places), map(float, scores), strict=True)))
    records = [Record(place, 1.0, score, number) for number, (place, score) in rows]
    return Beliefs(Seen.of(records, [Standing(place, number, "complete") for number, (place, _) in rows]), rules)
