"""Lower bound of ε from the guesses of one run with canaries (Steinke, Nasr & Jagielski 2023, Theorem 5.2).

m canaries enter the training independently, each with probability 1/2. From what the training shows, the auditor
guesses for some of them whether they entered, and abstains for the others. If the training is (ε, δ)-DP when one record
is added or removed, then the number of right guesses among r is at least v with probability at most

    β + 2mδ · max over i = 1..v of (1/i) · P[v - i ≤ W < v],   β = P[W ≥ v],   W ~ Binomial(r, e^ε / (1 + e^ε)).

r must be chosen before the run. The bound is the smallest ε for which this probability is not below 1 - confidence.
"""

from __future__ import annotations

from math import erfc, exp, inf, log, log1p, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
from scipy import stats

from trainables.errors import HyperparameterError

__all__ = ["CONFIDENCE", "epsilon_lower_bound", "planned_guesses", "probability_of_guesses"]

CONFIDENCE: Final = 0.95
"""Default confidence: if a training keeps its claim, the bound exceeds the claim with probability 1/20 at most."""

_LARGEST: Final = 64.0  # e^-64 is below the rounding of 1: no audit of fewer than 10^16 canaries can show more
_HALVINGS: Final = 60
_FEWEST: Final = 64  # guesses, where there are as many canaries


def probability_of_guesses(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of at least `right` right guesses that an (ε, δ)-DP training allows.

    Args:
        canaries: m.
        guesses: r, fixed before the run.
        right: v.
        epsilon: ε.
        delta: δ under the adjacency of one record added or removed.
    """
    _check(canaries=canaries, guesses=guesses, right=right, delta=delta)
    share = 1.0 / (1.0 + exp(-epsilon))
    beta = float(stats.binom.sf(right - 1, guesses, share))
    if right == 0 or delta == 0:
        return min(beta, 1.0)
    below = stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, share)  # of v - 1, v - 2, …, 0 right guesses
    alpha = float((np.cumsum(below) / np.arange(1, right + 1)).max())
    return min(beta + 2.0 * canaries * delta * alpha, 1.0)


def epsilon_lower_bound(
    *, canaries: int, guesses: int, right: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Return the lower bound of ε; 0 if the guesses show nothing.

    With a probability of at least `confidence`, the training is not (ε', δ)-DP for any ε' below the bound.

    Args:
        canaries: m, each of which entered with probability 1/2.
        guesses: r, fixed before the run.
        right: v, the number of right guesses.
        delta: δ of the claim, in [0, 1).
        confidence: in (0, 1).

    Raises:
        HyperparameterError: a number is out of its range.
    """
    if not 0 < confidence < 1:
        raise HyperparameterError("audit-number-invalid", f"`confidence` must be in (0, 1) (got {confidence!r}).")

    def refuted(epsilon: float) -> bool:
        found = probability_of_guesses(canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta)
        return found < 1.0 - confidence

    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def planned_guesses(
    *, canaries: int, separation: float, delta: float, confidence: float = CONFIDENCE, claim: float = 0.0
) -> int:
    """Return the number of guesses that promises the largest bound, before the run.

    With a `claim`, there are enough guesses for a bound above the claim if all of them are right, or as many as there
    are canaries. Otherwise an audit of a training without noise might find nothing.

    The scores of canaries that entered and of those that did not are expected to be normal, with variance 1 and means
    that differ by `separation`. The auditor guesses where the score is farthest from the middle. If the
    expectation is wrong, the bound is weaker but still valid.
    """
    normal, best, found = NormalDist(), -inf, canaries // 2 * 2
    share_right = exp(-log1p(exp(-claim)))  # of right guesses that the claim allows
    refuting = 1.5 * log(1.0 - confidence) / log(share_right) if share_right < 1 else inf
    fewest = min(canaries // 2 * 2, max(_FEWEST, refuting))
    for guesses in sorted({max(2, 2 * round(canaries * share / 2)) for share in np.geomspace(0.02, 1.0, 40)}):
        if not fewest <= guesses <= canaries:
            continue
        threshold = _threshold(guesses / canaries, separation)
        entered, other = (normal.cdf(sign * separation / 2 - threshold) for sign in (1, -1))
        right = int(guesses * entered / (entered + other)) if entered + other > 0 else guesses
        bound = epsilon_lower_bound(canaries=canaries, guesses=guesses, right=right, delta=delta, confidence=confidence)
        if bound > best:
            best, found = bound, guesses
    return found


def _threshold(share: float, separation: float) -> float:
    """Return t with P[|x| > t] = share, for x from N(±separation/2, 1), each sign with probability 1/2."""
    low, high = 0.0, 40.0 + separation
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        outside = (erfc((middle - separation / 2) / sqrt(2)) + erfc((middle + separation / 2) / sqrt(2))) / 2
        low, high = (middle, high) if outside > share else (low, middle)
    return low


def _check(*, canaries: int, guesses: int, right: int, delta: float) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise HyperparameterError(
            "audit-number-invalid",
            f"0 ≤ `right` ≤ `guesses` ≤ `canaries` must hold (got {right}, {guesses} and {canaries}).",
        )
    if not 0 <= delta < 1:
        raise HyperparameterError("audit-number-invalid", f"`delta` must be in [0, 1) (got {delta!r}).")
