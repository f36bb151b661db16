"""Rényi divergence of a step, and ε of a sealed search, which releases the best of K runs. K is hidden.

Two proofs bound the ε of a sealed search, and the smaller of their bounds counts:

- Profile bound: δ(ε) ≤ C·m·δ_Q(ε − log(C/c) − (η+1)·log r), r = (C/c)·e^ε₁ + ((1−γ)/γ)·C·δ_Q(ε₁), any ε₁ ≥ 0
  (after Koskela, Redberg & Wang 2024; `shift_of` in `tuner.privacy.accountant.selection` has the proof).
- Rényi bound: Papernot & Steinke 2022, Theorem 2 for the truncated negative binomial, Theorem 6 for the Poisson law.

In both proofs, truncating K at k runs adds (1 + e^ε)·P[K > k] to δ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import ceil, exp, expm1, inf, isfinite, log, log1p, pi, sqrt
from typing import Any

import numpy as np

from tuner.privacy.verify.accountant.loss import GAP, compose_losses, golden_section
from tuner.privacy.verify.accountant.one_step import Part, TooLargeError, merged

__all__ = ["Law", "Selection", "converted_epsilon", "renyi"]

_LOG_ORDERS: tuple[float, ...] = tuple((np.linspace(-1.5, 3.3, 65) * log(10)).tolist())
"""Values of log(a − 1) for the Rényi orders a that are tried."""
_ORDERS_MISS = 0.005
_TERMS = 4_000_000
_LEAST_TAIL = 1e-300
_SMALL_SHAPE, _LARGE_SHAPE = 1e-9, 1e6
_LARGE_DELTAS = (1e-3, 0.1)


@lru_cache(maxsize=4096)
def renyi(rate: float, noise: float, order: float) -> tuple[float, float]:
    """Return a lower and an upper bound of the Rényi divergence of one Poisson-sampled Gaussian step.

    The value for the worse direction of adjacency is returned. The divergence is log(1 + G)/(order − 1) with
    G = E_N[t^p − 1 − p·(t − 1)]. Here N is N(0, `noise`²), and t is the likelihood ratio. p is `order` in one
    direction and 1 − `order` in the other. The integrand is never negative, so nothing cancels. It is analytic in a
    strip, so the error of the trapezoidal rule decreases exponentially as the step size of the rule gets smaller. The
    step size is halved until two successive results agree to 1e-11.
    """
    both = []
    for power in (order, 1 - order):
        step = min(noise / 6, noise**2 / 3)
        before, found = -inf, _log_excess(rate, noise, power, step)
        while abs(found - before) > 1e-11 * max(1.0, found):  # relative if large, because doubles have no more digits
            step /= 2
            if step < min(noise, noise**2) / 500:
                raise TooLargeError(f"the Rényi divergence of order {order!r} does not converge")
            before, found = found, _log_excess(rate, noise, power, step)
        both.append(float(np.logaddexp(0.0, found)) / (order - 1) if found > -30 else exp(found) / (order - 1))
    return max(both) * (1 - 1e-9), max(both) * (1 + 1e-9)


def _log_excess(rate: float, noise: float, power: float, step: float) -> float:
    """Return log G for p = `power`, by the trapezoidal rule with step size `step`. `renyi` defines G and p."""
    reach = 14 * noise
    x = np.arange(min(power, 0.0) - reach, max(power, 1.0) + reach + step, step)
    exponent = (2 * x - 1) / (2 * noise**2)
    ratio = rate * np.expm1(np.minimum(exponent, 600.0))  # t − 1
    far = exponent > 40
    loss = exponent.copy()
    if rate < 1:
        loss[~far] = np.log1p(ratio[~far])
        loss[far] += log(rate) + np.log1p((1 - rate) / rate * np.exp(-exponent[far]))
    size = power * loss
    logs = np.empty_like(x)
    small = np.abs(ratio) * max(abs(power), 1.0) < 0.05
    series, term = np.zeros(int(small.sum())), np.ones(int(small.sum()))
    near = ratio[small]
    for index in range(1, 24):
        term = term * near * (power - index + 1) / index
        if index > 1:
            series += term
    with np.errstate(divide="ignore"):
        logs[small] = np.log(np.maximum(series, 0.0))
        large = ~small & (size > 30)
        # t^p − 1 − p(t − 1) = t^p·(1 − (1 + p(t − 1))·t^−p), whose product is at most p·t^(1−p) for p above 1.
        lost = (1 - power) * np.exp(-size[large]) + power * np.exp(loss[large] - size[large])
        logs[large] = size[large] + np.log1p(-lost)
        other = ~small & ~large
        logs[other] = np.log(np.maximum(np.expm1(size[other]) - power * ratio[other], 0.0))
    logs -= x**2 / (2 * noise**2)
    top = float(logs.max())
    return top + log(float(np.exp(logs - top).sum()) * step / (noise * sqrt(2 * pi)))


def converted_epsilon(order: float, divergence: float, delta: float) -> float:
    """Return the ε at `delta` that a Rényi divergence implies (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    return max(divergence + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1), 0.0)


class Law:
    """Probability law of the number of runs K, read from JSON with ``name``, ``mean`` and ``shape``.

    Raises:
        ValueError: the law is unknown, or a value is out of range.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.mean, name = float(body["mean"]), body["name"]
        self.poisson = name == "poisson"
        shapes = {"geometric": 1.0, "logarithmic": 0.0, "poisson": 0.0}
        self.shape = shapes[name] if name in shapes else float(body["shape"])
        if name not in (*shapes, "negative_binomial") or not (isfinite(self.mean) and isfinite(self.shape)):
            raise ValueError(
                f"the distribution of the number of runs must be known, with finite values (got {dict(body)!r})"
            )
        if self.mean <= (0 if self.poisson else 1) or self.shape <= -1:
            raise ValueError(
                f"the mean or the shape of the distribution of the number of runs is out of range (got {dict(body)!r})"
            )
        if self.shape > _LARGE_SHAPE or 0 < abs(self.shape) < _SMALL_SHAPE:
            raise ValueError(
                f"the shape of the distribution of the number of runs is too large or close to 0 (got {dict(body)!r})"
            )
        self.gamma = 0.0 if self.poisson else self._solve()
        if not (self.poisson or 0 < self.gamma < 1):
            raise ValueError(
                f"the mean of the distribution of the number of runs is too large or close to 1 (got {dict(body)!r})"
            )

    def _mean_at(self, log_gamma: float) -> float:
        """Return the mean of K at γ = e^`log_gamma` (Papernot & Steinke 2022, Definition 1)."""
        if self.shape == 0:
            return expm1(-log_gamma) / -log_gamma
        return expm1(-log_gamma) * self.shape / -expm1(self.shape * log_gamma)

    def _solve(self) -> float:
        low, high = -700.0, 0.0  # range of log γ; the mean decreases as γ grows
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if self._mean_at(middle) > self.mean else (low, middle)
        return exp(high)

    def tail(self, runs: int) -> float:
        """Return P[K > runs]."""
        if self.poisson:
            count = ceil(runs + 60 + 10 * self.mean)
            logs = np.cumsum(np.log(self.mean / np.arange(1, count + 1))) - self.mean
            return max(float(np.exp(logs[runs:]).sum()), _LEAST_TAIL)
        # For a shape above 1, the terms increase up to a mode below the mean. From twice the mean on, each term is at
        # most 1 − γ/2 times the previous term.
        count = runs + ceil(60 / self.gamma)
        if self.shape > 1:
            count = max(runs, ceil(2 * self.mean)) + ceil(120 / self.gamma)
        if count > _TERMS:
            raise TooLargeError(
                f"the distribution of the number of runs has a tail of {count} terms; at most {_TERMS} are allowed"
            )
        eta, drop = self.shape, log1p(-self.gamma)
        scale = -eta * log(self.gamma)
        # This is log(η/(e^scale − 1)) without the overflow of e^scale.
        first = drop - (log(-log(self.gamma)) if eta == 0 else _log_expm1_ratio(scale) - log(eta / scale))
        steps = np.arange(1, count)
        logs = first + np.concatenate(([0.0], np.cumsum(drop + np.log((steps + eta) / (steps + 1)))))
        return max(float(np.exp(logs[runs:]).sum()) * (1 + 1e-9), _LEAST_TAIL)


class _Profile:
    """Privacy profile of one run. It combines several compositions, each of which is tight at a different δ."""

    def __init__(self, run: tuple[Part, ...], delta: float) -> None:
        self._whole = [
            compose_losses(run, delta),
            *(compose_losses(run, large, gap=5 * GAP) for large in _LARGE_DELTAS),
        ]

    def delta(self, epsilon: float) -> tuple[float, float]:
        found = [whole.delta(epsilon) for whole in self._whole]
        return max(low for low, _ in found), min(high for _, high in found)

    def epsilon(self, delta: float) -> tuple[float, float]:
        return self._whole[0].epsilon(delta)


class Selection:
    """Bounds of the ε of a sealed search. Each of two proofs gives an ε, whose lower and upper bound are computed.

    Args:
        body: JSON of the filter, with ``law``, ``at_most``, ``runs`` and ``ratio``.
        delta: smallest δ for which `epsilon` will be called.

    Raises:
        TooLargeError: a run is too large to compose.
        ValueError: a value is out of range.
    """

    def __init__(self, body: Mapping[str, Any], delta: float) -> None:
        self.law = Law(body["law"])
        self.cut = self.law.tail(int(body["at_most"]))
        self.low, self.high = (float(bound) for bound in body["ratio"])
        if not (0 < self.low <= 1 <= self.high < inf):
            raise ValueError(f"the ratio (c, C) of a sampler must have 0 < c <= 1 <= C (got {body['ratio']!r})")
        if self.law.poisson and not self._alike():
            raise ValueError("an adaptive sampler has no privacy proof with a poisson number of runs")
        self.runs = [merged([Part(run["sample_rate"], run["noise_multiplier"], run["steps"])]) for run in body["runs"]]
        weight = self.law.mean * self.high
        # Selection also needs δ at small ε. A composition that is tight at small δ is loose there.
        self.profiles = [_Profile(run, delta / weight) for run in self.runs]
        proofs = [self._by_profile, self._by_orders] if self._alike() else [self._by_profile]
        self._proofs = [[proof(side) for proof in proofs] for side in (0, 1)]

    def epsilon(self, delta: float) -> tuple[float, float, float]:
        """Return a lower and an upper bound of the smaller proved ε at `delta`, and an upper bound of the larger."""
        # Orders that were not tried may give a slightly smaller ε, so the lower bound has a margin.
        low, high = ([self._truncated(proof, delta) for proof in proofs] for proofs in self._proofs)
        low[1:] = [found * (1 - _ORDERS_MISS) for found in low[1:]]
        return min(low), min(high), max(high)

    def _alike(self) -> bool:
        """Return whether the runs are independent and identically distributed. The Rényi bound requires this."""
        return (self.low, self.high) == (1.0, 1.0)

    def _truncated(self, proof: Callable[[float], float], delta: float) -> float:
        """Return the ε that `proof` gives at `delta` if the number of runs is truncated; `math.inf` if there is none.

        `proof` is a function from δ to ε without truncation. Truncating K at k runs adds (1 + e^ε)·P[K > k] to δ, so
        `proof` is called with the rest of `delta`. The rest depends on ε, so ε is found by iteration.
        """
        found = proof(delta)
        for _ in range(60):
            rest = delta - (1 + exp(min(found, 700.0))) * self.cut  # e^ε overflows for ε above 709
            if not rest > 0:
                return inf
            again = proof(rest)
            if again <= found * (1 + 1e-9):
                return again
            found = again
        return inf

    def _by_profile(self, side: int) -> Callable[[float], float]:
        def delta_of(epsilon: float) -> float:
            return max(profile.delta(epsilon)[side] for profile in self.profiles)

        law, ratio = self.law, self.high / self.low
        if law.poisson:
            # e^{m(e^ε₁ − 1) + m·δ_Q(ε₁)} instead of r^(η+1).
            excess = _least_over(lambda first: law.mean * (expm1(first) + delta_of(first)))
        else:
            weight = (1 - law.gamma) / law.gamma * self.low
            # log r = ε₁ + log(C/c) + log1p(…). With log(1 + …), a large shape would multiply the rounding error.
            excess = (law.shape + 1) * _least_over(
                lambda first: first + log(ratio) + log1p(weight * delta_of(first) * exp(-first))
            )
        weight = law.mean * self.high

        def proof(delta: float) -> float:
            return max(
                profile.epsilon(min(delta / weight, 0.999))[side] for profile in self.profiles
            ) + excess + log(ratio)  # fmt: skip

        return proof

    def _by_orders(self, side: int) -> Callable[[float], float]:
        law = self.law

        def single(order: float) -> float:
            return max(sum(part.steps * _renyi_or_inf(part, order)[side] for part in run) for run in self.runs)

        if law.poisson:

            def winner(order: float) -> float:
                # Q must be (log(1 + 1/(a − 1)), δ̂)-DP, and the divergence rises by m·δ̂.
                small = max(profile.delta(log1p(1 / (order - 1)))[side] for profile in self.profiles)
                return single(order) + law.mean * small + max(log(law.mean), 0.0) / (order - 1)
        else:
            inner = _least_order(
                lambda order: (1 + law.shape) * ((1 - 1 / order) * single(order) - log(law.gamma) / order)
            )

            def winner(order: float) -> float:
                return single(order) + inner + log(law.mean) / (order - 1)

        def proof(delta: float) -> float:
            return _least_order(lambda order: converted_epsilon(order, winner(order), delta))

        return proof


def _log_expm1_ratio(scale: float) -> float:
    """Return log((e^scale − 1)/scale) for a scale other than 0."""
    return scale + log(-expm1(-scale) / scale)


def _least_order(function: Callable[[float], float]) -> float:
    """Return approximately the smallest value of `function` over Rényi orders.

    Every order gives a valid bound, so an approximation suffices.
    """
    return _least(lambda log_order: function(1 + exp(log_order)), _LOG_ORDERS, 12)


def _renyi_or_inf(part: Part, order: float) -> tuple[float, float]:
    try:
        return renyi(part.sample_rate, part.noise_multiplier, order)
    except TooLargeError:
        return inf, inf


def _least_over(function: Callable[[float], float]) -> float:
    """Return approximately the smallest value of `function` over ε₁ ≥ 0.

    Every ε₁ gives a valid bound, so an approximation suffices.
    """
    return _least(function, [0.0, *np.geomspace(1e-4, 30.0, 40).tolist()], 20)


def _least(function: Callable[[float], float], places: Sequence[float], turns: int) -> float:
    place, listed = golden_section(function, places, turns)
    return min(listed, function(place))
