"""One private step: the five stages in their order, under one immutable owner of everything that privacy depends on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

import torch
from torch import Tensor

from trainables.engine.clip import CLIPPINGS, clipped_sum, stretch
from trainables.engine.noise import add_noise
from trainables.engine.objective import Objective, Plain
from trainables.engine.per_sample import IGNORED, ROWS, PerSampleSource
from trainables.engine.postprocess import Identity, Postprocess
from trainables.engine.random import Generator
from trainables.engine.sampling import poisson_batch, records_of
from trainables.engine.sums import blocks_for, full_float32
from trainables.engine.update import Update, decoupled_decay
from trainables.errors import GateError, HyperparameterError

__all__ = ["Augmentation", "Mechanism", "PrivateStep", "Stages"]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The Poisson-subsampled Gaussian mechanism of a step; nothing outside it holds a rate, a clip or a noise scale.

    Formal guarantee: with add/remove-one adjacency of samples, a step is a Gaussian mechanism of noise_multiplier times
    its sensitivity max_grad_norm, subsampled at sample_rate. What it divides by is public. Where a sum is rounded, the
    noise is larger by what that may add to the sensitivity (`trainables.engine.sums`). A sample is one record, or one
    user with all records that are used of them. Nothing here knows batches that were drawn in another way.

    Attributes:
        sample_rate: probability with which a sample enters a batch by itself, in (0, 1].
        noise_multiplier: standard deviation of the noise divided by max_grad_norm; 0 is not private.
        max_grad_norm: clipping norm C.
        expected_batch_size: b, what the noised sum is divided by, whatever the batch.
        clipping: how each sample is brought to length C, one of CLIPPINGS; the sensitivity is C in each.

    Raises:
        HyperparameterError: a number is not finite or out of its range.
    """

    sample_rate: float
    noise_multiplier: float
    max_grad_norm: float
    expected_batch_size: float
    clipping: str = "flat"

    def __post_init__(self) -> None:
        # Every comparison is written so that NaN and infinity fail it.
        rules = (
            (0 < self.sample_rate <= 1, "sample_rate must be in (0, 1]", self.sample_rate),
            (0 <= self.noise_multiplier < inf, "noise_multiplier must be finite and at least 0", self.noise_multiplier),
            (0 < self.max_grad_norm < inf, "max_grad_norm must be finite and greater than 0", self.max_grad_norm),
            (
                0 < self.expected_batch_size < inf,
                "expected_batch_size must be finite and greater than 0",
                self.expected_batch_size,
            ),
            (self.clipping in CLIPPINGS, f"clipping must be one of {', '.join(CLIPPINGS)}", self.clipping),
        )
        problems = [f"{rule}; got {value!r}" for holds, rule, value in rules if not holds]
        if problems:
            raise HyperparameterError("\n".join(problems))

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on the sum, per coordinate: noise_multiplier · C."""
        return self.noise_multiplier * self.max_grad_norm


class Augmentation(Protocol):
    """Random copies of each sample; their gradients are averaged before the clip (De et al. 2022)."""

    @property
    def copies(self) -> int:
        """M, copies of each sample."""
        ...

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Inputs of shape (B, *input_shape) as (B·copies, *input_shape), the copies of a sample side by side."""
        ...


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What a method changes, stage by stage; the defaults are DP-SGD. All of it is free for the accountant.

    Attributes:
        objective: before the clip, from public randomness only.
        later: (step, objective) each: what takes its place from that step on, rising. Fixed before the first step.
        augmentation: before the clip too, from SECRET randomness: with a public stream a record more or less would
            shift the copies of all others. None leaves the records as they are.
        weight_decay_before_clipping: λ of g_i ← g_i + λθ.
        postprocess: after the noise.
        decoupled_weight_decay: λ of θ ← (1 - ηλ)θ - ηg̃.
    """

    objective: Objective = field(default_factory=Plain)
    later: tuple[tuple[int, Objective], ...] = ()
    augmentation: Augmentation | None = None
    weight_decay_before_clipping: float = 0.0
    postprocess: Postprocess = field(default_factory=Identity)
    decoupled_weight_decay: float = 0.0

    def objective_at(self, step: int) -> Objective:
        """The objective of the step before which `step` steps were taken."""
        return next((objective for start, objective in reversed(self.later) if start <= step), self.objective)


class PrivateStep:
    """Takes private steps; charging for them is its caller's, and comes before.

    Attributes:
        noise_draws: how often noise was added; equals the steps taken, and the ledger's count is compared with it. It
            says which objective a step has.
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        stages: Stages,
        source: PerSampleSource,
        update: Update,
        secret: Generator,
        public: torch.Generator,
    ) -> None:
        self._mechanism = mechanism
        self.noise_draws = 0
        self._stages = stages
        self._source = source
        self._update = update
        self._secret = secret
        self._public = public

    @property
    def mechanism(self) -> Mechanism:
        """What a step is, for privacy; it does not change."""
        return self._mechanism

    def take(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float, users: Tensor | None = None
    ) -> Tensor:
        """Draws a batch, privatises its gradient, and moves the parameters.

        Args:
            theta: θ, shape (d,).
            inputs: ALL training inputs, shape (n, *input_shape).
            targets: their labels, shape (n, ...); of int64, shape (n,), where there are users.
            learning_rate: η of this step.
            users: numbers of each user's records, shape (U, m), -1 where a user has fewer than m: then a sample is a
                user. None: a sample is a record.

        Returns:
            The next θ, shape (d,).
        """
        samples = inputs if users is None else users
        batch = poisson_batch(self._secret, len(samples), self.mechanism.sample_rate).to(inputs.device)
        rows, missing = (batch, None) if users is None else records_of(users, batch)
        x, y = inputs.index_select(0, rows), targets.index_select(0, rows)
        if missing is not None:
            y.masked_fill_(missing, IGNORED)
        size = 1 if users is None else users.shape[1]
        gradient = self._gradient(theta, x, y, learning_rate=learning_rate, records_per_sample=size)
        direction = self._update.direction(self._stages.postprocess(gradient))
        return decoupled_decay(
            theta, direction, learning_rate=learning_rate, weight_decay=self._stages.decoupled_weight_decay
        )

    def private_gradient(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float, records_per_sample: int = 1
    ) -> Tensor:
        """g̃ = (1/b)(Σ_i ḡ_i + N(0, noise_multiplier²·C²·I)) of a batch that was not drawn here, b its EXPECTED size.

        Such a batch (shuffled, of fixed size, chosen in any way) is no Poisson sample, so nothing is amplified by it:
        the sample_rate must say 1.

        Args:
            theta: θ, shape (d,).
            inputs: the batch, shape (B·m, *input_shape), a sample's records side by side; B may be 0, and then this is
                noise alone.
            targets: shape (B·m, ...).
            learning_rate: η, which scales DPLIS' perturbations.
            records_per_sample: m, public: a sample's gradient is the sum of its records' divided by m, whether or not
                some are IGNORED.

        Returns:
            Shape (d,).

        Raises:
            GateError: the mechanism claims a subsample.
        """
        if self.mechanism.sample_rate != 1:
            raise GateError(
                "a batch that the step did not draw has no sampling rate, for it may be shuffled or of a fixed size; "
                f"got sample_rate {self.mechanism.sample_rate!r}: let take() draw the batch, or account for rate 1"
            )
        return self._gradient(
            theta, inputs, targets, learning_rate=learning_rate, records_per_sample=records_per_sample
        )

    def _gradient(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float, records_per_sample: int
    ) -> Tensor:
        full_float32()
        mechanism, stages = self.mechanism, self._stages
        b, c = mechanism.expected_batch_size, mechanism.max_grad_norm
        noise_in_theta = learning_rate * mechanism.noise_scale / b
        objective = stages.objective_at(self.noise_draws)
        points = objective.points(theta, noise_scale=noise_in_theta, public=self._public)
        if stages.weight_decay_before_clipping:
            points = replace(points, decay=stages.weight_decay_before_clipping)
        samples, copies = len(targets) // records_per_sample, records_per_sample
        if stages.augmentation is not None:
            inputs, views = stages.augmentation(inputs, self._secret), stages.augmentation.copies
            targets, copies = targets.repeat_interleave(views, 0), copies * views
        counted, fill = samples, -samples % ROWS if samples else 0
        if fill:  # with the first sample again and again: any other might be one that no model could take
            inputs, targets = (
                torch.cat([each, each[:copies].repeat(fill, *[1] * (each.ndim - 1))]) for each in (inputs, targets)
            )
            samples += fill
        blocks = blocks_for(theta.dtype, dimension=theta.numel(), expected_batch_size=b)
        clipped = clipped_sum(
            self._source.chunks(points, inputs, targets, copies=copies),
            c,
            like=theta,
            clipping=mechanism.clipping,
            samples=samples,
            counted=counted,
            block=blocks.rows(samples, stretch=stretch(points, c, clipping=mechanism.clipping)) if blocks else None,
        )
        # The noise covers what rounding may add to the sensitivity, so that the claim needs no exception.
        deviation = mechanism.noise_scale * (1.0 + blocks.slack if blocks else 1.0)
        noised = add_noise(clipped, standard_deviation=deviation, generator=self._secret, dtype=theta.dtype)
        self.noise_draws += 1
        return noised.div_(b)
