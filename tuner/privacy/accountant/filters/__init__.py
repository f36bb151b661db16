"""Privacy filters (caps). A filter limits the private steps of a search, and is fixed before the search starts.

To add a filter, write one module with a subclass of `Filter` and list it in `FILTERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import InputError
from tuner.privacy.accountant.filters.base import UNITS, Filter, Part, steps_of_runs
from tuner.privacy.accountant.filters.coupon_book import CouponBook
from tuner.privacy.accountant.filters.fixed_order import FixedOrder
from tuner.privacy.accountant.filters.one_release import OneRelease
from tuner.privacy.accountant.filters.sealed import Sealed
from tuner.privacy.accountant.filters.total_steps import TotalSteps
from tuner.privacy.accountant.filters.voted_labels import VotedLabels

__all__ = [
    "FILTERS",
    "UNITS",
    "CouponBook",
    "Filter",
    "FixedOrder",
    "OneRelease",
    "Part",
    "Sealed",
    "TotalSteps",
    "VotedLabels",
    "from_body",
    "steps_of_runs",
]

FILTERS: Mapping[str, type[Filter]] = {
    each.kind: each for each in (TotalSteps, CouponBook, FixedOrder, Sealed, OneRelease, VotedLabels)
}
"""Mapping from each `kind` to the filter class of this kind."""


def from_body(body: Mapping[str, Any]) -> Filter:
    """Return the filter that the JSON in `body` describes; raise `InputError` if its kind is unknown."""
    kind = body["kind"]
    if kind not in FILTERS:
        raise InputError(
            "filter-kind-unknown",
            f"The kind of a privacy filter must be one of {', '.join(FILTERS)} (got {kind!r}). "
            "If a newer version of dp-tuner wrote this filter, upgrade dp-tuner.",
        )
    return FILTERS[kind].from_body(body)
