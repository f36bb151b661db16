"""The audit of perturbed minima: below the claim and above a part of it, and planted faults above it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from training_fakes import keyed

from trainables.audit.minimum import audit_minimum, probe_gradient
from trainables.convex import logistic, objective, output
from trainables.engine.random import Generator
from trainables.methods import METHODS
from trainables.methods.output_perturbation import OutputPerturbation

MINIMA = ("output_perturbation", "objective_perturbation")


def settings(method: str) -> OutputPerturbation:
    found = METHODS[method](batch_size=1, steps=1, noise_multiplier=1.0)
    assert isinstance(found, OutputPerturbation)
    return found


@pytest.mark.parametrize("method", MINIMA)
def test_a_sound_step_is_below_its_claim_and_the_audit_sees_a_part_of_it(method: str) -> None:
    assert 0.1 < audit_minimum(settings(method), noise_multiplier=1.0, runs=200, generator=keyed()).mu_at_least <= 1.0
    moved = probe_gradient(settings(method), input_shape=(1, 3, 3), classes=3)
    assert 0.99 < moved.largest_ratio <= 1
    assert moved.samples > 60


@pytest.mark.parametrize("method", MINIMA)
@pytest.mark.parametrize("fault", ["a third of the noise", "no clip"])
def test_planted_faults_are_found(method: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = output.add_noise
    if fault == "no clip":
        monkeypatch.setattr(logistic, "clipped_rows", lambda x, _clip: x.to(torch.float64))
        assert probe_gradient(settings(method), input_shape=(4,), classes=2).largest_ratio > 1
        return

    def less(values: Tensor, *, standard_deviation: float, generator: Generator, dtype: torch.dtype) -> Tensor:
        return real(values, standard_deviation=standard_deviation / 3, generator=generator, dtype=dtype)

    for module in (objective, output):
        monkeypatch.setattr(module, "add_noise", less)
    assert audit_minimum(settings(method), noise_multiplier=1.0, runs=200, generator=keyed()).mu_at_least > 1.0
