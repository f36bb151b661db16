"""Results of long measurements, one line of JSON each, so that one that was cut off goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["append", "read"]

Key = TypeVar("Key")
Result = TypeVar("Result")


def append(path: Path, run: DataclassInstance, outcome: DataclassInstance) -> None:
    """Add one result; after a crash in the middle of a line the next begins on its own."""
    with path.open("a+b") as file:
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")
        file.write(json.dumps({"run": asdict(run), "outcome": asdict(outcome)}).encode() + b"\n")


def read(path: Path, run: Callable[..., Key], outcome: Callable[..., Result]) -> dict[Key, Result]:
    """All results of a file; none when there is no file. A line cut short by a crash is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[run(**row["run"])] = outcome(**row["outcome"])
    return found
