"""The audit in one run: every private method keeps its claim and shows a tenth of it; less noise is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import trainables.engine.clip
import trainables.engine.step
import trainables.engine.update
from trainables.audit.one_run import AuditResult, audit_run, scores
from trainables.audit.task import METHOD_PARAMETERS, canary_task
from trainables.methods import STEP_METHODS
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon

DELTA = 1e-5
KNOWN: dict[str, Any] = {"private": False, "noise_seed": 7}
"""Known noise, so that a verdict is the same every time."""


def audited(folder: Path, method: str, *, canaries: int = 768, claim: float = 0.0, **changes: object) -> AuditResult:
    spec, records = canary_task(folder, method, canaries=canaries, **{**KNOWN, **changes})
    return audit_run(spec, records, delta=DELTA, generator=torch.Generator().manual_seed(3), claim=claim)


def test_every_method_is_audited() -> None:
    assert METHOD_PARAMETERS.keys() == STEP_METHODS.keys()


@pytest.mark.parametrize("method", METHOD_PARAMETERS)
@pytest.mark.parametrize("mechanism", [SampledGaussian(0.5, 3.0), SampledGaussian(0.15, 1.0)])
def test_the_bound_is_below_the_claim_and_above_a_tenth_of_it(
    tmp_path: Path, method: str, mechanism: SampledGaussian
) -> None:
    claim = epsilon(mechanism, 20, DELTA)
    found = audited(tmp_path, method, sample_rate=mechanism.sample_rate, noise_multiplier=mechanism.noise_multiplier)
    assert claim / 10 < found.epsilon_at_least <= claim


def test_the_bound_of_a_small_claim_is_below_it(tmp_path: Path) -> None:
    """The audit that planted faults of the noise and of the sampling must not pass."""
    claim = epsilon(SampledGaussian(0.1, 4.0), 20, DELTA)
    found = audited(tmp_path, "dp_sgd", sample_rate=0.1, noise_multiplier=4.0, claim=claim)
    assert found.epsilon_at_least <= claim


@pytest.mark.parametrize("fault", ["none", "a tenth of the noise", "sampled always", "clip ten times as long"])
def test_a_planted_fault_shows_more_than_the_claim(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = SampledGaussian(0.1, 4.0)
    claim = epsilon(mechanism, 20, DELTA)
    real = trainables.engine.step
    if fault == "a tenth of the noise":
        add = real.add_noise
        monkeypatch.setattr(real, "add_noise", lambda clipped, *, standard_deviation, **more: add(
            clipped, standard_deviation=standard_deviation / 10, **more))  # fmt: skip
    if fault == "sampled always":
        monkeypatch.setattr(real, "poisson_batch", lambda _generator, records, _rate: torch.arange(records))
    if fault == "clip ten times as long":
        factors = trainables.engine.clip.clip_factors
        monkeypatch.setattr(
            trainables.engine.clip, "clip_factors", lambda norms, c, **more: factors(norms, 10 * c, **more)
        )
    found = audited(tmp_path, "dp_sgd", sample_rate=0.1, noise_multiplier=4.0, claim=claim)
    assert (found.epsilon_at_least > claim) == (fault != "none")


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_the_bound_of_another_task_is_below_its_claim_and_above_a_tenth(tmp_path: Path, task: str) -> None:
    claim = epsilon(SampledGaussian(0.5, 3.0), 20, DELTA)
    found = audited(tmp_path, "dp_sgd", task=task, parameters={"learning_rate": 1e-3})
    assert claim / 10 < found.epsilon_at_least <= claim


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adam_corrected"])
@pytest.mark.parametrize("method", METHOD_PARAMETERS)
def test_the_weights_follow_from_the_noised_gradients_alone(tmp_path: Path, method: str, optimizer: str) -> None:
    found = audited(tmp_path, method, canaries=64, steps=4, optimizer=optimizer)
    assert found.unexplained == 0.0


def test_an_update_that_sees_gradients_without_noise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The correction of the second moment is computed from the noise that was drawn, as an observer cannot."""
    real, drawn = trainables.engine.step.add_noise, []

    def told(clipped: torch.Tensor, **more: Any) -> torch.Tensor:  # noqa: ANN401
        drawn.append(real(clipped, **more) - clipped)
        return clipped + drawn[-1]

    monkeypatch.setattr(trainables.engine.step, "add_noise", told)
    monkeypatch.setattr(
        trainables.engine.update.CorrectedAdam, "_second_moment", lambda _self, square: square + drawn[-1].square()
    )
    found = audited(tmp_path, "dp_sgd", canaries=64, steps=4, optimizer="adam_corrected")
    assert found.unexplained


def test_the_score_never_looks_at_who_entered(tmp_path: Path) -> None:
    """Who entered has the higher score, and the same released gradients give the same scores."""
    spec, records = canary_task(tmp_path, "dp_sgd", canaries=256, parameters={"learning_rate": 0.01}, **KNOWN)
    entered = torch.arange(256) % 4 < 2
    before = scores(spec, records, entered)
    assert before[entered].median() > before[~entered].median() + 0.5
    assert torch.equal(before, scores(replace(spec, noise_seed=7), records, entered))
