"""ε of labels that teachers voted for: Confident-GNMax (Papernot et al. 2018), charged without a look at the votes.

Formal guarantees:
    Each teacher learnt from a part of the records, and each record is in one part, which is the same whatever the other
    records are. So adding or removing a record moves at most one teacher's vote on each query, from one class to
    another. The largest count moves by at most 1, and the vector of counts by at most √2. A threshold test with noise
    σ₁ is then 1/σ₁-GDP, and an answer with noise σ₂ is √2/σ₂-GDP. With at most Q tests and at most A answers, chosen
    adaptively, all that is released is dominated by N(μ, 1) against N(0, 1), μ² = Q/σ₁² + 2A/σ₂², because squares of μ
    add in adaptive composition (Dong, Roth & Su 2022). Given the tests, the answered queries are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, isfinite, log10, sqrt

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import is_real_number, require_delta, require_steps
from tuner.privacy.accountant.noisy_records import gaussian_delta, smallest_epsilon
from tuner.privacy.accountant.pld import beyond
from tuner.privacy.accountant.rdp import LEAST_NOISE

__all__ = ["VotingNoise", "calibrate_votes"]


@dataclass(frozen=True, kw_only=True)
class VotingNoise:
    """Noise and limits of Confident-GNMax.

    Attributes:
        queries: Q, the number of queries that are tested. PUBLIC.
        answers: A, the largest number of queries that are answered. PUBLIC.
        threshold_noise: σ₁, the standard deviation of the noise on the largest count, in votes.
        answer_noise: σ₂, the standard deviation of the noise on each count of an answer, in votes.
    """

    queries: int
    answers: int
    threshold_noise: float
    answer_noise: float

    def __post_init__(self) -> None:
        for name in ("queries", "answers"):
            require_steps(getattr(self, name), minimum=1, name=name)
        for name in ("threshold_noise", "answer_noise"):
            value = getattr(self, name)
            if not (is_real_number(value) and isfinite(value) and value > 0):
                raise InputError(
                    "votes-invalid",
                    f"`{name}` must be finite and above 0 (got {value!r}). Correct `privacy.votes`.",
                )
            object.__setattr__(self, name, float(value))

    @property
    def shift(self) -> float:
        """μ of the pair of Gaussians that dominates all tests and answers together."""
        return sqrt(self.queries / self.threshold_noise**2 + 2 * self.answers / self.answer_noise**2)

    def delta(self, epsilon: float) -> float:
        """Return δ at ε, with what is beyond the end of the noise."""
        return gaussian_delta(epsilon, self.shift) + beyond(1 / self.shift)

    def epsilon(self, delta: float) -> float:
        """Return ε at `delta`, rounded up."""
        require_delta(delta)
        return smallest_epsilon(self.delta, delta)

    def divergence(self, order: float) -> float:
        """Return an upper bound of the Rényi divergence of order `order`, above 1: order·μ²/2."""
        return order * self.shift**2 / 2 if 1 / self.shift >= LEAST_NOISE else inf


def calibrate_votes(*, queries: int, answers: int, threshold_share: float, epsilon: float, delta: float) -> VotingNoise:
    """Return the smallest noise, rounded up in the fifth digit, whose ε at `delta` fits.

    `threshold_share` is the tests' share of μ², above 0 and below 1. The answers have the rest.
    """

    def fits(shift: float) -> bool:
        return gaussian_delta(epsilon, shift) + beyond(1 / shift) < delta

    low, high = 0.0, 1.0
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    found = None
    for slack in (1.0, 1 - 1e-6, 1 - 1e-3):
        shift = low * slack
        found = VotingNoise(
            queries=queries,
            answers=answers,
            threshold_noise=_rounded_up(sqrt(queries / threshold_share) / shift),
            answer_noise=_rounded_up(sqrt(2 * answers / (1 - threshold_share)) / shift),
        )
        if found.epsilon(delta) <= epsilon:
            return found
    raise InputError(
        "votes-invalid",
        f"No amount of noise gives ε = {epsilon!r} at δ = {delta!r}. Raise `privacy.epsilon` or `privacy.delta`.",
    )


def _rounded_up(value: float) -> float:
    scale = 10.0 ** (5 - ceil(log10(value)))
    return ceil(value * scale) / scale
