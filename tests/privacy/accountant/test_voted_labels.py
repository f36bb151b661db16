"""ε of voted labels: the exact laws of small votes, for all neighbours, against the claim and the given votes."""

from __future__ import annotations

from itertools import permutations, product
from math import exp, inf, log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from tuner.errors import InputError
from tuner.privacy.accountant.given_votes import (
    answer_divergence,
    classic_epsilon,
    log_other_answer,
    mean_divergence,
    query_divergence,
)
from tuner.privacy.accountant.voted_labels import VotingNoise, calibrate_votes

Array = NDArray[np.float64]
ORDERS = np.array([1.5, 2.0, 3.0, 5.0, 9.0, 17.0])
VOTES = [(30, 0, 0), (20, 9, 1), (11, 10, 9), (15, 15, 0), (28, 1, 1)]
NOISES = (3.0, 4.0)
THRESHOLD = 24.0


def neighbours(votes: tuple[int, ...]) -> list[Array]:
    """Return all votes in which one teacher voted otherwise."""
    found = []
    for one, other in permutations(range(len(votes)), 2):
        if votes[one]:
            moved = np.array(votes, float)
            moved[one] -= 1
            moved[other] += 1
            found.append(moved)
    return found


def law(votes: Array, *, threshold: float = THRESHOLD, noises: tuple[float, float] = NOISES) -> Array:
    """Return the probabilities of no answer and of each answer, by integrating the noise of one count."""
    z = np.linspace(-9, 9, 4001)
    weight = np.exp(-z * z / 2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    wins = [
        (weight * np.prod([ndtr(z + (votes[i] - votes[j]) / noises[1]) for j in range(len(votes)) if j != i], 0)).sum()
        for i in range(len(votes))
    ]
    yes, no = ndtr((votes.max() - threshold) / noises[0]), ndtr((threshold - votes.max()) / noises[0])
    return np.array([no, *(yes * np.array(wins))])


def divergence(one: Array, other: Array, order: float) -> float:
    return float(log((one**order * other ** (1 - order)).sum()) / (order - 1))


@pytest.mark.parametrize("votes", VOTES)
def test_no_neighbour_is_further_than_the_divergence_given_the_votes(votes: tuple[int, ...]) -> None:
    counts = np.array([votes], float)
    answers = answer_divergence(log_other_answer(counts, noise=NOISES[1]), noise=NOISES[1], orders=ORDERS)[0]
    both = query_divergence(counts, threshold=THRESHOLD, noises=NOISES, orders=ORDERS)[0]
    free = ORDERS / 2 / NOISES[0] ** 2 + ORDERS / NOISES[1] ** 2
    assert (both <= free * (1 + 1e-12)).all()
    here, always = law(counts[0]), law(counts[0], threshold=-1e6)
    for moved in neighbours(votes):
        there, there_always = law(moved), law(moved, threshold=-1e6)
        for index, order in enumerate(ORDERS):
            assert divergence(always[1:], there_always[1:], order) <= answers[index] * (1 + 1e-9) + 1e-12
            assert divergence(here, there, order) <= both[index] * (1 + 1e-9) + 1e-12
            assert divergence(there, here, order) <= free[index] * (1 + 1e-9)


def test_votes_that_agree_cost_less_and_a_bound_that_is_too_small_is_found() -> None:
    agreed = np.array([[30.0, 0.0, 0.0]])
    found = answer_divergence(log_other_answer(agreed, noise=4.0), noise=4.0, orders=ORDERS)[0]
    assert found[0] < 1e-3 * ORDERS[0] / 16
    # The bound without the votes is at most 1.6 times too large: half of it is exceeded by a tie.
    tie = [
        law(each, threshold=-1e6, noises=(1.0, 4.0))[1:] for each in (np.array([15.0, 15.0]), np.array([14.0, 16.0]))
    ]
    assert divergence(tie[0], tie[1], 2.0) > 0.5 * 2.0 / 16


@pytest.mark.parametrize(("noise", "epsilon"), [(1.0, 0.5), (2.0, 1.0), (3.0, 0.3)])
def test_no_sequence_of_answers_is_told_apart_better_than_claimed(noise: float, epsilon: float) -> None:
    tests, claims = 3, {}
    for votes in ((3, 3, 0), (4, 2, 0), (6, 0, 0)):
        for moved in neighbours(votes):
            here, there = (
                law(np.asarray(each, float), threshold=4.0, noises=(noise, noise)) for each in (votes, moved)
            )
            pairs = [
                (np.prod(here[list(word)]), np.prod(there[list(word)])) for word in product(range(4), repeat=tests)
            ]
            told = sum(max(one - exp(epsilon) * other, 0.0) for one, other in pairs)
            claims[votes, tuple(moved)] = told
    limit = VotingNoise(queries=tests, answers=tests, threshold_noise=noise, answer_noise=noise)
    assert max(claims.values()) <= limit.delta(epsilon)
    # Control: with the tests alone, or with a vote that only leaves a class, the claim would be too small.
    wrong = VotingNoise(queries=tests, answers=1, threshold_noise=noise, answer_noise=1e6)
    assert max(claims.values()) > wrong.delta(epsilon)


def test_one_binary_answer_at_a_tie_needs_the_distance_of_two_counts() -> None:
    # One vote moves: both counts change, so they differ by 2 more, with noise of variance 2σ² on the difference.
    here, there = 0.5, float(ndtr(2 / np.sqrt(2)))
    told = there - here
    claimed = VotingNoise(queries=1, answers=1, threshold_noise=1e9, answer_noise=1.0)
    assert told <= claimed.delta(0.0)
    one_count = VotingNoise(queries=1, answers=1, threshold_noise=1e9, answer_noise=np.sqrt(2))
    assert told > one_count.delta(0.0)


@pytest.mark.parametrize(("epsilon", "share"), [(0.3, 0.1), (2.0, 0.5), (8.0, 0.05)])
def test_calibrated_noise_fits_and_little_less_does_not(epsilon: float, share: float) -> None:
    found = calibrate_votes(queries=9000, answers=1000, threshold_share=share, epsilon=epsilon, delta=1e-6)
    assert found.epsilon(1e-6) <= epsilon
    less = VotingNoise(
        queries=9000,
        answers=1000,
        threshold_noise=found.threshold_noise * 0.9997,
        answer_noise=found.answer_noise * 0.9997,
    )
    assert less.epsilon(1e-6) > epsilon
    assert found.queries / found.threshold_noise**2 / found.shift**2 == pytest.approx(share, rel=1e-3)


def test_the_mean_of_the_papers_is_below_what_a_query_costs() -> None:
    """The papers multiply an answer's divergence by its probability. The exact law of one query exceeds that."""
    order, noises, votes, threshold = np.array([2.0]), (100.0, 0.5), np.array([[15.0, 15.0]]), 67.4
    mean = mean_divergence(votes, threshold=threshold, noises=noises, orders=order, given=True)[0, 0]
    exact = divergence(
        law(votes[0], threshold=threshold, noises=noises),
        law(np.array([16.0, 14.0]), threshold=threshold, noises=noises),
        2.0,
    )
    assert mean < exact <= query_divergence(votes, threshold=threshold, noises=noises, orders=order)[0, 0]


def test_the_classic_conversion_takes_the_best_order() -> None:
    told = np.array([0.3, 0.4, 0.6, 1.0, 1.8, 3.4])
    epsilon, order = classic_epsilon(told, ORDERS, 1e-5)
    assert epsilon == pytest.approx(min(told + log(1e5) / (ORDERS - 1)))
    assert order == 9.0


@pytest.mark.parametrize(
    "changes",
    [{"queries": 0}, {"answers": 1.5}, {"threshold_noise": 0.0}, {"answer_noise": inf}, {"answer_noise": True}],
)
def test_values_that_are_no_noise_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"votes-invalid|count-out-of-range"):
        VotingNoise(**{"queries": 10, "answers": 5, "threshold_noise": 1.0, "answer_noise": 1.0, **changes})
