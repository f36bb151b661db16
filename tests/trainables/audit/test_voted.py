"""The audit of voted labels: below its claim, and every planted fault above it."""

from __future__ import annotations

import pytest
import torch

from trainables.audit.voted import audit_votes
from trainables.release import votes
from trainables.release.votes import Voting
from tuner.privacy.accountant.voted_labels import calibrate_votes

DELTA, TEACHERS, QUERIES, ANSWERS = 1e-5, 250, 100, 60
PLANNED = calibrate_votes(queries=QUERIES, answers=ANSWERS, threshold_share=0.15, epsilon=3.0, delta=DELTA)
HONEST = Voting(
    threshold=200.0, threshold_noise=PLANNED.threshold_noise, answer_noise=PLANNED.answer_noise, answers=ANSWERS
)


def audited() -> tuple[float, float]:
    found, most = audit_votes(HONEST, teachers=TEACHERS, classes=10, queries=QUERIES, delta=DELTA)
    return found.epsilon_at_least, most.largest_ratio


def test_a_sound_draw_is_below_its_claim() -> None:
    bound, labels = audited()
    assert 0 <= bound <= 3.0  # from 0 to 0.9 in 58 runs; the planted faults show the power
    assert labels == 1


@pytest.mark.parametrize("fault", ["a tenth of the noise", "no limit"])
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "no limit":
        monkeypatch.setattr(torch.Tensor, "cumsum", lambda tensor, _dim: torch.zeros_like(tensor, dtype=torch.int64))
        assert audited()[1] > 1
        return
    real = votes.add_noise
    monkeypatch.setattr(
        votes,
        "add_noise",
        lambda values, *, standard_deviation, **more: real(values, standard_deviation=standard_deviation / 10, **more),
    )
    assert audited()[0] > 3.0
