"""The second accountant: what a filter costs, by code that shares nothing with the one that wrote its claim.

It reads the plain body of a filter. It imports its own modules, numpy and the standard library, and nothing else
(a contract in pyproject.toml), so that a fault of the first accountant does not repeat itself here. `loss` composes
privacy losses between two bounds; `best_of_runs` has Rényi divergences, the law of a hidden number of runs, and the two
proofs of what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from tuner.privacy.verify.accountant.best_of_runs import Selection, converted_epsilon, renyi
from tuner.privacy.verify.accountant.loss import Exact, compose_losses
from tuner.privacy.verify.accountant.one_step import Part, TooLargeError, merged

__all__ = [
    "TOLERANCE",
    "EpsilonRange",
    "TooLargeError",
    "Verdict",
    "epsilon_ranges",
    "epsilon_ranges_of_steps",
    "judge",
    "within",
]

TOLERANCE = 0.005
"""A claim is confirmed when the upper bound is larger by at most this share."""

_FAR = 0.1
"""A claim is wrong, though safe, when it is larger than the upper bound by this share."""
_SLACK = 1e-5
"""Differences of ε below this are not told apart."""
_UNITS = 10**15


@dataclass(frozen=True)
class EpsilonRange:
    """A range that contains ε.

    Attributes:
        low: a smaller ε is false, or for a sealed search and a fixed order: no proof gives it.
        high: this ε is proved.
        ceiling: a larger ε is not an honest answer of any of the proofs.
        how: the method, in words.
    """

    low: float
    high: float
    ceiling: float
    how: str


@dataclass(frozen=True)
class Verdict:
    """The judgement of a claim; `ok` is None where it could be neither confirmed nor refuted."""

    ok: bool | None
    why: str


def epsilon_ranges(body: Mapping[str, Any], deltas: Sequence[float]) -> tuple[EpsilonRange, ...]:
    """Return the range of ε of everything that a filter admits, at each of `deltas`.

    Args:
        body: of the filter, as the ledger has it.
        deltas: each in (0, 1).

    Raises:
        KeyError: a value is missing.
        ValueError: a value is out of range or NaN; `TooLargeError` where it is too large for this accountant.
    """
    if not (deltas and all(0 < delta < 1 for delta in deltas)):
        raise ValueError(f"every delta must be in (0, 1) (got {deltas!r})")
    match body["kind"]:
        case "total_steps":
            return epsilon_ranges_of_steps([(body["sample_rate"], body["noise_multiplier"], body["step_cap"])], deltas)
        case "coupon_book":
            coupons = [(c["sample_rate"], c["noise_multiplier"], c["steps"]) for c in body["coupons"]]
            return epsilon_ranges_of_steps(coupons, deltas)
        case "fixed_order":
            order, budget = float(body["order"]), body["budget"]
            if not (1 < order < inf and budget == int(budget) and budget >= 1):
                raise ValueError(f"a fixed order must be above 1 and its budget positive (got {order!r}, {budget!r})")
            how = f"the Rényi budget of order {order:g}, converted"
            found = (converted_epsilon(order, budget / _UNITS, delta) for delta in deltas)
            return tuple(_around(value, value, how) for value in found)
        case "sealed":
            selection = Selection(body, min(deltas))
            how = "the smaller of the profile bound and the bound by Rényi divergence, truncation included"
            ends = (selection.epsilon(delta) for delta in deltas)
            return tuple(EpsilonRange(low, high, most * (1 + _FAR) + _SLACK, how) for low, high, most in ends)
        case kind:
            raise ValueError(f"a filter must be of a known kind (got {kind!r})")


def epsilon_ranges_of_steps(
    steps: Iterable[tuple[float, float, int]], deltas: Sequence[float]
) -> tuple[EpsilonRange, ...]:
    """Return the range of ε of steps that are fixed in advance, at each of `deltas`.

    Args:
        steps: (sample_rate, noise_multiplier, steps).
        deltas: each in (0, 1).

    Raises:
        ValueError: as `epsilon_ranges`.
    """
    parts = merged([Part(*step) for step in steps])
    if not parts:
        return tuple(_around(0.0, 0.0, "no steps") for _ in deltas)
    whole = compose_losses(parts, min(deltas))
    exact = isinstance(whole.directions[0], Exact)
    how = "the Gaussian mechanism, exactly" if exact else "privacy losses on a grid, rounded down and up"
    return tuple(_around(*whole.epsilon(delta), how) for delta in deltas)


def judge(claimed: float, found: EpsilonRange) -> Verdict:
    """Judge a claimed ε: confirmed from the lower bound on, where the upper one is at most `TOLERANCE` larger."""
    low, high = found.low, found.high
    said = f"claimed {claimed!r}, recomputed between {low:.6g} and {high:.6g} ({found.how})"
    if not (isfinite(claimed) and claimed >= 0):
        return Verdict(ok=False, why=f"{said}: not a number that can be claimed")
    if claimed < low * (1 - 1e-9):
        return Verdict(ok=False, why=f"{said}: less is claimed than holds")
    if high > claimed * (1 + TOLERANCE) + _SLACK:
        return Verdict(ok=None, why=f"{said}: neither confirmed nor refuted")
    if claimed > found.ceiling:
        return Verdict(ok=False, why=f"{said}: more is claimed than the steps cost")
    return Verdict(ok=True, why=said)


def within(body: Mapping[str, Any], steps: Iterable[tuple[float, float, int]]) -> Verdict:
    """Return whether the charged steps are within their filter, counted and priced by this accountant.

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
            return Verdict(ok=not parts, why=f"{total} steps charged one by one; a sealed search is charged as a whole")
    over = [part for part in parts if part.steps > known.get((part.sample_rate, part.noise_multiplier), 0)]
    if over:
        return Verdict(ok=False, why=f"charged beyond what is allowed: {'; '.join(_words(part) for part in over)}")
    return Verdict(ok=True, why=f"{total} of {sum(known.values())} steps charged")


def _around(low: float, high: float, how: str) -> EpsilonRange:
    return EpsilonRange(low, high, high * (1 + _FAR) + _SLACK, how)


def _words(part: Part) -> str:
    return f"{part.steps} at sample_rate {part.sample_rate!r}, noise_multiplier {part.noise_multiplier!r}"
