"""Formatting of the values of a privacy card as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

__all__ = [
    "blocks_text",
    "cap_text",
    "counted",
    "curve_text",
    "detail",
    "epsilon_and_delta",
    "number",
    "odds_factor",
    "other_searches_text",
    "percent",
    "plain",
    "rounded_up",
    "settings_text",
    "splits_text",
    "voids_text",
    "words",
]

_INERT = str.maketrans({sign: f"&#{ord(sign)};" for sign in "<>[]`*|"})
"""Escapes of characters that Markdown would read as a link, a tag or a table cell."""
_GREEK = {"epsilon": "ε", "delta": "δ"}


def plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as one line of text that Markdown shows unchanged."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{words(key)} {plain(value[key])}" for key in sorted(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return " ".join(value.split()).translate(_INERT) if isinstance(value, str) else repr(value)


def words(name: str) -> str:
    """Return the name of a field with spaces instead of underscores."""
    return name.replace("_", " ")


def number(value: float) -> str:
    """Return a number with all its digits, without the `.0` of a whole number."""
    return repr(value).removesuffix(".0")


def rounded_up(value: float, digits: int = 4) -> str:
    """Return a number as text, rounded upward, with `digits` significant digits."""
    if not (isinstance(value, float) and math.isfinite(value) and value > 0):
        return number(value)
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))
    return f"{float(rounded):.{digits}g}"


def percent(share: float) -> str:
    """Return a share as a percentage, rounded upward, with two decimals."""
    # 1e-9 is larger than the rounding error of a double. Without it, that error could raise the last digit.
    return f"{math.ceil(min(share, 1.0) * 10_000 - 1e-9) / 100:.2f} %"


def odds_factor(epsilon: float) -> str:
    """Return e^ε, rounded upward."""
    if epsilon > 12:
        return "more than 100000"
    found = math.exp(epsilon)
    return rounded_up(found, 3) if found < 100 else str(math.ceil(found))


def counted(number: int, what: str) -> str:
    """Return a number with the singular or plural of a noun, such as "1 step" or "2 steps"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def epsilon_and_delta(epsilon: float, delta: float) -> str:
    """Return "ε = …, δ = …" with all digits."""
    return f"ε = {number(epsilon)}, δ = {number(delta)}"


def cap_text(cap: Mapping[str, Any] | None) -> str:
    """Return the cap that the owner of a data set has set, on one line."""
    if cap is None:
        return "none"
    order = "" if cap["order"] is None else f", with a Rényi filter of order {plain(cap['order'])}"
    return f"ε = {plain(cap['epsilon'])}, δ = {plain(cap['delta'])}{order}"


def detail(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as one line of text with all digits, for the details of the page."""
    if isinstance(value, Mapping) and value:
        return ", ".join(f"{_GREEK.get(key, words(key))} = {plain(value[key])}" for key in sorted(value))
    if isinstance(value, list) and value:
        return "; ".join(plain(item) for item in value)
    return plain(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as "name = value". The names are written as in the experiment file."""
    return ", ".join(f"{name} = {plain(settings[name])}" for name in sorted(settings)) or "none"


def curve_text(curve: Sequence[Mapping[str, float]]) -> str:
    """Return the (ε, δ) pairs of a curve on one line."""
    return "; ".join(f"ε = {plain(row['epsilon'])} at δ = {plain(row['delta'])}" for row in curve) or "none"


def blocks_text(blocks: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the blocks on which a search counts, with their totals, and what that rests on, on one line."""
    if blocks is None:
        return "none: the table is used as a whole"
    return (
        f"{'; '.join(map(_block, blocks))}. The whole (ε, δ) of the search is added to the total of each block. The "
        f"numbers below are those of {plain(blocks[0]['dataset'])}. The owner of the data vouches that "
        "each record is in one block, and that this block depends on that record alone"
    )


def _block(row: Mapping[str, Any]) -> str:
    committed = epsilon_and_delta(row["committed_epsilon"], row["committed_delta"])
    return (
        f"{plain(row['dataset'])} (cap: {cap_text(row['cap'])}; sum of the caps of all searches on it "
        f"({row['searches']}): {committed}; within the cap: {plain(row['within_cap'])}; void: "
        f"{voids_text(row['void'])}; validation splits: {splits_text(row['validation_splits'])}; last ledger entry: "
        f"{row['head_seq']}, with the hash {plain(row['head_hash'])})"
    )


def splits_text(splits: Sequence[str]) -> str:
    """Return the validation splits of a data set on one line, from their canonical JSON on the card."""
    return "; ".join(_split(json.loads(split)) for split in splits) or "none"


def _split(split: Mapping[str, Any] | None) -> str:
    if split is None:
        return "not recorded"
    return ", ".join(f"{words(key)} {plain(split[key])}" for key in sorted(split, key=lambda key: (key != "set", key)))


def other_searches_text(searches: Sequence[Mapping[str, Any]]) -> str:
    """Return one line about the data set's other searches, without the card's own search."""
    return "; ".join(_other_search(search) for search in searches) or "none"


def voids_text(voids: Sequence[Mapping[str, Any]]) -> str:
    """Return one line about the uses of records without protection for which the owner gave up the total."""
    return (
        "; ".join(f"since {plain(each['day'])}, {plain(each['use'])}: {plain(each['why'])}" for each in voids) or "no"
    )


def _other_search(search: Mapping[str, Any]) -> str:
    steps = search["leased_steps"]
    charged = "sealed" if steps is None else f"{counted(steps, 'step')} charged"
    return (
        f"{plain(search['search'])} (opened {plain(search['opened'])}, cap ε = {plain(search['epsilon'])}, "
        f"δ = {plain(search['delta'])}, {charged})"
    )
