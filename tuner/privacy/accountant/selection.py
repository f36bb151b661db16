"""Cost of a sealed search: the best of a random, hidden number of runs, by its privacy profile and by Rényi DP.

`docs/guarantees.md` has the proofs of the bounds; `tests/privacy/accountant/test_brute_force.py` compares them with
enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, inf, isfinite, log, log1p
from typing import Any, TypeAlias

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.initial_guess import guess_gdp, guess_noise, guess_on_coarse_grid, least_noise
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.accountant.pld import EPSILON_FLOOR, composed
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
"""(mechanism, steps) of one run; several where the prior chooses among them."""

DeltaOf: TypeAlias = Callable[[float], float]

_MARGIN = 1e-9
_TRUNCATION_SHARE = 0.01
_LEAST_TAIL = 1e-299  # with room for the 1 in 1 + e^ε
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Shift:
    """The price of selection: δ_A(ε) ≤ `factor` · δ_Q(ε − `shift`), for every ε."""

    factor: float
    shift: float

    def delta(self, delta_of: DeltaOf, epsilon: float) -> float:
        """Return δ_A at `epsilon`, from the profile of one run."""
        return min(self.factor * delta_of(epsilon - self.shift), 1.0)


def shift_of(law: RunLaw, delta_of: DeltaOf, *, ratio: tuple[float, float] = (1.0, 1.0)) -> Shift:
    """Return the price of selection for a law of the number of runs (`docs/guarantees.md`).

    Truncated negative binomial of shape η, with C/c = 1 unless the sampler learns: for any ε₁ ≥ 0,
    δ_A(ε) ≤ C·m·δ_Q(ε − log(C/c) − (η+1)·log r), r = (C/c)·e^{ε₁} + ((1−γ)/γ)·C·δ_Q(ε₁); ε₁ is chosen to make r least.

    Args:
        law: of the number of runs.
        delta_of: an upper bound of the profile of one run, the larger of both directions of adjacency, and where the
            prior chooses among configurations the largest of theirs.
        ratio: (c, C) between which an adaptive sampler keeps its density over the prior's.

    Raises:
        InputError: an adaptive sampler with a poisson number of runs, which has no proof here.
    """
    low, high = ratio
    if not (isfinite(low) and isfinite(high) and 0 < low <= 1 <= high):
        raise InputError("filter-invalid", f"The ratio must be (c, C) with 0 < c <= 1 <= C (got {ratio!r}).")
    if law.shape is None:
        if ratio != (1.0, 1.0):
            raise InputError(
                "poisson-not-adaptive",
                "There is no proof for an adaptive sampler with a poisson number of runs. Write geometric.",
            )
        return poisson_shift(law.mean, delta_of)
    gamma, shape = law.gamma, law.shape

    def log_r(first: float) -> float:
        # By log1p: with a large shape the second term is tiny, and a rounded one would be multiplied by shape + 1.
        return first + log(high / low) + log1p((1 - gamma) / gamma * low * delta_of(first) * exp(-first))

    shift = log(high / low) + (shape + 1) * log_r(_least(log_r))
    return Shift(high * law.mean * (1 + _MARGIN), shift * (1 + _MARGIN))


def poisson_shift(mean: float, delta_of: DeltaOf) -> Shift:
    """Return the price of selection for a Poisson number of runs of any mean; `RunLaw` refuses a large one.

    δ_A(ε) ≤ m·δ_Q(ε − m(e^{ε₁} − 1) − m·δ_Q(ε₁)) for any ε₁ ≥ 0.
    """

    def shift(first: float) -> float:
        return mean * (expm1(min(first, 700.0)) + delta_of(first))

    return Shift(mean * (1 + _MARGIN), shift(_least(shift)) * (1 + _MARGIN))


def _least(price: DeltaOf) -> float:
    """Return where the price is least over ε₁ ≥ 0; it is convex in e^{ε₁}, and any other ε₁ is valid too."""
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
    """Privacy profile of one run, ε ↦ δ: an upper bound with the margins of `pld`, for both directions of adjacency."""

    def __init__(self, mechanism: SampledGaussian, steps: int, *, coarser: int = 1) -> None:
        require_steps(steps, minimum=1)
        distribution, self._margin = composed([(mechanism, steps)], coarser=coarser)
        self._parts: list[tuple[Any, Any, float]] = []
        self._distribution = distribution
        if distribution is not None:
            import numpy as np

            for pmf in (distribution._pmf_remove.to_dense_pmf(), distribution._pmf_add.to_dense_pmf()):
                losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
                self._parts.append((losses, pmf._probs, float(pmf._infinity_mass)))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of δ at any real ε; at a negative ε it is at least 1 − e^ε, as every δ is."""
        if not self._parts:
            return 1.0
        import numpy as np

        found = -expm1(min(epsilon, 0.0))
        for losses, masses, infinite in self._parts:
            first = int(np.searchsorted(losses, epsilon, side="right"))
            finite = float(np.dot(-np.expm1(epsilon - losses[first:]), masses[first:]))
            found = max(found, infinite + finite)
        return min(found + self._margin, 1.0)

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) at most `delta`; `math.inf` where there is none."""
        if self._distribution is None or not delta - self._margin > 0:
            return inf
        try:
            found = float(self._distribution.get_epsilon_for_delta(min(delta - self._margin, 1.0)))
        except OverflowError:  # a loss above 709 exceeds the doubles: nothing can be claimed
            return inf
        return found if found >= 0 else inf


@lru_cache(maxsize=8)
def profile(mechanism: SampledGaussian, steps: int, *, coarser: int = 1) -> Profile:
    """Return the profile of `steps` steps of `mechanism`, composed once and cached.

    Args:
        mechanism: of each step.
        steps: at least 1.
        coarser: interval of the grid, as a multiple of a claim's; above 1 is faster and gives a larger δ.
    """
    return Profile(mechanism, steps, coarser=coarser)


def epsilon_selection(
    law: RunLaw, runs: Runs, delta: float, *, at_most: int, ratio: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Return the least ε that is proved at `delta` for the winner of a sealed search.

    Args:
        law: of the number of runs.
        runs: (mechanism, steps) of one run; several where the prior chooses among them.
        delta: in (0, 1).
        at_most: runs after which the law is cut off; that adds (1 + e^ε)·P[K > at_most] to δ.
        ratio: (c, C) of an adaptive sampler; (1, 1) is none.

    Returns:
        ε, at least `EPSILON_FLOOR`; `math.inf` where nothing is claimed, for instance because the cut alone takes
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
    # The cut takes a δ that grows with ε, and less δ needs a larger ε: iterate from below until the two agree.
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
    """Return the least number of runs at which cutting off the law adds at most 1 % of `delta`.

    Args:
        law: of the number of runs.
        epsilon: of the claim, the largest that will be claimed with this cut.
        delta: of the claim.

    Raises:
        InputError: ε is so large that no cut can be told to fit it, or a value is out of range or NaN.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    largest = log(_TRUNCATION_SHARE * delta / _LEAST_TAIL)
    if not epsilon <= largest:
        raise InputError(
            "epsilon-too-large",
            f"With a hidden number of runs, ε must be at most {largest:.0f} at δ = {delta!r} (got {epsilon!r}): above "
            "that, double precision cannot represent the cut-off. Lower privacy.epsilon.",
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
    """Return the least common noise multiplier, rounded UP to 5 significant digits, with which the winner is (ε, δ)-DP.

    Args:
        law: of the number of runs.
        menu: (sample_rate, steps) of one run; several where the prior chooses among them.
        epsilon: of the claim.
        delta: of the claim.
        at_most: runs after which the law is cut off.
        ratio: (c, C) of an adaptive sampler.

    Raises:
        BudgetRefusedError: no noise multiplier up to 100 000 fits.
        InputError: a value is out of range or NaN.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    if not menu:
        raise InputError("menu-empty", "The menu is empty. Give at least one (sample_rate, steps) of a run.")

    def cost(noise: float, *, coarser: int = 1) -> float:
        runs = tuple((SampledGaussian(rate, noise), steps) for rate, steps in menu)
        if coarser == 1:
            return epsilon_selection(law, runs, delta, at_most=at_most, ratio=ratio)
        return _cut_epsilon(_bounds(law, runs, ratio, coarser=coarser), law, delta, at_most)

    # One run costs about half of the winner; where that is far off, the search for the noise only takes longer.
    mu = guess_gdp(epsilon / 2, delta / law.mean)
    first = guess_noise(max(rate * steps**0.5 for rate, steps in menu), mu)
    guess, slope = guess_on_coarse_grid(cost, epsilon, first)
    noise = least_noise(cost, epsilon, guess=guess, slope=slope)
    if noise is None:
        raise BudgetRefusedError(
            "no-noise-fits",
            f"The best of {law.mean:g} runs on average does not fit ε = {epsilon!r} at δ = {delta!r} with any noise "
            "multiplier up to 100000. Raise epsilon, or plan fewer runs or epochs.",
        )
    return noise


@dataclass(frozen=True)
class _Bounds:
    """All bounds on the winner before the cut; each method returns the least of them."""

    profiles: tuple[Profile, ...]
    shift: Shift
    renyi: tuple[tuple[float, float], ...]  # (order, divergence of the winner)

    def delta(self, epsilon: float) -> float:
        found = self.shift.delta(lambda at: max(part.delta(at) for part in self.profiles), epsilon)
        return min(found, *(_delta_of_divergence(order, spent, epsilon) for order, spent in self.renyi), 1.0)

    def epsilon(self, delta: float) -> float:
        single = max(part.epsilon(delta / self.shift.factor) for part in self.profiles)
        found = (single + self.shift.shift) * (1 + 1e-12)
        return min(found, *(epsilon_of_divergence(order, spent, delta) for order, spent in self.renyi), inf)


@lru_cache(maxsize=16)
def _bounds(
    law: RunLaw, runs: tuple[tuple[SampledGaussian, int], ...], ratio: tuple[float, float], *, coarser: int = 1
) -> _Bounds:
    if not runs:
        raise InputError("menu-empty", "A sealed search needs at least one (mechanism, steps) of a run.")
    profiles = tuple(profile(mechanism, steps, coarser=coarser) for mechanism, steps in runs)

    def delta_of(epsilon: float) -> float:
        return max(part.delta(epsilon) for part in profiles)

    # The divergence of a run is at most the largest of its configurations': e^((a−1)·D) is their mean.
    single = {order: max(steps * divergence(mechanism, order) for mechanism, steps in runs) for order in ORDERS}
    renyi = winner_divergences(law, single, delta_of) if ratio == (1.0, 1.0) else {}
    return _Bounds(profiles, shift_of(law, delta_of, ratio=ratio), tuple(renyi.items()))


def winner_divergences(law: RunLaw, single: Mapping[float, float], delta_of: DeltaOf) -> dict[float, float]:
    """Return Rényi divergences of the winner, at the orders of `single` (Papernot & Steinke 2022).

    Theorem 2, truncated negative binomial of shape η: for any two orders a and b,
    D_A(a) ≤ D(a) + (1+η)·((1 − 1/b)·D(b) + log(1/γ)/b) + log(m)/(a − 1).
    Theorem 6, Poisson: D_A(a) ≤ D(a) + m·δ_Q(log(1 + 1/(a−1))) + log(m)/(a − 1).
    dp_accounting computes the same for `RepeatAndSelectDpEvent`, with looser divergences at fractional orders.

    Args:
        law: of the number of runs.
        single: order → divergence of one run.
        delta_of: the profile of one run.

    Returns:
        Order → divergence; empty where the theorems do not apply.
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


def _delta_of_divergence(order: float, divergence: float, epsilon: float) -> float:
    """Return δ at `epsilon` (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    if not isfinite(divergence):
        return 1.0
    exponent = (order - 1) * (divergence - epsilon + log1p(-1 / order)) - log(order)
    return exp(min(exponent + 1e-13 * (order - 1) * (divergence + epsilon), 0.0))
