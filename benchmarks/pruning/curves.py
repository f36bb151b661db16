"""Simulated trials: the score by smoothing radius R and fraction of the steps, from the published DPLIS tables.

All assumptions:

* **Curves.** Each setting of Tables 2 and 3 (DPLIS) gives the accuracy without smoothing, at R = 10 and at the best R,
  at each ε of the table. Between these, in log(1 + R), a monotone cubic (PCHIP) with a flat top. The tables show
  nothing to the right of the best R: there the left side is mirrored, twice as steep (a first look on Fashion-MNIST: a
  fall at twice the best R, collapse at four times), down to `COLLAPSE` gains below the top.
* **Drift.** The ε of each column is a fraction t of the steps by the accountant (batch 256; noise 1.1, for CIFAR-100
  3.0). The table's own best R is used at every column; between columns all is interpolated in log t, and before the
  first one the trial learns from `START` of the first column's accuracy on, with the first column's shape.
* **Noise.** A trial's own deviation from its curve: Table 10's standard deviation by R (CIFAR-10 CNN at ε = 10; scaled
  to the setting's own last row where it has one), half of its variance persistent over the trial, half fresh at each
  rung.
* **Settings.** Every sweep draws its setting evenly, multiplies its best R by exp(N(0, 0.25²)) and its gain by
  exp(N(0, 0.2²)). So no method can know the answer.

`SHAPES` also has curves from the same settings on which the assumption of one top fails or only just holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

Array = NDArray[np.float64]

Side = Callable[[float, float, float], Array]
"""The gain at each point of the domain, from the gain at R = 10, the gain at the best R, and log(1 + best R)."""

DOMAIN: Final = (0.0, 100.0)
EPOCHS: Final = 27
RUNGS: Final = (3, 6, 9, 18, 27)
COLLAPSE: Final = 3.0
START: Final = 0.8
"""Accuracy at a hundredth of the steps, as a share of the accuracy in the first column."""

POINTS: Final = np.linspace(0.0, np.log1p(DOMAIN[1]), 401)
"""Points of log(1 + R) at which a curve is known."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of the tables, with one value for each ε.

    Attributes:
        fractions: of the steps, at which the accountant reaches each ε.
        plain: accuracy in percent without smoothing.
        ten: accuracy at R = 10.
        best: accuracy at the best R.
        radius: best R.
        deviations: standard deviation over runs at R = 0, 10 and the best R, in points.
    """

    name: str
    fractions: tuple[float, ...]
    plain: tuple[float, ...]
    ten: tuple[float, ...]
    best: tuple[float, ...]
    radius: tuple[float, ...]
    deviations: tuple[float, float, float]


_MNIST = (0.0596, 0.3111, 0.553, 1.0)
_CIFAR = (0.0590, 0.3106, 0.5532, 1.0)
_SPREAD_CNN, _SPREAD_MLP = (0.427, 0.360, 0.196), (0.339, 0.184, 0.088)  # Table 10 at ε = 10

SETTINGS: Final = (
    Setting(
        name="MNIST MLP", fractions=_MNIST, plain=(92.60, 93.92, 94.11, 93.35), ten=(92.66, 94.78, 94.84, 95.19),
        best=(93.58, 95.94, 96.17, 96.00), radius=(40, 40, 40, 40), deviations=_SPREAD_MLP,
    ),
    Setting(
        name="MNIST CNN", fractions=_MNIST, plain=(95.08, 95.92, 96.07, 95.89), ten=(96.62, 97.49, 97.52, 98.56),
        best=(97.31, 98.01, 98.48, 98.90), radius=(40, 40, 40, 40), deviations=_SPREAD_MLP,
    ),
    Setting(
        name="CIFAR-10 MLP", fractions=_CIFAR, plain=(43.88, 43.16, 41.95, 41.07), ten=(44.09, 44.48, 44.73, 44.95),
        best=(44.34, 46.90, 46.92, 46.95), radius=(30, 40, 40, 40), deviations=_SPREAD_CNN,
    ),
    Setting(
        name="CIFAR-10 CNN", fractions=_CIFAR, plain=(49.70, 58.48, 60.46, 61.37), ten=(50.09, 60.39, 62.09, 63.22),
        best=(50.85, 61.75, 62.32, 64.73), radius=(30, 30, 30, 30), deviations=_SPREAD_CNN,
    ),
    Setting(
        name="ImageNet to CIFAR-100", fractions=(0.2325, 0.4247, 0.6156, 0.8161, 1.0),
        plain=(34.75, 42.34, 44.52, 46.00, 46.78), ten=(35.73, 43.32, 46.59, 49.02, 49.70),
        best=(35.98, 43.76, 48.00, 51.04, 52.04), radius=(5, 12, 30, 30, 30), deviations=_SPREAD_CNN,
    ),
)  # fmt: skip


class Problem:
    """The mean score of trials by R and epochs, and their deviations from it, in one sweep.

    Args:
        values: score in percent at `EPOCHS` rungs and points of log(1 + R), shape (len(RUNGS), points).
        deviation: standard deviation of a trial at each point, in points.
    """

    def __init__(self, values: Array, deviation: Array) -> None:
        self._values, self._deviation = values, deviation
        self.best = float(values[-1].max())

    def truth(self, radius: float, epochs: int = EPOCHS) -> float:
        """Return the mean score at a rung in percent."""
        return float(np.interp(np.log1p(radius), POINTS, self._values[RUNGS.index(epochs)]))

    def regret(self, radius: float) -> float:
        """Return how many points a whole trial is below the best mean score."""
        return self.best - self.truth(radius)

    def trial(self, radius: float, random: np.random.Generator) -> tuple[float, ...]:
        """Draw the scores of one trial at each rung."""
        deviation = float(np.interp(np.log1p(radius), POINTS, self._deviation))
        persistent = random.normal(0.0, deviation * np.sqrt(0.5))
        return tuple(
            self.truth(radius, epochs) + persistent + random.normal(0.0, deviation * np.sqrt(0.5)) for epochs in RUNGS
        )


def problem(shape: str, random: np.random.Generator, *, noise: float = 1.0) -> Problem:
    """Draw the truth of a sweep.

    Args:
        shape: a key of `SHAPES`.
        random: draws the setting, its best R and its gain.
        noise: multiplies every deviation.
    """
    setting = SETTINGS[int(random.integers(len(SETTINGS)))]
    move, gain = float(np.exp(random.normal(0.0, 0.25))), float(np.exp(random.normal(0.0, 0.2)))
    side = SHAPES[shape](random)
    if shape == "drifting":
        setting = SETTINGS[-1]
    top = float(np.log1p(move * setting.radius[-1]))
    knots = np.array((0.0, min(np.log1p(10.0), 0.9 * top), top))
    deviation = noise * np.interp(POINTS, knots, np.array(setting.deviations))
    if shape == "uneven_noise":
        rise = np.geomspace(0.5, 2.0, POINTS.size)
        deviation = deviation * (rise if random.random() < 0.5 else rise[::-1])
    return Problem(_rung_values(setting, gain, side, move), deviation)


def _rung_values(setting: Setting, gain: float, side: Side, move: float) -> Array:
    """Return the scores at each rung: the scores without smoothing plus the gain of `side`."""
    fractions = np.array((0.01, *setting.fractions))
    logs = np.log(fractions)

    def column(values: tuple[float, ...], first: float) -> Callable[[float], float]:
        known = np.array((first, *values))
        return lambda log_t: float(np.interp(log_t, logs, known))

    plain = column(setting.plain, setting.plain[0] * START)
    of_ten = tuple(gain * (ten - none) for ten, none in zip(setting.ten, setting.plain, strict=True))
    of_best = tuple(gain * (best - none) for best, none in zip(setting.best, setting.plain, strict=True))
    ten, best = column(of_ten, of_ten[0]), column(of_best, of_best[0])
    radius = column(tuple(np.log1p(move * np.array(setting.radius))), float(np.log1p(move * setting.radius[0])))
    rows = []
    for epochs in RUNGS:
        log_t = float(np.log(epochs / EPOCHS))
        rows.append(plain(log_t) + side(ten(log_t), best(log_t), radius(log_t)))
    return np.array(rows)


def _hill(ten: float, best: float, top: float) -> Array:
    """Return a rise through R = 10 to a flat top at `top`, then its mirror image, twice as steep."""
    middle = float(np.log1p(10.0))
    knots = [(0.0, 0.0), (top, best)] if top < middle + 0.2 else [(0.0, 0.0), (middle, min(ten, best)), (top, best)]
    xs, ys = zip(*knots, strict=True)
    left = PchipInterpolator([*xs, 2 * top - xs[-2]], [*ys, ys[-2]])  # the mirrored knot makes the top flat
    reach = np.where(top >= POINTS, POINTS, top - 2 * (POINTS - top))
    slope = (ys[1] - ys[0]) / (xs[1] - xs[0])
    inside = left(np.clip(reach, 0.0, top))
    hill: Array = np.maximum(np.where(reach < 0, inside + slope * reach, inside), best - COLLAPSE * max(best, 0.5))
    return hill


def _plateau(ten: float, best: float, top: float) -> Array:
    """Return a flat curve up to the best R, and a fall after it."""
    flat: Array = np.where(top >= POINTS, best + 0.02 * (POINTS - top), _hill(best, best, top))
    return flat


def _best_at_zero(ten: float, best: float, top: float) -> Array:
    """Return a fall from R = 0 on, which loses the table's gain at the table's best R."""
    loss: Array = -best * (POINTS / top) ** 2
    return loss


def _best_at_the_end(ten: float, best: float, top: float) -> Array:
    """Return a rise up to the end of the domain."""
    gain: Array = best * POINTS / POINTS[-1]
    return gain


def _collapsing(ten: float, best: float, top: float) -> Array:
    """Return a hill that collapses by sixty points from three times the best R on."""
    collapse: Array = 60.0 / (1 + np.exp(-20.0 * (POINTS - top - np.log(3.0))))
    return _hill(ten, best, top) - collapse


def _second_peak(random: np.random.Generator, *, width: float) -> Side:
    """Add a peak at small R, `width` wide in log(1 + R), a quarter of the gain higher than the top of the hill."""
    at = float(random.uniform(0.4, 1.2))

    def side(ten: float, best: float, top: float) -> Array:
        hill = _hill(ten, best, top)
        height = best + 0.25 * max(best, 1.0) - float(np.interp(at, POINTS, hill))
        return hill + height * np.exp(-0.5 * ((POINTS - at) / width) ** 2)

    return side


def _unequal_tops(random: np.random.Generator) -> Side:
    """Add a top to the left of the first, as wide, and between a tenth and a half of the gain higher or lower."""
    apart, more = float(random.uniform(0.9, 1.6)), float(random.choice([-1, 1]) * random.uniform(0.1, 0.5))

    def side(ten: float, best: float, top: float) -> Array:
        gain = max(best, 1.0)
        first, second = (gain * np.exp(-0.5 * ((POINTS - at) / 0.4) ** 2) for at in (top - apart, top))
        return np.asarray(np.maximum(first, (1 + more) * second))

    return side


def _bump(random: np.random.Generator) -> Side:
    """Add a bump of a fifth of the gain to one slope: the curve is not unimodal, but has the same best R."""
    at = float(random.uniform(0.0, POINTS[-1]))

    def side(ten: float, best: float, top: float) -> Array:
        bump = 0.2 * max(best, 1.0) * np.exp(-0.5 * ((POINTS - at) / 0.3) ** 2)
        return np.minimum(_hill(ten, best, top) + bump, best)

    return side


SHAPES: Final[Mapping[str, Callable[[np.random.Generator], Side]]] = {
    "unimodal": lambda _: _hill,
    "plateau": lambda _: _plateau,
    "best_at_zero": lambda _: _best_at_zero,
    "best_at_the_end": lambda _: _best_at_the_end,
    "bump": _bump,
    "collapsing": lambda _: _collapsing,
    "wide_second_peak": partial(_second_peak, width=0.45),
    "narrow_second_peak": partial(_second_peak, width=0.12),
    "drifting": lambda _: _hill,
    "uneven_noise": lambda _: _hill,
    "unequal_tops": _unequal_tops,
}
"""Name of a shape → function that draws its gain; `drifting` is the setting whose best R moves from 5 over 12 to 30.
In `uneven_noise` the deviation of a trial rises fourfold from one end of the domain to the other, on either side."""
