"""Rules for noisy scores: what they choose on simulated searches, and that they change nothing without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from benchmarks import noisy_scores as simulated
from trainables.score_error import ScoreError
from tuner.study.noisy_scores import combined_scores, expected_score, tied


def test_ties_are_the_trials_within_the_error_of_the_difference() -> None:
    error = ScoreError(1000)
    apart = error.of_difference(0.9, 0.9)
    scores = {0: 0.9, 1: 0.9 - 0.9 * apart, 2: 0.9 - 1.2 * apart, 3: 0.9 + 0.9 * apart, 4: 0.9}
    assert tied(scores, 0, error) == (1, 3, 4)


def test_without_noise_the_last_score_decides() -> None:
    curves = {0: [0.5, 0.7], 1: [0.69, 0.699], 2: [0.1, 0.6], 3: [0.65]}
    assert combined_scores(curves, 0.0) == {0: 0.7, 1: 0.699, 2: 0.6, 3: 0.65}
    noisy = combined_scores(curves, 0.2)
    assert noisy[1] > noisy[0] > noisy[2]
    assert noisy[3] == 0.65, "a single score has no second one to combine"


def test_the_rule_is_better_than_the_last_score_on_noisy_searches() -> None:
    found = simulated.compare(12, 1.0, searches=1000, seed=1)
    assert found.gain > 3 * found.gain_error
    assert simulated.compare(12, 0.0, searches=50).gain == 0


def test_a_plain_mean_of_two_scores_is_worse_where_the_noise_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it is the weight, learnt from the trials, that makes the rule safe."""

    def plain(curves: Mapping[int, Sequence[float]], _noise: float) -> dict[int, float]:
        return {number: curve[-1] + curve[-2] for number, curve in curves.items()}

    rule = simulated.compare(12, 0.3, searches=600, rise=10.0, seed=2)
    monkeypatch.setattr(simulated, "combined_scores", plain)
    mean = simulated.compare(12, 0.3, searches=600, rise=10.0, seed=2)
    assert rule.gain > -rule.gain_error
    assert mean.gain < -3 * mean.gain_error


def test_the_expected_score_corrects_for_the_choice_of_the_best() -> None:
    found = simulated.compare(40, 1.0, searches=150, seed=3)
    assert found.bias > 0.5, "the best of many noisy scores is too high"
    assert abs(found.bias_corrected) < found.bias / 3


def test_the_expected_score_of_trials_that_differ_by_far_more_than_the_noise_is_the_score() -> None:
    assert expected_score([0.1, 0.5, 0.9], 0.9, 1e-4) == pytest.approx(0.9, abs=1e-4)
    assert expected_score([0.9], 0.9, 0.01) == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("scores", [[1.3, 1.2, 1.25], [1.9], [-0.4, -0.1]])
def test_the_expected_accuracy_is_one(scores: list[float]) -> None:
    assert 0 <= expected_score(scores, max(scores), 0.2) <= 1
