"""Entry point of the second accountant. It computes bounds of ε for a filter that is given as plain JSON.

A contract in pyproject.toml limits the second accountant's imports to its own modules, numpy and the standard library.
So it shares no faults with the first accountant's code. `loss` composes privacy losses, and `best_of_runs` computes ε
of sealed searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

from tuner.privacy.verify.accountant.best_of_runs import Selection, converted_epsilon, renyi
from tuner.privacy.verify.accountant.loss import Exact, compose_losses
from tuner.privacy.verify.accountant.noisy_record import release_epsilon, shuffled_release_epsilon
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
"""Largest relative amount by which the upper bound of ε may exceed a confirmed claim."""
_FAR = 0.1
"""Largest relative amount by which a confirmed claim may exceed the upper bound of ε.

For a sealed search, each of two proofs gives an upper bound. Here the larger of these bounds counts.
"""
_SLACK = 1e-5
"""Absolute tolerance of ε. It is added to both relative tolerances."""
_UNITS = 10**15


@dataclass(frozen=True)
class EpsilonRange:
    """Lower and upper bound of ε.

    Attributes:
        low: lower bound of the true ε. For a sealed search or a Rényi filter, it is a lower bound of the proved ε.
        high: proved upper bound of the true ε.
        ceiling: largest claimed ε that is accepted.
        how: how the bounds were computed, in words.
    """

    low: float
    high: float
    ceiling: float
    how: str


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim, with its reason. `ok` is None if the claim was neither confirmed nor refuted."""

    ok: bool | None
    why: str


def epsilon_ranges(body: Mapping[str, Any], deltas: Sequence[float]) -> tuple[EpsilonRange, ...]:
    """Return, at each of `deltas`, bounds of the ε that a search with the filter `body` never exceeds.

    Raises:
        KeyError: the filter's JSON lacks a value.
        TooLargeError: the filter is too large for this accountant.
        ValueError: a value is NaN or out of range.
    """
    if not (deltas and all(0 < delta < 1 for delta in deltas)):
        raise ValueError(f"every delta must be in (0, 1) (got {deltas!r})")
    match body["kind"]:
        case "total_steps" | "coupon_book":
            return epsilon_ranges_of_steps(_quotas(body), deltas)
        case "fixed_order":
            order, budget = float(body["order"]), body["budget"]
            if not (1 < order < inf and budget == int(budget) and budget >= 1):
                raise ValueError(f"the order must be above 1 (got {order!r}), and the budget positive (got {budget!r})")
            how = f"converted from the filter's Rényi budget at order {order:g}"
            found = (converted_epsilon(order, budget / _UNITS, delta) for delta in deltas)
            return tuple(_around(value, value, how) for value in found)
        case "sealed":
            selection = Selection(body, min(deltas))
            how = (
                "the smaller of two bounds, by privacy profile and by Rényi divergence, with a part of δ for the limit "
                "on the number of runs"
            )
            ends = (selection.epsilon(delta) for delta in deltas)
            return tuple(EpsilonRange(low, high, most * (1 + _FAR) + _SLACK, how) for low, high, most in ends)
        case "one_release":
            how = "privacy losses of a record's features and label on a grid, rounded down and up"
            if body["clone_epsilon"] is None:
                return tuple(_around(*release_epsilon(body, delta), how) for delta in deltas)
            how += ", or a sum over the number of clones of a record"
            return tuple(_around(*shuffled_release_epsilon(body, delta), how) for delta in deltas)
        case "voted_labels":
            # A vote moves the largest count by 1, and the vector of counts by √2.
            noises = float(body["threshold_noise"]), float(body["answer_noise"]) / sqrt(2)
            counts = body["queries"], body["answers"]
            return epsilon_ranges_of_steps([(1.0, noises[i], counts[i]) for i in range(2)], deltas)
        case kind:
            raise ValueError(f"a filter must be of a known kind (got {kind!r})")


def epsilon_ranges_of_steps(
    steps: Iterable[tuple[float, float, int]], deltas: Sequence[float]
) -> tuple[EpsilonRange, ...]:
    """Return bounds of ε at each of `deltas`, for numbers of steps that are fixed in advance.

    `steps` has triples (sample_rate, noise_multiplier, number of steps). Errors are as in `epsilon_ranges`.
    """
    parts = merged([Part(*step) for step in steps])
    if not parts:
        return tuple(_around(0.0, 0.0, "no steps") for _ in deltas)
    whole = compose_losses(parts, min(deltas))
    exact = isinstance(whole.directions[0], Exact)
    how = "the Gaussian mechanism, exactly" if exact else "privacy losses on a grid, rounded down and up"
    found = []
    for delta in deltas:
        low, high = whole.epsilon(delta)
        if high > low * (1 + TOLERANCE) + _SLACK:  # the grid is fine enough near the smallest δ only
            low, high = compose_losses(parts, delta).epsilon(delta)
        found.append(_around(low, high, how))
    return tuple(found)


def judge(claimed: float, found: EpsilonRange) -> Verdict:
    """Return the verdict on a claimed ε.

    The claim is confirmed if it is at least the lower bound, at most `TOLERANCE` below the upper bound, and at most the
    ceiling.
    """
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
    """Return the verdict on whether a filter admits all charged steps.

    `steps` has triples (sample_rate, noise_multiplier, number of steps).
    """
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
                ok=ok,
                why=f"{total} steps with a Rényi divergence of {spent:.6g} at order {order:g}; "
                f"the limit is {budget:.6g}",
            )
        case "one_release" | "voted_labels":
            return Verdict(ok=not parts, why=_charged_whole("release", total))
        case "sealed":
            return Verdict(ok=not parts, why=_charged_whole("sealed search", total))
        case kind:
            raise ValueError(f"a filter must be of a known kind (got {kind!r})")
    over = [part for part in parts if part.steps > known.get((part.sample_rate, part.noise_multiplier), 0)]
    if over:
        beyond = "; ".join(
            f"{steps} at sample_rate {rate!r}, noise_multiplier {noise!r}" for rate, noise, steps in over
        )
        return Verdict(ok=False, why=f"more steps were charged than the filter allows: {beyond}")
    return Verdict(ok=True, why=f"{total} of {sum(known.values())} steps charged")


def _charged_whole(what: str, steps: int) -> str:
    return f"a {what} must be charged as a whole; steps charged one by one: {steps}"


def _quotas(body: Mapping[str, Any]) -> list[tuple[float, float, int]]:
    """Return (sample_rate, noise_multiplier, allowed steps) of each mechanism of a coupon book or a cap on steps."""
    coupons = body["coupons"] if body["kind"] == "coupon_book" else [{**body, "steps": body["step_cap"]}]
    return [(coupon["sample_rate"], coupon["noise_multiplier"], coupon["steps"]) for coupon in coupons]


def _around(low: float, high: float, how: str) -> EpsilonRange:
    return EpsilonRange(low, high, high * (1 + _FAR) + _SLACK, how)
