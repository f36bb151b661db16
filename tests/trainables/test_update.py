"""Adam without the noise's share of the second moment: its limits, and the noise that it takes off in each scope."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from training_fakes import EXACT, Trained, raw

from trainables.engine.layout import Layout
from trainables.engine.step import Mechanism, noise_variance
from trainables.engine.update import Adam, CorrectedAdam
from trainables.methods import from_parameters

SIZES = (120, 7, 2, 1)
pytestmark = pytest.mark.usefixtures("fake_data")


def test_without_noise_the_corrected_adam_is_adam_bit_for_bit(trained: Trained) -> None:
    own: dict[str, Any] = {**EXACT, "parameters": {"adam_beta2": 0.9, "learning_rate": 0.01}}
    adam, corrected = (raw(trained(5, optimizer=name, **own)) for name in ("adam", "adam_corrected"))
    assert torch.equal(adam, corrected)
    noisy = {**own, "noise_multiplier": 1.0}
    assert not torch.equal(*(raw(trained(5, optimizer=name, **noisy)) for name in ("adam", "adam_corrected")))


@pytest.mark.parametrize("scope", ["layer", "model"])
def test_the_variance_is_that_of_smoothed_noise_in_each_scope(scope: str) -> None:
    """Lemma 5 of DP-LSSGD: d·β = E‖A⁻¹x‖², here by the trace of A⁻¹A⁻ᵀ, and by drawing noise."""
    parameters = {"optimizer": "adam_corrected", "laplacian_sigma": 2.0, "laplacian_scope": scope}
    settings = from_parameters("dp_lssgd", parameters, batch_size=8, steps=1, noise_multiplier=2.0)
    layout = Layout(names=("w", "x", "y", "z"), shapes=tuple(torch.Size((size,)) for size in SIZES))
    stages = settings.stages(layout)
    mechanism = Mechanism(sample_rate=0.5, noise_multiplier=2.0, max_grad_norm=3.0, expected_batch_size=8)
    theta = torch.zeros(sum(SIZES), dtype=torch.float64)
    variance = noise_variance(mechanism, stages, like=theta)
    assert isinstance(variance, torch.Tensor)
    inverse = torch.stack([stages.postprocess(row) for row in torch.eye(len(theta), dtype=torch.float64)])
    exact = (2.0 * 3.0 / 8) ** 2 * inverse.square().sum(0)
    torch.testing.assert_close(variance, exact, rtol=1e-12, atol=0)
    drawn = torch.randn(3000, len(theta), generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 0.75
    found = torch.stack([stages.postprocess(each) for each in drawn]).var(0)
    torch.testing.assert_close(found, variance, rtol=0.15, atol=0)
    assert not torch.allclose(found, torch.full_like(found, 0.75**2), rtol=0.15), "the control: not that of raw noise"


def test_what_is_left_of_the_second_moment_is_that_of_the_signal() -> None:
    signal, noise = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64), 1.5
    generator = torch.Generator().manual_seed(6)
    corrected = CorrectedAdam(signal, variance=noise**2, noise_floor=0.1, beta1=0.99, beta2=0.9995)
    adam = Adam(signal, beta1=0.99, beta2=0.9995)
    for _ in range(6_000):
        gradient = signal + noise * torch.randn(3, generator=generator, dtype=torch.float64)
        directions = corrected.direction(gradient), adam.direction(gradient)
    assert directions[0][:2].tolist() == pytest.approx([1.0, 1.0], rel=0.2), "as long as without noise"
    assert float(directions[1][0]) < 0.5, "the noise makes steps of Adam short"
    assert abs(float(directions[0][2])) < 1.0, "where there is no signal, the floor keeps steps short"


def test_the_noise_of_a_step_of_adam_depends_on_no_clip() -> None:
    adam = Adam(torch.zeros(1))
    for clip in (0.1, 1.0, 10.0):
        assert adam.step_noise(noise=0.3 * clip, signal=0.4 * clip) == pytest.approx(0.6)
    assert adam.step_noise(noise=0.0, signal=1.0) == 0.0
