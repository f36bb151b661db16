"""Audit in one run: a training with canaries is watched, and the guesses bound its ε from below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.audit.bound import CONFIDENCE, epsilon_lower_bound, planned_guesses
from trainables.audit.canaries import Canaries
from trainables.charge import NoCharge
from trainables.engine.clip import clip_factors
from trainables.engine.objective import Points
from trainables.training import PrivateTraining, TrainingSpec

__all__ = ["AuditResult", "Observation", "WatchedTraining", "audit_run", "expected_separation", "scores"]


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Result of one audit.

    Attributes:
        canaries: m, the number of canaries. Each entered with probability 1/2.
        guesses: r, fixed before the run. The auditor abstained for the other canaries.
        right: v, the number of right guesses.
        delta: δ of the claim.
        confidence: probability with which the bound is not above the true ε.
        epsilon_at_least: the lower bound of ε; 0 if the guesses show nothing.
    """

    canaries: int
    guesses: int
    right: int
    delta: float
    confidence: float
    epsilon_at_least: float


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an observer of one step sees: θ before the step, and the noised gradient g̃, both of shape (d,)."""

    theta: Tensor
    gradient: Tensor


class WatchedTraining(PrivateTraining):
    """Private training whose noised gradients are shown to `watch`. Everything shown is covered by the claim."""

    def __init__(
        self,
        spec: TrainingSpec,
        canaries: Canaries,
        entered: Tensor,
        watch: Callable[[WatchedTraining, Observation], None],
    ) -> None:
        super().__init__(spec, NoCharge(), splits=canaries.splits(entered))
        step = self._private_step
        postprocess = step._stages.postprocess

        def watched(gradient: Tensor) -> Tensor:
            watch(self, Observation(theta=self._theta, gradient=gradient.clone()))
            return postprocess(gradient)

        step._stages = replace(step._stages, postprocess=watched)

    def clip_weights(self, theta: Tensor, canaries: Canaries) -> tuple[Tensor, Tensor]:
        """Return each canary's clip factor and the length of its clipped gradient at θ, both of shape (m,), float64."""
        weights, lengths = [], []
        mechanism = self._private_step.mechanism
        for part in self._private_step._source.chunks(Points(centre=theta), canaries.inputs, canaries.targets):
            norms = part.group_norms()
            factors = clip_factors(norms, mechanism.max_grad_norm, clipping=mechanism.clipping)
            weights.append(factors.mean(0))
            lengths.append((factors * norms).nan_to_num().square().sum(0).sqrt())
        return torch.cat(weights), torch.cat(lengths)

    def products(self, observed: Observation, canaries: Canaries) -> Tensor:
        """Return ⟨g_j, g̃⟩ of each canary's gradient g_j at θ with the noised gradient, shape (m,), float64."""

        def losses(theta: Tensor) -> Tensor:
            logits = functional_call(self._model, self._layout.views(theta), (canaries.inputs,))
            return nn.functional.cross_entropy(logits, canaries.targets, reduction="none")

        # The derivative of Σ_j w_j g_j along g̃ with respect to w has the products as entries.
        theta, direction = observed.theta.clone().requires_grad_(), observed.gradient
        with torch.enable_grad():
            each = losses(theta)
            weights = torch.ones_like(each, requires_grad=True)
            (total,) = torch.autograd.grad(each, theta, grad_outputs=weights, create_graph=True)
            (found,) = torch.autograd.grad(total, weights, grad_outputs=direction)
        return found.double().nan_to_num(posinf=0.0, neginf=0.0)


def expected_separation(spec: TrainingSpec) -> float:
    """Return the expected difference of the scores of canaries that entered and those that did not, per deviation.

    It is that of canaries with orthogonal gradients of length C. Only the plan of the guesses depends on it.
    """
    q = spec.sample_rate
    return q * sqrt(spec.steps / (spec.noise_multiplier**2 + q * (1 - q) / 2))


def audit_run(
    spec: TrainingSpec,
    canaries: Canaries,
    *,
    delta: float,
    generator: torch.Generator | None = None,
    confidence: float = CONFIDENCE,
    claim: float = 0.0,
) -> AuditResult:
    """Train once on a random half of the canaries, guess which half, and return the bound.

    Args:
        spec: specification of the audited training. Its data set is `trainables.audit.canaries.canary_request`.
        canaries: m canaries.
        delta: δ of the claim.
        generator: chooses the half; None for the generator of the operating system.
        confidence: probability with which the bound is not above the true ε.
        claim: ε that the training claims. There are enough guesses to refute it.
    """
    guesses = planned_guesses(
        canaries=len(canaries),
        separation=expected_separation(spec),
        delta=delta,
        confidence=confidence,
        claim=claim,
    )
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    entered = torch.rand(len(canaries), generator=generator) < 0.5
    found = scores(spec, canaries, entered)
    guessed = found.abs().argsort(descending=True)[:guesses]
    right = int(((found > 0) == entered)[guessed].sum())
    return AuditResult(
        canaries=len(canaries),
        guesses=guesses,
        right=right,
        delta=delta,
        confidence=confidence,
        epsilon_at_least=epsilon_lower_bound(
            canaries=len(canaries), guesses=guesses, right=right, delta=delta, confidence=confidence
        ),
    )


def scores(spec: TrainingSpec, canaries: Canaries, entered: Tensor) -> Tensor:
    """Return the score of each canary, shape (m,); above 0 if the noised gradients went along its clipped gradient.

    The score of a canary is computed from what the training shows and from the canary, never from `entered`.
    """
    total = torch.zeros(len(canaries), dtype=torch.float64)
    squares = torch.zeros_like(total)

    def watch(training: WatchedTraining, observed: Observation) -> None:
        weights, lengths = training.clip_weights(observed.theta, canaries)
        total.add_(weights * training.products(observed, canaries))
        squares.add_(lengths.square())

    training = WatchedTraining(spec, canaries, entered, watch)
    training.run_to(spec.steps)
    length = squares.sqrt() + 1e-12
    # A canary that entered adds its clipped gradient to a share q of the batches, so half of that is the middle.
    found = spec.batch_size * total / length - spec.sample_rate / 2 * length
    for label in sorted(
        set(canaries.targets.tolist())
    ):  # canaries with one label have a part of their gradients in common
        same = canaries.targets == label
        found[same] -= found[same].mean()
    return found
