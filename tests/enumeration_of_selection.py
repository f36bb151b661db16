"""Exact enumeration of sealed searches on small discrete mechanisms: the law of the winner under the worst scores.

A run returns a configuration and an outcome. Scores are a strict order of these pairs; runs with equal pairs are
interchangeable. So the winner is the pair y with probability f(F(y)) − f(F(<y)), f(x) = E[x^K]: the limit of continuous
tie-breaking.
"""

from __future__ import annotations

from itertools import permutations
from math import exp, expm1, log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import Shift, shift_of

Array: TypeAlias = NDArray[np.float64]

_LONGEST = 400


def profile_of(on: Array, off: Array, epsilon: float) -> float:
    """Return δ at `epsilon` of the worst configuration (row) over its outcomes (columns), in both directions."""
    scale = exp(min(epsilon, 700.0))
    there, back = np.maximum(on - scale * off, 0.0), np.maximum(off - scale * on, 0.0)
    return float(max(there.sum(axis=1).max(), back.sum(axis=1).max()))


def _draw(rng: np.random.Generator, configurations: int, outcomes: int) -> tuple[Array, Array]:
    on = rng.dirichlet(np.full(outcomes, rng.choice([0.3, 1.0, 3.0])), size=configurations)
    off = on * np.exp(-rng.normal(0.0, rng.uniform(0.1, 1.5), on.shape))
    if rng.random() < 0.2:
        on[0, 0], off[0, 0] = on[0, 0] * 0.01, 0.0
    on = np.maximum(on, 1e-9)
    return on / on.sum(axis=1, keepdims=True), off / off.sum(axis=1, keepdims=True)


def _law(rng: np.random.Generator, *, poisson: bool = True, mean: float = 30.0) -> RunLaw:
    name = rng.choice(["geometric", "logarithmic", "negative_binomial", *(["poisson"] if poisson else [])])
    if name == "poisson":
        return RunLaw(name="poisson", mean=rng.uniform(0.3, min(mean, 10.0)))
    shape = float(rng.uniform(-0.6, 4.0)) if name == "negative_binomial" else None
    return RunLaw(name=str(name), mean=1 + float(rng.uniform(0.2, mean - 1)), shape=shape)


def _orders(rng: np.random.Generator, count: int) -> Array:
    """Return orders of the scores: all of them when there are few, else a random sample."""
    if count <= 4:
        return np.array(list(permutations(range(count))))
    return np.array([rng.permutation(count) for _ in range(24)])


def _winner(mass: Array, orders: Array, power: Array) -> Array:
    """Return the law of the winner for each number of runs in `power`; shape (K, orders, outcomes)."""
    sums = np.minimum(np.cumsum(mass[orders], axis=1), 1.0)
    below = np.concatenate([np.zeros((len(orders), 1)), sums[:, :-1]], axis=1)
    exponent = power[:, None, None]
    return np.asarray(sums**exponent - below**exponent)


def _worst(on: Array, off: Array, claims: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the realised and the claimed δ where they are closest, over all ε, orders and directions."""
    found = []
    for epsilon, claimed in claims:
        scale = exp(epsilon)
        there, back = np.maximum(on - scale * off, 0).sum(axis=-1), np.maximum(off - scale * on, 0).sum(axis=-1)
        found.append((float(max(there.max(), back.max())), claimed))
    return max(found, key=lambda pair: (pair[0] - pair[1] > 1e-11, pair[0] / pair[1] if pair[1] > 1e-9 else 0.0))


def _claims(shift: Shift, on: Array, off: Array, *, points: int) -> list[tuple[float, float]]:
    """Return pairs (ε, claimed δ), from a large δ to one where a single run has none."""
    longest = float(np.abs(np.log(np.maximum(on, 1e-12) / np.maximum(off, 1e-12))).max())
    places = shift.shift + np.linspace(-0.6, 1.2, points) * min(longest, 8.0)
    return [(e, shift.delta(lambda at: profile_of(on, off, at), e)) for e in np.maximum(places, 1e-3)]


def best_of_runs(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """Enumerate the best of K runs from a prior over one to three configurations, in the worst order of the scores."""
    configurations = int(rng.integers(1, 4))
    on, off = _draw(rng, configurations, int(rng.integers(2, 4 if configurations == 1 else 3)))
    prior = rng.dirichlet(np.ones(configurations))[:, None]
    law = _law(rng)
    shift = shift_of(law, lambda at: profile_of(on, off, at))
    if fault == "no_delta_in_r":  # then r = e^ε₁ is least at 1
        shift = Shift(shift.factor, 0.0)
    claims = _claims(shift, on, off, points=13)
    orders = _orders(rng, on.size)
    mass, other = (prior * on).ravel(), (prior * off).ravel()
    if fault == "fixed_runs":
        runs = np.array([round(law.mean)])
        return _worst(_winner(mass, orders, runs)[0], _winner(other, orders, runs)[0], claims)
    if fault == "runs_revealed":  # an outcome is (K, winner)
        runs = np.arange(1, 120)
        weights = np.array([law.pmf(int(k)) for k in runs])[:, None, None]
        both = (np.moveaxis(weights * _winner(part, orders, runs), 0, 1) for part in (mass, other))
        here, there = (part.reshape(len(orders), -1) for part in both)
        return _worst(here, there, claims)
    return _worst(_best(law, mass, orders), _best(law, other, orders), claims)


def _best(law: RunLaw, mass: Array, orders: Array) -> Array:
    """Return f(F(y)) − f(F(<y)); K = 0 is an outcome of its own, equally likely on D and on D′."""
    sums = np.minimum(np.cumsum(mass[orders], axis=1), 1.0)
    return np.asarray(np.diff(_generating(law, np.concatenate([np.zeros((len(orders), 1)), sums], axis=1)), axis=1))


def _generating(law: RunLaw, x: Array) -> Array:
    """Return f(x) = E[x^K]."""
    if law.shape is None:
        return np.exp(-law.mean * (1 - x))
    base = np.log1p(-(1 - law.gamma) * x)
    if law.shape == 0:
        return np.asarray(base / log(law.gamma))
    return np.asarray(np.expm1(-law.shape * base) / expm1(-law.shape * log(law.gamma)))


def cut_off(rng: np.random.Generator, _fault: str | None) -> tuple[float, float]:
    """Enumerate the best of min(K, k) runs, summed over K, with the δ that the cut adds."""
    on, off = _draw(rng, 1, int(rng.integers(2, 5)))
    law = _law(rng, mean=float(rng.choice([8.0, 150.0])))
    masses = np.array([law.pmf(k) for k in range(_LONGEST)])
    left = 1 - np.cumsum(masses)
    at_most = max(int(np.argmin(np.abs(left - 10 ** -rng.uniform(0.0, 5.0)))), 1)
    tail = law.tail(at_most)
    bare = _claims(shift_of(law, lambda at: profile_of(on, off, at)), on, off, points=13)
    claims = [(epsilon, min(claimed + (1 + exp(epsilon)) * tail, 1.0)) for epsilon, claimed in bare]
    orders = _orders(rng, on.size)
    runs, weights = np.arange(1, at_most + 1), masses[1 : at_most + 1]
    weights[-1] += left[at_most]
    here, there = ((weights[:, None, None] * _winner(part, orders, runs)).sum(axis=0) for part in (on[0], off[0]))
    return _worst(here, there, claims)


def learning_sampler(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """Enumerate a sampler that learns: the first two runs have the worst allowed densities, given the history.

    Later runs keep one density, which the history selects too. For each set S of winners, backward induction over all
    histories finds the best densities: P[winner ∈ S] − e^ε·P′[winner ∈ S] is a sum over histories.
    """
    on, off = _draw(rng, 2, 2)
    prior = float(rng.uniform(0.1, 0.9))
    freedom = 0.02 if fault else float(rng.choice([0.05, 1.0]))
    low, high = 1 - freedom * float(rng.uniform(0.0, 0.9)), 1 + freedom * float(rng.exponential(1.0))
    law = _law(rng, poisson=False, mean=5.0)
    shift = shift_of(law, lambda at: profile_of(on, off, at), ratio=(low, high))
    if fault == "no_delta_in_r":
        shift = Shift(shift.factor, (2 + (law.shape or 0.0)) * log(high / low))
    claims = _claims(shift, on, off, points=5)
    ends = (max(low * prior, 1 - high * (1 - prior)), min(high * prior, 1 - low * (1 - prior)))
    densities = [np.array([end, 1 - end]) for end in ends]
    rank = rng.permutation(4)  # of (configuration, outcome), a strict order of the scores
    subsets = np.array([[(s >> i) & 1 for i in range(4)] for s in range(1, 15)], dtype=float)
    scales = np.exp([epsilon for epsilon, _ in claims])[:, None]
    both = ((on, off), (off, on))
    worst = np.max([_worst_densities(law, densities, *pair, rank, subsets, scales) for pair in both], axis=0)
    found = zip((float(value) for value in worst), (claimed for _, claimed in claims), strict=True)
    return max(found, key=lambda pair: (pair[0] - pair[1] > 1e-11, pair[0] / pair[1] if pair[1] > 1e-9 else 0.0))


def _worst_densities(
    law: RunLaw, densities: list[Array], on: Array, off: Array, rank: Array, subsets: Array, scales: Array
) -> Array:
    """Return, for each ε, the largest P[winner ∈ S] − e^ε·P′[winner ∈ S] over S and densities; `scales` are e^ε."""
    steps = [((d[:, None] * on).ravel(), (d[:, None] * off).ravel()) for d in densities]
    depth = 2
    masses = np.array([law.pmf(k) for k in range(depth + _LONGEST)])
    tails = [tuple(_tail(masses[depth:], side, rank) for side in step) for step in steps]

    def value(runs: int, best: int, p: float, q: float) -> Array:
        """Return the largest sum over the continuations of this history; shape (ε, S)."""
        if runs == depth:
            return np.asarray(np.max([(p * t[0][best] - scales * q * t[1][best]) @ subsets.T for t in tails], axis=0))
        now = masses[runs] * (p - scales * q) * (subsets[:, best] if best >= 0 else np.zeros(len(subsets)))
        after = [
            sum(
                value(runs + 1, y if best < 0 or rank[y] > rank[best] else best, p * step[0][y], q * step[1][y])
                for y in range(4)
            )
            for step in steps
        ]
        return np.asarray(now + np.max(after, axis=0))

    return np.asarray(value(0, -1, 1.0, 1.0).max(axis=1))


def _tail(masses: Array, mass: Array, rank: Array) -> Array:
    """Return Σ_j P[K = depth + j]·P[winner of the best so far and j more draws]; shape (best so far, winner)."""
    order = np.argsort(rank)
    below = np.minimum(np.cumsum(mass[order]), 1.0)
    powers = below[:, None] ** np.arange(len(masses))
    held = (powers * masses).sum(axis=1)  # E over j of P[all j draws at or below], by rank
    found = np.zeros((4, 4))
    for place, best in enumerate(order):
        found[best, best] = held[place]
        for later in range(place + 1, 4):
            found[best, order[later]] = held[later] - held[later - 1]
    return found
