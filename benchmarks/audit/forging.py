"""Forgeries: other values, keys and lists in a card, and other bodies and orders in a ledger's chain."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any
from unittest import mock

from tuner.privacy.accountant.filters import CouponBook
from tuner.privacy.card.sections import caps
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify import checks
from tuner.privacy.verify.report import Check

__all__ = ["SENTENCE", "all_forged", "forged", "forged_chains", "forger", "forgeries", "places"]

SENTENCE = "Certified by the supervisory authority."
Path = tuple[str | int, ...]
_CURVES, _CLAIMS, _ENTRIES = cache(caps.claim_curve), cache(CouponBook.claim), cache(Ledger.entries)


@contextlib.contextmanager
def forger() -> Iterator[None]:
    """Let a forger record every hash. What is slow is left out or read once: rendering anew must find all."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (Ledger, "verify_chain", lambda *_: {}),
            (Ledger, "entries", _ENTRIES),
            (checks, "check_recorded", lambda *_: Check("card hash", ok=True, detail="")),
            (checks, "second_opinion", lambda *_: iter(())),
            (caps, "claim_curve", _CURVES),
            (CouponBook, "claim", _CLAIMS),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        yield


def places(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield (path, value) of every value of a card, on every level."""
    yield path, value
    if isinstance(value, Mapping):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def forgeries(value: object) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of other values for one."""
    match value:
        case bool():
            yield "turned", not value
        case int():
            yield "counted on", value + 1
            yield "a decimal", float(value)
        case float():
            yield "a hundredth less", 0.99 * value if value else -1e-6
            yield "doubled", 2 * value + 1
        case str():
            yield "a sentence more", f"{value}. {SENTENCE}"
            yield "emptied", ""
        case None:
            yield "filled", 1
            yield "said", SENTENCE
        case list():
            yield "longer", [*value, copy.deepcopy(value[-1]) if value else SENTENCE]
            if value:
                yield "shorter", value[:-1]
        case dict():
            yield "a key more", {**value, "certified": True}
            yield "a sentence more", {**value, "remark": SENTENCE}


def forged(card: dict[str, Any], path: Path, change: Callable[[Any, Any], None]) -> dict[str, Any]:
    """Return a copy of the card in which `change` was made to the container of the last key."""
    card = copy.deepcopy(card)
    place: Any = card
    for key in path[:-1]:
        place = place[key]
    change(place, path[-1])
    return card


def all_forged(card: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (path, forgery, card) of every forged card."""
    for path, value in places(card):
        name = ".".join(map(str, path))
        for forgery, other in forgeries(value):
            if not path:
                yield name, forgery, dict(other)  # type: ignore[call-overload]
                continue
            yield name, forgery, forged(card, path, lambda place, key, other=other: place.__setitem__(key, other))
        if path and not isinstance(path[-1], int):
            yield name, "removed", forged(card, path, lambda place, key: place.__delitem__(key))


def forged_chains(source: FilePath, folder: FilePath) -> Iterator[tuple[str, FilePath]]:
    """Yield (what was forged, SQLite file) of copies of a ledger whose entries were changed past the program.

    Every leaf of every body is changed, entries are removed, repeated and exchanged. The hashes stay as they were.
    """
    with contextlib.closing(sqlite3.connect(source)) as raw:
        rows = raw.execute("SELECT id, kind, body FROM entries ORDER BY id").fetchall()

    def forged_copy(*statements: tuple[str, tuple[object, ...]]) -> FilePath:
        target = folder / "forged.db"
        shutil.copy(source, target)
        with contextlib.closing(sqlite3.connect(target)) as raw:
            for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                raw.execute(f"DROP TRIGGER {name}")
            for statement, values in statements:
                raw.execute(statement, values)
            raw.commit()
        return target

    for row, kind, text in rows:
        for path, forgery, body in all_forged(json.loads(text)):
            changed = json.dumps(body, sort_keys=True, separators=(",", ":"))
            if changed != text:
                yield (
                    f"{kind} {path} {forgery}",
                    forged_copy(("UPDATE entries SET body = ? WHERE id = ?", (changed, row))),
                )
        yield f"{kind} removed", forged_copy(("DELETE FROM entries WHERE id = ?", (row,)))
    for (one, kind, text), (other, _, second) in pairwise(rows):
        if text != second:
            swapped = (("UPDATE entries SET body = ? WHERE id = ?", pair) for pair in ((second, one), (text, other)))
            yield f"{kind} exchanged with the next", forged_copy(*swapped)
