"""Probability laws of K, the number of runs of a sealed search, and the secret random draw of K."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from functools import cached_property, lru_cache
from math import ceil, exp, expm1, fsum, isfinite, lgamma, log, log1p
from sys import float_info
from typing import Any

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import is_real_number, require_steps

__all__ = ["LAWS", "POISSON_MEAN", "RunLaw"]

LAWS = ("geometric", "logarithmic", "negative_binomial", "poisson")

POISSON_MEAN = 10.0
"""Largest allowed mean of a Poisson number of runs. For a larger mean, the other laws make ε several times smaller."""

_LEAST_GAMMA = 1e-6
_SHAPE_RANGE = (1e-9, 1e6)  # smallest |η| other than 0, and largest η; in this range 1 − γ and γ^−η − 1 are precise
_LEAST_TAIL = 1e-300
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": None}
_TERMS, _GROWTH, _MARGIN = 512, 1.002, 1e-6  # of `_tail`: number of single terms, growth of the blocks, relative margin
_BITS, _DIGITS = 256, 100  # of the draw: random bits, decimal digits


@dataclass(frozen=True, kw_only=True)
class RunLaw:
    """Distribution of the number of independent runs of a sealed search (Papernot & Steinke 2022, Definition 1).

    The truncated negative binomial of shape η and parameter γ has P[K = k] proportional to
    (1−γ)^k Π_{0 ≤ l < k} (l+η)/(l+1) for k ≥ 1. It is geometric at η = 1 and logarithmic at η = 0. A Poisson number of
    runs may be 0. Then there is no winner, and nothing is released.

    Args:
        name: one of `LAWS`.
        mean: the mean number of runs, E K. It must be above 1; for `poisson`, above 0 and at most `POISSON_MEAN`.
        shape: η of `negative_binomial`, above −1 and at most a million. Its absolute value must be 0 or at least 1e-9.
            The other laws have a fixed shape, so `shape` can be left out.

    Raises:
        InputError: a value is out of range or NaN, or the number of runs has no useful bound (γ below 1e-6).
    """

    name: str
    mean: float
    shape: float | None = None

    def __post_init__(self) -> None:
        if self.name not in LAWS:
            raise InputError(
                "run-law-unknown",
                f"The distribution of the number of runs must be one of {', '.join(LAWS)} (got {self.name!r}).",
            )
        poisson = self.name == "poisson"
        low, high = (0.0, POISSON_MEAN) if poisson else (1.0, float_info.max)
        if not (is_real_number(self.mean) and low < self.mean <= high):
            allowed = f"above 0 and at most {POISSON_MEAN:g}" if poisson else "finite and above 1"
            hint = " For a larger mean use geometric or logarithmic, which cost much less." if poisson else ""
            raise InputError(
                "run-mean-out-of-range",
                f"The mean number of runs must be {allowed} for {self.name} (got {self.mean!r}).{hint}",
            )
        object.__setattr__(self, "mean", float(self.mean))
        object.__setattr__(self, "shape", self._own_shape())
        if poisson:
            return
        if not self.gamma >= _LEAST_GAMMA:
            raise InputError(
                "run-law-unbounded",
                f"The number of runs may exceed a million for {self.name} with mean {self.mean!r} and shape "
                f"{self.shape!r}. Choose a smaller mean or a larger shape.",
            )
        if not self.gamma < 1:
            raise InputError(
                "run-mean-out-of-range",
                f"The mean number of runs is too close to 1 (got {self.mean!r}). Choose a larger mean, such as 20.",
            )

    def _own_shape(self) -> float | None:
        given = self.shape
        if self.name != "negative_binomial":
            own = _SHAPES[self.name]
            if given is not None and not (is_real_number(given) and given == own):
                raise InputError(
                    "run-shape-out-of-range", f"The shape of {self.name} must be {own!r} (got {given!r}). Leave it out."
                )
            return own
        if not (is_real_number(given) and isfinite(given) and given > -1):
            raise InputError(
                "run-shape-out-of-range", f"The shape of negative_binomial must be finite and above -1 (got {given!r})."
            )
        least, largest = _SHAPE_RANGE
        if given > largest or 0 < abs(given) < least:
            raise InputError(
                "run-shape-out-of-range",
                f"The shape of negative_binomial must be at most {largest:g}, and either 0 or at least {least:g} in "
                f"absolute value (got {given!r}). Write {f'{largest:g}' if abs(given) > 1 else '0'}.",
            )
        return float(given)

    @cached_property
    def gamma(self) -> float:
        """Parameter γ of the truncated negative binomial. It solves E K = η(1−γ)/(γ(1−γ^η)), or its limit at η = 0."""
        if self.shape is None:
            raise InputError("run-law-without-gamma", "A poisson distribution has no gamma. Use its mean.")
        return _gamma(self.mean, self.shape)

    def pmf(self, runs: int) -> float:
        """Return P[K = runs]."""
        if self.shape is None:
            return exp(runs * log(self.mean) - self.mean - lgamma(runs + 1)) if runs >= 0 else 0.0
        return exp(runs * log1p(-self.gamma) + self.log_weight(runs)) if runs >= 1 else 0.0

    def tail(self, runs: int) -> float:
        """Return an upper bound of P[K > runs], computed as a sum of non-negative terms.

        For the truncated negative binomial, the first 512 terms are summed one by one and later terms in blocks. Within
        a block, the ratio P[K = k]/(1−γ)^k is monotone in k, so it is largest at one end of the block. This largest
        ratio, times the sum of (1−γ)^k over the block, is an upper bound for the block.
        """
        require_steps(runs, minimum=0, name="runs")
        # The sum may underflow to 0, but the true tail is above 0.
        return min(max(_tail(self, runs) * (1 + _MARGIN), _LEAST_TAIL), 1.0)

    def quantile(self, probability: float) -> int:
        """Return the least k with P[K ≤ k] ≥ `probability`, which must be in [0, 1)."""
        if not (is_real_number(probability) and 0 <= probability < 1):
            raise InputError(
                "probability-out-of-range",
                f"The probability of a quantile must be at least 0 and below 1, such as 0.9 (got {probability!r}).",
            )
        return self.least_cut(1 - probability)

    def least_cut(self, tail: float) -> int:
        """Return the least k with P[K > k] ≤ `tail`. `tail` must be above 1e-300 and at most 1."""
        if not tail > _LEAST_TAIL:
            raise InputError(
                "probability-out-of-range",
                f"The allowed probability of exceeding the limit on runs must be above {_LEAST_TAIL:g} (got {tail!r}). "
                "Lower privacy.epsilon to raise this probability.",
            )
        low, high = -1, 1
        while self.tail(high) > tail:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.tail(middle) <= tail else (middle, high)
        return high

    def draw(self, at_most: int, *, bits: Callable[[int], int] = secrets.randbits) -> int:
        """Return a random value of min(K, `at_most`), by inversion. It is a secret that must never be logged or shown.

        A random number of 256 bits is compared with the sums of P[K = k], computed with 100 digits. So the distribution
        of the drawn number differs from that of min(K, `at_most`) by less than 10⁻⁷⁰. `bits` returns a random integer
        with a given number of bits. Outside tests, the operating system generates this integer.
        """
        require_steps(at_most, minimum=1, name="at_most")
        with localcontext() as context:
            context.prec, context.Emax, context.Emin = _DIGITS, MAX_EMAX, MIN_EMIN
            place = Decimal(bits(_BITS)) / Decimal(2**_BITS)
            below = Decimal(0)
            for runs, mass in self._masses():
                below += mass
                if place < below or runs >= at_most:
                    return runs
        raise AssertionError("unreachable: the probabilities of K have no last term")

    def body(self) -> dict[str, Any]:
        """Return the law as plain JSON."""
        return {"name": self.name, "mean": self.mean, "shape": self.shape}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> RunLaw:
        """Return the law from its JSON."""
        return cls(name=body["name"], mean=body["mean"], shape=body["shape"])

    def _masses(self) -> Iterator[tuple[int, Decimal]]:
        if self.shape is None:
            mean = Decimal(self.mean)
            runs, mass = 0, (-mean).exp()
            while True:
                yield runs, mass
                runs += 1
                mass *= mean / runs
        gamma, shape = Decimal(self.gamma), Decimal(self.shape)
        # P[K = 1] = (1−γ)·η/(γ^−η − 1), whose limit at η = 0 is (1−γ)/log(1/γ).
        scale = shape / (gamma**-shape - 1) if shape else -1 / gamma.ln()
        runs, mass = 1, (1 - gamma) * scale
        while True:
            yield runs, mass
            mass *= (1 - gamma) * (runs + shape) / (runs + 1)
            runs += 1

    def log_weight(self, runs: int) -> float:
        """Return log(P[K = runs]/(1−γ)^runs). As `runs` grows, this value falls if η < 1, and rises if η > 1."""
        shape = self.shape or 0.0
        scale = -shape * log(self.gamma)  # γ^−η = e^scale
        if scale == 0:
            normal = -log(-log(self.gamma))
        elif scale > 1:  # e^scale may exceed the largest double
            normal = log(shape) - scale - log1p(-exp(-scale))
        else:
            normal = log(shape / expm1(scale))
        # log Γ(k+η)/Γ(k+1). Beyond a million the difference of two lgamma would lose digits.
        gammas = lgamma(runs + shape) - lgamma(runs + 1) if runs < 1e6 else _log_ratio_of_gammas(runs + 1, shape - 1)
        return gammas - lgamma(1 + shape) + normal


def _log_ratio_of_gammas(large: float, more: float) -> float:
    """Return log Γ(large + more) − log Γ(large) by Stirling's series, arranged so that no large terms cancel."""
    grown = large + more
    series = (1 / grown - 1 / large) / 12  # the next term is below 1/(360·large³)
    return (grown - 0.5) * log1p(more / large) + more * (log(large) - 1) + series


@lru_cache(maxsize=65536)
def _tail(law: RunLaw, runs: int) -> float:
    if law.shape == 1:
        return exp(runs * log1p(-law.gamma))
    start = runs + 1 + _TERMS
    total = fsum(law.pmf(k) for k in range(runs + 1, start))
    if law.shape is None:
        return total + law.pmf(start - 1)  # every later term is less than half of the previous term
    keep = log1p(-law.gamma)
    while total < 1:
        # From `start` on, P[K = k + 1]/P[K = k] = (1−γ)(k+η)/(k+1) is at most this ratio.
        ratio = (1 - law.gamma) * max((start + law.shape) / (start + 1), 1.0)
        if ratio < 1 and (rest := law.pmf(start) / (1 - ratio)) <= total * 1e-12:
            return total + rest
        end = ceil(start * _GROWTH)
        weight = max(law.log_weight(start), law.log_weight(end))
        # With a large shape the weights of a block differ so much that its bound may exceed the largest double.
        total += exp(min(weight + start * keep, 100.0)) * (expm1((end - start) * keep) / expm1(keep))
        start = end
    return 1.0


@lru_cache(maxsize=4096)
def _gamma(mean: float, shape: float) -> float:
    """Return γ by bisection of log γ. The mean of K falls from ∞ to 1 as γ rises from 0 to 1."""

    def mean_of(log_gamma: float) -> float:
        # η(1−γ)/(γ(1−γ^η)) = (1/γ − 1) · η/(1 − e^(η·log γ))
        power = shape * log_gamma
        factor = -1 / log_gamma if abs(power) < 1e-300 else shape / -expm1(power)
        return expm1(-log_gamma) * factor

    if shape == 1:
        return 1 / mean
    low, high = -600.0, -1e-300
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return exp(low)
        low, high = (low, middle) if mean_of(middle) < mean else (middle, high)
