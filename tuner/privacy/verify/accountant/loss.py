"""Bounds of the composed privacy loss of Poisson-sampled Gaussian steps, without an accounting library.

The lower and upper bounds of δ at ε hold for add-or-remove-one adjacency and steps that are fixed in advance:

1. One step, upper bound. Let N = N(0, s²) and M = (1−q)·N + q·N(1, s²). Removing a record compares (M, N), and adding
   a record compares (N, M) (Zhu, Dong & Wang 2022). Outcomes are grouped into bins whose edges are the losses k·h. The
   mass of a bin under M and N is split between the losses at its two edges, so that both masses are kept. The split
   spreads the likelihood ratio and keeps its mean, so every hockey-stick divergence can only grow.
2. One step, lower bound. Couple a step's true loss Y with its split loss Y′ so that E[e^−Y′ | Y] = e^−Y. Given Y,
   Y′ − Y has a mean in [0, h²/8] and a range of h. By Hoeffding's inequality, the sum of Y′ − Y over T steps exceeds
   c = T·h²/8 + h·√(T·log(1/η)/2) with probability at most η. It never exceeds T·h. If δ′ is the δ of the split losses,
   then δ(ε) ≥ δ′(ε + c) − η.
3. Composition. Masses are tilted to p(y)·e^{θy}/E[e^{θY′}]. θ moves the bulk of the mass to the losses that determine
   δ, so the rounding error of the FFT is small relative to δ. A Chernoff bound from the moments of the split losses
   limits the tilted mass outside the window of the FFT. That mass is added to the upper bound of δ and subtracted from
   the lower bound.
4. Tails. The tails of a step that are cut off count as infinite loss in the upper bound, and are left out of the lower
   bound.
5. Rounding. The tilted mass of T steps has a relative margin of `_ROUNDING`·(T + 100). ε has an absolute margin of
   ten times that. These margins are based on comparisons with closed formulas in the tests, and are not proved.

Steps without sampling (q = 1) compose to one Gaussian mechanism, which has a closed formula (Balle & Wang 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, erfc, exp, expm1, floor, inf, log, log1p, pi, sqrt

import numpy as np

from tuner.privacy.verify.accountant.one_step import Array, Masses, Part, TooLargeError, longest_loss, masses_of

__all__ = ["GAP", "ComposedLoss", "Exact", "compose_losses", "golden_section", "on_grid"]

_ROUNDING = 4e-15
_WINDOW = 1e-13
"""Largest tilted mass that may be outside the window of the FFT, on each side."""
_FAILS = 1e-4
"""Share of δ that the failure probability η may use. The cut-off tails of all steps may together use the same share."""
GAP = 2e-3
"""Target for the distance between the lower and the upper bound of ε, as a share of ε."""
_GOLDEN = (sqrt(5) - 1) / 2
_POINTS, _STEP_POINTS = 2**22, 2**21
_SMALLEST, _LARGEST, _COARSEST = 1e-6, 1e4, 50.0


@dataclass(frozen=True)
class Exact:
    """Gaussian mechanism whose sensitivity divided by its noise is `mu` (Balle & Wang 2018, Theorem 8)."""

    mu: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of δ at any real `epsilon`."""
        near, far = epsilon / self.mu - self.mu / 2, epsilon / self.mu + self.mu / 2
        gained = _normal_tail(near)
        # e^ε times the far tail equals the near density times the far Mills ratio, which never underflows.
        lost = exp(-(near**2) / 2) * _mills(far) if far > 20 else exp(epsilon + log(_normal_tail(far)))
        margin = 1e-13 * (gained + lost) * (1 + abs(epsilon) + near**2)
        return max(gained - lost - margin, 0.0), min(gained - lost + margin + 1e-300, 1.0)


@dataclass(frozen=True)
class _Losses:
    """Tilted distribution of the sum of all split losses, in one adjacency direction and on a window of the grid.

    Attributes:
        grid: h, the distance between grid points.
        tilt: θ.
        log_moment: log E[e^{θ·sum}].
        first: first loss of the window, as a multiple of h.
        excess: E_θ[e^{−θ(sum − y)}·(1 − e^{y − sum})₊] at each loss y of the window. E_θ is the mean under this tilted
            distribution, and sum is the sum of the split losses. δ′(y) is this value times e^{log_moment − θy}.
        spread: c. The sum of the split losses exceeds the sum of the true losses by at most c, except with probability
            `failure`.
        failure: η.
        cut: upper bound of the probability that the loss of at least one step is in a tail that was cut off.
        rounding: rounding margin, relative to the tilted mass.
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
        """Return δ′(ε) = E[(1 − e^{ε − sum})₊] and a bound of its error; (0, 1) if δ′ is unknown at this ε."""
        scale = self.log_moment - self.tilt * epsilon
        place = floor(epsilon / self.grid) - self.first
        over = epsilon - (self.first + place) * self.grid
        if scale + self.tilt * over > 650 or place < 0:  # far below the losses for which the tilt was chosen
            return 0.0, 1.0
        # e^{−θt}·(1 − e^−t) is at most 1, so this bounds the mass outside the window and the rounding.
        error = exp(scale) * (4 * _WINDOW + self.rounding)
        if place + 1 >= len(self.excess):
            return 0.0, error
        # All losses are on the grid, so δ′ is linear in e^ε between two grid points.
        share = min(max(expm1(over) / expm1(self.grid), 0.0), 1.0)
        left = float(self.excess[place]) * exp(scale + self.tilt * over)
        right = float(self.excess[place + 1]) * exp(scale + self.tilt * (over - self.grid))
        return left * (1 - share) + right * share, error


@dataclass(frozen=True)
class ComposedLoss:
    """Composed privacy loss in both directions of adjacency. It gives bounds of δ at ε, and of ε at δ.

    Attributes:
        directions: loss for removing a record and loss for adding one; a single entry if both losses are the same.
        near: value of ε at which the method `epsilon` starts its search.
    """

    directions: tuple[_Losses | Exact, ...]
    near: float = 1.0

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of δ at `epsilon`, which may be any real number."""
        if epsilon < 0:  # H_ε(P, Q) = 1 − e^ε + e^ε·H_−ε(Q, P)
            low, high = self.delta(-epsilon)
            factor, rest = exp(epsilon), -expm1(epsilon)
            return max(rest + factor * low - 1e-15, 0.0), min(rest + factor * high + 1e-15, 1.0)
        both = [direction.delta(epsilon) for direction in self.directions]
        return max(low for low, _ in both), max(high for _, high in both)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return a lower and an upper bound of ε at `delta`. The upper bound is infinite if no finite one was found."""
        if self.delta(0.0)[1] <= delta:
            return 0.0, 0.0
        below, above = 0.0, self.near
        while self.delta(above)[1] > delta:
            below, above = above, above * 1.3
            if above > _LARGEST:
                return 0.0, inf
        below = max(below, _under(lambda value: self.delta(value)[1], delta, above))
        high = _crossing(lambda value: self.delta(value)[1], delta, below, above)[1]
        # Far below the ε for which the tilt was chosen, the lower bound is 0. So its search starts at the upper bound.
        below = _under(lambda value: self.delta(value)[0], delta, high)
        return _crossing(lambda value: self.delta(value)[0], delta, below, high)[0], high


def compose_losses(parts: Sequence[Part], delta: float, *, gap: float = GAP) -> ComposedLoss:
    """Return the composition of all steps. Its bounds hold at every δ and are tight near `delta`.

    Args:
        parts: result of `merged`, with at least one step.
        delta: in (0, 1).
        gap: target for the distance between the two bounds of ε at `delta`, as a share of ε. If memory does not
            suffice, the distance is larger.

    Raises:
        TooLargeError: the composition needs too much memory, or a loss is too large for a double.
    """
    if all(part.sample_rate == 1 for part in parts):
        return ComposedLoss((Exact(sqrt(sum(part.steps / part.noise_multiplier**2 for part in parts))),))
    return on_grid(parts, delta, gap=gap)


def on_grid(parts: Sequence[Part], delta: float, *, gap: float = GAP) -> ComposedLoss:
    """Return the composition on a grid of privacy losses, even if a closed formula exists. Tests compare the two."""
    total = sum(part.steps for part in parts)
    tail = _FAILS * delta / total
    longest = max(longest_loss(part, tail) for part in parts)
    # The spread of a step's loss is that of its likelihood ratio, but at most the range of the losses.
    ratios = [part.sample_rate * sqrt(expm1(min(part.noise_multiplier**-2, 40.0))) for part in parts]
    spreads = [min(ratio, longest_loss(part, tail)) for ratio, part in zip(ratios, parts, strict=True)]
    # A coarse grid gives an approximate ε, from which the fine grid is chosen.
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


def _direction(parts: Sequence[Part], grid: float, tail: float, delta: float, *, adding: bool) -> _Losses:
    while True:
        masses = masses_of(parts, grid, tail, adding=adding)
        tilt, _ = _search_tilt(masses, grid, delta)
        low, high = _window(masses, grid, tilt)
        points = ceil((high - low) / grid) + 2
        if points <= _POINTS:
            break
        grid *= 2 ** ceil(log(points / _POINTS, 2))
        if grid > _COARSEST:
            raise TooLargeError(f"{sum(part.steps for part in parts)} steps need more than {_POINTS} grid points")
    total = sum(part.steps for part in parts)
    first = floor(low / grid)
    failure = _FAILS * delta
    spread = min(total * grid, total * grid**2 / 8 + grid * sqrt(total * log(1 / failure) / 2))
    return _Losses(
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
    """Return the masses of the tilted sum at `points` grid points from `first` on. Mass outside wraps around."""
    size = _fast_size(points)
    logarithm = np.zeros(size // 2 + 1, dtype=complex)
    offset = 0
    for part in masses:
        tilted = np.exp(part.log_weights + tilt * grid * part.places - part.log_moment(tilt, grid))
        # Centred at the mean, so that the phases stay small when they are multiplied by the steps.
        centre = round(float((tilted * np.arange(len(tilted))).sum()))
        wrapped = np.roll(np.pad(tilted, (0, -len(tilted) % size)).reshape(-1, size).sum(0), -centre)
        spectrum = np.fft.rfft(wrapped)
        spectrum[spectrum == 0] = 1e-300
        logarithm += part.steps * np.log(spectrum)
        offset += part.steps * (int(part.places[0]) + centre)
    np.exp(logarithm, out=logarithm)
    whole = np.fft.irfft(logarithm, size)
    return np.roll(whole, (offset - first) % size)[:points]


def _excess(tilted: Array, grid: float, tilt: float) -> Array:
    """Return the values of `_Losses.excess`. Sums start at the largest loss. Working in blocks prevents overflow."""
    block = int(min(max(300 / ((tilt + 1) * grid), 1), 4096, len(tilted)))
    rows = np.pad(np.maximum(tilted, 0.0), (0, -len(tilted) % block)).reshape(-1, block)
    found = np.zeros_like(rows)
    for rate, sign in ((tilt, 1.0), (tilt + 1, -1.0)):
        decay = np.exp(-rate * grid * np.arange(block))
        sums = np.cumsum((rows * decay)[:, ::-1], axis=1)[:, ::-1]
        carried = np.empty(len(rows))  # sum of all later blocks, weighted for the start of this block
        after, whole = 0.0, exp(-rate * grid * block)
        for index in range(len(rows) - 1, -1, -1):
            carried[index] = whole * after
            after = float(sums[index, 0]) + carried[index]
        found += sign * (sums + carried[:, None]) / decay
    return np.maximum(found, 0.0).reshape(-1)[: len(tilted)]


def _log_moment(masses: Sequence[Masses], tilt: float, grid: float) -> float:
    return sum(part.steps * part.log_moment(tilt, grid) for part in masses)


def _search_tilt(masses: Sequence[Masses], grid: float, delta: float) -> tuple[float, float]:
    """Return the tilt θ, and the bound of ε at `delta` by the moment of order θ (Canonne, Kamath & Steinke 2020)."""
    rough = [part.coarse() for part in masses]

    def bound(log_tilt: float) -> float:
        tilt = exp(log_tilt)
        best = tilt * log(tilt) - (1 + tilt) * log1p(tilt)
        return (_log_moment(rough, tilt, grid) - log(delta) + best) / tilt

    # If no loss reaches ε, the best θ is infinite. At the largest θ tried here, only the largest loss has mass.
    found = _argmin(bound, log(1e-3), min(log(1e7), log(30 / grid)))
    return exp(found), bound(found)


def _window(masses: Sequence[Masses], grid: float, tilt: float) -> tuple[float, float]:
    """Return both ends of the window of losses. The tilted mass beyond each end is at most `_WINDOW`."""
    rough = [part.coarse() for part in masses]
    rough_here = _log_moment(rough, tilt, grid)

    def reach(log_order: float, sign: int) -> float:
        order = exp(log_order)
        return (_log_moment(rough, tilt + sign * order, grid) - rough_here - log(_WINDOW)) / order

    # Coarse moments choose the orders, and full moments give the bounds.
    above, below = (exp(_argmin(partial(reach, sign=sign), log(1e-3), log(1e7))) for sign in (1, -1))
    here = _log_moment(masses, tilt, grid)
    high = (_log_moment(masses, tilt + above, grid) - here - log(_WINDOW)) / above
    low = -(_log_moment(masses, tilt - below, grid) - here - log(_WINDOW)) / below
    return low, high


def _argmin(function: Callable[[float], float], low: float, high: float) -> float:
    return golden_section(function, np.linspace(low, high, 24).tolist(), 24)[0]


def golden_section(function: Callable[[float], float], places: Sequence[float], turns: int) -> tuple[float, float]:
    """Return an approximate minimiser of `function`, and the smallest value that `function` takes at `places`.

    The function must fall and then rise. `places` must be in ascending order. A golden-section search of `turns` steps
    starts around the best member of `places`.
    """
    values = [function(place) for place in places]
    best = min(range(len(values)), key=values.__getitem__)
    low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    for _ in range(turns):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return (low + high) / 2, values[best]


def _under(function: Callable[[float], float], delta: float, above: float) -> float:
    """Return an argument just below `above` at which `function` exceeds `delta`; 0 if no such argument was found."""
    share = 2 * GAP
    while share < 1:
        if function(above * (1 - share)) > delta:
            return above * (1 - share)
        share *= 4
    return 0.0


def _crossing(function: Callable[[float], float], delta: float, low: float, high: float) -> tuple[float, float]:
    """Return two close arguments between which `function`, which must decrease, crosses `delta`."""
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
    """Return the Mills ratio at z, divided by √(2π). For z above 20, the asymptotic series is accurate to 1e-15."""
    term, whole = 1.0, 1.0
    for odd in range(1, 17, 2):
        term *= -odd / z**2
        whole += term
    return whole / z / sqrt(2 * pi)


def _fast_size(least: int) -> int:
    """Return the smallest even number of at least `least` that has only the prime factors 2, 3 and 5."""
    sizes: list[int] = []
    for threes in range(12):
        for fives in range(8):
            size = 2 * 3**threes * 5**fives
            while size < least:
                size *= 2
            sizes.append(size)
    return min(sizes)
