"""ε of a sealed search, which releases the best of a random, hidden number of runs.

Two bounds of ε are computed: from the privacy profile of one run, and from the run's Rényi divergence. The smaller
bound is returned. `shift_of` proves the first, and `winner_divergences` cites the second.
`tests/privacy/accountant/test_brute_force.py` compares both with exact values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, inf, isfinite, log, log1p
from typing import Any, TypeAlias

from tuner.errors import InputError
from tuner.privacy.accountant.initial_guess import (
    found_noise,
    guess_gdp,
    guess_noise,
    guess_on_coarse_grid,
    least_noise,
)
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.accountant.pld import EPSILON_FLOOR, composed, epsilon_at
from tuner.privacy.accountant.rdp import ORDERS, divergence, epsilon_of_divergence
from tuner.privacy.accountant.run_laws import RunLaw

__all__ = [
    "Profile",
    "Shift",
    "at_most_for",
    "calibrate_selection",
    "epsilon_selection",
    "poisson_shift",
    "profile",
    "shift_of",
    "winner_divergences",
]

Runs: TypeAlias = Sequence[tuple[SampledGaussian, int]]
"""One pair (mechanism, steps) for each configuration that may be sampled from the prior."""

DeltaOf: TypeAlias = Callable[[float], float]
"""Privacy profile of one run: function from ε to an upper bound of δ."""

_MARGIN = 1e-9
_TRUNCATION_SHARE = 0.01
_LEAST_TAIL = 1e-299  # leaves room for the 1 in 1 + e^ε
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Shift:
    """Privacy cost of selecting the best run: δ_winner(ε) ≤ `factor` · δ_run(ε − `shift`)."""

    factor: float
    shift: float

    def delta(self, delta_of: DeltaOf, epsilon: float) -> float:
        """Return an upper bound of the winner's δ at `epsilon`. `delta_of` is the privacy profile of one run."""
        return min(self.factor * delta_of(epsilon - self.shift), 1.0)


def shift_of(law: RunLaw, delta_of: DeltaOf, *, ratio: tuple[float, float] = (1.0, 1.0)) -> Shift:
    """Return the privacy cost of selecting the best run (after Koskela, Redberg & Wang 2024).

    A run draws a configuration from a fixed prior, trains, and answers y (configuration, model and score) with the
    density q on D and q′ on D′. K independent runs are made, K with a fixed law. Only the best leaves; ties are broken
    at random. F(y) is the probability of a score of at most that of y, F̄ = 1 − F, and f(x) = E[x^K].

    Let δ_Q be the privacy profile of one run, and δ_A the profile of the winner. For the truncated negative binomial
    of mean m, shape η > −1 (1 geometric, 0 logarithmic) and parameter 0 < γ < 1, and any ε₁ ≥ 0,
    δ_A(ε) ≤ C·m·δ_Q(ε − log(C/c) − (η+1)·log r) with r = (C/c)·e^{ε₁} + ((1−γ)/γ)·C·δ_Q(ε₁). The ε₁ with the smallest
    r is used.

    Proof for c = C = 1. The winner is y with density q(y)·f′(F(y)), f′(x) = m·(γ/(1 − (1−γ)·x))^(η+1). So
    f′(F)/f′(F′) = ((γ + (1−γ)·F̄′)/(γ + (1−γ)·F̄))^(η+1). Scores above that of y are a set of answers, so
    F̄′ <= e^{ε₁}·F̄ + δ_Q(ε₁). Hence the bracket is at most
    (γ + (1−γ)·(e^{ε₁}·F̄ + δ_Q(ε₁)))/(γ + (1−γ)·F̄) = e^{ε₁} + (γ·(1 − e^{ε₁}) + (1−γ)·δ_Q(ε₁))/(γ + (1−γ)·F̄) <= r,
    because the first term of the numerator is not positive and the denominator is at least γ. So
    f′(F′) >= f′(F)/r^(η+1), and q·f′(F) − e^ε·q′·f′(F′) <= f′(F)·(q − e^(ε − (η+1)·log r)·q′). Integrate the positive
    part: f′(F) <= f′(1) = m, and what is left is at most δ_Q(ε − (η+1)·log r).

    With a sampler that learns, every run is above y with a probability between c·F̄ and C·F̄ given the runs before it,
    and answers y with a density of at most C·q. So the winner's density is at most C·q·f′(1 − c·F̄) and at least
    c·q·f′(max(0, 1 − C·F̄)). The rest is as above.

    Args:
        law: probability law of the number of runs.
        delta_of: δ_Q, for both directions of adjacency and every configuration that may be sampled from the prior.
        ratio: (c, C), the lower and the upper bound of a quotient: an adaptive sampler's density divided by the
            prior's density. It is (1, 1) for a sampler that does not adapt.

    Raises:
        InputError: the sampler adapts and the law is `poisson`. This combination has no privacy proof.
    """
    low, high = ratio
    if not (isfinite(low) and isfinite(high) and 0 < low <= 1 <= high):
        raise InputError(
            "filter-invalid", f"The ratio of an adaptive sampler must be (c, C) with 0 < c <= 1 <= C (got {ratio!r})."
        )
    if law.shape is None:
        if ratio != (1.0, 1.0):
            raise InputError(
                "poisson-not-adaptive",
                "An adaptive sampler has no privacy proof with a poisson number of runs. Use geometric.",
            )
        return poisson_shift(law.mean, delta_of)
    gamma, shape = law.gamma, law.shape

    def log_r(first: float) -> float:
        # log1p keeps the digits of a tiny second term; its rounding would be multiplied by shape + 1.
        return first + log(high / low) + log1p((1 - gamma) / gamma * low * delta_of(first) * exp(-first))

    shift = log(high / low) + (shape + 1) * log_r(_least(log_r))
    return Shift(high * law.mean * (1 + _MARGIN), shift * (1 + _MARGIN))


def poisson_shift(mean: float, delta_of: DeltaOf) -> Shift:
    """Return the privacy cost of selecting the best of a Poisson number of runs, with any mean m > 0.

    For any ε₁ ≥ 0, δ_A(ε) ≤ m·δ_Q(ε − m(e^{ε₁} − 1) − m·δ_Q(ε₁)). `shift_of` explains the symbols, and the proof is as
    there with f′(F)/f′(F′) = e^{m·(F̄′ − F̄)}. That no run is made has the same probability on D and on D′.
    """

    def shift(first: float) -> float:
        return mean * (expm1(min(first, 700.0)) + delta_of(first))

    return Shift(mean * (1 + _MARGIN), shift(_least(shift)) * (1 + _MARGIN))


def _least(price: DeltaOf) -> float:
    """Return the ε₁ ≥ 0 with the lowest privacy cost, by golden-section search. `price` is convex in e^{ε₁}.

    Every ε₁ gives a valid bound, so the result need not be exact.
    """
    high = 1e-3
    while high < 500 and price(2 * high) < price(high):
        high *= 2
    low, high = 0.0, 2 * high
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_inner, at_outer = price(inner), price(outer)
    while high - low > 1e-7 * (1 + high):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _GOLDEN * (high - low)
            at_inner = price(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _GOLDEN * (high - low)
            at_outer = price(outer)
    return min((0.0, inner, outer), key=price)


class Profile:
    """Privacy profile of one run: an upper bound of δ for each ε. It covers both directions of adjacency.

    The bound includes the margin for rounding errors that `pld.composed` returns.
    """

    def __init__(self, mechanism: SampledGaussian, steps: int, *, coarser: int = 1) -> None:
        require_steps(steps, minimum=1)
        distribution, self._margin = composed([(mechanism, steps)], coarser=coarser)
        self._parts: list[tuple[Any, Any, float]] = []
        self._distribution = distribution
        if distribution is not None:
            for one in (distribution.remove, distribution.add):
                self._parts.append((one.losses, one.masses, one.infinite))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of δ at any real ε."""
        if not self._parts:
            return 1.0
        import numpy as np

        found = -expm1(min(epsilon, 0.0))  # at a negative ε every δ is at least 1 − e^ε
        for losses, masses, infinite in self._parts:
            first = int(np.searchsorted(losses, epsilon, side="right"))
            # A sum and not a dot product, for which numpy starts threads that wait at full speed.
            finite = float((-np.expm1(epsilon - losses[first:]) * masses[first:]).sum())
            found = max(found, infinite + finite)
        return min(found + self._margin, 1.0)

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0 at which δ is at most `delta`; `math.inf` if there is no such ε."""
        return epsilon_at(self._distribution, delta - self._margin)


@lru_cache(maxsize=8)
def profile(mechanism: SampledGaussian, steps: int, *, coarser: int = 1) -> Profile:
    """Return the cached privacy profile of a run. The grid of losses is `coarser` times as coarse as for a claim."""
    return Profile(mechanism, steps, coarser=coarser)


def epsilon_selection(
    law: RunLaw, runs: Runs, delta: float, *, at_most: int, ratio: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Return the smallest ε at `delta` that is proved for the winner of a sealed search.

    Args:
        law: probability law of K, the number of runs.
        runs: one pair (mechanism, steps) for each configuration that may be sampled from the prior.
        delta: in (0, 1).
        at_most: largest allowed number of runs. Truncating the law of K here adds (1 + e^ε)·P[K > at_most] to δ.
        ratio: (c, C) of an adaptive sampler, as in `shift_of`.

    Returns:
        ε, at least `EPSILON_FLOOR`; `math.inf` if there is no bound, for example because the truncation alone adds
        more than `delta`.

    Raises:
        InputError: a value is out of range or NaN.
    """
    require_delta(delta)
    return _epsilon_selection(law, tuple(runs), float(delta), at_most, (float(ratio[0]), float(ratio[1])))


@lru_cache(maxsize=4096)
def _epsilon_selection(
    law: RunLaw, runs: tuple[tuple[SampledGaussian, int], ...], delta: float, at_most: int, ratio: tuple[float, float]
) -> float:
    return _cut_epsilon(_bounds(law, runs, ratio), law, delta, at_most)


def _cut_epsilon(bounds: _Bounds, law: RunLaw, delta: float, at_most: int) -> float:
    # The truncation takes a part of δ that grows with ε, and the rest of δ needs a larger ε. Iterate from below.
    found = bounds.epsilon(delta)
    for _ in range(200):
        left = delta - _cut(law, found, at_most) if isfinite(found) else 0.0
        if not left > 0:
            return inf
        needed = bounds.epsilon(left)
        if needed <= found:
            return max(found, EPSILON_FLOOR)
        found = max(needed, found * (1 + 1e-12))
    return inf


def _cut(law: RunLaw, epsilon: float, at_most: int) -> float:
    return (1 + exp(min(epsilon, 700.0))) * law.tail(at_most)


def at_most_for(law: RunLaw, *, epsilon: float, delta: float) -> int:
    """Return the smallest limit on the number of runs at which truncation costs at most 1 % of `delta`.

    Truncating the law of the number of runs at the limit adds to δ. `epsilon` is the largest ε that will be claimed
    with this limit.

    Raises:
        InputError: a value is out of range or NaN, or ε is too large for double precision.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    largest = log(_TRUNCATION_SHARE * delta / _LEAST_TAIL)
    if not epsilon <= largest:
        raise InputError(
            "epsilon-too-large",
            f"With a hidden number of runs, ε must be at most {largest:.0f} at δ = {delta!r} (got {epsilon!r}). Lower "
            "privacy.epsilon.",
        )
    return max(law.least_cut(_TRUNCATION_SHARE * delta / (1 + exp(epsilon))), 1)


def calibrate_selection(
    law: RunLaw,
    menu: Sequence[tuple[float, int]],
    *,
    epsilon: float,
    delta: float,
    at_most: int,
    ratio: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return the least noise multiplier, rounded UP to 5 significant digits, with which the winner is (ε, δ)-DP.

    `menu` has one pair (sample_rate, steps) for each configuration that may be sampled from the prior. All
    configurations get the same noise multiplier. The other arguments are as in `epsilon_selection`.

    Raises:
        BudgetRefusedError: even the noise multiplier 100 000 is too small.
        InputError: a value is out of range or NaN.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    if not menu:
        raise InputError("menu-empty", "A sealed search needs at least one planned run. Give its (sample_rate, steps).")

    def cost(noise: float, coarser: int = 1) -> float:
        runs = tuple((SampledGaussian(rate, noise), steps) for rate, steps in menu)
        if coarser == 1:
            return epsilon_selection(law, runs, delta, at_most=at_most, ratio=ratio)
        return _cut_epsilon(_bounds(law, runs, ratio, coarser=coarser), law, delta, at_most)

    # The ε of one run is about half the winner's ε. A bad guess only makes the calibration slower.
    mu = guess_gdp(epsilon / 2, delta / law.mean)
    first = guess_noise(max(rate * steps**0.5 for rate, steps in menu), mu)
    guess, slope = guess_on_coarse_grid(cost, epsilon, first)
    noise = least_noise(cost, epsilon, guess=guess, slope=slope)
    return found_noise(noise, f"the best of a random number of runs (mean {law.mean:g})", epsilon=epsilon, delta=delta)


@dataclass(frozen=True)
class _Bounds:
    """Bounds on the winner's privacy loss in a sealed search whose number of runs is not truncated."""

    profiles: tuple[Profile, ...]
    shift: Shift
    renyi: tuple[tuple[float, float], ...]  # (order, divergence of the winner) pairs

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε of the winner at `delta` that any of the bounds proves."""
        single = max(part.epsilon(delta / self.shift.factor) for part in self.profiles)
        found = (single + self.shift.shift) * (1 + 1e-12)
        return min(found, *(epsilon_of_divergence(order, spent, delta) for order, spent in self.renyi), inf)


@lru_cache(maxsize=16)
def _bounds(
    law: RunLaw, runs: tuple[tuple[SampledGaussian, int], ...], ratio: tuple[float, float], *, coarser: int = 1
) -> _Bounds:
    if not runs:
        raise InputError("menu-empty", "A sealed search needs at least one run. Give its (mechanism, steps).")
    profiles = tuple(profile(mechanism, steps, coarser=coarser) for mechanism, steps in runs)

    def delta_of(epsilon: float) -> float:
        return max(part.delta(epsilon) for part in profiles)

    # A run's divergence is at most the largest divergence of a configuration: e^((a−1)·D) is a mean over them.
    single = {order: max(steps * divergence(mechanism, order) for mechanism, steps in runs) for order in ORDERS}
    renyi = winner_divergences(law, single, delta_of) if ratio == (1.0, 1.0) else {}
    return _Bounds(profiles, shift_of(law, delta_of, ratio=ratio), tuple(renyi.items()))


def winner_divergences(law: RunLaw, single: Mapping[float, float], delta_of: DeltaOf) -> dict[float, float]:
    """Return an upper bound of the winner's Rényi divergence for each order (Papernot & Steinke 2022).

    Let D be the divergence of one run, D_A that of the winner, and m the mean number of runs.
    Theorem 2, truncated negative binomial of shape η: for any two orders a and b,
    D_A(a) ≤ D(a) + (1+η)·((1 − 1/b)·D(b) + log(1/γ)/b) + log(m)/(a − 1).
    Theorem 6, Poisson: D_A(a) ≤ D(a) + m·δ_Q(log(1 + 1/(a−1))) + log(m)/(a − 1).
    dp_accounting computes the same bounds for `RepeatAndSelectDpEvent`. At fractional orders, it uses looser
    divergences of one run.

    `single` maps each order to the divergence of one run. For a mean below 1 the theorems do not hold, so the result is
    empty.
    """
    if law.mean < 1:
        return {}
    scale = (1 + _MARGIN) * log(law.mean * (1 + _MARGIN))
    if law.shape is None:
        extra = {order: law.mean * delta_of(-log1p(-1 / order)) for order in single}
    else:
        second = min((1 - 1 / order) * spent - log(law.gamma) / order for order, spent in single.items())
        extra = dict.fromkeys(single, (1 + law.shape) * second * (1 + _MARGIN))
    return {order: spent + extra[order] + scale / (order - 1) for order, spent in single.items()}
