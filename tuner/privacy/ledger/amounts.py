"""ε and δ as text, with the same digits in every refusal and claim."""

from __future__ import annotations

__all__ = ["amount", "amounts", "apart"]


def amount(value: float) -> str:
    """Return a number with at most 10 significant digits. That hides the rounding error of a sum, and little else."""
    return f"{value:.10g}"


def amounts(epsilon: float, delta: float) -> str:
    """Return ``ε = …, δ = …``."""
    return f"ε = {amount(epsilon)}, δ = {amount(delta)}"


def apart(more: float, less: float) -> tuple[str, str]:
    """Return two different numbers as text, with all their digits if fewer would make them look equal."""
    said = amount(more), amount(less)
    return said if said[0] != said[1] else (repr(more), repr(less))
