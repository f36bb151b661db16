"""Bounds of the composed privacy loss of Poisson-sampled Gaussian steps, without an accounting library.

How δ of ε is bracketed, for add-or-remove-one and for any number of different steps, fixed in advance:

1. One step. Removing a record is the pair (M, N) and adding one is (N, M), N = N(0, s²), M = (1−q)·N + q·N(1, s²)
   (Zhu, Dong & Wang 2022). Outcomes are put into bins whose edges are at losses k·h. A bin's mass under both members of
   the pair is split over the two losses at its ends so that both masses are kept: a spread of the likelihood ratio
   that keeps its mean, so every hockey-stick divergence can only grow. That is the upper end.
2. The lower end. Couple the true loss Y of a step with the split one, Y′, so that E[e^−Y′ | Y] = e^−Y. Then Y′ − Y has
   a mean in [0, h²/8] and a range of h given Y, and by Hoeffding the sum over T steps passes
   c = T·h²/8 + h·√(T·log(1/η)/2) with probability η at most; it never passes T·h. So
   δ(ε) ≥ δ′(ε + c) − η, where δ′ is that of the split losses.
3. Composition. The masses are tilted, p(y)·e^{θy}/E[e^{θY′}], with θ chosen so that the losses that make up δ are the
   bulk; then the rounding of the FFT is a small part of δ and not of 1. The window of the FFT holds all but a part τ
   of the tilted sum, by a Chernoff bound with the moments of the split losses themselves; what wraps around or is
   outside is added to the upper end and taken off the lower.
4. What is cut off the tails of a step is booked as infinite loss above, and as nothing below.
5. Rounding: `_ROUNDING` per step, relative to the tilted mass, and as much of ε. A margin with evidence, not a proof;
   the tests compare it with closed forms.

Steps without sampling (q = 1) alone are one Gaussian mechanism and are answered exactly (Balle & Wang 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, erfc, exp, expm1, floor, inf, log, log1p, pi, sqrt

import numpy as np

from tuner.privacy.verify.accountant.one_step import Array, Masses, Part, TooLargeError, longest_loss, masses_of

__all__ = ["GAP", "ComposedLoss", "Exact", "Losses", "compose_losses", "on_grid"]

_ROUNDING = 4e-15
_WINDOW = 1e-13
"""Tilted mass that the window of the FFT may miss on each side."""
_FAILS = 1e-4
"""η, and the mass that the cut tails of all steps may have, as shares of δ."""
GAP = 2e-3
"""Wanted distance between the two bounds of ε, as a share of ε."""
_POINTS, _STEP_POINTS = 2**22, 2**21
_SMALLEST, _LARGEST, _COARSEST = 1e-6, 1e4, 50.0


@dataclass(frozen=True)
class Exact:
    """A Gaussian mechanism of sensitivity / noise = `mu`: Balle & Wang 2018, Theorem 8."""

    mu: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of δ at `epsilon`, for any real ε."""
        near, far = epsilon / self.mu - self.mu / 2, epsilon / self.mu + self.mu / 2
        gained = _normal_tail(near)
        # e^ε times the far tail is the near density times the far Mills ratio, and that ratio never underflows.
        lost = exp(-(near**2) / 2) * _mills(far) if far > 20 else exp(epsilon + log(_normal_tail(far)))
        margin = 1e-13 * (gained + lost) * (1 + abs(epsilon) + near**2)
        return max(gained - lost - margin, 0.0), min(gained - lost + margin + 1e-300, 1.0)


@dataclass(frozen=True)
class Losses:
    """The sum of all split losses in one direction, tilted, on a window.

    Attributes:
        grid: h.
        tilt: θ.
        log_moment: log E[e^{θ·sum}].
        first: the first loss of the window, in grid points.
        excess: E_θ[e^{−θ(sum − y)}·(1 − e^{y − sum})₊] at each loss y of the window; δ′(y) is it times
            e^{log_moment − θy}.
        spread: c, by which the split losses may be above the true ones.
        failure: η, the probability that they are further above.
        cut: probability that any step's loss was cut off.
        rounding: relative to the tilted mass.
    """

    grid: float
    tilt: float
    log_moment: float
    first: int
    excess: Array
    spread: float
    failure: float
    cut: float
    rounding: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of δ at `epsilon`."""
        shift = self.rounding * 10
        low, error = self._split_delta(epsilon + self.spread + shift)
        high, slack = self._split_delta(epsilon - shift)
        return max(low - error - self.failure, 0.0), min(high + slack + self.cut, 1.0)

    def _split_delta(self, epsilon: float) -> tuple[float, float]:
        """Return E[(1 − e^{ε − sum})₊] and its error; (0, 1) where nothing is known."""
        scale = self.log_moment - self.tilt * epsilon
        place = floor(epsilon / self.grid) - self.first
        over = epsilon - (self.first + place) * self.grid
        if scale + self.tilt * over > 650 or place < 0:  # the tilt was meant for far larger losses
            return 0.0, 1.0
        # e^{−θt}·(1 − e^−t) is at most 1: what the window missed or wrapped, and what the FFT and the sums rounded.
        error = exp(scale) * (4 * _WINDOW + self.rounding)
        if place + 1 >= len(self.excess):
            return 0.0, error
        # All losses are on the grid, so between two of its points δ′ is linear in e^ε.
        share = min(max(expm1(over) / expm1(self.grid), 0.0), 1.0)
        left = float(self.excess[place]) * exp(scale + self.tilt * over)
        right = float(self.excess[place + 1]) * exp(scale + self.tilt * (over - self.grid))
        return left * (1 - share) + right * share, error


@dataclass(frozen=True)
class ComposedLoss:
    """The loss in both directions of adjacency: bounds of δ at ε, and of ε at δ.

    Attributes:
        directions: removing and adding a record, or the one that is the same for both.
        near: an ε of the order of those that will be asked for.
    """

    directions: tuple[Losses | Exact, ...]
    near: float = 1.0

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of δ at `epsilon`, any real number."""
        if epsilon < 0:  # H_ε(P, Q) = 1 − e^ε + e^ε·H_−ε(Q, P), and the larger of the two directions is symmetric
            low, high = self.delta(-epsilon)
            factor, rest = exp(epsilon), -expm1(epsilon)
            return max(rest + factor * low - 1e-15, 0.0), min(rest + factor * high + 1e-15, 1.0)
        both = [direction.delta(epsilon) for direction in self.directions]
        return max(low for low, _ in both), max(high for _, high in both)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return a lower and an upper bound of ε at `delta`; infinite where there is no upper bound."""
        if self.delta(0.0)[1] <= delta:
            return 0.0, 0.0
        below, above = 0.0, self.near
        while self.delta(above)[1] > delta:
            below, above = above, above * 1.3
            if above > _LARGEST:
                return 0.0, inf
        below = max(below, _under(lambda value: self.delta(value)[1], delta, above))
        high = _crossing(lambda value: self.delta(value)[1], delta, below, above)[1]
        # Far below its tilt the lower bound is void, so it is searched for downwards from the upper one.
        below = _under(lambda value: self.delta(value)[0], delta, high)
        return _crossing(lambda value: self.delta(value)[0], delta, below, high)[0], high


def compose_losses(parts: Sequence[Part], delta: float, *, gap: float = GAP) -> ComposedLoss:
    """Return the composition of all steps, tight at and around `delta`.

    Args:
        parts: what `merged` gives; at least one step.
        delta: in (0, 1): where the bounds are to be tight. They hold everywhere.
        gap: wanted distance between the two bounds of ε at `delta`, as a share of ε, where memory allows it.

    Returns:
        The composition.

    Raises:
        TooLargeError: it would need too much memory, or its losses pass what doubles can hold.
    """
    if all(part.sample_rate == 1 for part in parts):
        return ComposedLoss((Exact(sqrt(sum(part.steps / part.noise_multiplier**2 for part in parts))),))
    return on_grid(parts, delta, gap=gap)


def on_grid(parts: Sequence[Part], delta: float, *, gap: float = GAP) -> ComposedLoss:
    """Compose on the grid, even where there is a closed form, so that tests can compare the two."""
    total = sum(part.steps for part in parts)
    tail = _FAILS * delta / total
    longest = max(longest_loss(part, tail) for part in parts)
    # Of the likelihood ratio. With little noise it exceeds every loss, and no loss spreads beyond the range of losses.
    ratios = [part.sample_rate * sqrt(expm1(min(part.noise_multiplier**-2, 40.0))) for part in parts]
    spreads = [min(ratio, longest_loss(part, tail)) for ratio, part in zip(ratios, parts, strict=True)]
    # First on a coarse grid, to find ε approximately; the fine grid follows from it.
    grid = max(longest / _STEP_POINTS, min(*spreads, longest) / 16)
    near = max(_search_tilt(masses_of(parts, grid, tail, adding=adding), grid, delta)[1] for adding in (False, True))
    width = sqrt(sum(part.steps * spread**2 for part, spread in zip(parts, spreads, strict=True)))
    wanted = max(near, width / 4)
    hoeffding = min(sqrt(total * log(1 / (_FAILS * delta)) / 2), total)
    for _ in range(4):
        grid = max(gap * wanted / hoeffding, longest / _STEP_POINTS)
        found = ComposedLoss(
            tuple(_direction(parts, grid, tail, delta, adding=adding) for adding in (False, True)), max(near, 1e-6)
        )
        low, high = found.epsilon(delta)
        if not (high < 0.7 * wanted and high - low > 1.5 * gap * high and grid > longest / _STEP_POINTS):
            break
        wanted = max(high, _SMALLEST)
    return found


def _direction(parts: Sequence[Part], grid: float, tail: float, delta: float, *, adding: bool) -> Losses:
    while True:
        masses = masses_of(parts, grid, tail, adding=adding)
        tilt, _ = _search_tilt(masses, grid, delta)
        low, high = _window(masses, grid, tilt)
        points = ceil((high - low) / grid) + 2
        if points <= _POINTS:
            break
        grid *= 2 ** ceil(log(points / _POINTS, 2))
        if grid > _COARSEST:
            raise TooLargeError(f"{sum(part.steps for part in parts)} steps need more than {_POINTS} points")
    total = sum(part.steps for part in parts)
    first = floor(low / grid)
    failure = _FAILS * delta
    spread = min(total * grid, total * grid**2 / 8 + grid * sqrt(total * log(1 / failure) / 2))
    return Losses(
        grid=grid,
        tilt=tilt,
        log_moment=_log_moment(masses, tilt, grid),
        first=first,
        excess=_excess(_convolved(masses, grid, tilt, first, points), grid, tilt),
        spread=spread,
        failure=failure,
        cut=total * tail,
        rounding=_ROUNDING * (total + 100),
    )


def _convolved(masses: Sequence[Masses], grid: float, tilt: float, first: int, points: int) -> Array:
    """Return the tilted sum on `points` grid points from `first` on; the rest wraps around."""
    size = _fast_size(points)
    logarithm = np.zeros(size // 2 + 1, dtype=complex)
    offset = 0
    for part in masses:
        tilted = part.log_weights + tilt * grid * (part.first + np.arange(len(part.weights)))
        tilted = np.exp(tilted - part.log_moment(tilt, grid))
        # Around its own mean, so that the phases that are taken to the power of the steps are small.
        centre = round(float((tilted * np.arange(len(tilted))).sum()))
        wrapped = np.roll(np.pad(tilted, (0, -len(tilted) % size)).reshape(-1, size).sum(0), -centre)
        spectrum = np.fft.rfft(wrapped)
        spectrum[spectrum == 0] = 1e-300
        logarithm += part.steps * np.log(spectrum)
        offset += part.steps * (part.first + centre)
    np.exp(logarithm, out=logarithm)
    whole = np.fft.irfft(logarithm, size)
    return np.roll(whole, (offset - first) % size)[:points]


def _excess(tilted: Array, grid: float, tilt: float) -> Array:
    """Return `Losses.excess` of the tilted masses: sums from the right, in blocks whose weights fit into doubles."""
    block = int(min(max(300 / ((tilt + 1) * grid), 1), 4096, len(tilted)))
    rows = np.pad(np.maximum(tilted, 0.0), (0, -len(tilted) % block)).reshape(-1, block)
    found = np.zeros_like(rows)
    for rate, sign in ((tilt, 1.0), (tilt + 1, -1.0)):
        decay = np.exp(-rate * grid * np.arange(block))
        sums = np.cumsum((rows * decay)[:, ::-1], axis=1)[:, ::-1]
        carried = np.empty(len(rows))  # the sum of all later blocks, seen from the start of this one
        after, whole = 0.0, exp(-rate * grid * block)
        for index in range(len(rows) - 1, -1, -1):
            carried[index] = whole * after
            after = float(sums[index, 0]) + carried[index]
        found += sign * (sums + carried[:, None]) / decay
    return np.maximum(found, 0.0).reshape(-1)[: len(tilted)]


_Rough = list[tuple[Array, Array, int]]


def _log_moment(masses: Sequence[Masses], tilt: float, grid: float) -> float:
    return sum(part.steps * part.log_moment(tilt, grid) for part in masses)


def _rough_log_moment(rough: _Rough, tilt: float, grid: float) -> float:
    whole = 0.0
    for places, logs, steps in rough:
        exponents = logs + tilt * grid * places
        top = float(exponents.max())
        whole += steps * (top + log(float(np.exp(exponents - top).sum())))
    return whole


def _search_tilt(masses: Sequence[Masses], grid: float, delta: float) -> tuple[float, float]:
    """Return θ, and the ε that the moment of this order alone gives at `delta` (Canonne, Kamath & Steinke 2020)."""
    rough: _Rough = [(*part.coarse(), part.steps) for part in masses]

    def bound(log_tilt: float) -> float:
        tilt = exp(log_tilt)
        best = tilt * log(tilt) - (1 + tilt) * log1p(tilt)
        return (_rough_log_moment(rough, tilt, grid) - log(delta) + best) / tilt

    # Where no loss reaches ε the best tilt is infinite; beyond this one the largest loss is alone already.
    found = _least(bound, log(1e-3), min(log(1e7), log(30 / grid)))
    return exp(found), bound(found)


def _window(masses: Sequence[Masses], grid: float, tilt: float) -> tuple[float, float]:
    """Return two losses outside of which the tilted sum has at most `_WINDOW` on each side."""
    rough: _Rough = [(*part.coarse(), part.steps) for part in masses]
    rough_here = _rough_log_moment(rough, tilt, grid)

    def reach(log_order: float, sign: int) -> float:
        order = exp(log_order)
        return (_rough_log_moment(rough, tilt + sign * order, grid) - rough_here - log(_WINDOW)) / order

    # The orders come from coarse moments; the bounds themselves from the full ones.
    above, below = (exp(_least(partial(reach, sign=sign), log(1e-3), log(1e7))) for sign in (1, -1))
    here = _log_moment(masses, tilt, grid)
    high = (_log_moment(masses, tilt + above, grid) - here - log(_WINDOW)) / above
    low = -(_log_moment(masses, tilt - below, grid) - here - log(_WINDOW)) / below
    return low, high


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that falls and then rises is least: a grid, then golden section."""
    places = np.linspace(low, high, 24)
    values = [function(float(place)) for place in places]
    best = min(range(len(values)), key=values.__getitem__)
    a, b = float(places[max(best - 1, 0)]), float(places[min(best + 1, len(places) - 1)])
    ratio = (sqrt(5) - 1) / 2
    for _ in range(24):
        left, right = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, right) if function(left) < function(right) else (left, b)
    return (a + b) / 2


def _under(function: Callable[[float], float], delta: float, above: float) -> float:
    """Return a place shortly below `above` where a falling function is above `delta`; 0 where there is none."""
    share = 2 * GAP
    while share < 1:
        if function(above * (1 - share)) > delta:
            return above * (1 - share)
        share *= 4
    return 0.0


def _crossing(function: Callable[[float], float], delta: float, low: float, high: float) -> tuple[float, float]:
    """Return where a falling function crosses `delta`: two places, before and after, 1e-7 of their value apart."""
    known = [log(max(function(place), 1e-300) / delta) for place in (low, high)]
    for turn in range(200):
        if high - low <= 1e-7 * high or high <= 1e-12:
            break
        share = known[0] / (known[0] - known[1]) if turn % 3 and known[0] > known[1] else 0.5
        place = low + (high - low) * min(max(share, 0.02), 0.98)
        value = log(max(function(place), 1e-300) / delta)
        if value > 0:
            low, known[0] = place, value
        else:
            high, known[1] = place, value
    return low, high


def _normal_tail(z: float) -> float:
    return 0.5 * erfc(z / sqrt(2))


def _mills(z: float) -> float:
    """Return √(2π)⁻¹ times the Mills ratio of a z above 20, by its asymptotic series to 1e-15."""
    term, whole = 1.0, 1.0
    for odd in range(1, 17, 2):
        term *= -odd / z**2
        whole += term
    return whole / z / sqrt(2 * pi)


def _fast_size(least: int) -> int:
    """Return the smallest even number of at least `least` whose prime factors are 2, 3 and 5."""
    sizes: list[int] = []
    for threes in range(12):
        for fives in range(8):
            size = 2 * 3**threes * 5**fives
            while size < least:
                size *= 2
            sizes.append(size)
    return min(sizes)
