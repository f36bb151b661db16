"""Cost of steps: ε by a pessimistic privacy loss distribution, its inverses, and an estimate of its error.

Why the returned ε is an upper bound (add-or-remove-one, Poisson sampling), in four parts:

1. One step. dp_accounting's connect-the-dots replaces the hockey-stick curve of the step by the chords between grid
   points of the loss, which are on or above it because the curve is convex in e^ε; so the discrete step dominates the
   true one (Doroshenko et al. 2022), and domination survives composition.
2. Truncation. What is cut from the tails (e^-50 per step, 1e-15 per composition) is booked as infinite loss.
3. Grid. The interval is a power of two that is never finer for more steps, more sampling or less noise. Grids are
   nested, and the chords of a coarser nested grid are above those of a finer one; so ε is monotone in all three.
4. Floating point: a margin with evidence, NOT a proof, and the card says so. T steps add rounding: of the FFT (compared
   with an 80-bit FFT, over hundreds of random settings up to `MAX_STEPS`; it grows as T, and faster for more steps, so
   more are refused) and of the step's hockey-stick values (compared with 40 digits, up to 1.6e-16 each at losses above
   zero). `_ROUNDING_ONCE` + T · `_ROUNDING` is subtracted from δ before ε is read: at least 2.4 times the whole L1
   error that was measured of the FFT, and 4.8 times the half of it that raises ε; for coupon books, whose mechanisms
   are convolved one after another, at least 10 times. The mass that the rounded step lacks is subtracted as well. Where
   the library clamps a negative mass to zero it adds mass, which is pessimistic.
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
    "step_masses",
]

EPSILON_FLOOR = 1e-6
"""Smallest ε claimed for one or more steps. It applies where δ alone covers the loss."""

MAX_STEPS = 2_000_000
"""Largest number of steps accepted: the margin for double-precision rounding was measured up to it."""

_ROUNDING, _ROUNDING_ONCE = 5e-15, 1e-13
_STEP_POINTS, _COMPOSED_POINTS = 2**17, 2**20
_FINEST, _COARSEST, _USELESS = 2.0**-24, 2.0**-10, 2.0**-3
_LITTLE_NOISE, _MUCH_NOISE = 1e-3, 1e100
"""Noise below the first has no useful grid; noise above the second gets the finest. Both squares fit in doubles."""


def interval(mechanism: SampledGaussian, steps: int) -> float:
    """Return the grid of losses on which `steps` steps are composed: a power of two, see part 3 above.

    The interval scales with the spread of one step's loss, because the relative error of ε is about
    (interval / spread)² / 12. A fixed interval would be too coarse for much noise and needlessly fine for little.
    Many steps or a long tail make it coarser, so that one value takes a second, not an hour. Every term grows with
    sample_rate and steps, and falls with noise.

    Returns:
        The interval, or `math.inf` where ε would be in the hundreds and no grid that fits in memory is useful.
    """
    rate, noise = mechanism.sample_rate, min(mechanism.noise_multiplier, _MUCH_NOISE)
    if noise < _LITTLE_NOISE:
        return inf
    exponent = 9.7 / noise + 0.5 / noise**2  # the loss of a full-batch step where e^-50 of the noise is left
    longest = exponent + log(rate) if exponent > 500 else log1p(rate * expm1(exponent))
    spread = min(rate * sqrt(expm1(min(noise**-2, 40.0))), longest)
    drift = min(spread**2, rate / (2 * noise**2)) * steps
    composed = (20 * spread * sqrt(steps) + drift) / _COMPOSED_POINTS
    # The library's Chernoff bound keeps steps · spread / (56 · interval) points of a long composition, however narrow
    # it is.
    bound = steps * spread / (64 * _COMPOSED_POINTS)
    wanted = max(min(spread / 32, _COARSEST), longest / _STEP_POINTS, composed, bound, _FINEST)
    return float(2.0 ** floor(log2(wanted))) if wanted < _USELESS else inf


def epsilon(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    """Return an upper bound of ε at `delta` for `steps` adaptively composed steps.

    Formal guarantees:
        `steps` steps of `mechanism` are (ε, `delta`)-DP under add-or-remove-one, as the module's docstring argues.
        The value does not decrease when steps or sample_rate grow or noise_multiplier falls (but for the rounding of
        doubles, below one part in a million). It is 0.0 only for 0 steps, and infinite where double precision is too
        coarse.

    Args:
        mechanism: of each step.
        steps: at most `MAX_STEPS`.
        delta: in (0, 1).

    Returns:
        ε, or `math.inf`.

    Raises:
        InputError: a value is out of range or NaN.
    """
    require_steps(steps, minimum=0)
    require_delta(delta)
    if steps == 0:
        return 0.0
    _refuse_too_many(steps)
    return epsilon_on_grid(mechanism, steps, delta, grid=interval(mechanism, steps))


@lru_cache(maxsize=4096)
def epsilon_on_grid(mechanism: SampledGaussian, steps: int, delta: float, *, grid: float) -> float:
    """Return the bound of `epsilon` on a given grid of losses, for example a finer one.

    Args:
        mechanism: of each step.
        steps: at least 1.
        delta: in (0, 1).
        grid: distance of the grid points, a loss; nested grids (powers of two) are comparable.

    Returns:
        ε, at least `EPSILON_FLOOR`, or `math.inf`.
    """
    if not isfinite(grid):
        return inf
    margin = _ROUNDING_ONCE + _ROUNDING * steps + _missing_mass(mechanism, grid) * steps
    return _read_epsilon(_composed(mechanism, steps, grid), margin, delta)


def epsilon_composed(parts: Iterable[tuple[SampledGaussian, int]], delta: float, *, coarser: int = 1) -> float:
    """Return an upper bound of ε for several mechanisms composed, each with a number of steps FIXED in advance.

    For steps that were chosen adaptively this is an odometer, not a guarantee, and must be labelled as one.

    Args:
        parts: pairs of mechanism and steps; equal mechanisms are added up, and 0 steps are left out.
        delta: in (0, 1).
        coarser: interval of the grid, as a multiple of a claim's; above 1 is faster and gives a larger ε.

    Returns:
        ε; 0.0 only where there are no steps at all.
    """
    require_delta(delta)
    steps_of = _added_up(parts)
    if len(steps_of) <= 1 and coarser == 1:
        return sum(epsilon(mechanism, steps, delta) for mechanism, steps in steps_of.items())
    return _read_epsilon(*composed(steps_of.items(), coarser=coarser), delta) if steps_of else 0.0


def composed(parts: Iterable[tuple[SampledGaussian, int]], *, coarser: int = 1) -> tuple[Any, float]:
    """Return the library's distribution of all `parts` composed, pessimistic, and a margin for its rounding.

    Args:
        parts: at least one (mechanism, steps) with steps; each mechanism once.
        coarser: grid of losses, in intervals of a claim.

    Returns:
        The distribution, or None where no grid that fits in memory is useful; and the margin, to be added to any δ that
        is read from it.
    """
    steps_of = dict(parts)
    total = sum(steps_of.values())
    _refuse_too_many(total)
    # Distributions are convolved on one grid: the coarsest, which is pessimistic for the others.
    grid = coarser * max(interval(mechanism, steps) for mechanism, steps in steps_of.items())
    if not isfinite(grid):
        return None, 1.0
    whole: Any = None
    for mechanism, steps in sorted(steps_of.items()):
        part = _composed(mechanism, steps, grid)
        whole = part if whole is None else whole.compose(part)
    missing = sum(_missing_mass(mechanism, grid) * steps for mechanism, steps in steps_of.items())
    # Missing mass may belong anywhere, so all of it is booked as infinite loss.
    return whole, _ROUNDING_ONCE + _ROUNDING * total + missing


def _added_up(parts: Iterable[tuple[SampledGaussian, int]]) -> dict[SampledGaussian, int]:
    totals: Counter[SampledGaussian] = Counter()
    for mechanism, steps in parts:
        require_steps(steps, minimum=0)
        totals[mechanism] += steps
    return {mechanism: steps for mechanism, steps in totals.items() if steps}


def epsilon_curve(parts: Iterable[tuple[SampledGaussian, int]], deltas: Sequence[float]) -> tuple[float, ...]:
    """Return what `epsilon_composed` gives at each of `deltas`, in their order, from one composition.

    Args:
        parts: pairs of mechanism and steps, FIXED in advance.
        deltas: each in (0, 1).

    Returns:
        ε for each δ; `math.inf` where δ is too small for double precision.
    """
    for delta in deltas:
        require_delta(delta)
    steps_of = _added_up(parts)
    if not steps_of:
        return tuple(0.0 for _ in deltas)
    whole = composed(steps_of.items())
    return tuple(_read_epsilon(*whole, delta) for delta in deltas)


def discretisation_error(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    """Return how far `epsilon` may be above the true ε because of its grid.

    The error on a grid h is between linear and quadratic in h, so going from h to 2h adds at least the error at h.
    The estimate errs upwards and includes 1e-9 for rounding; it is not a proof.
    """
    if steps == 0:
        return 0.0
    grid = interval(mechanism, steps)
    here = epsilon(mechanism, steps, delta)
    return max(epsilon_on_grid(mechanism, steps, delta, grid=2 * grid) - here, 0.0) + 1e-9 if isfinite(here) else inf


def max_steps(mechanism: SampledGaussian, *, epsilon: float, delta: float) -> int:
    """Return the largest number of steps whose ε at `delta` is at most `epsilon`.

    The result fits, and one more step does not (unless it is `MAX_STEPS`). It is 0 if not even one step fits.

    Args:
        mechanism: of each step.
        epsilon: finite and positive.
        delta: in (0, 1).

    Returns:
        Steps, 0 to `MAX_STEPS`.
    """
    require_epsilon(epsilon)
    require_delta(delta)

    def cost(steps: int) -> float:
        return _epsilon(mechanism, steps, delta)

    low, high, guess = 0, MAX_STEPS + 1, _guess_steps(mechanism, epsilon, delta)
    seen: list[tuple[float, float]] = []  # the last two (log steps, log ε), for the secant
    turn = 0
    while high - low > 1:
        turn += 1
        guess = min(max(guess, low + 1), high - 1)
        value = cost(guess)
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

    Exact at the edge: it fits, and one less in the fifth digit does not (unless it is the least noise, 0.05).

    Args:
        sample_rate: in (0, 1].
        steps: 1 to `MAX_STEPS`.
        epsilon: finite, at least `EPSILON_FLOOR`.
        delta: in (0, 1).

    Returns:
        The noise multiplier.

    Raises:
        BudgetRefusedError: no noise multiplier up to 100 000 fits.
        InputError: a value is out of range or NaN.
    """
    require_steps(steps, minimum=1)
    _refuse_too_many(steps)
    require_epsilon(epsilon)
    require_delta(delta)
    SampledGaussian(sample_rate, 1.0)

    # Coarser grids give only the initial guess; every cost below is computed on the grid of the claim.
    guess, slope = _guess_noise_on_coarse_grid(sample_rate, steps, epsilon, delta)
    noise = least_noise(
        lambda noise: _epsilon(SampledGaussian(sample_rate, noise), steps, delta), epsilon, guess=guess, slope=slope
    )
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
def step_masses(mechanism: SampledGaussian, grid: float) -> tuple[float, float]:
    """Return the total mass of the rounded step, removing and adding a record: 1 but for rounding and clamping."""
    step = _step_distribution(mechanism, grid)
    dense = [part.to_dense_pmf() for part in (step._pmf_remove, step._pmf_add)]
    remove, add = (float(part._probs.sum()) + float(part._infinity_mass) for part in dense)
    return remove, add


def _missing_mass(mechanism: SampledGaussian, grid: float) -> float:
    return max(0.0, *(1 - mass for mass in step_masses(mechanism, grid)))


def _read_epsilon(distribution: Any, margin: float, delta: float) -> float:  # noqa: ANN401
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
            f"The accountant covers at most {MAX_STEPS} steps in all, because its rounding was measured up to there "
            f"(got {steps}). Plan fewer trials or epochs, or larger batches.",
        )


def _guess_steps(mechanism: SampledGaussian, epsilon: float, delta: float) -> int:
    noise = min(max(mechanism.noise_multiplier, _LITTLE_NOISE), _MUCH_NOISE)
    spread = mechanism.sample_rate * sqrt(expm1(min(noise**-2, 40.0)))
    return max(floor(min((guess_gdp(epsilon, delta) / spread) ** 2, MAX_STEPS)), 1)


def _guess_noise_on_coarse_grid(sample_rate: float, steps: int, epsilon: float, delta: float) -> tuple[float, float]:
    def cost(noise: float, *, coarser: int) -> float:
        mechanism = SampledGaussian(sample_rate, noise)
        return epsilon_on_grid(mechanism, steps, delta, grid=coarser * interval(mechanism, steps))

    return guess_on_coarse_grid(cost, epsilon, guess_noise(sample_rate * sqrt(steps), guess_gdp(epsilon, delta)))


_epsilon = epsilon
