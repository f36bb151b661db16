"""Parser of one domain of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from search_spaces.domains import (
    PROMOTE,
    Categorical,
    Domain,
    Fixed,
    Integer,
    LogUniform,
    Promoted,
    Uniform,
    as_yaml,
)
from search_spaces.errors import DomainError

__all__ = ["UNIMODAL", "parse_declared", "parse_domain"]

UNIMODAL = "unimodal"
"""The key that declares the score unimodal along a range."""

_RANGES = ("uniform", "log_uniform", "integer", "log_integer")
_KINDS = (*_RANGES, "choice")


def parse_domain(raw: object) -> Domain:
    """Return the domain that a file gives as ``raw``.

    Raises:
        DomainError: it is not a domain.
    """
    if not isinstance(raw, Mapping):
        if isinstance(raw, list | tuple):
            raise DomainError(
                "domain-unknown",
                "a list is not a domain",
                as_yaml(raw),
                "Write {choice: [...]} for options or {uniform: [low, high]} for a range.",
            )
        return Fixed(raw)  # type: ignore[arg-type]  # Fixed checks it
    if len(raw) != 1:
        raise DomainError(
            "domain-unknown", "a domain has exactly one key", as_yaml(raw), f"Use one of {', '.join(_KINDS)}."
        )
    kind, body = next(iter(raw.items()))
    if kind == PROMOTE:
        return Promoted(tuple(body) if isinstance(body, list | tuple) else body)
    if kind not in _KINDS:
        near = get_close_matches(str(kind), (*_KINDS, PROMOTE), n=1)
        fix = f"Did you mean {near[0]!r}?" if near else ""
        raise DomainError("domain-unknown", f"a domain is one of {', '.join(_KINDS)}", as_yaml(kind), fix)
    if kind == "choice":
        if not isinstance(body, list | tuple):
            raise DomainError(
                "choice-invalid", "a choice needs a list of options", as_yaml(body), "Write {choice: [a, b]}."
            )
        return Categorical(tuple(body))
    if not isinstance(body, list | tuple) or len(body) != 2:
        raise DomainError(
            "domain-bounds", "a range needs its two bounds", as_yaml(body), f"Write {{{kind}: [low, high]}}."
        )
    low, high = body
    match kind:
        case "uniform":
            return Uniform(low, high)
        case "log_uniform":
            return LogUniform(low, high)
        case "integer":
            return Integer(low, high)
        case _:
            return Integer(low, high, log=True)


def parse_declared(raw: object) -> tuple[Domain, bool]:
    """Return the domain that a file gives, and whether the score is declared unimodal along it.

    Raises:
        DomainError: as for `parse_domain`, or something other than a range is declared unimodal.
    """
    if not (isinstance(raw, Mapping) and UNIMODAL in raw):
        return parse_domain(raw), False
    declared = raw[UNIMODAL]
    if not isinstance(declared, bool):
        raise DomainError("unimodal-invalid", f"{UNIMODAL} must be true or false", as_yaml(declared))
    rest = {key: value for key, value in raw.items() if key != UNIMODAL}
    if declared and not set(rest) & set(_RANGES):
        raise DomainError(
            "unimodal-invalid",
            "only a range can be declared unimodal: options have no order, and one value is not searched",
            as_yaml(raw),
            f"Write for example {{uniform: [0, 100], {UNIMODAL}: true}}, or remove {UNIMODAL}.",
        )
    return parse_domain(rest), declared
