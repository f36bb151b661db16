"""Privacy loss distributions: ε of composed steps, and the largest number of steps or the least noise for an ε.

The returned ε is an upper bound under add-or-remove-one adjacency and Poisson sampling, for four reasons:

1. One step. Connect-the-dots replaces the hockey-stick curve of the step by chords between the grid points of the
   loss. The curve is convex in e^ε, so the chords are on or above it, and the discrete step dominates the true step
   (Doroshenko et al. 2022). Composition preserves domination.
2. Truncation. The mass that is cut from the tails (e^-50 per step, 1e-15 per composition) counts as infinite loss.
   So does what a record may move beyond the end of the noise (`beyond`), because the engine's numbers end.
3. Grid. The spacing of the grid is a power of two, so all grids are nested. The chords of a coarser grid are on or
   above the chords of a finer grid. More steps, more sampling or less noise never make the grid finer. So ε does not
   decrease with steps or sampling, and does not increase with noise.
4. Floating point. The margin `_ROUNDING_ONCE` + T · `_ROUNDING` is subtracted from δ before ε of T steps is computed.
   The margin was measured and is NOT proved; the privacy card says so. It covers two errors:
   - Rounding of the FFT, measured against an 80-bit FFT in hundreds of random settings. This error grows linearly in T
     up to `MAX_STEPS` and faster beyond, so more steps are refused. The margin is at least 2.4 times the measured L1
     error. Only half of that error can raise ε, and the margin is at least 4.8 times this half. The mechanisms of a
     coupon book are convolved one after another. For them the margin is at least 10 times the L1 error.
   - Rounding of the step's hockey-stick values, measured against 40-digit values. Each error is at most 1.6e-16 at
     losses above zero.
   Rounding may also make the masses of one step sum to less than 1. The missing mass is subtracted from δ too.
   Negative masses of a step are replaced by zero. This adds mass, so it can only raise ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp, expm1, floor, inf, isfinite, log, log1p, log2, pi, sqrt
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.privacy.accountant.initial_guess import (
    found_noise,
    guess_gdp,
    guess_noise,
    guess_on_coarse_grid,
    least_noise,
    secant,
)
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps

if TYPE_CHECKING:
    from tuner.privacy.accountant.loss_distribution import LossDistribution

__all__ = [
    "EPSILON_FLOOR",
    "LONGEST",
    "MAX_STEPS",
    "beyond",
    "calibrate_noise",
    "composed",
    "discretisation_error",
    "epsilon",
    "epsilon_at",
    "epsilon_composed",
    "epsilon_curve",
    "epsilon_on_grid",
    "interval",
    "max_steps",
    "read_epsilon",
]

EPSILON_FLOOR = 1e-6
"""Smallest ε that is claimed for one or more steps, even if the computed ε is 0."""

MAX_STEPS = 2_000_000
"""Largest accepted number of steps. The margin for rounding errors was not measured for more steps."""

LONGEST = 12.0
"""Standard deviations at which a pair of Gaussian numbers of `trainables.engine.gaussian` ends, rounded down."""

_ROUNDING, _ROUNDING_ONCE = 5e-15, 1e-13
_STEP_POINTS, _COMPOSED_POINTS = 2**17, 2**20
_FINEST, _COARSEST, _USELESS = 2.0**-24, 2.0**-10, 2.0**-3
_LITTLE_NOISE, _MUCH_NOISE = 1e-3, 1e100
"""For noise below `_LITTLE_NOISE` no grid is useful. Noise above `_MUCH_NOISE` is treated as `_MUCH_NOISE`.

The squares of both values fit in a double.
"""


def interval(mechanism: SampledGaussian, steps: int) -> float:
    """Return the spacing of the grid of privacy losses for the composition of `steps` steps, a power of two.

    The spacing scales with the spread of one step's privacy loss, because the relative error of ε is about
    (spacing / spread)² / 12. Many steps or a long tail make the spacing larger, so that computing ε takes a second
    and not an hour. The spacing never decreases when sample_rate or steps grow, or when the noise gets smaller.

    Returns:
        The spacing; `math.inf` if no grid that fits in memory is useful. ε would then be in the hundreds.
    """
    rate, noise = mechanism.sample_rate, min(mechanism.noise_multiplier, _MUCH_NOISE)
    if noise < _LITTLE_NOISE:
        return inf
    exponent = 9.7 / noise + 0.5 / noise**2  # loss of a full-batch step at the e^-50 tail of the noise
    longest = exponent + log(rate) if exponent > 500 else log1p(rate * expm1(exponent))
    spread = min(rate * sqrt(expm1(min(noise**-2, 40.0))), longest)
    drift = min(spread**2, rate / (2 * noise**2)) * steps
    composed = (20 * spread * sqrt(steps) + drift) / _COMPOSED_POINTS
    # The Chernoff bound keeps at least steps · spread / (56 · interval) points of a composition.
    bound = steps * spread / (64 * _COMPOSED_POINTS)
    wanted = max(min(spread / 32, _COARSEST), longest / _STEP_POINTS, composed, bound, _FINEST)
    return float(2.0 ** floor(log2(wanted))) if wanted < _USELESS else inf


def epsilon(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    """Return an upper bound of ε at `delta` for `steps` adaptively composed steps.

    Formal guarantees:
        `steps` steps of `mechanism` are (ε, `delta`)-DP under add-or-remove-one; the module's docstring gives the
        reasons. ε does not decrease when steps or sample_rate grow or noise_multiplier gets smaller, apart from
        rounding errors below one part in a million.

    Returns:
        ε. It is 0.0 only for 0 steps, and `math.inf` if double precision is not enough.

    Raises:
        InputError: a value is out of range or NaN, or there are more than `MAX_STEPS` steps.
    """
    require_steps(steps, minimum=0)
    require_delta(delta)
    return epsilon_on_grid(mechanism, steps, delta, coarser=1) if steps else 0.0


@lru_cache(maxsize=4096)
def epsilon_on_grid(mechanism: SampledGaussian, steps: int, delta: float, *, coarser: int) -> float:
    """Return an upper bound of ε for at least 1 step. The grid is `coarser` times as coarse as for a claim."""
    return read_epsilon(*composed([(mechanism, steps)], coarser=coarser), delta)


def epsilon_composed(parts: Iterable[tuple[SampledGaussian, int]], delta: float, *, coarser: int = 1) -> float:
    """Return an upper bound of ε for the composition of `parts`, whose numbers of steps must be FIXED in advance.

    If the steps were chosen adaptively, this ε is an odometer, not a guarantee, and must be labelled as an odometer.

    Args:
        parts: pairs (mechanism, steps). A mechanism may occur more than once.
        delta: in (0, 1).
        coarser: factor for the spacing of the grid; 1 for a claim. A larger factor is faster and gives a larger ε.

    Returns:
        ε. It is 0.0 only for 0 steps.
    """
    require_delta(delta)
    steps_of = _added_up(parts)
    if len(steps_of) <= 1 and coarser == 1:
        return sum(epsilon(mechanism, steps, delta) for mechanism, steps in steps_of.items())
    return read_epsilon(*composed(steps_of.items(), coarser=coarser), delta) if steps_of else 0.0


def composed(
    parts: Iterable[tuple[SampledGaussian, int]], *, coarser: int = 1
) -> tuple[LossDistribution | None, float]:
    """Return the loss distribution for the composition of `parts`, and a margin of δ for rounding errors.

    Args:
        parts: at least one pair (mechanism, steps). Each mechanism occurs once and has at least one step.
        coarser: factor for the spacing of the grid; 1 for a claim.

    Returns:
        The pessimistic distribution, or None if no grid that fits in memory is useful. The margin must be added to any
        δ that is computed from the distribution.
    """
    steps_of = dict(parts)
    total = sum(steps_of.values())
    _refuse_too_many(total)
    # All mechanisms share the coarsest of their grids. A coarser grid can only raise ε.
    grid = coarser * max(interval(mechanism, steps) for mechanism, steps in steps_of.items())
    if not isfinite(grid):
        return None, 1.0
    whole: LossDistribution | None = None
    for mechanism, steps in sorted(steps_of.items()):
        step = _step_distribution(mechanism, grid)
        part = step if steps == 1 else step.self_compose(steps)
        whole = part if whole is None else whole.compose(part)
    # The missing mass may belong to any loss, so it counts as infinite loss.
    missing = sum(
        (_missing_mass(mechanism, grid) + mechanism.sample_rate * beyond(mechanism.noise_multiplier)) * steps
        for mechanism, steps in steps_of.items()
    )
    return whole, _ROUNDING_ONCE + _ROUNDING * total + missing


@lru_cache(maxsize=1024)
def beyond(noise: float) -> float:
    """Return an upper bound of the probability that a record moves a step's sum to where no noise reaches without it.

    A pair of numbers ends at b = `LONGEST`. A record in the batch moves a pair by at most a = 1 / `noise`, and the
    moved pair is beyond the end with the probability Q₁(a, b) of Marcum. With I₀(x)·e⁻ˣ, which falls in x, that is at
    most I₀(ab)·e^(−ab)·∫_b^∞ x·e^(−(x−a)²/2) dx.

    Not included: a move of many pairs by a little each. All of them together add at most d·2⁻¹⁰⁴ for d numbers.
    """
    from scipy.special import i0e, ndtr

    moved = 1 / noise
    if moved >= LONGEST:
        return 1.0
    left = LONGEST - moved
    tail = exp(-(left**2) / 2) + moved * sqrt(2 * pi) * float(ndtr(-left))
    return min(float(i0e(moved * LONGEST)) * tail, 1.0)


def _added_up(parts: Iterable[tuple[SampledGaussian, int]]) -> dict[SampledGaussian, int]:
    totals: Counter[SampledGaussian] = Counter()
    for mechanism, steps in parts:
        require_steps(steps, minimum=0)
        totals[mechanism] += steps
    return {mechanism: steps for mechanism, steps in totals.items() if steps}


def epsilon_curve(parts: Iterable[tuple[SampledGaussian, int]], deltas: Sequence[float]) -> tuple[float, ...]:
    """Return `epsilon_composed` at each of `deltas`, from one composition of all `parts`."""
    for delta in deltas:
        require_delta(delta)
    steps_of = _added_up(parts)
    if not steps_of:
        return tuple(0.0 for _ in deltas)
    whole = composed(steps_of.items())
    return tuple(read_epsilon(*whole, delta) for delta in deltas)


def discretisation_error(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    """Return an upper estimate of how far the grid of privacy losses raises `epsilon` above the true ε.

    The error of a grid with spacing h is between linear and quadratic in h. So a change from h to 2h raises ε by at
    least the error at h. The estimate is this rise of ε, plus 1e-9 for rounding.
    """
    here = epsilon(mechanism, steps, delta)
    return max(epsilon_on_grid(mechanism, steps, delta, coarser=2) - here, 0.0) + 1e-9 if isfinite(here) else inf


def max_steps(mechanism: SampledGaussian, *, epsilon: float, delta: float) -> int:
    """Return the largest number of steps whose ε at `delta` is at most `epsilon`.

    The result is 0 if not even one step fits, and is never above `MAX_STEPS`.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    low, high, guess = 0, MAX_STEPS + 1, _guess_steps(mechanism, epsilon, delta)
    seen: list[tuple[float, float]] = []  # the last two (log steps, log ε), for the secant
    turn = 0
    while high - low > 1:
        turn += 1
        guess = min(max(guess, low + 1), high - 1)
        value = epsilon_on_grid(mechanism, guess, delta, coarser=1)
        low, high = (guess, high) if value <= epsilon else (low, guess)
        if isfinite(value):
            seen = [*seen[-1:], (log(guess), log(value))]
        near = secant(seen, log(epsilon)) if turn % 4 else None
        if near is not None and near < 60:
            guess = floor(exp(near))
        else:
            guess = floor(sqrt(max(low, 1)) * sqrt(high)) if high > 4 * max(low, 1) else (low + high) // 2
    return low


def calibrate_noise(*, sample_rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Return the least noise multiplier, rounded UP to 5 significant digits, with which the steps are (ε, δ)-DP.

    At the next smaller five-digit number, the accountant's ε is too large. The exception is 0.05, the smallest noise
    tried.

    Raises:
        BudgetRefusedError: even the noise multiplier 100 000 is too small.
        InputError: a value is out of range or NaN.
    """
    require_steps(steps, minimum=1)
    _refuse_too_many(steps)
    require_epsilon(epsilon)
    require_delta(delta)
    SampledGaussian(sample_rate, 1.0)  # raises InputError for a sample rate out of range

    def cost(noise: float, coarser: int = 1) -> float:
        return epsilon_on_grid(SampledGaussian(sample_rate, noise), steps, delta, coarser=coarser)

    first = guess_noise(sample_rate * sqrt(steps), guess_gdp(epsilon, delta))
    guess, slope = guess_on_coarse_grid(cost, epsilon, first)
    noise = least_noise(cost, epsilon, guess=guess, slope=slope)
    return found_noise(noise, f"{steps} steps at sample rate {sample_rate!r}", epsilon=epsilon, delta=delta)


@lru_cache(maxsize=16)
def _step_distribution(mechanism: SampledGaussian, grid: float) -> LossDistribution:
    from tuner.privacy.accountant.loss_distribution import LossDistribution

    noise = min(mechanism.noise_multiplier, _MUCH_NOISE)  # ε for less noise is an upper bound
    return LossDistribution.of_step(sample_rate=mechanism.sample_rate, noise=noise, grid=grid)


@lru_cache(maxsize=64)
def _missing_mass(mechanism: SampledGaussian, grid: float) -> float:
    """Return 1 minus the sum of the probabilities of one step's losses, or 0 if this difference is negative.

    The result is the larger value of the two directions of adjacency: adding and removing a record.
    """
    step = _step_distribution(mechanism, grid)
    return max(0.0, *(1 - (float(one.masses.sum()) + one.infinite) for one in step.directions))


def read_epsilon(distribution: LossDistribution | None, margin: float, delta: float) -> float:
    """Return ε at δ = `delta` − `margin` for a loss distribution from `composed`; `math.inf` if there is no bound.

    The result is also `math.inf` if `margin` is at least half of `delta`.
    """
    sure = delta - margin
    return max(epsilon_at(distribution, sure), EPSILON_FLOOR) if sure > delta / 2 else inf


def epsilon_at(distribution: LossDistribution | None, delta: float) -> float:
    """Return the smallest ε ≥ 0 at which δ is at most `delta`; `math.inf` if there is no such ε.

    Unlike `read_epsilon`, this function subtracts no margin from `delta`.
    """
    if distribution is None or not delta > 0:
        return inf
    return distribution.epsilon(min(delta, 1.0))


def _refuse_too_many(steps: int) -> None:
    if steps > MAX_STEPS:
        raise InputError(
            "too-many-steps",
            f"The accountant accepts at most {MAX_STEPS} steps in all (got {steps}), because its rounding error was "
            "not measured for more steps. Plan fewer trials or epochs, or larger batches.",
        )


def _guess_steps(mechanism: SampledGaussian, epsilon: float, delta: float) -> int:
    noise = min(max(mechanism.noise_multiplier, _LITTLE_NOISE), _MUCH_NOISE)
    spread = mechanism.sample_rate * sqrt(expm1(min(noise**-2, 40.0)))
    return max(floor(min((guess_gdp(epsilon, delta) / spread) ** 2, MAX_STEPS)), 1)
