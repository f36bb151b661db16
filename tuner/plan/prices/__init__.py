"""Prices of search that were measured on public data sets, and what they say about another training.

They are public, so their use reads no record and costs no ε. No claim depends on them.
"""

from __future__ import annotations

from tuner.plan.prices.expected import MOST_CLASSES, Expected, Situation, best_arm, expected_gain, expected_price
from tuner.plan.prices.measured import ARMS, MeasuredSearch, Prices, read_prices, shipped_prices

__all__ = [
    "ARMS",
    "MOST_CLASSES",
    "Expected",
    "MeasuredSearch",
    "Prices",
    "Situation",
    "best_arm",
    "expected_gain",
    "expected_price",
    "read_prices",
    "shipped_prices",
]
