"""ε and δ as text, with the same digits in every refusal and claim."""

from __future__ import annotations

from math import isclose

__all__ = ["amount", "amounts", "apart"]

_ROUNDING = 1e-13  # of a number: more than the rounding errors of the sum of a ledger's claims


def amount(value: float) -> str:
    """Return a number with at most 10 significant digits, or with all if 10 would say more than hide a rounding error.

    A claim that is shown must not be smaller than the claim that is charged.
    """
    short = f"{value:.10g}"
    return short if isclose(float(short), value, rel_tol=_ROUNDING) else repr(value)


def amounts(epsilon: float, delta: float) -> str:
    """Return ``ε = …, δ = …``."""
    return f"ε = {amount(epsilon)}, δ = {amount(delta)}"


def apart(more: float, less: float) -> tuple[str, str]:
    """Return two different numbers as text, with all their digits if fewer would make them look equal."""
    said = amount(more), amount(less)
    return said if said[0] != said[1] else (repr(more), repr(less))
