"""Shipped prior: good settings of a private training, measured on public data sets. It reads no record and costs no ε.

`measured.json` holds the coefficients and where they come from; `python -m benchmarks.prior --write` makes it.
"""

from __future__ import annotations

from search_spaces.prior.recommend import (
    FAMILIES,
    Recommended,
    Setting,
    is_measured,
    largest_step,
    leaving_out,
    left_out,
    provenance,
    recommend,
)

__all__ = [
    "FAMILIES",
    "Recommended",
    "Setting",
    "is_measured",
    "largest_step",
    "leaving_out",
    "left_out",
    "provenance",
    "recommend",
]
