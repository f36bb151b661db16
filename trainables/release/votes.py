"""Draw of labels that teachers voted for: Confident-GNMax (Papernot et al. 2018). The caller charges it first.

Formal guarantee: see `tuner.privacy.accountant.voted_labels`. One teacher has one vote on each query, and every test
and answer has fresh secret noise. Which queries are answered, and with which labels, is all that is released.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables import data
from trainables.data import DatasetRequest
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator
from trainables.release.draw import Release

__all__ = ["UNANSWERED", "Voting", "answered", "draw_labels", "noisy_answers"]

UNANSWERED = -1


@dataclass(frozen=True, kw_only=True)
class Voting:
    """Rule of the answers. All four are public.

    Attributes:
        threshold: T, in votes. A query is answered if its largest count plus noise is at least T.
        threshold_noise: σ₁, the standard deviation of that noise.
        answer_noise: σ₂, the standard deviation of the noise on each count of an answer.
        answers: A, the number of answers after which no query is tested any more.
    """

    threshold: float
    threshold_noise: float
    answer_noise: float
    answers: int


def draw_labels(request: DatasetRequest, voting: Voting, *, queries: int, generator: Generator) -> Release:
    """Draw labels of the first `queries` public inputs of `request`. They must be charged before this call."""
    votes, inputs = data.load_votes(request)[:queries], data.load_records(request).x_train[:queries]
    return answered(inputs, noisy_answers(votes, voting, generator=generator))


def noisy_answers(votes: Tensor, voting: Voting, *, generator: Generator | None = None) -> Tensor:
    """Return the label of each query, or UNANSWERED, int64 of shape (n,). Queries are tested in their public order.

    All noise is drawn whatever the votes are, so neither the number of draws nor the work depends on them.

    Args:
        votes: counts of the classes, shape (n, k).
        voting: the rule.
        generator: secret generator; None makes one, whose key is the operating system's.
    """
    generator = SecureGenerator() if generator is None else generator
    counts = votes.to(torch.float64)
    largest, flat = counts.amax(1), counts.reshape(-1)
    tests = add_noise(largest, standard_deviation=voting.threshold_noise, generator=generator, dtype=torch.float64)
    told = add_noise(flat, standard_deviation=voting.answer_noise, generator=generator, dtype=torch.float64)
    passed = tests >= voting.threshold
    within = passed & (passed.cumsum(0) <= voting.answers)
    return torch.where(within, told.reshape(counts.shape).argmax(1), UNANSWERED)


def answered(inputs: Tensor, labels: Tensor) -> Release:
    """Return the public inputs of the answered queries, flattened, with their labels."""
    kept = labels != UNANSWERED
    return Release(inputs[kept].reshape(int(kept.sum()), -1).to(torch.float32), labels[kept])
