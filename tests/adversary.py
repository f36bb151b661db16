"""An adversary who chooses the second mechanism after seeing the outcome of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from enumeration import Discrete, exhausting


def two_outcomes(p: float, loss: float) -> Discrete:
    """One loud outcome of probability `p` under D and loss `loss`; the quiet one has the rest."""
    return Discrete((p, 1 - p), (p * exp(-loss), 1 - p * exp(-loss)))


def reaching(order: float, divergence: float, p: float) -> Discrete:
    """The mechanism with a loud outcome of probability `p` whose Rényi divergence is that one."""
    return two_outcomes(p, float(exhausting(order, divergence, np.array([p]))[0]))


def realised_delta(first: Discrete, seconds: Sequence[Discrete | None], epsilon: float) -> float:
    """δ at `epsilon` of the whole game, by adding up its outcomes; None stops after that outcome of the first."""
    return sum(
        max(0.0, p1 * p2 - exp(epsilon) * q1 * q2)
        for p1, q1, second in zip(first.on, first.off, seconds, strict=True)
        for p2, q2 in ([(1.0, 1.0)] if second is None else zip(second.on, second.off, strict=True))
    )
