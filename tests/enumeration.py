"""Exact enumeration: the δ that the worst adversary realises against small discrete mechanisms, and the claimed δ.

Each case draws mechanisms of 2 to 4 outcomes with their laws on two neighbouring data sets. It asks the product's
arithmetic for a claim (or for the steps that are admitted), and enumerates all outcomes. In composition, dynamic
programming over every history finds the best decision tree. A planted `fault` changes the arithmetic as a careless
ledger would. The same enumeration must notice it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, exp, isfinite, log
from types import SimpleNamespace
from typing import Any, TypeAlias

import enumeration_of_selection as selection
import numpy as np
from numpy.typing import NDArray

from tuner.errors import BudgetRefusedError
from tuner.privacy.accountant.filters import UNITS, CouponBook, FixedOrder, TotalSteps
from tuner.privacy.ledger.admission import admit, order_filter
from tuner.privacy.ledger.state import exact_sum

Array: TypeAlias = NDArray[np.float64]

_TOLERANCE = 1e-11


@dataclass(frozen=True, order=True)
class Discrete:
    """A mechanism with a few outcomes: their probabilities on D and on D′.

    The filters of the product compare mechanisms by equality, and sort a coupon book by the last two fields.
    """

    on: tuple[float, ...]
    off: tuple[float, ...]

    def divergence(self, order: float) -> float:
        """Return the Rényi divergence, the larger of the two directions."""
        p, q = np.array(self.on), np.array(self.off)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            both = [np.where(a > 0, a * (a / b) ** (order - 1), 0.0).sum() for a, b in ((p, q), (q, p))]
        return float(np.log(max(both)) / (order - 1)) if all(map(isfinite, both)) else float("inf")

    def delta(self, epsilon: float) -> float:
        """Return δ at `epsilon`, the larger of the two directions."""
        p, q = np.array(self.on), np.array(self.off)
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


class DiscreteOrder(FixedOrder):
    """The filter of the product at one order, with the price of a discrete mechanism."""

    def price(self, mechanism: Any) -> int:  # noqa: ANN401 - a Discrete
        """Return the units of one use of `mechanism`."""
        found = mechanism.divergence(self.order) * (1 + 1e-12)
        return max(ceil(found * UNITS), 1) if isfinite(found) else self.budget + 1


@dataclass(frozen=True)
class Outcome:
    """The cases of one mode."""

    mode: str
    cases: int
    violations: int  # cases whose realised δ is above the claimed one
    closest: float  # the largest realised δ over claimed δ


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """Return Σ max(0, p − e^ε·q)."""
    return float(np.maximum(p - exp(epsilon) * q, 0.0).sum())


Admits: TypeAlias = Callable[[tuple[int, ...], int], bool]


def worst_adaptive(menu: tuple[Discrete, ...], admits: Admits, epsilon: float, *, depth: int) -> float:
    """Return δ at `epsilon` of the worst adversary that picks each next mechanism, or stops, after seeing all outcomes.

    Dynamic programming over histories: a history is the pair of its probabilities, and the best continuation is the
    largest sum over outcomes of the mechanisms that are admitted. Both directions of adjacency.

    Args:
        menu: the mechanisms.
        admits: (times each was used, index) → whether one more use of it is admitted.
        epsilon: where δ is taken.
        depth: the largest number of steps.
    """
    on = [np.array(mechanism.on) for mechanism in menu]
    off = [np.array(mechanism.off) for mechanism in menu]

    def value(used: tuple[int, ...], p: Array, q: Array) -> Array:
        best = np.maximum(p - exp(epsilon) * q, 0.0)
        if sum(used) == depth:
            return best
        for index in range(len(menu)):
            if not admits(used, index):
                continue
            after = (*used[:index], used[index] + 1, *used[index + 1 :])
            outcomes = len(on[index])
            children = value(after, np.outer(p, on[index]).ravel(), np.outer(q, off[index]).ravel())
            best = np.maximum(best, children.reshape(-1, outcomes).sum(axis=1))
        return best

    start, none = np.ones(1), (0,) * len(menu)
    there = float(value(none, start, start)[0])
    on, off = off, on
    return max(there, float(value(none, start, start)[0]))


def _composed(parts: list[tuple[Discrete, int]], epsilon: float) -> float:
    """Return δ at `epsilon` of all parts composed: the claim of a coupon book."""
    p = q = np.ones(1)
    for mechanism, count in parts:
        for _ in range(count):
            p, q = np.outer(p, mechanism.on).ravel(), np.outer(q, mechanism.off).ravel()
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def _draw(rng: np.random.Generator, outcomes: int, *, spread: float, zeros: bool = False) -> Discrete:
    p = rng.dirichlet(np.full(outcomes, rng.choice([0.3, 1.0, 3.0])))
    q = p * np.exp(-rng.normal(0.0, spread, outcomes))
    if zeros and rng.random() < 0.2:  # an outcome that is impossible on one of the neighbours
        p[0] *= 0.02
        q[0] = 0.0
    p, q = np.maximum(p, 1e-9) / np.maximum(p, 1e-9).sum(), q / q.sum()
    return Discrete(tuple(p), tuple(q))


def _total_steps(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """One mechanism with free settings: each step is observed through one of three channels, which cost nothing."""
    base = _draw(rng, int(rng.integers(2, 4)), spread=rng.uniform(0.2, 1.5), zeros=True)
    cap, epsilon = int(rng.integers(1, 5)), rng.uniform(0.0, 3.0)
    filter: Any = TotalSteps(base, cap + (fault == "forgotten_step"))  # type: ignore[arg-type]
    channels = [np.eye(len(base.on)), *rng.dirichlet(np.full(2, 0.3), size=(2, len(base.on)))]
    menu = tuple(Discrete(tuple(np.array(base.on) @ c), tuple(np.array(base.off) @ c)) for c in channels)

    def admits(used: tuple[int, ...], _: int) -> bool:
        return bool(filter.left({base: sum(used)}, base) >= 1)

    return worst_adaptive(menu, admits, epsilon, depth=cap + 1), _composed([(base, cap)], epsilon)


def _coupons(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """A menu with quotas, used in any order; the claim covers all of them."""
    menu = tuple(_draw(rng, int(rng.integers(2, 4)), spread=rng.uniform(0.2, 1.5), zeros=True) for _ in range(3))
    quotas = [int(quota) for quota in rng.integers(1, 3, size=len(menu))]
    quotas[2] = 1
    epsilon = rng.uniform(0.0, 3.0)
    granted = [quota + (fault == "forgotten_step" and place == 0) for place, quota in enumerate(quotas)]
    book: Any = CouponBook(tuple(zip(menu, granted, strict=True)))  # type: ignore[arg-type]
    worst = worst_adaptive(menu, partial(_left, menu, book), epsilon, depth=6)
    return worst, _composed(list(zip(menu, quotas, strict=True)), epsilon)


def _committed(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """Trials with little loss, as many as are wanted after what was seen, then a run with more loss, cut off or not."""
    spread = rng.uniform(0.1, 0.6)
    trial = _draw(rng, int(rng.integers(2, 4)), spread=spread, zeros=True)
    run = _draw(rng, int(rng.integers(2, 4)), spread=spread * rng.uniform(1.5, 4.0), zeros=True)
    quotas = {trial: int(rng.integers(1, 4)), run: int(rng.integers(1, 4))}
    epsilon = rng.uniform(0.0, 2.0)
    claimed = {trial: sum(quotas.values())} if fault == "commit_at_search_noise" else quotas
    granted = quotas | {run: sum(quotas.values()) if fault == "trials_use_the_run" else quotas[run]}
    book: Any = CouponBook(tuple(granted.items()))  # type: ignore[arg-type]

    def admits(used: tuple[int, ...], index: int) -> bool:
        return (index == 1 or used[1] == 0) and _left((trial, run), book, used, index)

    worst = worst_adaptive((trial, run), admits, epsilon, depth=6)
    return worst, _composed(list(claimed.items()), epsilon)


def _left(menu: tuple[Discrete, ...], filter: Any, used: tuple[int, ...], index: int) -> bool:  # noqa: ANN401
    return bool(filter.left(dict(zip(menu, used, strict=True)), menu[index]) >= 1)


def two_outcomes(p: float, loss: float) -> Discrete:
    """Return a mechanism with a loud outcome of probability `p` on D and that loss, and a quiet one with the rest."""
    return Discrete((p, 1 - p), (p * exp(-loss), 1 - p * exp(-loss)))


def exhausting(order: float, divergence: float, p: Array) -> Array:
    """Return the losses at which two-outcome mechanisms of probabilities `p` reach `divergence` at `order`."""
    low, high = np.zeros_like(p), np.full_like(p, 60.0)
    for _ in range(60):
        middle = (low + high) / 2
        q = p * np.exp(-middle)
        with np.errstate(over="ignore"):
            there = p * (p / q) ** (order - 1) + (1 - p) * ((1 - p) / (1 - q)) ** (order - 1)
            back = q * (q / p) ** (order - 1) + (1 - q) * ((1 - q) / (1 - p)) ** (order - 1)
            fits = np.log(np.maximum(there, back)) / (order - 1) <= divergence
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def reaching(order: float, divergence: float, p: float) -> Discrete:
    """Return the mechanism with a loud outcome of probability `p` whose Rényi divergence is `divergence`."""
    return two_outcomes(p, float(exhausting(order, divergence, np.array([p]))[0]))


def realised_delta(first: Discrete, seconds: Sequence[Discrete | None], epsilon: float) -> float:
    """Return δ at `epsilon` of an adversary who chooses the second mechanism by the outcome of the first.

    `seconds` has the choice for each outcome; None stops after it.
    """
    return sum(
        max(0.0, p1 * p2 - exp(epsilon) * q1 * q2)
        for p1, q1, second in zip(first.on, first.off, seconds, strict=True)
        for p2, q2 in ([(1.0, 1.0)] if second is None else zip(second.on, second.off, strict=True))
    )


def _loudest(order: float, divergence: float, epsilon: float) -> Discrete:
    """Return the one of these with the largest δ at `epsilon`: the edge of the conversion from Rényi to (ε, δ)."""
    p = np.exp(np.linspace(-14.0, -0.5, 40))
    loss = exhausting(order, divergence, p)
    best = int(np.argmax(p - exp(epsilon) * p * np.exp(-loss)))
    return two_outcomes(float(p[best]), float(loss[best]))


def _fixed_order(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """Any mechanism at any time: the first outcome decides which order the next mechanism exhausts."""
    orders = sorted(float(order) for order in rng.choice([1.5, 2.0, 3.0, 5.0, 8.0, 16.0], size=2, replace=False))
    epsilon, delta = rng.uniform(3.0, 20.0), 10.0 ** rng.uniform(-6.0, -2.0)
    possible = (DiscreteOrder.of(order=order, epsilon=epsilon, delta=delta) for order in orders)
    filters = [found for found in possible if found is not None]
    if not filters:
        return 0.0, delta
    first = two_outcomes(10 ** rng.uniform(-3.0, -0.5), rng.uniform(0.3, 3.0))
    menu = [first, _draw(rng, 3, spread=rng.uniform(0.2, 2.0))]
    for found, seen in zip(filters, (0.0, log(first.off[0] / first.on[0])), strict=False):
        left = (found.budget - found.price(first)) / UNITS
        menu.append(_loudest(found.order, max(left, 0.0) * (1 - 1e-9), epsilon + seen))
    chosen = filters if fault == "some_order" else [filters[int(rng.integers(len(filters)))]]

    def admits(used: tuple[int, ...], index: int) -> bool:
        return any(_left(tuple(menu), found, used, index) for found in chosen)

    return worst_adaptive(tuple(menu), admits, epsilon, depth=3), delta


def _data_set(rng: np.random.Generator, fault: str | None) -> tuple[float, float]:
    """Searches chosen one after another, admitted by the sum of their claims or by one order, each with half of δ."""
    order = float(rng.choice([2.0, 3.0, 8.0]))
    epsilon, delta = rng.uniform(3.0, 20.0), 10.0 ** rng.uniform(-6.0, -2.0)
    units = order_filter(order, epsilon, 2 * delta if fault == "undivided" else delta)
    # The product requires Σδ ≤ δ/2 when there is an order, so an undivided cap has twice the δ.
    cap = SimpleNamespace(epsilon=epsilon, delta=2 * delta if fault == "undivided" else delta, order=order, units=units)
    whole = delta if fault == "undivided" else delta / 2
    first = two_outcomes(10 ** rng.uniform(-3.0, -1.0), rng.uniform(0.3, 2.0))
    spent = max(abs(log(a / b)) for a, b in zip(first.on, first.off, strict=True))
    # The edge of the sum rule: an outcome that is impossible on the neighbour, with all δ that is left.
    last = whole * (1 - 1e-9)
    menu = [first, Discrete((last, 1 - last), (0.0, 1.0))]
    claims = [(spent, 0.0), ((epsilon - spent) * 0.999, last)]
    if units is not None:
        left = max(units / UNITS - first.divergence(order), 0.0) * (1 - 1e-9)
        menu.append(_loudest(order, left, epsilon + log(first.off[0] / first.on[0])))
        claims.append((2 * epsilon, 0.0))  # the sum rule never admits it
    prices = [DiscreteOrder(order, 1).price(m) if isfinite(m.divergence(order)) else None for m in menu]

    def admits(used: tuple[int, ...], index: int) -> bool:
        held = [(claims[i], prices[i]) for i, count in enumerate(used) for _ in range(count)]
        committed = SimpleNamespace(
            epsilon=exact_sum(*(claim[0] for claim, _ in held)),
            delta=exact_sum(*(claim[1] for claim, _ in held)),
            unbounded=any(price is None for _, price in held),
            units=sum(price or 0 for _, price in held),
        )
        state: Any = SimpleNamespace(
            grants={}, cap=cap, committed=committed, committed_epsilon=0.0, committed_delta=0.0, dataset="d"
        )
        try:
            admit(state, claims[index][0], claims[index][1], what="a search", units=prices[index])
        except BudgetRefusedError:
            return False
        return True

    return worst_adaptive(tuple(menu), admits, epsilon, depth=2), delta


Mode: TypeAlias = Callable[[np.random.Generator, str | None], tuple[float, float]]

MODES: Mapping[str, Mode] = {
    "total steps": _total_steps,
    "coupon book": _coupons,
    "fixed order": _fixed_order,
    "data set, either rule": _data_set,
    "selection": selection.best_of_runs,
    "selection, cut off": selection.cut_off,
    "selection, learning sampler": selection.learning_sampler,
    "committed run": _committed,
}

FAULTS: Mapping[str, tuple[str, ...]] = {
    "forgotten_step": ("total steps", "coupon book"),
    "some_order": ("fixed order",),
    "undivided": ("data set, either rule",),
    "runs_revealed": ("selection",),
    "fixed_runs": ("selection",),
    "no_delta_in_r": ("selection", "selection, learning sampler"),
    "commit_at_search_noise": ("committed run",),
    "trials_use_the_run": ("committed run",),
}
"""Planted faults, each with the modes in which it must be seen."""


def run_cases(count: int, seed: int, *, fault: str | None = None, modes: tuple[str, ...] = ()) -> list[Outcome]:
    """Enumerate `count` cases, spread evenly over the modes.

    Args:
        count: number of cases of all modes together.
        seed: of the cases; the same seed draws the same cases.
        fault: a key of `FAULTS` to plant; None for the product as it is.
        modes: keys of `MODES`; all when empty.
    """
    names = modes or tuple(MODES)
    found = []
    for place, name in enumerate(names):
        cases = count // len(names) + (place < count % len(names))
        rng = np.random.default_rng([seed, list(MODES).index(name)])
        violations, closest = 0, 0.0
        for _ in range(cases):
            realised, claimed = MODES[name](rng, fault)
            violations += not realised <= claimed * (1 + 1e-9) + _TOLERANCE
            closest = max(closest, realised / claimed if claimed > 0 else 0.0)
        found.append(Outcome(name, cases, violations, closest))
    return found
