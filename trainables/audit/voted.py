"""Audit of voted labels: many draws on two made-up votes that differ in one teacher, and the limit of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import torch

from trainables.audit.bound import CONFIDENCE
from trainables.audit.one_run import AuditResult
from trainables.audit.released import ReleaseMoved, separated
from trainables.release import votes
from trainables.release.votes import UNANSWERED, Voting

__all__ = ["audit_votes"]

_DRAWS: Final = 2_000


def audit_votes(
    voting: Voting, *, teachers: int, classes: int, queries: int, delta: float
) -> tuple[AuditResult, ReleaseMoved]:
    """Return a lower bound of ε, and the largest number of labels in a draw, in units of the limit of answers.

    On each query the teachers are divided between two classes, and one teacher votes otherwise on all of them. The
    observer counts the labels of each class. The claim does not depend on the threshold, so it is 0 here and most
    queries are answered. The bound is above the true ε with a probability of at most 1 − CONFIDENCE.
    """
    half = teachers // 2
    counts = torch.zeros(queries, classes, dtype=torch.int64)
    counts[:, 0], counts[:, 1] = teachers - half, half
    moved = counts.clone()
    moved[:, 0] += 1
    moved[:, 1] -= 1
    open_to_all = replace(voting, threshold=0.0)
    drawn = [[votes.noisy_answers(each, open_to_all) for _ in range(_DRAWS)] for each in (moved, counts)]
    one, other = (
        np.array([int((labels == 0).sum()) - int((labels == 1).sum()) for labels in each], float) for each in drawn
    )
    found, caught, wrong = separated(one, other, delta)
    most = max(int((labels != UNANSWERED).sum()) for each in drawn for labels in each)
    result = AuditResult(
        canaries=2 * _DRAWS,
        guesses=caught + wrong,
        right=caught,
        delta=delta,
        confidence=CONFIDENCE,
        epsilon_at_least=found,
        unexplained=None,
    )
    return result, ReleaseMoved(samples=2 * _DRAWS, largest_ratio=most / voting.answers, record="labels of a draw")
