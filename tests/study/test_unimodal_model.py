"""The process of the curve and of the runs, against a covariance that is written out pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.gaussian_process import HyperGrid, fit
from tuner.study.unimodal.inference.records import ALONE, Record, Seen, Standing

AMPLITUDE, LENGTH, DRIFT, NOISE, TOLERANCE = 5.0, 0.3, 0.12, 2.0, 0.01
ONE = HyperGrid(amplitudes=(AMPLITUDE,), lengths=(LENGTH,), drifts=(DRIFT,), noises=(NOISE,), levels=(0.5,))
"""One point of the grid, so that everything has a closed form."""

Score = tuple[float, float, int]
"""Place, fraction and number of the trial."""


def covariance(one: Score, other: Score, *, same: bool) -> float:
    """Of two scores in tolerances, by the formula of the module and nothing else."""
    (x, t, trial), (u, s, another) = one, other
    distance = abs((x - DRIFT * math.log(t)) - (u - DRIFT * math.log(s))) / LENGTH
    root = math.sqrt(5) * distance
    curve = AMPLITUDE**2 * (1 + root + root**2 / 3) * math.exp(-root)
    curve *= math.exp(-0.5 * (math.log(t / s) / 0.8) ** 2) * math.sqrt(t * s)
    rough = [1 + 0.8 * math.exp(-place / 0.45) for place in (x, u)]
    luck = 0.0
    if trial == another:
        luck = NOISE**2 * rough[0] * rough[1] * (1 + math.exp(-2 * abs(math.log(t / s)))) / 3
        luck += NOISE**2 * rough[0] ** 2 / 3 * same
    mean = (30 * AMPLITUDE) ** 2 * (t == s)
    return curve + luck + mean


def matrix(rows: list[Score]) -> np.ndarray:
    return np.array(
        [[covariance(a, b, same=i == j) for j, b in enumerate(rows)] for i, a in enumerate(rows)], dtype=float
    ) + 1e-6 * AMPLITUDE**2 * np.eye(len(rows))


ENDED: list[Score] = [(place, t, n) for n, place in enumerate((0.1, 0.35, 0.5, 0.7, 0.9)) for t in (0.2, 0.6, 1.0)]
RUNNING: list[Score] = [(0.42, 0.2, 9), (0.42, 0.6, 9)]
LAST: Score = (0.42, 1.0, 9)


def seen(rows: list[Score], scores: np.ndarray) -> Seen:
    """In units of the score."""
    return Seen.of(
        [
            Record(place, t, TOLERANCE * float(score), trial)
            for (place, t, trial), score in zip(rows, scores, strict=True)
        ],
        (),
    )


def test_the_chance_of_a_run_is_that_of_the_joint_normal() -> None:
    random, rows = np.random.default_rng(0), ENDED + RUNNING
    for _ in range(5):
        scores = np.linalg.cholesky(matrix(ENDED + RUNNING))[: len(rows)] @ random.standard_normal(17)
        scores = np.maximum(scores, scores.max() - 10)  # nothing far enough below to be cut
        ends = [row for row, (_, t, _) in enumerate(rows) if t == 1]
        best = max(ends, key=lambda row: scores[row])
        every = matrix([*rows, LAST])
        known, cross = every[:-1, :-1], every[-1, :-1]
        means = {t: scores[[row for row, each in enumerate(rows) if each[1] == t]].mean() for t in (0.2, 0.6, 1.0)}
        centred = scores - np.array([means[t] for _, t, _ in rows])
        weights = np.linalg.solve(known, cross)
        lead = weights @ centred - centred[best]
        spread = math.sqrt(every[-1, -1] - 1e-6 * AMPLITUDE**2 - cross @ weights)
        found = fit(seen(rows, scores), tolerance=TOLERANCE, hyper=ONE).ahead(9, LAST[0], ALONE)
        assert found == pytest.approx(float(norm.cdf(lead / spread)), abs=1e-6)


def test_the_curve_is_that_of_the_joint_normal() -> None:
    scores = np.linalg.cholesky(matrix(ENDED)) @ np.random.default_rng(1).standard_normal(len(ENDED))
    scores = np.maximum(scores, scores.max() - 10)
    means = {t: scores[[row for row, each in enumerate(ENDED) if each[1] == t]].mean() for t in (0.2, 0.6, 1.0)}
    weights = np.linalg.solve(matrix(ENDED), scores - np.array([means[t] for _, t, _ in ENDED]))
    grid = np.array([0.0, 0.33, 0.8])
    # A run that nobody has seen has no luck yet; what is common to a rung is no part of the curve.
    curve = [
        sum(
            weight * (covariance((place, 1.0, -1), row, same=False) - (30 * AMPLITUDE) ** 2 * (row[1] == 1))
            for weight, row in zip(weights, ENDED, strict=True)
        )
        for place in grid
    ]
    found = fit(seen(ENDED, scores), tolerance=TOLERANCE, hyper=ONE).mean(grid, [ALONE])[0]
    np.testing.assert_allclose(found, TOLERANCE * np.array(curve), rtol=0, atol=1e-9)


def chances(hyper: HyperGrid, sweeps: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Of so many sweeps drawn from the process: what was said of the run, and what it then did."""
    rows, random = [*ENDED, *RUNNING, LAST], np.random.default_rng(2)
    root = np.linalg.cholesky(matrix(rows))
    said, done = [], []
    for _ in range(sweeps):
        scores = root @ random.standard_normal(len(rows))
        said.append(fit(seen(rows[:-1], scores[:-1]), tolerance=TOLERANCE, hyper=hyper).ahead(9, LAST[0], ALONE))
        done.append(scores[-1] > max(scores[row] for row, (_, t, _) in enumerate(rows[:-1]) if t == 1))
    return np.array(said), np.array(done, dtype=float)


def off(said: np.ndarray, done: np.ndarray) -> float:
    """In standard errors, of the runs that a rule of 0.15 stops."""
    low = said < 0.15
    return float((done - said)[low].sum() / math.sqrt((said * (1 - said))[low].sum()))


def test_of_runs_that_are_stopped_as_many_would_have_won_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.study.unimodal.inference.gaussian_process.FAR_OF_RUNS", 1e9)
    said, done = chances(ONE)
    assert (said < 0.15).sum() > 50
    assert off(said, done) < 3
    without_luck = replace(ONE, noises=(0.05,))
    assert off(*chances(without_luck)) > 5, "the control"


@pytest.mark.parametrize("complete", [20, 60])
def test_a_run_that_leads_all_others_by_far_is_thought_ahead(complete: int) -> None:
    """Luck of three points and a tolerance of 0.35: what is cut for the curve's sake would make the leader fall back.

    With 60 complete trials there are more records than a model is fitted to.
    """
    random, rows, rungs = np.random.default_rng(0), [], (0.2, 0.4, 0.6, 0.8, 1.0)
    ends = []
    for number in range(complete):
        place, luck = float(random.uniform(0.4, 0.7)), 0.03 * float(random.standard_normal())
        ends.append(0.7 + luck)
        rows += [Record(place, t, 0.7 * t**0.5 + luck, number) for t in rungs]
    standing = [Standing(rows[5 * number].place, number, "complete") for number in range(complete)]
    for lead, least, most in ((0.1, 0.85, 1.0), (-0.15, 0.0, 0.05)):
        luck = max(ends) - 0.7 + lead
        own = [Record(0.55, t, 0.7 * t**0.5 + luck, 999) for t in rungs[:3]]
        rules = Rules(axis=ParameterAxis(0.0, 1.0), tolerance=0.0035, runs=0.15)
        believed = Beliefs(Seen.of([*rows, *own], [*standing, Standing(0.55, 999, "running")]), rules)
        assert least <= believed.ahead(999, 0.55) <= most
        assert believed.beaten(999, 0.55, 0.6) is (lead < 0)


def test_a_run_is_not_judged_earlier_than_configurations_are() -> None:
    rows = [Record(place, t, 0.7 * t**0.5, n) for n, place in enumerate((0.5, 0.6)) for t in (0.2, 0.6, 1.0)]
    own = [Record(0.55, t, 0.7 * t**0.5 - 0.5, 9) for t in (0.2, 0.6)]
    standing = [Standing(0.5, 0, "complete"), Standing(0.6, 1, "complete"), Standing(0.55, 9, "running")]
    rules = Rules(axis=ParameterAxis(0.0, 1.0), tolerance=0.01, runs=0.15)
    two = Beliefs(Seen.of([*rows, *own], standing), rules)
    assert two.ahead(9, 0.55) < 0.15
    assert not two.beaten(9, 0.55, 0.6), "two are complete"
    assert two.beaten(9, 0.55, 0.7), "after two thirds of the steps"
    three = [*rows, *(Record(0.4, t, 0.7 * t**0.5, 2) for t in (0.2, 0.6, 1.0))]
    more = Beliefs(Seen.of([*three, *own], [*standing, Standing(0.4, 2, "complete")]), rules)
    assert more.beaten(9, 0.55, 0.6)
    with_fewer_samples = Beliefs(more.seen, replace(rules, full_from=0.6))
    assert not with_fewer_samples.beaten(9, 0.55, 0.6)


def test_before_anything_is_known_every_run_may_win() -> None:
    assert Beliefs(Seen((), ()), Rules(axis=ParameterAxis(0.0, 1.0), tolerance=1.0)).ahead(0, 0.5) == 1.0
    only_early = seen([(0.5, 0.2, 0)], np.array([1.0]))
    assert fit(only_early, tolerance=1.0).ahead(0, 0.5, ALONE) == 1.0
