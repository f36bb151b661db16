"""Learning rate that sets itself by private loss probes (`schedule: gen`).

The idea is the generalized Newton's method (GeN, Bu & Xu 2024), made private by Liu & Bu 2025. Along the direction d of
a step, the loss is nearly a parabola in the rate η, L(θ - ηd) = L(θ) - η·dᵀG + ½η²·dᵀHd, lowest at dᵀG / dᵀHd.

    radius      r = η/1.5, with the rate η of the last step
    sample i    s = (L_i(θ + rd) - L_i(θ - rd))/2 ≈ r·dᵀG_i, c = (L_i(θ + rd) + L_i(θ - rd))/2 - L_i(θ) ≈ ½r²·dᵀH_i d
    release     the `probe_sum` of the batch, with bounds S and V, plus N(0, (σ_l·_LENGTH)²·I), rounded to float32
    A, B        slope and curvature: means over steps of ŝ·S/r and 2ĉ·V/r², whose weights fall by 1 - 1/m a step.
                m = 20, or (standard error of ŝ / 0.1)² if that is more, and at most half of the steps taken
    decay       λ·θᵀd is added to A and λ‖d‖² to B, without noise. Decoupled decay has d + λθ for d
    new η       1.5·(A + π·η₀/1.5)/(B + π), at most twice or half the last rate, within η₀/10 and 100·η₀ of the start η₀
    prior π     2·max(e_B, u·e_A·1.5/η₀), with the standard errors e_A and e_B, and u = 1 - A/(3·e_A) kept in [0, 1]
    bounds      S/r and V/r² begin at ‖d‖ and ‖d‖². They follow the released mean sizes of s and c, which tend to 0.3
                of S and V. Both are at least 1e-4

As far as we know the paper (its abstract and summaries), it releases clipped losses at several rates, fits a parabola,
and takes the last private loss as the bound. The differences, the learnt bounds, the factor 1.5, the averages, the
prior and the limits are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import exp, sqrt
from typing import Any, Final

import torch
from torch import Tensor

from trainables.engine.losses import LossPasses
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator

__all__ = ["LossProbes", "ProbePoint", "RateState", "probe_sum"]

_WEIGHTS: Final = (0.66, 0.66, 0.5, 0.5)
_LENGTH: Final = sqrt(_WEIGHTS[0] ** 2 + _WEIGHTS[1] ** 2 + (_WEIGHTS[2] ** 2 + _WEIGHTS[3] ** 2) / 4)
"""L2 sensitivity of the sum: the length of the longest vector that one sample adds."""

_CENTRE: Final = 0.5  # the last two entries are in [0, 1], and around their middle they are half as long
_RELAXATION: Final = 1.5  # of the lowest point; steps to the lowest point itself zigzag, and end too slowly
_LARGEST_CHANGE: Final = 2.0  # of the rate in one step, as a factor
# A diverged model has no curvature. With automatic clipping a step of a good training can raise the mean loss.
_RANGE: Final = (0.1, 100.0)  # of the rate, as factors of the starting rate
_MEMORY: Final = 20.0  # steps that are averaged; more if the noise of one release is above _CLEAR
_CLEAR: Final = 0.1
_PRIOR: Final = 2.0  # weight of the starting rate, in standard errors
_SIGNIFICANT: Final = 3.0  # standard errors of a slope that is told from noise
_MEAN_SIZE: Final = 0.3  # wanted mean of min(|value|, bound) / bound
_GAIN: Final = 0.5
_LEAST_BOUND: Final = 1e-4  # of a difference of losses; below, the rounding of float32 would count


@dataclass(kw_only=True)
class RateState:
    """What the schedule knows. All of it follows from private releases and public values.

    Attributes:
        rate: learning rate of the last step; before the first step, the starting rate.
        slope_bound: clip of a sample's slope, in units of the loss per unit of the rate.
        curvature_bound: clip of a sample's half curvature, per squared unit of the rate. 0 before the first step.
        slopes, curvatures: (weighted sum, sum of weights, variance of the weighted sum) of the released values.
        probes: number of releases.
    """

    rate: float
    slope_bound: float = 0.0
    curvature_bound: float = 0.0
    slopes: tuple[float, float, float] = (0.0, 0.0, 0.0)
    curvatures: tuple[float, float, float] = (0.0, 0.0, 0.0)
    probes: int = 0


@dataclass(frozen=True, kw_only=True)
class ProbePoint:
    """Where the losses of a step are probed: θ - rd, θ and θ + rd, and how a sample's values are clipped.

    Attributes:
        theta: θ, shape (d,).
        direction: d, shape (d,).
        radius: r.
        slope_bound: clip of the half difference of a sample's losses.
        curvature_bound: clip of its half curvature.
    """

    theta: Tensor
    direction: Tensor
    radius: float
    slope_bound: float
    curvature_bound: float


def probe_sum(losses: Tensor, *, slope_bound: float, curvature_bound: float) -> Tensor:
    """Return the sum over samples of their probe vectors, shape (4,), float64.

    With s the half difference of a sample's losses at the two sides, and c their mean minus the loss in the middle, the
    vector is (w₁·clip(s/S), w₂·clip(c/V), w₃·(min(|s|/S, 1) - ½), w₄·(min(|c|/V, 1) - ½)), with clip to [-1, 1]. It is
    at most _LENGTH long. A sample whose losses are not all finite adds 0, exactly as if it had not been drawn.

    Args:
        losses: losses at θ - rd, θ and θ + rd, shape (3, B), float64.
        slope_bound: S, above 0.
        curvature_bound: V, above 0.
    """
    below, middle, above = losses
    slope = (above - below) / (2.0 * slope_bound)
    curvature = ((above + below) / 2.0 - middle) / curvature_bound
    rows = torch.stack(
        [
            slope.clamp(-1.0, 1.0),
            curvature.clamp(-1.0, 1.0),
            slope.abs().clamp(max=1.0) - _CENTRE,
            curvature.abs().clamp(max=1.0) - _CENTRE,
        ]
    )
    weights = torch.tensor(_WEIGHTS, dtype=torch.float64, device=losses.device)
    finite = losses.isfinite().all(0) & rows.isfinite().all(0)
    return weights * torch.where(finite, rows, 0.0).sum(1)


class LossProbes:
    """Private loss probes of a training, and the learning rate that follows from them.

    Formal guarantee: `probe` releases one Gaussian mechanism on the batch of its step, with sensitivity _LENGTH and
    noise of standard deviation noise_multiplier · _LENGTH. All else is post-processing. So a step with probes is one
    Poisson sample with two Gaussian releases, the second of which depends on the result of the first.

    Args:
        passes: forward passes of the model.
        noise_multiplier: σ_l, noise of the probes in units of their sensitivity. 0 is not private.
        expected_batch_size: b.
        rate: starting rate.
        secret: secret generator of the training.
    """

    def __init__(
        self,
        *,
        passes: LossPasses,
        noise_multiplier: float,
        expected_batch_size: float,
        rate: float,
        secret: Generator,
    ) -> None:
        self._passes = passes
        self._noise = noise_multiplier
        self._batch = expected_batch_size
        self._secret = secret
        self._start = rate
        self.state = RateState(rate=rate)
        self._errors = [noise_multiplier * _LENGTH / expected_batch_size / weight for weight in _WEIGHTS]

    @property
    def noise_multiplier(self) -> float:
        """σ_l, noise of the probes in units of their sensitivity."""
        return self._noise

    @property
    def rate(self) -> float:
        """Learning rate of the last step, without warm-up."""
        return self.state.rate

    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Take a forward pass of full size over PUBLIC samples, and forget it. Raise whatever it raises."""
        self._passes.rehearse(theta, inputs, targets)

    def probe(
        self,
        theta: Tensor,
        direction: Tensor,
        summed: Callable[[ProbePoint], Tensor],
        *,
        weight_decay: float = 0.0,
    ) -> float:
        """Release the probes of one step, and return its learning rate.

        Args:
            theta: θ, shape (d,).
            direction: d, a function of the step's noised gradient and earlier releases, shape (d,). The step is θ - rd.
            summed: function that returns the `total` of the step's batch.
            weight_decay: λ. The loss λ/2·‖θ‖² is added without noise, because it depends on no record.
        """
        state = self.state
        radius = state.rate / _RELAXATION
        length = float(direction.double().norm())
        if state.probes == 0:  # slopes and curvatures are in units of the direction's length
            state.slope_bound, state.curvature_bound = length or 1.0, length * length or 1.0
        state.slope_bound = max(state.slope_bound, _LEAST_BOUND / radius)
        state.curvature_bound = max(state.curvature_bound, _LEAST_BOUND / (radius * radius))
        total = summed(
            ProbePoint(
                theta=theta,
                direction=direction,
                radius=radius,
                slope_bound=state.slope_bound * radius,
                curvature_bound=state.curvature_bound * radius * radius,
            )
        )
        # Rounding to float32 hides the gaps between the possible float64 values of the noise.
        released = add_noise(
            total.cpu(), standard_deviation=self._noise * _LENGTH, generator=self._secret, dtype=torch.float32
        )
        state.probes += 1
        means = [float(value) / self._batch / weight for value, weight in zip(released, _WEIGHTS, strict=True)]
        decay = (0.0, 0.0)
        if weight_decay:
            weights, along = theta.double(), direction.double()
            decay = weight_decay * float(weights @ along), weight_decay * length * length
        self._learn(means, decay=decay)
        return state.rate

    def total(self, at: ProbePoint, parts: Iterable[tuple[Tensor, Tensor]], *, copies: int) -> Tensor:
        """Return the sum of the probe vectors of samples, without noise, shape (4,), float64.

        Args:
            at: where the losses are probed.
            parts: inputs and labels, as in `LossPasses.of`.
            copies: number of records of a sample.
        """
        thetas = [torch.add(at.theta, at.direction, alpha=shift) for shift in (-at.radius, 0.0, at.radius)]
        total = torch.zeros(4, dtype=torch.float64, device=at.theta.device)
        for inputs, targets in parts:
            losses = self._passes.of(thetas, inputs, targets, copies=copies)
            total += probe_sum(losses, slope_bound=at.slope_bound, curvature_bound=at.curvature_bound)
        return total

    def _learn(self, means: list[float], *, decay: tuple[float, float]) -> None:
        """Update the rate and the bounds from the released means, which are in units of the bounds."""
        state, errors = self.state, self._errors
        memory = max(_MEMORY, (errors[0] / _CLEAR) ** 2)
        kept = 1.0 - 1.0 / min(memory, (state.probes + 1) / 2)  # the first bounds are guesses, and soon forgotten
        state.slopes, slope, slope_error = _average(
            state.slopes, means[0] * state.slope_bound, errors[0] * state.slope_bound, kept=kept
        )
        state.curvatures, curvature, curvature_error = _average(
            state.curvatures,
            2.0 * means[1] * state.curvature_bound,
            2.0 * errors[1] * state.curvature_bound,
            kept=kept,
        )
        # A slope that cannot be told from noise leaves the rate near its start.
        doubt = min(max(1.0 - slope / (_SIGNIFICANT * slope_error), 0.0), 1.0) if slope_error else 0.0
        start = self._start / _RELAXATION
        prior = _PRIOR * max(curvature_error, doubt * slope_error / start)
        last = state.rate / _RELAXATION
        slope, curvature = slope + decay[0], curvature + decay[1] + prior
        lowest = (slope + prior * start) / curvature if curvature > 0.0 else last * _LARGEST_CHANGE
        changed = min(max(lowest, last / _LARGEST_CHANGE), last * _LARGEST_CHANGE)
        state.rate = min(max(changed * _RELAXATION, self._start * _RANGE[0]), self._start * _RANGE[1])
        gain = _GAIN * min(1.0, _CLEAR / errors[2]) if errors[2] else _GAIN
        state.slope_bound *= _towards(means[2] + _CENTRE, gain)
        state.curvature_bound *= _towards(means[3] + _CENTRE, gain)

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the schedule continues bit for bit."""
        return asdict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a stored state."""
        self.state = RateState(**state)


def _average(
    sums: tuple[float, float, float], value: float, error: float, *, kept: float
) -> tuple[tuple[float, float, float], float, float]:
    """Return the new sums, the mean with weights that fall by `kept` a step, and its standard error.

    Weights by inverse variance would be smaller after the loss became steeper, because the bounds and so the noise grow
    with it. The rate would then stay too high.
    """
    total = kept * sums[0] + value
    weights = kept * sums[1] + 1.0
    variance = kept * kept * sums[2] + error * error
    return (total, weights, variance), total / weights, sqrt(variance) / weights


def _towards(size: float, gain: float) -> float:
    """Return the factor of a bound whose values have this mean size, in units of the bound."""
    return exp(gain * min(max((size - _MEAN_SIZE) / _MEAN_SIZE, -3.0), 3.0))
