"""Audit in one run: a training with canaries is watched, and the guesses bound its ε from below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

import torch
from torch import Tensor
from torch.func import functional_call

from trainables.audit.bound import CONFIDENCE, epsilon_lower_bound, planned_guesses
from trainables.audit.canaries import Canaries
from trainables.charge import NoCharge
from trainables.engine.clip import clip_factors
from trainables.engine.objective import Points
from trainables.engine.step import PrivateStep, noise_variance
from trainables.engine.task_losses import each_loss
from trainables.engine.update import decoupled_decay
from trainables.training import PrivateTraining, TrainingSpec

__all__ = ["AuditResult", "Observation", "WatchedTraining", "audit_run", "expected_separation", "scores"]

_REPLAYED: Final = 20  # steps


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
        unexplained: largest difference of a weight from the one that follows from the noised gradients and public
            numbers alone. Above 0, the update used something else. None with the schedule gen, whose rate is released.
    """

    canaries: int
    guesses: int
    right: int
    delta: float
    confidence: float
    epsilon_at_least: float
    unexplained: float | None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an observer of one step sees: θ before the step, the noised gradient g̃, both of shape (d,), and the rate."""

    theta: Tensor
    gradient: Tensor
    learning_rate: float


class WatchedTraining(PrivateTraining):
    """Private training whose noised gradients are shown to `watch`. Everything shown is covered by the claim."""

    _private_step: PrivateStep

    def __init__(
        self,
        spec: TrainingSpec,
        canaries: Canaries,
        entered: Tensor,
        watch: Callable[[WatchedTraining, Observation], None],
    ) -> None:
        super().__init__(spec, NoCharge(), splits=canaries.splits(entered))
        step = self._private_step
        self._own = step._stages
        self._seen: list[Observation] = []
        postprocess = self._own.postprocess

        def watched(gradient: Tensor) -> Tensor:
            seen = Observation(theta=self._theta, gradient=gradient.clone(), learning_rate=self.learning_rate)
            if len(self._seen) < _REPLAYED:
                self._seen.append(seen)
            watch(self, seen)
            return postprocess(gradient)

        step._stages = replace(step._stages, postprocess=watched)

    def unexplained(self) -> float | None:
        """Return the largest difference of a weight from a replay of the first steps, or None with the schedule gen.

        The replay is a function of the noised gradients and public numbers: the method's post-processing and a new
        optimizer. So a difference means that a step depends on the records in another way.
        """
        if self._probes is not None or not self._seen:
            return None
        mechanism, theta = self._private_step.mechanism, self._seen[0].theta
        variance = noise_variance(mechanism, self._own, like=theta)
        update = self._hyperparameters.update(theta, variance=lambda: variance)
        after = [*(each.theta for each in self._seen[1:]), *([self._theta] if self.step == len(self._seen) else [])]
        largest = 0.0
        for seen, reached in zip(self._seen, after, strict=False):
            direction = update.direction(self._own.postprocess(seen.gradient.clone()))
            decay = self._own.decoupled_weight_decay
            expected = decoupled_decay(seen.theta, direction, learning_rate=seen.learning_rate, weight_decay=decay)
            both = torch.stack([expected, reached]).double().nan_to_num()
            largest = max(largest, float((both[0] - both[1]).abs().max()))
        return largest

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
            return each_loss(self._task)(logits, canaries.targets)

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
    found, training = _watched_run(spec, canaries, entered)
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
        unexplained=training.unexplained(),
    )


def scores(spec: TrainingSpec, canaries: Canaries, entered: Tensor) -> Tensor:
    """Return the score of each canary, shape (m,); above 0 if the noised gradients went along its clipped gradient.

    The score of a canary is computed from what the training shows and from the canary, never from `entered`.
    """
    return _watched_run(spec, canaries, entered)[0]


def _watched_run(spec: TrainingSpec, canaries: Canaries, entered: Tensor) -> tuple[Tensor, WatchedTraining]:
    """Train, and return the scores (`scores`) and the training."""
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
    return found, training
