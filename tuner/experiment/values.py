"""Types and ranges of the values of an experiment file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from search_spaces import PARAMETERS, DomainError, parse_declared
from search_spaces.domains import as_yaml, is_number

__all__ = [
    "NOISES",
    "AtMost",
    "Blocks",
    "Count",
    "Finite",
    "Fraction",
    "FullRuns",
    "Line",
    "Names",
    "Noise",
    "Order",
    "Positive",
    "Rungs",
    "ScoreNoise",
    "Seed",
    "UserKey",
    "Word",
    "broken",
    "one_release",
    "one_value",
]

_BLOCK = re.compile(r"[A-Za-z0-9._-]{1,50}")
_ORDERS = (1.05, 1024.0)

NOISES = (1e-3, 1e6)
"""Range of noise multipliers and of the noise of protected scores.

Noise below this range gives no useful guarantee. The accountant is not tested with noise above it.
"""


def broken(code: str, rule: str, fix: str = "") -> PydanticCustomError:
    """Return pydantic's error for a value that breaks `rule`. `wording.broken_rule` extracts the code, rule and fix."""
    return PydanticCustomError("rule", "{rule}", {"code": code, "rule": rule, "fix": fix})


def one_value(name: str) -> BeforeValidator:
    """Return a validator for a key that takes a single value. It refuses a domain."""

    def check(value: object) -> object:
        if isinstance(value, Mapping | list):
            rule = "must be a single value, because domains to search belong to search.space"
            raise broken("domain-outside-space", rule, f"Write search.space.{name}: {as_yaml(value)}.")
        return value

    return BeforeValidator(check)


def one_release(name: str) -> BeforeValidator:
    """Return a validator for a setting of the release. It refuses a domain: each value would be a charged release."""

    def check(value: object) -> object:
        if isinstance(value, Mapping | list):
            rule = (
                "must be a single value, because each value needs a release of its own, which is charged like the first"
            )
            fix = (
                f"Write `{name}: NUMBER`. To compare values, run a search for each value. Each search is charged its "
                "own `epsilon`."
            )
            raise broken("release-searched", rule, fix)
        return value

    return BeforeValidator(check)


def _noise(value: object) -> object:
    if isinstance(value, Mapping):
        parameter = PARAMETERS["noise_multiplier"]
        try:
            parameter.check(parse_declared(value)[0])
        except DomainError as error:
            raise broken(error.code, error.rule, error.fix) from error
        return dict(value)
    if is_number(value) and value == 0:  # for studies
        return value
    other = ", or a domain such as {choice: [1, 2]}"
    return _auto_or_number(NOISES, "Write auto for the smallest noise that fits the budget.", other)(value)


def _auto_or_number(limits: tuple[float, float], fix: str, other: str = "") -> Callable[[object], object]:
    """Return a validator that accepts ``auto`` or a number within the limits. `other` names further allowed values."""
    low, high = limits

    def check(value: object) -> object:
        if value == "auto" or (is_number(value) and low <= value <= high):
            return value
        raise broken("value-not-allowed", f"must be auto, or a finite number from {low:g} to {high:g}{other}", fix)

    return check


def _at_most(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**31):
        return value
    rule = "must be auto, or a whole number of at least 1"
    raise broken("value-not-allowed", rule, "Write auto for a maximum that costs at most 1 % of delta.")


def _full_runs(value: object) -> object:
    if value is None or value == "auto" or (is_number(value) and value >= 1):
        return float(value) if is_number(value) else value
    rule = "must be auto, or a number of whole runs from 1 to `search.trials`, for which the budget is planned"
    raise broken("value-not-allowed", rule, "auto takes the number that `tune plan` recommends.")


def _rungs(value: object) -> object:
    if isinstance(value, list | tuple):
        rising = all(is_number(entry) and 0 < entry <= 1 for entry in value) and list(value) == sorted(set(value))
        if not (rising and value and value[-1] == 1):
            rule = "must be a whole number, or a list of increasing fractions above 0 that ends with 1"
            raise broken("rungs-invalid", rule, "Write for example [0.25, 0.5, 1.0].")
        return tuple(float(entry) for entry in value)
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000):
        rule = "must be a whole number from 1 to 10000, or a list of increasing fractions above 0 that ends with 1"
        raise broken("rungs-invalid", rule, "Write for example 5.")
    return value


def _blocks(value: object) -> object:
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
    if not names or not all(isinstance(name, str) and _BLOCK.fullmatch(name) for name in names):
        rule = "must be one or several names of blocks, each of 1 to 50 letters, digits, dots, hyphens or underscores"
        raise broken("block-invalid", rule, "Write for example [2026-10, 2026-11], and quote a name that is a number.")
    return tuple(sorted(set(names)))


Blocks = Annotated[tuple[str, ...], BeforeValidator(_blocks)]


def _names(value: object) -> object:
    names = list(value) if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in names):
        rule = "must be a list of names of layers"
        raise broken("value-wrong-type", rule, 'Write for example ["1", encoder.0], and quote a name that is a number.')
    return tuple(dict.fromkeys(names))


def _one_line(text: str) -> str:
    if not text.isprintable() or len(text) > _LONGEST:
        raise broken("value-not-allowed", f"must be one line of at most {_LONGEST} characters")
    return text


_LONGEST = 300  # characters of a line that the ledger keeps

Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Word = Annotated[str, Field(min_length=1)]
Line = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
"""Words that the ledger keeps and a page shows on one line."""
UserKey = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Public name of what divides records among users. A card and the ledger show it on one line."""
AtMost = Annotated[Literal["auto"] | int, BeforeValidator(_at_most)]
FullRuns = Annotated[Literal["auto"] | float | None, BeforeValidator(_full_runs)]
Noise = Annotated[Literal["auto"] | float | dict[str, Any], BeforeValidator(_noise)]
Order = Annotated[
    Literal["auto"] | float,
    BeforeValidator(_auto_or_number(_ORDERS, "auto chooses the best order for the plan.")),
]
Rungs = Annotated[int | tuple[float, ...], BeforeValidator(_rungs)]
ScoreNoise = Annotated[
    Literal["auto"] | float,
    BeforeValidator(_auto_or_number(NOISES, "Write auto for the smallest noise that fits the budget of the scores.")),
]
"""Standard deviation of the noise on the number of correct predictions in a protected score."""
