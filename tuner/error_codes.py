"""Explanations of all error codes, for `tune explain` and the documentation."""

from __future__ import annotations

import search_spaces.errors
import trainables.errors

__all__ = ["EXPLANATIONS", "explanation"]

_PLATFORM: dict[str, str] = {
    # commands and sweeps
    # experiment files
    # plans
    # studies
    # the ledger and its accountant
    # privacy cards
    # executors and records
}

EXPLANATIONS: dict[str, str] = {**_PLATFORM, **trainables.errors.EXPLANATIONS, **search_spaces.errors.EXPLANATIONS}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


def explanation(code: str) -> str | None:
    """Return the explanation of a code; None when there is no such code."""
    return EXPLANATIONS.get(code.strip("[]"))
