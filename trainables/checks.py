"""Checks of values against the legal values in `search_spaces.PARAMETERS`. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from search_spaces import PARAMETERS, Limits, Words
from trainables.errors import HyperparameterError

__all__ = ["legal_words", "near_name_hint", "refuse_illegal", "value_problem"]


def value_problem(name: str, value: object, legal: Limits | Words | None = None) -> tuple[str, str] | None:
    """Return (code, message) for an illegal value, or None for a legal one.

    If `legal` is given, it is used instead of the legal values in `search_spaces.PARAMETERS`.
    """
    legal = PARAMETERS[name].legal if legal is None else legal
    return None if legal.allows(value) else ("value-illegal", f"`{name}` must be {legal} (got {value!r}).")


def refuse_illegal(name: str, value: object, legal: Limits | Words | None = None) -> None:
    """Raise HyperparameterError for an illegal value. The arguments are those of `value_problem`."""
    if problem := value_problem(name, value, legal):
        raise HyperparameterError(*problem)


def near_name_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is most similar to `name`, or "" if no name is similar."""
    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def legal_words(name: str) -> tuple[str, ...]:
    """Return the allowed values of a categorical parameter, or an empty tuple for a numeric one."""
    legal = PARAMETERS[name].legal
    return legal.words if isinstance(legal, Words) else ()
