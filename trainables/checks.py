"""Checks of values against the one table of legal values, `search_spaces.PARAMETERS`. No torch."""

from __future__ import annotations

from search_spaces import PARAMETERS, Limits, Words
from trainables.errors import HyperparameterError

__all__ = ["legal_words", "refuse_illegal", "value_problem"]


def value_problem(name: str, value: object, legal: Limits | Words | None = None) -> tuple[str, str] | None:
    """Return the code and the message of an illegal value; None for a legal one. NaN and infinity are never legal.

    Args:
        name: of the parameter.
        value: as it was given.
        legal: its legal values; None takes those of the table.
    """
    legal = PARAMETERS[name].legal if legal is None else legal
    return None if legal.allows(value) else ("value-illegal", f"`{name}` must be {legal} (got {value!r}).")


def refuse_illegal(name: str, value: object, legal: Limits | Words | None = None) -> None:
    """Refuse an illegal value; the arguments are those of `value_problem`.

    Raises:
        HyperparameterError: it is illegal.
    """
    if problem := value_problem(name, value, legal):
        raise HyperparameterError(*problem)


def legal_words(name: str) -> tuple[str, ...]:
    """Return the legal words of a parameter without an order; none for a number."""
    legal = PARAMETERS[name].legal
    return legal.words if isinstance(legal, Words) else ()
