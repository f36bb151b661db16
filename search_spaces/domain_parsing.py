"""Parser of one domain of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from search_spaces.domains import PROMOTE, Categorical, Domain, Fixed, Integer, LogUniform, Promoted, Uniform, as_yaml
from search_spaces.errors import DomainError

__all__ = ["UNIMODAL", "parse_declared", "parse_domain"]

UNIMODAL = "unimodal"
"""Key that declares that the score has a single maximum along a range: ``{uniform: [0, 100], unimodal: true}``."""

_RANGES = ("uniform", "log_uniform", "integer", "log_integer")
_KINDS = (*_RANGES, "choice")


def parse_domain(raw: object) -> Domain:
    """Return the domain that an experiment file writes as ``raw``. Raise DomainError if it is illegal."""
    if isinstance(raw, list | tuple):
        fix = "Write {choice: [...]} for options or {uniform: [low, high]} for a range."
        raise DomainError("domain-unknown", "a domain must not be a list", as_yaml(raw), fix)
    if not isinstance(raw, Mapping):
        return Fixed(raw)  # type: ignore[arg-type]  # Fixed checks it
    if len(raw) != 1:
        fix = f"Use one of the keys {', '.join(_KINDS)}."
        raise DomainError("domain-unknown", "a domain must have exactly one key", as_yaml(raw), fix)
    kind, body = next(iter(raw.items()))
    if kind == PROMOTE:
        return Promoted(tuple(body) if isinstance(body, list | tuple) else body)
    if kind not in _KINDS:
        near = get_close_matches(str(kind), (*_KINDS, PROMOTE), n=1)
        fix = f"Did you mean {near[0]!r}?" if near else ""
        raise DomainError("domain-unknown", f"the key must be one of {', '.join(_KINDS)}", as_yaml(kind), fix)
    if kind == "choice":
        if not isinstance(body, list | tuple):
            fix = "Write {choice: [a, b]}."
            raise DomainError("choice-invalid", "a choice needs a list of options", as_yaml(body), fix)
        return Categorical(tuple(body))
    if not isinstance(body, list | tuple) or len(body) != 2:
        fix = f"Write {{{kind}: [low, high]}}."
        raise DomainError("domain-bounds", "a range needs two bounds", as_yaml(body), fix)
    low, high = body
    match kind:
        case "uniform":
            return Uniform(low, high)
        case "log_uniform":
            return LogUniform(low, high)
        case _:
            return Integer(low, high, log=kind == "log_integer")


def parse_declared(raw: object) -> tuple[Domain, bool]:
    """Return the domain that an experiment file writes as ``raw``, and whether the file declares it unimodal.

    Raises:
        DomainError: ``raw`` is not a legal domain, or it is declared unimodal but is not a range.
    """
    if not (isinstance(raw, Mapping) and UNIMODAL in raw):
        return parse_domain(raw), False
    declared = raw[UNIMODAL]
    if not isinstance(declared, bool):
        raise DomainError("unimodal-invalid", f"{UNIMODAL} must be true or false", as_yaml(declared))
    rest = {key: value for key, value in raw.items() if key != UNIMODAL}
    if declared and not set(rest) & set(_RANGES):
        rule = "only a range can be unimodal, because options have no order and a single value is not searched"
        fix = f"Write for example {{uniform: [0, 100], {UNIMODAL}: true}}, or remove {UNIMODAL}."
        raise DomainError("unimodal-invalid", rule, as_yaml(raw), fix)
    return parse_domain(rest), declared
