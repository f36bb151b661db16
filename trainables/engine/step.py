"""Private step, with five stages. The immutable `Mechanism` contains every setting on which privacy depends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from search_spaces import Limits, Words
from trainables.checks import value_problem
from trainables.engine.augmentation import RandomViews
from trainables.engine.batches import BatchSum, Records, part_samples
from trainables.engine.clip import CLIPPINGS
from trainables.engine.gen import LossProbes, ProbePoint
from trainables.engine.noise import add_noise
from trainables.engine.objective import Objective, Plain, Points
from trainables.engine.per_sample import PerSampleSource, changed_before_clip
from trainables.engine.postprocess import Postprocess, unchanged
from trainables.engine.random import Generator
from trainables.engine.sampling import poisson_batch
from trainables.engine.schedules import NoiseSplit, noise_split
from trainables.engine.sums import blocks_for
from trainables.engine.update import Update, decoupled_decay
from trainables.errors import GateError, HyperparameterError

__all__ = ["Mechanism", "PrivateStep", "Stages", "noise_variance"]

_LEGAL: Final[Mapping[str, Limits | Words]] = {
    "sample_rate": Limits(high=1.0, low_open=True),
    "noise_multiplier": Limits(),
    "max_grad_norm": Limits(low_open=True),
    "expected_batch_size": Limits(low_open=True),
    "clipping": Words(CLIPPINGS),
}
_PROBE_SHARE: Final = Limits(high=1.0, low_open=True, high_open=True)


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Poisson-subsampled Gaussian mechanism of a step.

    Formal guarantee: under add/remove-one adjacency of samples, a step is a Gaussian mechanism with sensitivity
    max_grad_norm and noise of standard deviation noise_multiplier · max_grad_norm, Poisson-subsampled at sample_rate.
    The noised sum is divided by a public number. If rounding may increase the sensitivity, the noise is increased by
    the same factor (`trainables.engine.sums`). With a `probe_share`, a step makes two Gaussian releases on one Poisson
    sample, which together reveal no more than this one (`noise_split`). A sample is one record, or all training
    records of one user.

    Attributes:
        sample_rate: probability with which each sample independently enters a batch, in (0, 1].
        noise_multiplier: charged noise of the step, in units of its sensitivity; 0 is not private.
        max_grad_norm: clipping norm C.
        expected_batch_size: b. The noised sum of every batch is divided by b.
        clipping: how each sample is clipped to length C, one of CLIPPINGS. All of them have the sensitivity C.
        probe_share: share of the loss probes in the step's squared privacy loss, or None without probes.

    Raises:
        HyperparameterError: a value is illegal.
    """

    sample_rate: float
    noise_multiplier: float
    max_grad_norm: float
    expected_batch_size: float
    clipping: str = "flat"
    probe_share: float | None = None

    def __post_init__(self) -> None:
        legal = {**_LEGAL} if self.probe_share is None else {**_LEGAL, "probe_share": _PROBE_SHARE}
        HyperparameterError.raise_any(value_problem(name, getattr(self, name), each) for name, each in legal.items())

    @property
    def noise(self) -> NoiseSplit:
        """Noise of the step's releases, which together cost what `noise_multiplier` costs."""
        return noise_split(self.noise_multiplier, probe_share=self.probe_share)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on the sum, per coordinate: its noise multiplier · C."""
        return self.noise.gradient * self.max_grad_norm


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Changes that a method makes to the stages of a step. The default is DP-SGD. No change costs privacy.

    Attributes:
        objectives: (step, objective) pairs with rising steps from 0, fixed in advance. An objective chooses the points
            at which the loss is evaluated, from public randomness, before the clip. It is used from its step until the
            step of the next pair.
        before_clip: function of the gradient of one sample, shape (d,), that returns what is clipped in its place. It
            must depend on this gradient alone (`trainables.own_method`).
        augmentation: random views of the inputs before the clip, from SECRET randomness
            (`trainables.engine.augmentation`). None for no augmentation.
        weight_decay_before_clipping: λ of g_i ← g_i + λθ.
        postprocess: function that is applied to the noised gradient.
        variance_gains: (length, factor) of consecutive segments: `postprocess` multiplies the variance of the noise by
            the factor. Empty if it does not change the noise.
        decoupled_weight_decay: λ of θ ← (1 - ηλ)θ - ηg̃.
    """

    objectives: tuple[tuple[int, Objective], ...] = ((0, Plain()),)
    before_clip: Callable[[Tensor], Tensor] | None = None
    augmentation: RandomViews | None = None
    weight_decay_before_clipping: float = 0.0
    postprocess: Postprocess = unchanged
    variance_gains: tuple[tuple[int, float], ...] = ()
    decoupled_weight_decay: float = 0.0

    def objective_at(self, step: int) -> Objective:
        """Return the objective of the step that follows the first `step` steps."""
        return next(objective for start, objective in reversed(self.objectives) if start <= step)


def noise_variance(mechanism: Mechanism, stages: Stages, *, like: Tensor) -> float | Tensor:
    """Return the variance of the noise in the gradient that an update sees: one number, or one a coordinate, (d,).

    It is public. `like` has the shape, dtype and device of θ.
    """
    b = mechanism.expected_batch_size
    blocks = blocks_for(like.dtype, dimension=like.numel(), expected_batch_size=b)
    variance = (mechanism.noise_scale * (1.0 + blocks.slack if blocks else 1.0) / b) ** 2
    if not stages.variance_gains:
        return variance
    parts = [torch.full((size,), gain * variance, dtype=torch.float64) for size, gain in stages.variance_gains]
    return torch.cat(parts).to(like)


class PrivateStep:
    """Private steps of a training. The caller must charge for each step before it is taken.

    Attributes:
        noise_draws: number of times that noise was added to a sum of gradients, equal to the number of steps taken.

    Raises:
        GateError: the noise of the probes is not the one that the mechanism charges.
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
        probes: LossProbes | None = None,
    ) -> None:
        if (None if probes is None else probes.noise_multiplier) != mechanism.noise.probe:
            raise GateError(
                "probes-not-charged",
                f"The noise of the loss probes must be {mechanism.noise.probe!r}, the value that is charged.",
            )
        self._probes = probes
        self._mechanism = mechanism
        self.noise_draws = 0
        self._stages = stages
        self._source = source if stages.before_clip is None else changed_before_clip(source, stages.before_clip)
        self._update = update
        self._secret = secret
        self._public = public

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of every step; it does not change."""
        return self._mechanism

    def take(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float, users: Tensor | None = None
    ) -> Tensor:
        """Draw a batch, privatise its gradient, and return the next θ, shape (d,).

        Args:
            theta: θ, shape (d,).
            inputs: ALL training inputs, shape (n, *input_shape).
            targets: labels, shape (n, ...). With `users`, they must be int64 of shape (n,).
            learning_rate: η of this step. With probes, that of the last step, times the warm-up's factor of this step.
            users: indices of each user's records, shape (U, m), with -1 if a user has fewer than m records. A sample is
                then a user. None if a sample is a record.
        """
        records = Records(inputs, targets, users)
        batch = poisson_batch(self._secret, len(records), self.mechanism.sample_rate).to(inputs.device)
        most = part_samples(inputs, copies=records.copies * self._views)
        split = (batch,) if len(batch) <= most else torch.split(batch, most)
        gradient = self._gradient(theta, partial(self._clipped, records, split), learning_rate=learning_rate)
        direction = self._update.direction(self._stages.postprocess(gradient))
        decoupled = self._stages.decoupled_weight_decay
        if self._probes is not None:
            last = self._probes.rate
            rate = self._probes.probe(
                theta,
                torch.add(direction, theta, alpha=decoupled) if decoupled else direction,
                partial(self._probed, self._probes, records, split),
                weight_decay=decoupled or self._stages.weight_decay_before_clipping,
            )
            learning_rate *= rate / last
        return decoupled_decay(theta, direction, learning_rate=learning_rate, weight_decay=decoupled)

    def private_gradient(self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float) -> Tensor:
        """Return g̃ = (1/b)(Σ_i ḡ_i + N(0, noise_multiplier²·C²·I)), shape (d,), for a given batch.

        b is the EXPECTED batch size. A given batch may be shuffled or of fixed size, so sampling does not
        amplify its privacy. Therefore sample_rate must be 1.

        Args:
            theta: θ, shape (d,).
            inputs: batch, shape (B, *input_shape). B may be 0.
            targets: labels, shape (B, ...).
            learning_rate: η, which scales DPLIS' perturbations.

        Raises:
            GateError: sample_rate is not 1.
        """
        if self.mechanism.sample_rate != 1:
            raise GateError(
                "subsample-claimed",
                f"`sample_rate` must be 1 for a batch that the step did not draw (got {self.mechanism.sample_rate!r}). "
                "Let take() draw the batch, or use sample_rate 1.",
            )
        most = part_samples(inputs, copies=self._views)
        parts = zip(*(torch.split(each, most) for each in (inputs, targets)), strict=True)

        def clipped(points: Points) -> Tensor:
            return self._sum_of(points, parts, copies=1, whole=len(targets) <= most)

        return self._gradient(theta, clipped, learning_rate=learning_rate)

    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Compute the clipped sum of PUBLIC samples at θ, without noise, and forget it. No random number is drawn.

        Raises:
            Exception: whatever the model or the machine raises. It does not depend on a record.
        """
        self._sum(Points(centre=theta)).joint(inputs, targets, copies=1, blocks=None)
        if self._probes is not None:
            self._probes.rehearse(theta, inputs, targets)

    @property
    def _views(self) -> int:
        """Number of views of a record."""
        return 1 if self._stages.augmentation is None else self._stages.augmentation.copies

    def _sum(self, points: Points) -> BatchSum:
        mechanism, centre = self.mechanism, points.centre
        blocks = blocks_for(centre.dtype, dimension=centre.numel(), expected_batch_size=mechanism.expected_batch_size)
        return BatchSum(
            source=self._source,
            points=points,
            max_grad_norm=mechanism.max_grad_norm,
            clipping=mechanism.clipping,
            blocks=blocks,
        )

    def _gradient(self, theta: Tensor, clipped: Callable[[Points], Tensor], *, learning_rate: float) -> Tensor:
        """Return the private gradient of a batch. `clipped` returns the sum of its clipped gradients at the points."""
        mechanism = self.mechanism
        b = mechanism.expected_batch_size
        # R is in units of the noise of one step, which the update may rescale.
        signal = mechanism.max_grad_norm / theta.numel() ** 0.5
        noise_in_theta = learning_rate * self._update.step_noise(noise=mechanism.noise_scale / b, signal=signal)
        objective = self._stages.objective_at(self.noise_draws)
        points = objective.points(theta, noise_scale=noise_in_theta, public=self._public)
        if self._stages.weight_decay_before_clipping:
            points = replace(points, decay=self._stages.weight_decay_before_clipping)
        total = clipped(points)
        # Rounding may increase the sensitivity by the factor 1 + slack.
        blocks = self._sum(points).blocks
        deviation = mechanism.noise_scale * (1.0 + blocks.slack if blocks else 1.0)
        noised = add_noise(total, standard_deviation=deviation, generator=self._secret, dtype=theta.dtype)
        self.noise_draws += 1
        return noised.div_(b)

    def _clipped(self, records: Records, split: Sequence[Tensor], points: Points) -> Tensor:
        """Return the clipped sum of a batch. `split` has the numbers of the samples of each of its parts."""
        return self._sum_of(points, map(records.of, split), copies=records.copies, whole=len(split) == 1)

    def _probed(self, probes: LossProbes, records: Records, split: Sequence[Tensor], at: ProbePoint) -> Tensor:
        """Return the sum of the probe vectors of a batch, shape (4,), float64."""
        return probes.total(at, map(records.of, split), copies=records.copies)

    def _sum_of(self, points: Points, parts: Iterable[tuple[Tensor, Tensor]], *, copies: int, whole: bool) -> Tensor:
        """Return the clipped sum of a batch, which comes in parts. A part has inputs and labels.

        The `copies` records of a sample are next to each other. A sample's gradient is the sum over its records divided
        by the public `copies`, even if some records are IGNORED. It is 0 if the sample's own pass raises, with the same
        views. `whole` says whether the batch is one part.
        """
        sums, total, views = self._sum(points), None, self._views
        for inputs, targets in parts:
            if self._stages.augmentation is not None:  # its views stay with the sample, also if the pass is repeated
                inputs = self._stages.augmentation(inputs, self._secret)
                targets = targets.repeat_interleave(views, 0)
            part = sums.of(inputs, targets, copies=copies * views, whole=whole)
            total = part if total is None else total + part
        return torch.zeros_like(points.centre) if total is None else total
