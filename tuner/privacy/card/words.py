"""Values of a privacy card in words and figures. Pages of cards that were issued hang on every letter of these."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "count",
    "factor",
    "number",
    "pair",
    "percent",
    "plain",
    "section",
    "split_words",
    "statement",
    "up",
    "words",
]


_INERT = str.maketrans({sign: f"&#{ord(sign)};" for sign in "<>[]`*|"})
"""Signs that would make a link, a tag or a table cell of a name. No word of ours has one, nor has `_` to be among them:
pages that were issued stay as they are."""


def split_words(text: str) -> str:
    """A split, which the card has as the ledger's canonical JSON, in words."""
    found = json.loads(text)
    if not isinstance(found, Mapping):
        return "not recorded" if found is None else plain(found)
    return ", ".join(f"{words(key)} {plain(found[key])}" for key in sorted(found, key=lambda key: (key != "set", key)))


def pair(epsilon: float, delta: float) -> str:
    """Both numbers, named, with all their digits."""
    return f"ε = {number(epsilon)}, δ = {number(delta)}"


def number(value: float) -> str:
    """All its digits, without the `.0` of a whole number."""
    return repr(value).removesuffix(".0")


def up(value: float, digits: int = 4) -> str:
    """Rounded up to some significant digits: no figure may read as less than it is."""
    if not (isinstance(value, float) and math.isfinite(value) and value > 0):
        return number(value)
    near = float(f"{value:.{digits}g}")
    if near < value:
        near = float(f"{near + 10.0 ** (math.floor(math.log10(value)) - digits + 1):.{digits}g}")
    return f"{near:.{digits}g}"


def percent(share: float) -> str:
    """Rounded up too; the small part taken off is the rounding of the doubles themselves."""
    return f"{math.ceil(min(share, 1.0) * 10_000 - 1e-9) / 100:.2f} %"


def factor(epsilon: float) -> str:
    """What e^ε is, rounded up."""
    if epsilon > 12:
        return "more than 100000"
    found = math.exp(epsilon)
    return up(found, 3) if found < 100 else str(math.ceil(found))


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def words(name: str) -> str:
    """A field's own name, where there is no better one."""
    return name.replace("_", " ")


def plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value on one line."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{words(key)} {plain(value[key])}" for key in sorted(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return " ".join(value.split()).translate(_INERT) if isinstance(value, str) else repr(value)


def statement(claim: Mapping[str, Any]) -> str:
    """The claim's sentence, with its two numbers named."""
    exact = f"({claim['epsilon']!r}, {claim['delta']!r})-"
    return f"{pair(claim['epsilon'], claim['delta'])}: {plain(claim['statement']).removeprefix(exact)}"


def section(name: str, value: Any, labels: Mapping[str, str], codes: Mapping[str, str]) -> list[str]:  # noqa: ANN401
    """One section of the details, as the lines of a list.

    Args:
        name: of the section.
        value: any JSON value.
        labels: words for its fields, in the order of the page; a field that has none follows under its own name.
        codes: words for values that are codes.
    """
    if name == "assumptions":
        return [f"- **{plain(row['assumption'])}**: {plain(row['status'])} ({plain(row['why'])})" for row in value]
    if isinstance(value, list):
        return [f"- {plain(item)}" for item in value] or ["none"]
    if not isinstance(value, Mapping):
        return [plain(value)]
    # The order is the labels', never the mapping's: a card that was read has another than one that was made.
    keys = [*(key for key in labels if key in value), *sorted(value.keys() - labels.keys())]
    hidden = {"statement"} if name == "claim" else set()  # it stands at the top
    return [f"- {labels.get(key, words(key))}: {_detail(key, value[key], codes)}" for key in keys if key not in hidden]


def _detail(key: str, value: Any, codes: Mapping[str, str]) -> str:  # noqa: ANN401 - any JSON value
    """One value on one line, exact."""
    if key == "validation_splits":
        return "; ".join(split_words(text) for text in value) or "none"
    if key == "curve":
        return "; ".join(f"ε = {plain(row['epsilon'])} at δ = {plain(row['delta'])}" for row in value) or "none"
    if key == "other_searches":
        return "; ".join(_other(row) for row in value) or "none"
    if isinstance(value, Mapping) and value:
        names = {"epsilon": "ε", "delta": "δ"}
        opaque = key in {"parameters", "versions"}  # names that are not ours: shown as they are
        return ", ".join(
            f"{inner if opaque else names.get(inner, words(inner))} = {plain(value[inner])}" for inner in sorted(value)
        )
    if isinstance(value, list) and value:
        return "; ".join(plain(item) for item in value)
    return codes.get(value, plain(value)) if isinstance(value, str) else plain(value)


def _other(row: Mapping[str, Any]) -> str:
    charged = "sealed" if row["leased_steps"] is None else f"{count(row['leased_steps'], 'step')} charged"
    return (
        f"{plain(row['search'])} (opened {plain(row['opened'])}, cap ε = {plain(row['epsilon'])}, "
        f"δ = {plain(row['delta'])}, {charged})"
    )
