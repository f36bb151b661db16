"""The second opinion: what a filter costs, by code that shares nothing with the one that wrote its claim.

It reads the plain body of a filter and imports nothing but the modules `independent_…` and numpy: none of
`accounting`, `rdp`, `selection`, `laws` and `filters`, and no accounting library, so that a fault in them does not
repeat itself here. `independent_loss` composes privacy losses between two bounds; `independent_selection` has Rényi
divergences, the law of a hidden number of runs, and the two proofs of what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from tuner.privacy.verify.accountant.best_of_runs import Selection, epsilon_of_divergence, renyi
from tuner.privacy.verify.accountant.loss import Exact, compose
from tuner.privacy.verify.accountant.one_step import Part, TooLargeError, merged

__all__ = ["TOLERANCE", "Bracket", "TooLargeError", "Verdict", "brackets", "brackets_of_steps", "judge", "within"]

TOLERANCE = 0.005
"""A claim is confirmed when the upper bound is at most so much larger, as a share of it."""

_FAR = 0.1
"""A claim is wrong, though safe, when it is so much larger than the upper bound."""
_SLACK = 1e-5
"""Of ε: below it nothing is told apart."""
_UNITS = 10**15


@dataclass(frozen=True)
class Bracket:
    """Where ε lies.

    Attributes:
        low: a smaller ε is false, or for a sealed search and a fixed order: no proof gives it.
        high: this ε is proved.
        ceiling: more than this is no honest answer of any of the proofs.
        how: by what.
    """

    low: float
    high: float
    ceiling: float
    how: str


@dataclass(frozen=True)
class Verdict:
    """`ok` is None where the claim could be neither confirmed nor refuted."""

    ok: bool | None
    why: str


def brackets(body: Mapping[str, Any], deltas: Sequence[float]) -> tuple[Bracket, ...]:
    """ε of everything that a filter admits, at each of `deltas`.

    Args:
        body: of the filter, as the ledger has it.
        deltas: each in (0, 1).

    Raises:
        KeyError: a value is missing.
        ValueError: a value is out of range or NaN; `TooLargeError` where it is too large for this accountant.
    """
    if not (deltas and all(0 < delta < 1 for delta in deltas)):
        raise ValueError(f"every delta must be in (0, 1), got {deltas!r}")
    match body["kind"]:
        case "total_steps":
            return brackets_of_steps([(body["sample_rate"], body["noise_multiplier"], body["step_cap"])], deltas)
        case "coupon_book":
            coupons = [(c["sample_rate"], c["noise_multiplier"], c["steps"]) for c in body["coupons"]]
            return brackets_of_steps(coupons, deltas)
        case "fixed_order":
            order, budget = float(body["order"]), body["budget"]
            if not (1 < order < inf and budget == int(budget) and budget >= 1):
                raise ValueError(f"a fixed order must be above 1 and its budget positive, got {order!r}, {budget!r}")
            how = f"the Rényi budget of order {order:g}, converted"
            found = (epsilon_of_divergence(order, budget / _UNITS, delta) for delta in deltas)
            return tuple(_around(value, value, how) for value in found)
        case "sealed":
            selection = Selection(body, min(deltas))
            how = "the smaller of the profile bound and the bound by Rényi divergence, truncation included"
            ends = (selection.epsilon(delta) for delta in deltas)
            return tuple(Bracket(low, high, most * (1 + _FAR) + _SLACK, how) for low, high, most in ends)
        case kind:
            raise ValueError(f"a filter must be of a known kind, got {kind!r}")


def brackets_of_steps(steps: Iterable[tuple[float, float, int]], deltas: Sequence[float]) -> tuple[Bracket, ...]:
    """ε of steps that are fixed in advance, at each of `deltas`.

    Args:
        steps: (sample_rate, noise_multiplier, steps).
        deltas: each in (0, 1).

    Raises:
        ValueError: as `brackets`.
    """
    parts = merged([Part(*step) for step in steps])
    if not parts:
        return tuple(_around(0.0, 0.0, "no steps") for _ in deltas)
    whole = compose(parts, min(deltas))
    exact = isinstance(whole.directions[0], Exact)
    how = "the Gaussian mechanism, exactly" if exact else "privacy losses on a grid, rounded down and up"
    return tuple(_around(*whole.epsilon(delta), how) for delta in deltas)


def judge(claimed: float, bracket: Bracket) -> Verdict:
    """Whether a claimed ε is confirmed: not below the lower bound, nor below the upper one by more than `TOLERANCE`."""
    low, high = bracket.low, bracket.high
    said = f"claimed {claimed!r}, by itself found between {low:.6g} and {high:.6g} ({bracket.how})"
    if not (isfinite(claimed) and claimed >= 0):
        return Verdict(ok=False, why=f"{said}: no number that can be claimed")
    if claimed < low * (1 - 1e-9):
        return Verdict(ok=False, why=f"{said}: less is claimed than holds")
    if high > claimed * (1 + TOLERANCE) + _SLACK:
        return Verdict(ok=None, why=f"{said}: neither confirmed nor refuted")
    if claimed > bracket.ceiling:
        return Verdict(ok=False, why=f"{said}: more is claimed than the steps cost")
    return Verdict(ok=True, why=said)


def within(body: Mapping[str, Any], steps: Iterable[tuple[float, float, int]]) -> Verdict:
    """Whether the steps that were charged keep to their filter, counted and priced by this accountant.

    Args:
        body: of the filter.
        steps: (sample_rate, noise_multiplier, steps) that were charged.
    """
    parts = merged([Part(*step) for step in steps])
    total = sum(part.steps for part in parts)
    match body["kind"]:
        case "total_steps":
            known = {(body["sample_rate"], body["noise_multiplier"]): body["step_cap"]}
        case "coupon_book":
            known = {(c["sample_rate"], c["noise_multiplier"]): c["steps"] for c in body["coupons"]}
        case "fixed_order":
            order, budget = float(body["order"]), body["budget"] / _UNITS
            spent = sum(part.steps * renyi(part.sample_rate, part.noise_multiplier, order)[0] for part in parts)
            ok = spent <= budget * (1 + 1e-9)
            return Verdict(
                ok=ok, why=f"{total} steps of divergence {spent:.6g} at order {order:g}, of {budget:.6g} allowed"
            )
        case _:
            return Verdict(
                ok=not parts, why=f"{total} steps are charged one by one; a sealed search is charged as a whole"
            )
    over = [part for part in parts if part.steps > known.get((part.sample_rate, part.noise_multiplier), 0)]
    if over:
        return Verdict(ok=False, why=f"charged beyond what is allowed: {'; '.join(_words(part) for part in over)}")
    return Verdict(ok=True, why=f"{total} steps are charged, of {sum(known.values())} allowed")


def _around(low: float, high: float, how: str) -> Bracket:
    return Bracket(low, high, high * (1 + _FAR) + _SLACK, how)


def _words(part: Part) -> str:
    return f"{part.steps} at sample_rate {part.sample_rate!r}, noise_multiplier {part.noise_multiplier!r}"
