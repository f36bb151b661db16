"""ε of a number of steps by a pessimistic privacy loss distribution, its inverses, and the error of its grid.

The returned ε is an upper bound under add-or-remove-one and Poisson sampling, for four reasons:

1. One step. dp_accounting (connect-the-dots) replaces the hockey-stick curve of the step by chords between the grid
   points of the loss. The curve is convex in e^ε, so the chords are on or above it, and the discrete step dominates
   the true one (Doroshenko et al. 2022). Composition preserves domination.
2. Truncation. The mass that is cut from the tails (e^-50 per step, 1e-15 per composition) counts as infinite loss.
3. Grid. The interval is a power of two. It never gets finer for more steps, more sampling or less noise. Grids are
   nested, and the chords of a coarser grid are above those of a finer one, so ε is monotone in all three.
4. Floating point. The margin `_ROUNDING_ONCE` + T · `_ROUNDING` is subtracted from δ before ε of T steps is read. The
   margin was measured and is NOT proved; the privacy card says so. It covers two errors:
   - Rounding of the FFT, compared with an 80-bit FFT over hundreds of random settings. This error grows as T up to
     `MAX_STEPS` and faster above, so more steps are refused. The margin is at least 2.4 times the measured L1 error,
     and 4.8 times the half of that error that raises ε. For coupon books, whose mechanisms are convolved one after
     another, it is at least 10 times.
   - Rounding of the step's hockey-stick values, compared with 40 digits: up to 1.6e-16 each at losses above zero.
   The mass that the rounded step lacks is subtracted from δ too. The library clamps a negative mass to zero; that adds
   mass, which is pessimistic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp, expm1, floor, inf, isfinite, log, log1p, log2, sqrt
from typing import Any

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.initial_guess import (
    NOISE_RANGE,
    guess_gdp,
    guess_noise,
    guess_on_coarse_grid,
    least_noise,
    secant,
)
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps

__all__ = [
    "EPSILON_FLOOR",
    "MAX_STEPS",
    "calibrate_noise",
    "composed",
    "discretisation_error",
    "epsilon",
    "epsilon_composed",
    "epsilon_curve",
    "epsilon_on_grid",
    "interval",
    "max_steps",
    "read_epsilon",
]

EPSILON_FLOOR = 1e-6
"""Smallest ε claimed for one or more steps. It applies if δ alone covers the loss."""

MAX_STEPS = 2_000_000
"""Largest number of steps accepted. The margin for rounding was measured up to this number."""

_ROUNDING, _ROUNDING_ONCE = 5e-15, 1e-13
_STEP_POINTS, _COMPOSED_POINTS = 2**17, 2**20
_FINEST, _COARSEST, _USELESS = 2.0**-24, 2.0**-10, 2.0**-3
_LITTLE_NOISE, _MUCH_NOISE = 1e-3, 1e100
"""Below `_LITTLE_NOISE` no grid is useful; above `_MUCH_NOISE` the finest is used. Both squares fit in doubles."""


def interval(mechanism: SampledGaussian, steps: int) -> float:
    """Return the interval of the grid of losses on which `steps` steps are composed: a power of two.

    The interval scales with the spread of one step's loss, because the relative error of ε is about
    (interval / spread)² / 12. Many steps or a long tail make the interval coarser, so that one value takes a second
    and not an hour. Every term grows with sample_rate and steps, and falls with noise.

    Returns:
        The interval; `math.inf` if no grid that fits in memory is useful, because ε would be in the hundreds.
    """
    rate, noise = mechanism.sample_rate, min(mechanism.noise_multiplier, _MUCH_NOISE)
    if noise < _LITTLE_NOISE:
        return inf
    exponent = 9.7 / noise + 0.5 / noise**2  # loss of a full-batch step at the e^-50 tail of the noise
    longest = exponent + log(rate) if exponent > 500 else log1p(rate * expm1(exponent))
    spread = min(rate * sqrt(expm1(min(noise**-2, 40.0))), longest)
    drift = min(spread**2, rate / (2 * noise**2)) * steps
    composed = (20 * spread * sqrt(steps) + drift) / _COMPOSED_POINTS
    # The library's Chernoff bound keeps steps · spread / (56 · interval) points even of a narrow composition.
    bound = steps * spread / (64 * _COMPOSED_POINTS)
    wanted = max(min(spread / 32, _COARSEST), longest / _STEP_POINTS, composed, bound, _FINEST)
    return float(2.0 ** floor(log2(wanted))) if wanted < _USELESS else inf


def epsilon(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    """Return an upper bound of ε at `delta` for `steps` adaptively composed steps.

    Formal guarantees:
        `steps` steps of `mechanism` are (ε, `delta`)-DP under add-or-remove-one; the module's docstring gives the
        reasons. Apart from rounding, below one part in a million, ε does not decrease when steps or sample_rate grow
        or noise_multiplier falls.

    Returns:
        ε; 0.0 only for 0 steps, and `math.inf` if double precision is too coarse.

    Raises:
        InputError: a value is out of range or NaN, or there are more than `MAX_STEPS` steps.
    """
    require_steps(steps, minimum=0)
    require_delta(delta)
    if steps == 0:
        return 0.0
    _refuse_too_many(steps)
    return epsilon_on_grid(mechanism, steps, delta, grid=interval(mechanism, steps))


@lru_cache(maxsize=4096)
def epsilon_on_grid(mechanism: SampledGaussian, steps: int, delta: float, *, grid: float) -> float:
    """Return an upper bound of ε for at least one step, on a grid of losses with the interval `grid`."""
    if not isfinite(grid):
        return inf
    margin = _ROUNDING_ONCE + _ROUNDING * steps + _missing_mass(mechanism, grid) * steps
    return read_epsilon(_composed(mechanism, steps, grid), margin, delta)


def epsilon_composed(parts: Iterable[tuple[SampledGaussian, int]], delta: float, *, coarser: int = 1) -> float:
    """Return an upper bound of ε for several mechanisms composed, each with a number of steps FIXED in advance.

    If the steps were chosen adaptively, this ε is an odometer, not a guarantee, and must be labelled as one.

    Args:
        parts: (mechanism, steps); steps of equal mechanisms are added up.
        delta: in (0, 1).
        coarser: interval of the grid, as a multiple of a claim's; above 1 is faster and gives a larger ε.

    Returns:
        ε; 0.0 only for 0 steps.
    """
    require_delta(delta)
    steps_of = _added_up(parts)
    if len(steps_of) <= 1 and coarser == 1:
        return sum(epsilon(mechanism, steps, delta) for mechanism, steps in steps_of.items())
    return read_epsilon(*composed(steps_of.items(), coarser=coarser), delta) if steps_of else 0.0


def composed(parts: Iterable[tuple[SampledGaussian, int]], *, coarser: int = 1) -> tuple[Any, float]:
    """Return dp_accounting's distribution of all `parts` composed, and the margin of δ for its rounding.

    Args:
        parts: (mechanism, steps), at least one; each mechanism once and with at least one step.
        coarser: interval of the grid, as a multiple of a claim's.

    Returns:
        The pessimistic distribution, or None if no grid that fits in memory is useful. The margin must be added to any
        δ that is read from the distribution.
    """
    steps_of = dict(parts)
    total = sum(steps_of.values())
    _refuse_too_many(total)
    # All distributions are convolved on the coarsest grid, which is pessimistic for the others.
    grid = coarser * max(interval(mechanism, steps) for mechanism, steps in steps_of.items())
    if not isfinite(grid):
        return None, 1.0
    whole: Any = None
    for mechanism, steps in sorted(steps_of.items()):
        part = _composed(mechanism, steps, grid)
        whole = part if whole is None else whole.compose(part)
    missing = sum(_missing_mass(mechanism, grid) * steps for mechanism, steps in steps_of.items())
    # Missing mass may belong to any loss, so all of it counts as infinite loss.
    return whole, _ROUNDING_ONCE + _ROUNDING * total + missing


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
    """Return an estimate, erring upwards, of how far `epsilon` is above the true ε because of its grid.

    The error of a grid h is between linear and quadratic in h, so a change from h to 2h adds at least the error of h.
    1e-9 is added for rounding.
    """
    grid = interval(mechanism, steps)
    here = epsilon(mechanism, steps, delta)
    return max(epsilon_on_grid(mechanism, steps, delta, grid=2 * grid) - here, 0.0) + 1e-9 if isfinite(here) else inf


def max_steps(mechanism: SampledGaussian, *, epsilon: float, delta: float) -> int:
    """Return the largest number of steps whose ε at `delta` is at most `epsilon`.

    The result is 0 if not even one step fits, and at most `MAX_STEPS`.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    low, high, guess = 0, MAX_STEPS + 1, _guess_steps(mechanism, epsilon, delta)
    seen: list[tuple[float, float]] = []  # the last two (log steps, log ε), for the secant
    turn = 0
    while high - low > 1:
        turn += 1
        guess = min(max(guess, low + 1), high - 1)
        value = epsilon_on_grid(mechanism, guess, delta, grid=interval(mechanism, guess))
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
    """Return the least noise multiplier, rounded UP to 5 significant digits, with which the steps fit (ε, δ).

    One less in the fifth digit does not fit, unless the result is the least noise, 0.05.

    Raises:
        BudgetRefusedError: no noise multiplier up to 100 000 fits.
        InputError: a value is out of range or NaN.
    """
    require_steps(steps, minimum=1)
    _refuse_too_many(steps)
    require_epsilon(epsilon)
    require_delta(delta)
    SampledGaussian(sample_rate, 1.0)  # refuses a sample rate out of range

    def cost(noise: float, coarser: int = 1) -> float:
        mechanism = SampledGaussian(sample_rate, noise)
        return epsilon_on_grid(mechanism, steps, delta, grid=coarser * interval(mechanism, steps))

    first = guess_noise(sample_rate * sqrt(steps), guess_gdp(epsilon, delta))
    guess, slope = guess_on_coarse_grid(cost, epsilon, first)
    noise = least_noise(cost, epsilon, guess=guess, slope=slope)
    if noise is None:
        raise BudgetRefusedError(
            "no-noise-fits",
            f"{steps} steps at sample rate {sample_rate!r} do not fit ε = {epsilon!r} at δ = {delta!r} with any noise "
            f"multiplier up to {NOISE_RANGE[1]:.0f}. Raise epsilon, or plan fewer trials or epochs.",
        )
    return noise


@lru_cache(maxsize=16)
def _step_distribution(mechanism: SampledGaussian, grid: float) -> Any:  # noqa: ANN401 - the library is untyped
    from dp_accounting.pld import privacy_loss_distribution

    step = mechanism.event(1).event
    return privacy_loss_distribution.from_gaussian_mechanism(
        min(step.event.noise_multiplier, _MUCH_NOISE),  # less noise is an upper bound
        sampling_prob=step.sampling_probability,
        value_discretization_interval=grid,
        pessimistic_estimate=True,
    )


def _composed(mechanism: SampledGaussian, steps: int, grid: float) -> Any:  # noqa: ANN401 - the library is untyped
    step = _step_distribution(mechanism, grid)
    return step if steps == 1 else step.self_compose(steps)


@lru_cache(maxsize=64)
def _missing_mass(mechanism: SampledGaussian, grid: float) -> float:
    """Return 1 minus the mass of one rounded step, at least 0; the larger for removing and adding a record."""
    step = _step_distribution(mechanism, grid)
    dense = [part.to_dense_pmf() for part in (step._pmf_remove, step._pmf_add)]
    return max(0.0, *(1 - (float(part._probs.sum()) + float(part._infinity_mass)) for part in dense))


def read_epsilon(distribution: Any, margin: float, delta: float) -> float:  # noqa: ANN401 - the library is untyped
    """Return ε of a distribution of `composed` at δ = `delta` − `margin`; `math.inf` if there is no bound."""
    sure = delta - margin
    if distribution is None or not sure > delta / 2:
        return inf
    try:
        value = float(distribution.get_epsilon_for_delta(sure))
    except OverflowError:  # a loss above 709 exceeds the doubles: nothing can be claimed
        return inf
    if not value >= 0:
        return inf
    return max(value, EPSILON_FLOOR)


def _refuse_too_many(steps: int) -> None:
    if steps > MAX_STEPS:
        raise InputError(
            "too-many-steps",
            f"The accountant covers at most {MAX_STEPS} steps in all (got {steps}), because its rounding was not "
            "measured for more. Plan fewer trials or epochs, or larger batches.",
        )


def _guess_steps(mechanism: SampledGaussian, epsilon: float, delta: float) -> int:
    noise = min(max(mechanism.noise_multiplier, _LITTLE_NOISE), _MUCH_NOISE)
    spread = mechanism.sample_rate * sqrt(expm1(min(noise**-2, 40.0)))
    return max(floor(min((guess_gdp(epsilon, delta) / spread) ** 2, MAX_STEPS)), 1)
