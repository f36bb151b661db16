"""Entry point of the second accountant: the cost of a filter, read from its plain JSON body.

A contract in pyproject.toml limits its imports to its own modules, numpy and the standard library, so a fault of the
first accountant cannot repeat here. `loss` composes privacy losses; `best_of_runs` prices sealed searches.
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
"""The upper bound may exceed a confirmed claim by at most this share."""
_FAR = 0.1
"""A claim that exceeds the upper bound by more than this share is too high."""
_SLACK = 1e-5
"""Smallest difference of ε that counts."""
_UNITS = 10**15


@dataclass(frozen=True)
class EpsilonRange:
    """Range that contains ε.

    Attributes:
        low: lower bound of the true ε; for a sealed search or a fixed order, of the proved ε.
        high: upper bound, proved.
        ceiling: the largest ε that an honest accountant would claim.
        how: the method, in words.
    """

    low: float
    high: float
    ceiling: float
    how: str


@dataclass(frozen=True)
class Verdict:
    """Judgement of a claim; `ok` is None if the claim was neither confirmed nor refuted."""

    ok: bool | None
    why: str


def epsilon_ranges(body: Mapping[str, Any], deltas: Sequence[float]) -> tuple[EpsilonRange, ...]:
    """Return the range of ε of everything that a filter admits, at each of `deltas`, which are in (0, 1).

    Raises:
        KeyError: the filter's body lacks a value.
        ValueError: a value is NaN or out of range; `TooLargeError` if it is too large for this accountant.
    """
    if not (deltas and all(0 < delta < 1 for delta in deltas)):
        raise ValueError(f"every delta must be in (0, 1) (got {deltas!r})")
    match body["kind"]:
        case "total_steps" | "coupon_book":
            return epsilon_ranges_of_steps(_quotas(body), deltas)
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
    """Return the range of ε of a fixed list of (sample_rate, noise_multiplier, steps), at each of `deltas`.

    Raises:
        ValueError: as for `epsilon_ranges`.
    """
    parts = merged([Part(*step) for step in steps])
    if not parts:
        return tuple(_around(0.0, 0.0, "no steps") for _ in deltas)
    whole = compose_losses(parts, min(deltas))
    exact = isinstance(whole.directions[0], Exact)
    how = "the Gaussian mechanism, exactly" if exact else "privacy losses on a grid, rounded down and up"
    return tuple(_around(*whole.epsilon(delta), how) for delta in deltas)


def judge(claimed: float, found: EpsilonRange) -> Verdict:
    """Confirm a claim that is at least the lower bound and at most `TOLERANCE` below the upper one."""
    low, high = found.low, found.high
    said = f"claimed {claimed!r}, recomputed between {low:.6g} and {high:.6g} ({found.how})"
    if not (isfinite(claimed) and claimed >= 0):
        return Verdict(ok=False, why=f"{said}: a claim must be finite and at least 0")
    if claimed < low * (1 - 1e-9):
        return Verdict(ok=False, why=f"{said}: the claim is too low")
    if high > claimed * (1 + TOLERANCE) + _SLACK:
        return Verdict(ok=None, why=f"{said}: neither confirmed nor refuted")
    if claimed > found.ceiling:
        return Verdict(ok=False, why=f"{said}: the claim is too high")
    return Verdict(ok=True, why=said)


def within(body: Mapping[str, Any], steps: Iterable[tuple[float, float, int]]) -> Verdict:
    """Judge whether the charged (sample_rate, noise_multiplier, steps) are within a filter."""
    parts = merged([Part(*step) for step in steps])
    total = sum(part.steps for part in parts)
    match body["kind"]:
        case "total_steps" | "coupon_book":
            known = {(rate, noise): quota for rate, noise, quota in _quotas(body)}
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
        beyond = "; ".join(
            f"{steps} at sample_rate {rate!r}, noise_multiplier {noise!r}" for rate, noise, steps in over
        )
        return Verdict(ok=False, why=f"more was charged than the filter allows: {beyond}")
    return Verdict(ok=True, why=f"{total} of {sum(known.values())} steps charged")


def _quotas(body: Mapping[str, Any]) -> list[tuple[float, float, int]]:
    """Return the largest allowed (sample_rate, noise_multiplier, steps) of a cap on total steps or a coupon book."""
    coupons = body["coupons"] if body["kind"] == "coupon_book" else [{**body, "steps": body["step_cap"]}]
    return [(coupon["sample_rate"], coupon["noise_multiplier"], coupon["steps"]) for coupon in coupons]


def _around(low: float, high: float, how: str) -> EpsilonRange:
    return EpsilonRange(low, high, high * (1 + _FAR) + _SLACK, how)
