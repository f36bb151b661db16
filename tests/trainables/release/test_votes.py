"""Draw of voted labels: laws of tests and answers, the limit of answers, and files that give a teacher two votes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from trainables.data.votes import require_votes
from trainables.engine.random import SeededGenerator
from trainables.errors import DatasetError
from trainables.release.votes import UNANSWERED, Voting, answered, noisy_answers

QUERIES = 40_000


def test_the_laws_of_tests_and_answers_are_those_that_are_charged() -> None:
    votes = torch.tensor([[30, 20]]).repeat(QUERIES, 1)
    voting = Voting(threshold=40.0, threshold_noise=10.0, answer_noise=10.0, answers=QUERIES)
    labels = noisy_answers(votes, voting, generator=SeededGenerator(1))
    told = labels != UNANSWERED
    # Four standard errors. Noise on one count alone would give 0.84 instead of 0.76 of the answers to class 0.
    assert told.double().mean().item() == pytest.approx(ndtr(-1), abs=4 * 0.366 / QUERIES**0.5)
    right = float(ndtr(10 / (10 * 2**0.5)))
    count = int(told.sum())
    assert (labels[told] == 0).double().mean().item() == pytest.approx(right, abs=4 * 0.43 / count**0.5)
    # The noise of a test says nothing about the noise of its answer, and no query about the next.
    first = labels[1:][told[:-1]] != UNANSWERED
    assert first.double().mean().item() == pytest.approx(ndtr(-1), abs=4 * 0.366 / count**0.5)


def test_the_limit_of_answers_holds_and_the_first_ones_are_kept() -> None:
    votes = torch.full((500, 2), 50)
    one = noisy_answers(
        votes, Voting(threshold=50, threshold_noise=5, answer_noise=5, answers=10**6), generator=SeededGenerator(3)
    )
    few = noisy_answers(
        votes, Voting(threshold=50, threshold_noise=5, answer_noise=5, answers=17), generator=SeededGenerator(3)
    )
    assert int((one != UNANSWERED).sum()) > 17 == int((few != UNANSWERED).sum())
    last = int((few != UNANSWERED).nonzero().max())
    assert torch.equal(one[: last + 1], few[: last + 1])
    release = answered(torch.arange(500).reshape(500, 1, 1), few)
    assert release.x.shape == (17, 1)
    assert torch.equal(release.x[:, 0].long(), (few != UNANSWERED).nonzero()[:, 0])


def test_noise_is_fresh_and_secret_without_a_generator() -> None:
    votes = torch.full((200, 4), 10)
    voting = Voting(threshold=0, threshold_noise=1, answer_noise=10, answers=200)
    assert not torch.equal(noisy_answers(votes, voting), noisy_answers(votes, voting))


@pytest.mark.parametrize(
    "votes",
    [[[3, 2], [4, 2]], [[6, -1]], [[2.5, 2.5]], [5]],
    ids=["a vote too many", "less than none", "half votes", "no counts"],
)
def test_a_file_in_which_a_teacher_has_another_number_of_votes_is_refused(votes: list[object]) -> None:
    with pytest.raises(DatasetError, match="votes-damaged"):
        require_votes(np.array(votes), teachers=5)
    require_votes(np.array([[3, 2], [0, 5]]), teachers=5)
