"""Table 13 of the DPLIS paper: the printed values, and what Confident-GNMax costs on the real votes of SVHN."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.privacy.accountant import given_votes
from tuner.privacy.accountant.voted_labels import VotingNoise

DELTA, THRESHOLD, TEST_NOISE = 1e-5, 300.0, 200.0
QUERIES = (4_000, 8_000, 12_000, 16_000)
LABELLED = (1_323, 2_692, 4_128, 5_521)
PRINTED = {
    40.0: (7.44, 11.08, 14.08, 16.75),
    80.0: (3.78, 5.51, 6.90, 8.10),
    100.0: (3.15, 4.57, 5.70, 6.68),
}
"""σ₂ → the printed ε for each number of queries."""

ORDERS = np.unique(np.concatenate([np.arange(1.05, 20, 0.05), np.arange(20, 100, 0.5)]))


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Attributes:
        noise: σ₂.
        queries: number of queries.
        labelled: number of labels that the paper printed.
        printed: ε that the paper printed.
        expected: expected number of answers on these votes. It is a function of the votes.
        mean: ε by the formula that gives the printed values: bounds that hold for all votes, times the expected
            number of answers. No guarantee.
        claim: ε that is true for all votes, if at most `labelled` answers are given.
        given: ε given these votes, by the bounds of Papernot et al. NOT private, and no guarantee.
        given_mean: the same with the mean over the tests, as the PATE papers print it.
    """

    noise: float
    queries: int
    labelled: int
    printed: float
    expected: float
    mean: float
    claim: float
    given: float
    given_mean: float


def cells(votes: np.ndarray) -> list[Cell]:
    """Return the twelve cells on the first queries of `votes`, shape (n, classes)."""
    asked = votes[: max(QUERIES)].astype(float)
    answered = np.exp(given_votes.log_answered(asked, threshold=THRESHOLD, noise=TEST_NOISE)[0])
    found = []
    for noise, printed in PRINTED.items():
        noises = (TEST_NOISE, noise)
        told = (
            given_votes.mean_divergence(asked, threshold=THRESHOLD, noises=noises, orders=ORDERS, given=False),
            given_votes.query_divergence(asked, threshold=THRESHOLD, noises=noises, orders=ORDERS),
            given_votes.mean_divergence(asked, threshold=THRESHOLD, noises=noises, orders=ORDERS, given=True),
        )
        for queries, labelled, epsilon in zip(QUERIES, LABELLED, printed, strict=True):
            mean, given, given_mean = (
                given_votes.classic_epsilon(each[:queries].sum(0), ORDERS, DELTA)[0] for each in told
            )
            charged = VotingNoise(queries=queries, answers=labelled, threshold_noise=TEST_NOISE, answer_noise=noise)
            found.append(
                Cell(
                    noise=noise,
                    queries=queries,
                    labelled=labelled,
                    printed=epsilon,
                    expected=float(answered[:queries].sum()),
                    mean=mean,
                    claim=charged.epsilon(DELTA),
                    given=given,
                    given_mean=given_mean,
                )
            )
    return found
