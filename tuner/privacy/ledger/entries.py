"""Entries of the ledger, and the hash that links each entry to the previous one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import InputError

__all__ = ["GENESIS", "Entry", "canonical", "entry_hash"]

GENESIS = "0" * 64
"""Value of `Entry.previous` for the first entry of a data set."""


def canonical(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, and floats with all digits.

    Raises:
        InputError: the value contains NaN, infinity, or a type that JSON lacks.
    """
    try:
        text = _text(value)
        same = json.loads(text) == value
    except (TypeError, ValueError) as error:
        raise InputError(
            "not-plain-json",
            f"A value for the ledger or a card must be plain JSON with finite numbers (got {value!r}: {error}). Use "
            "strings, whole numbers, finite floats, lists and mappings with string keys.",
        ) from error
    if not same and not _has_tuples(value):
        raise InputError(
            "not-plain-json", f"The value {value!r} would change in JSON. Use string keys in all mappings."
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Ledger entry of one data set. Its hash covers all other fields.

    Attributes:
        dataset: name of the data set.
        seq: number of the entry within the data set: 1, 2, 3, … without a gap.
        time: day on which the entry was written, UTC, such as `2026-11-24`. It is for people only; no rule uses it.
        kind: what the entry says.

            - Decisions of the owner: `cap`, `grant` (a user's share; 0 revokes it), `public` (the records, by keyed
              checksum) and `void` (the total, with the reason).
            - A search with its filter, claim, unit and user: `open_search`, `close_search`, `reopen_search`.
            - Charged whole, before anything is drawn: `begin` (a sealed search, or any search on its
              further blocks), `release` (a noisy copy or voted labels). `stored` has the SHA-256 of a release.
            - Steps of a trial: `reserve` promises them, `lease` takes them before their batches are drawn, `settle`
              returns the rest.
            - `card`: the hash of a card that was issued.
        writer: the database role or the account of the operating system that wrote the entry.
        body: content of the entry, as canonical JSON.
        previous: hash of the previous entry, or `GENESIS`.
        hash: SHA-256 of the other fields, hexadecimal.
    """

    dataset: str
    seq: int
    time: str
    kind: str
    writer: str
    body: str
    previous: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """The parsed body; raises `ValueError` if the body is not canonical JSON."""
        data: dict[str, Any] = json.loads(self.body)
        if _text(data) != self.body:
            raise ValueError("the body is not canonical JSON")
        return data


def entry_hash(*, dataset: str, seq: int, time: str, kind: str, writer: str, body: str, previous: str) -> str:
    """Return the SHA-256 of all fields of an entry except the hash itself.

    The fields are hashed as JSON in UTF-8, with sorted keys and without spaces. The trigger of a PostgreSQL ledger
    computes the same text (`stores/postgresql_rules.py`), so only what both programs escape alike is escaped.
    """
    fields = {
        "body": body, "dataset": dataset, "kind": kind, "previous": previous, "seq": seq, "time": time,
        "writer": writer,
    }  # fmt: skip
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _has_tuples(value: object) -> bool:
    if isinstance(value, tuple):
        return True
    if isinstance(value, Mapping):
        return any(_has_tuples(item) for item in value.values())
    return isinstance(value, list) and any(_has_tuples(item) for item in value)
