"""Explanations of all error codes. `tune explain` shows what a code means and what to do."""

from __future__ import annotations

import difflib
from typing import Any

import search_spaces.errors
import trainables.errors
from tuner.error_codes import experiment, privacy, sweeps
from tuner.errors import InputError, TunerError

__all__ = ["EXIT_CODES", "EXPLANATIONS", "code_list", "explain"]

_FAMILIES = {1: "failed", 2: "bad input", 3: "refused by the budget", 130: "interrupted, resumable"}
_SECTIONS = (
    {InputError.exit_code: trainables.errors.EXPLANATIONS | search_spaces.errors.EXPLANATIONS},
    {TunerError.exit_code: trainables.errors.FAILURES},
    sweeps.EXPLANATIONS,
    experiment.EXPLANATIONS,
    privacy.EXPLANATIONS,
)

EXPLANATIONS: dict[str, str] = {}
EXIT_CODES: dict[str, int] = {}
for _section in _SECTIONS:
    for _exit_code, _explanations in _section.items():
        EXPLANATIONS |= _explanations
        EXIT_CODES |= dict.fromkeys(_explanations, _exit_code)


def explain(code: str) -> dict[str, Any]:
    """Return a code's explanation, exit code and family.

    Args:
        code: error code. It may still have the brackets in which an error message shows it.

    Raises:
        InputError: the code is unknown. The message names a similar code.
    """
    code = code.strip("[] ").lower()
    if code not in EXPLANATIONS:
        near = difflib.get_close_matches(code, EXPLANATIONS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "All codes: tune explain"
        raise InputError("unknown-code", f"No error has the code {code!r}. {hint}")
    exit_code = EXIT_CODES[code]
    return {"code": code, "exit_code": exit_code, "family": _FAMILIES[exit_code], "explanation": EXPLANATIONS[code]}


def code_list() -> dict[str, str]:
    """Return all codes, each with the first sentence of its explanation."""
    return {code: EXPLANATIONS[code].partition(". ")[0].rstrip(".") + "." for code in sorted(EXPLANATIONS)}
