"""What Confident-GNMax costs GIVEN the votes, order by order (Papernot et al. 2018). The result is NOT private.

Formal guarantee: none for what is computed here. The figures are functions of the votes, so showing one is a release
of the votes that nobody has charged. No claim, card or ledger uses this module. It is for studies of public votes.

What is true of them: for the given data set D and every neighbour D′, the Rényi divergence of what is released on D
from what is released on D′ is at most the figure, at each order. The other direction is that of D′'s own votes.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from tuner.privacy.accountant.mechanism import require_delta

__all__ = [
    "answer_divergence",
    "classic_epsilon",
    "log_answered",
    "log_other_answer",
    "mean_divergence",
    "query_divergence",
    "threshold_divergence",
]

Array = NDArray[np.float64]


def log_answered(votes: Array, *, threshold: float, noise: float, moved: int = 0) -> tuple[Array, Array]:
    """Return the logarithms of the probabilities that each query is answered, and that it is not, each of shape (n,).

    Args:
        votes: counts of the classes, shape (n, k).
        threshold: T, in votes.
        noise: σ₁.
        moved: change of the largest count, for a neighbour.
    """
    distance = (votes.max(1) + moved - threshold) / noise
    return np.asarray(log_ndtr(distance)), np.asarray(log_ndtr(-distance))


def log_other_answer(votes: Array, *, noise: float) -> Array:
    """Return log q, shape (n,): q is at least the probability that noise changes the answer (Proposition 7).

    The sum over the other classes of P(class beats the plurality) bounds it, and so does 1 - 1/k.
    """
    ordered = np.sort(votes, 1)
    losing = log_ndtr(-(ordered[:, -1:] - ordered[:, :-1]) / (sqrt(2) * noise))
    top = losing.max(1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(losing - top).sum(1))
    found: Array = np.minimum(total, log(1 - 1 / votes.shape[1]))
    return found


def answer_divergence(log_q: Array, *, noise: float, orders: Array) -> Array:
    """Return a bound of the divergence of GNMax at each order, shape (n, orders). It is at most order/σ².

    Theorem 6, with the two orders of Proposition 10: μ₂ = σ·√log(1/q), μ₁ = μ₂ + 1, and ε_i = μ_i/σ². `log_q` has the
    shape (n,). A mechanism that is s/σ'-GDP has `noise` = √2·σ'/s.
    """
    free = np.broadcast_to(orders / noise**2, (len(log_q), len(orders))).copy()
    with np.errstate(all="ignore"):  # where the theorem does not apply, its terms are not numbers
        second = noise * np.sqrt(-log_q)
        first = second + 1
        cost_1, cost_2 = first / noise**2, second / noise**2
        most = (second - 1) * cost_2 - second * (np.log1p(1 / (first - 1)) + np.log1p(1 / (second - 1)))
        holds = (second > 1) & (log_q <= most) & (-log_q > cost_2)
        stays = np.log1p(-np.exp(log_q))
        log_a = stays - np.log(-np.expm1((log_q + cost_2) * (1 - 1 / second)))
        log_b = cost_1 - log_q / (first - 1)
        powers = orders - 1
        told = np.logaddexp(stays[:, None] + powers * log_a[:, None], log_q[:, None] + powers * log_b[:, None]) / powers
    use = holds[:, None] & (orders <= first[:, None]) & np.isfinite(told)
    free[use] = np.minimum(free[use], np.maximum(told[use], 0.0))
    return free


def threshold_divergence(votes: Array, *, threshold: float, noise: float, orders: Array) -> Array:
    """Return a bound of the divergence of each threshold test, shape (n, orders). It is at most order/2σ²."""
    answered, not_answered = log_answered(votes, threshold=threshold, noise=noise)
    return answer_divergence(np.minimum(answered, not_answered), noise=sqrt(2) * noise, orders=orders)


def mean_divergence(
    votes: Array, *, threshold: float, noises: tuple[float, float], orders: Array, given: bool
) -> Array:
    """Return the divergence of each query as the PATE papers print it, shape (n, orders).

    It is that of the test, plus that of the answer times the probability of an answer. This MEAN is below what a
    query can cost, so it is no bound. `given` takes the bounds that use the votes; without it, only the probabilities
    of the answers use them.

    Args:
        votes: counts, shape (n, k).
        threshold: T.
        noises: σ₁ and σ₂.
        orders: orders above 1, shape (orders,).
        given: whether the bounds of tests and answers use the votes.
    """
    chance = np.exp(log_answered(votes, threshold=threshold, noise=noises[0])[0])
    if not given:
        free: Array = orders / (2 * noises[0] ** 2) + chance[:, None] * orders / noises[1] ** 2
        return free
    answers = answer_divergence(log_other_answer(votes, noise=noises[1]), noise=noises[1], orders=orders)
    tests = threshold_divergence(votes, threshold=threshold, noise=noises[0], orders=orders)
    mean: Array = tests + chance[:, None] * answers
    return mean


def query_divergence(votes: Array, *, threshold: float, noises: tuple[float, float], orders: Array) -> Array:
    """Return a bound of the divergence of each query with its answer, given the votes, shape (n, orders).

    On D′ the largest count is moved by -1, 0 or 1. At order a, test and answer together have the divergence
    log(p^a·p′^(1-a)·e^((a-1)·r) + (1-p)^a·(1-p′)^(1-a))/(a - 1) at most, with the answer's r. Arguments are those of
    `mean_divergence`. The queries do not depend on one another, so their divergences add up.
    """
    answers = answer_divergence(log_other_answer(votes, noise=noises[1]), noise=noises[1], orders=orders)
    yes, no = log_answered(votes, threshold=threshold, noise=noises[0])
    powers = orders - 1
    worst = np.zeros((len(votes), len(orders)))
    for moved in (-1, 0, 1):
        other_yes, other_no = log_answered(votes, threshold=threshold, noise=noises[0], moved=moved)
        answered = yes[:, None] + powers * ((yes - other_yes)[:, None] + answers)
        refused = no[:, None] + powers * (no - other_no)[:, None]
        worst = np.maximum(worst, np.logaddexp(answered, refused) / powers)
    return worst


def classic_epsilon(divergences: Array, orders: Array, delta: float) -> tuple[float, float]:
    """Return (ε, order) by the conversion of the PATE papers: the least divergence + log(1/δ)/(order - 1)."""
    require_delta(delta)
    found = divergences + log(1 / delta) / (orders - 1)
    best = int(np.argmin(found))
    return float(found[best]), float(orders[best])
