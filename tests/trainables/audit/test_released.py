"""The audit of a release: below its claim and above a part of it, and every planted fault above it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainables.audit.released import audit_release, probe_clip
from trainables.release import draw
from trainables.release.draw import Randomiser
from tuner.privacy.accountant.noisy_records import calibrate_release

DELTA = 1e-5
PLANNED = calibrate_release(clip=1.5, label_share=0.4, classes=3, epsilon=3.0, delta=DELTA)
HONEST = Randomiser(clip=1.5, noise=PLANNED.noise, label_epsilon=PLANNED.label_epsilon, classes=3)


def bound(randomiser: Randomiser = HONEST) -> float:
    return audit_release(randomiser, size=4, rows=60_000, delta=DELTA).epsilon_at_least


def test_a_sound_release_is_below_its_claim_and_the_audit_sees_a_part_of_it() -> None:
    assert 0.3 * 3.0 < bound() <= 3.0
    moved = probe_clip(HONEST, input_shape=(1, 3, 3))
    assert 0.99 < moved.largest_ratio <= 1
    assert moved.samples > 60


@pytest.mark.parametrize("fault", ["a third of the noise", "no clip", "labels in the clear"])
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = HONEST
    match fault:
        case "a third of the noise":
            real = draw.add_noise
            monkeypatch.setattr(
                draw,
                "add_noise",
                lambda values, *, standard_deviation, **more: real(
                    values, standard_deviation=standard_deviation / 3, **more
                ),
            )
        case "no clip":
            monkeypatch.setattr(draw, "clipped_rows", lambda x, _clip: x.to(torch.float64))
            assert probe_clip(HONEST, input_shape=(4,)).largest_ratio > 1
        case _:
            faulty = replace(HONEST, label_epsilon=12.0)
    assert bound(faulty) > 3.0
