"""Filters: what a search may do to the records, fixed before it starts.

A filter refuses; the odometer (`tuner.privacy.ledger.odometer`) only measures. To add a filter, write one module with a
subclass of `Filter` and list it in `FILTERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import InputError
from tuner.privacy.accountant.filters.base import UNITS, Filter, Part, Tally, TrialSteps, Used
from tuner.privacy.accountant.filters.coupon_book import CouponBook
from tuner.privacy.accountant.filters.fixed_order import FixedOrder
from tuner.privacy.accountant.filters.sealed import Sealed
from tuner.privacy.accountant.filters.total_steps import TotalSteps

__all__ = [
    "FILTERS",
    "UNITS",
    "CouponBook",
    "Filter",
    "FixedOrder",
    "Part",
    "Sealed",
    "Tally",
    "TotalSteps",
    "TrialSteps",
    "Used",
    "from_body",
]

FILTERS: Mapping[str, type[Filter]] = {each.kind: each for each in (TotalSteps, CouponBook, FixedOrder, Sealed)}
"""Every filter by its kind."""


def from_body(body: Mapping[str, Any]) -> Filter:
    """Return the filter that `Filter.body` wrote.

    Raises:
        InputError: the kind is unknown, or a value is out of range.
        KeyError: a value is missing.
    """
    kind = body["kind"]
    if kind not in FILTERS:
        raise InputError(
            "filter-kind-unknown",
            f"No filter has the kind {kind!r}; the kinds are {', '.join(FILTERS)}. "
            "If a newer version wrote it, upgrade dp-tuner.",
        )
    return FILTERS[kind].from_body(body)
