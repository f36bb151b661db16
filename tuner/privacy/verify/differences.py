"""Descriptions of the differences between a card and a new card that is built from the same ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose

__all__ = ["clipped", "differences", "short"]

_OF_EPSILON, _OF_GRID_ERROR = 1e-10, 1e-9
_RECOMPUTED: Mapping[str, float] = {
    "claim.law_of_the_number_of_runs.delta_of_truncation": 0.0,
    "claim.law_of_the_number_of_runs.probability_of_more": 0.0,
    "claim.model_alone.epsilon": _OF_EPSILON,
    "dataset_budget.epsilon_spent": _OF_EPSILON,
    "release.label_kept": 0.0,
    "release.local.epsilon": _OF_EPSILON,
    "spent.epsilon_spent": _OF_EPSILON,
    "spent.epsilon_spent_on_validation": _OF_EPSILON,
    "training_cap.curve.epsilon": _OF_EPSILON,
    "training_cap.discretisation_error": _OF_GRID_ERROR,
    "training_cap.epsilon_at_cap": _OF_EPSILON,
    "validation_cap.curve.epsilon": _OF_EPSILON,
    "validation_cap.discretisation_error": _OF_GRID_ERROR,
    "validation_cap.epsilon_at_cap": _OF_EPSILON,
    "winner.single_run_epsilon": _OF_EPSILON,
}
"""Absolute tolerance of each number that is computed again. Another machine may round these numbers differently.

These numbers also have the relative tolerance `_RELATIVE`. All other values of a card must be equal.
"""
_RELATIVE = 1e-9
_WIDTH = 80
_MISSING = object()


@dataclass(frozen=True)
class Difference:
    """Description of one wrong value of a card. `detail` shows numbers with 6 digits, `exact` with all digits."""

    detail: str
    exact: str


def differences(found: object, wanted: object, path: str = "") -> Iterator[Difference]:
    """Yield each difference between the values `found` on a card and the `wanted` values. `path` says where."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(wanted.keys() | found.keys()):
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(found.get(key, _MISSING), wanted.get(key, _MISSING), inner)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif not _same(found, wanted, path):
        yield _difference(path, found, wanted)


def _same(found: object, wanted: object, path: str) -> bool:
    if type(found) is not type(wanted):
        return False
    absolute = _RECOMPUTED.get(re.sub(r"\[\d+\]", "", path))
    if absolute is not None and isinstance(found, float) and isinstance(wanted, float):
        return isclose(found, wanted, rel_tol=_RELATIVE, abs_tol=absolute)
    return found == wanted


def _difference(path: str, found: object, wanted: object) -> Difference:
    if wanted is _MISSING:
        return Difference(f"{path} is not part of a card", f"{path} is {found!r} and is not part of a card")
    if found is _MISSING:
        return Difference(f"{path} is missing", f"{path} is missing and should be {wanted!r}")
    exact = f"{path} is {found!r} and should be {wanted!r}"
    if isinstance(found, str) and isinstance(wanted, str):
        says, should = clipped(found, wanted)
    else:
        says, should = short(found), short(wanted)
    return Difference(exact if says == should else f"{path} is {says} and should be {should}", exact)


def short(value: object) -> str:
    """Return a short text for a value: a float with 6 digits, anything else cut to 80 characters."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def clipped(left: str, right: str) -> tuple[str, str]:
    """Return both texts in quotes, each cut to 80 characters around the first difference."""
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    start = max(0, at - _WIDTH // 2) if max(len(left), len(right)) > _WIDTH else 0
    return _part(left, start), _part(right, start)


def _part(text: str, start: int) -> str:
    end = start + _WIDTH
    return f"'{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}'"
