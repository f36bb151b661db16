"""What a search shows to an analyst, by kind of output, as words and numbers.

Names that are drawn at random (of folders, trials and runs), hashes and times are left out. Numbers are taken out of
their words. A number is *charged* if its name says that it is a score, belongs to the trial with the best score, or is
the size of a file that holds scores: such numbers are random, and only their distribution can be compared. All words
and all other numbers must be equal.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = ["KINDS", "Shown", "shown_answer", "shown_by_ledger", "shown_in_folder", "shown_on_mlflow", "shown_text"]

KINDS: Final = ("exit codes", "output", "folder", "status", "study", "ledger", "mlflow", "exported files", "card")
"""Kinds of output that are compared, each by itself."""

_RANDOM_NAMES: Final = re.compile(
    r"-\d{8}-\d{6}-[0-9a-f]{6}"  # a sweep
    r"|\b\d{4}-[0-9a-f]{6}\b"  # a trial
    r"|\b[0-9a-f]{32,128}\b"  # a run of MLflow, and every hash
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"  # a ledger
    r"|\b\d{4}-\d\d-\d\d\b"  # a day
)
_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_CHARGED: Final = re.compile(
    r"accuracy|loss|score|objective|best|curve|values?\b|±|chosen|\berrors?\b|extrapolation"
    r"|exported trial|\bseed:$|^param seed$|learning_rate",
    re.IGNORECASE,
)
_RANDOM_SIZES: Final = re.compile(
    r"(spool\.jsonl|spool\.acknowledged\.json|study\.journal|status\.json|test_scores\.json|winner\.json|mlflow\.db"
    r"|privacy_card\.(json|md)|experiment\.yaml|charged_run\.yaml|privacy_curve\.svg)$"
)
"""Files that hold scores or times as text."""
_LAYOUT: Final = re.compile(r"[│─╭╮╰╯█░|]+")
_TIES: Final = re.compile(
    r"within one standard error|\bdifference:"
    r"|^\W*(tied|expected)\b|^\W*trials? [\d, ]+\W*$"
)
"""Lines about trials that are tied with the winner. Whether there are any follows from the scores."""
_TIMES: Final = re.compile(r"time|_at$|(^|\.)t$|^(pid|worker_id|crc|started|ended)$")


@dataclass
class Shown:
    """One kind of output of one search.

    Attributes:
        lines: the words in order, with ``#`` for each number.
        numbers: the numbers in order.
        names: for each number, the words before it.
        charged: for each number, whether it is random by right.
    """

    lines: list[str] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    charged: list[bool] = field(default_factory=list)

    @property
    def words(self) -> str:
        """All words, which must be equal."""
        return "\n".join(self.lines)

    def add(self, label: str, text: str, *, charged: bool = False) -> None:
        """Add a line: its label, which is all words, and a text in which numbers are looked for.

        With `charged`, all numbers of the text are random by right.
        """
        label = _RANDOM_NAMES.sub("", label)
        text = " ".join(_LAYOUT.sub(" ", _RANDOM_NAMES.sub("", text)).split())
        for found in _NUMBER.finditer(text):
            before = f"{label} {text[max(0, found.start() - 40) : found.start()]}"
            self.numbers.append(float(found[0]))
            self.names.append(" ".join(_NUMBER.sub("#", before).split())[-60:])
            near = " ".join(before.split()[-2:])
            is_winner = text.startswith(" was the best", found.end())
            self.charged.append(
                charged
                or is_winner
                or _in_table(text, found.start())
                or bool(_CHARGED.search(label) or _CHARGED.search(near))
            )
        self.lines.append(f"{label} {_NUMBER.sub('#', text)}".strip())

    def add_json(self, label: str, value: object) -> None:
        """Add every leaf of a parsed JSON text under its path, times left out."""
        if isinstance(value, dict):
            for key, each in value.items():
                if not _TIMES.search(str(key)) and key not in ("tied", "expected"):
                    self.add_json(f"{label}.{key}", each)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                self.add_json(f"{label}[{place}]", each)
        else:
            self.add(label, str(value))


def _in_table(text: str, place: int) -> bool:
    """Return whether a number is in a row of trials, of which the best is first, and is not the number of its steps."""
    row = re.match(r"\d+ complete \d+", text)
    return row is not None and (place == 0 or place >= row.end())


def shown_text(shown: Shown, text: str, folder: Path) -> None:
    """Add the output of a command, line by line."""
    for line in text.replace(str(folder), "").splitlines():
        if _TIES.search(line):
            continue
        shown.add("", line.replace("  BEST  ", "  "))  # which trial is the best so far is random by right


def shown_answer(shown: Shown, command: str, text: str, folder: Path) -> None:
    """Add the answer of a command: under paths if all of it is JSON, else line by line."""
    try:
        shown.add_json(command, json.loads(text.replace(str(folder), "")))
    except json.JSONDecodeError:
        shown_text(shown, text, folder)


def shown_in_folder(bench: Path) -> dict[str, Shown]:
    """Return what the files show to who may not enter a folder that is the operator's (mode 0700).

    The records, the ledger and its key are the operator's: of them, only the modes count.
    """
    found = {kind: Shown() for kind in ("folder", "status", "study", "exported files", "card")}
    for path in _visible(bench):
        name = str(path.relative_to(bench))
        mode, size = stat.filemode(path.stat().st_mode), path.stat().st_size
        where = found["exported files"] if name.startswith("out") else found["folder"]
        operators = path.is_dir() or path.suffix == ".npz" or path.name.startswith("ledger.db")
        where.add(f"{mode} {name}", "" if operators else str(size), charged=bool(_RANDOM_SIZES.search(name)))
        if path.name in ("status.json", "winner.json", "plan.json", "test_scores.json"):
            found["status"].add_json(path.name, json.loads(_without(bench, path)))
        elif path.name == "study.journal":
            for line in _without(bench, path).splitlines():
                found["study"].add_json("journal", json.loads(line))
        elif path.name == "privacy_card.json":
            found["card"].add_json("card", json.loads(_without(bench, path)))
        elif path.name in ("privacy_card.md", "experiment.yaml") and name.startswith("out"):
            shown_text(found["card"], path.read_text(), bench)
        elif path.suffix == ".safetensors":
            found["exported files"].add(path.name, _form_of(path))
    return found


def _without(bench: Path, path: Path) -> str:
    return path.read_text().replace(str(bench), "")


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda each: _RANDOM_NAMES.sub("", each.name)):
        if path.name == "mlartifacts" or path.name.startswith("ledger.db-"):
            continue  # copies of files that are here, under random names; and the ledger's open connections
        yield path
        if path.is_dir() and path.stat().st_mode & 0o077:
            yield from _visible(path)


def _form_of(model: Path) -> str:
    """Return names, shapes and finiteness of a model's tensors. The values are charged."""
    from safetensors.numpy import load_file

    tensors = load_file(model)
    return " ".join(f"{key} {value.shape} {bool(np.isfinite(value).all())}" for key, value in sorted(tensors.items()))


def shown_by_ledger(ledger: Path) -> Shown:
    """Return the entries of a ledger in order: data set, kind, writer, and the body without hashes."""
    shown = Shown()
    for dataset, kind, user, body in _rows(ledger, "SELECT dataset, kind, writer, body FROM entries ORDER BY id"):
        shown.add_json(f"{dataset} {kind} {user}", json.loads(body))
    return shown


def shown_on_mlflow(database: Path) -> Shown:
    """Return the runs of an MLflow database: states, parameters, metrics with their steps, and tags."""
    shown = Shown()
    for run, name, status in _rows(database, "SELECT run_uuid, name, status FROM runs ORDER BY rowid"):
        shown.add("run", f"{name} {status}")
        for key, value in _rows(database, "SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", run):
            shown.add(f"param {key}", str(value).replace(str(database.parent.parent), ""))
        metrics = "SELECT key, value, is_nan, step FROM metrics WHERE run_uuid = ? ORDER BY key, step, timestamp, value"
        for key, value, is_nan, step in _rows(database, metrics, run):
            shown.add(f"metric {key}", f"{value} {is_nan}")
            shown.add(f"step {_CHARGED.sub('', key)}", str(step))
        for key, value in _rows(database, "SELECT key, value FROM tags WHERE run_uuid = ? ORDER BY key", run):
            shown.add(f"tag {key}", "" if _TIMES.search(key) else str(value).replace(str(database.parent.parent), ""))
    return shown


def _rows(database: Path, question: str, *values: str) -> list[tuple[Any, ...]]:
    if not database.exists():
        return []
    with contextlib.closing(sqlite3.connect(database)) as raw:
        return raw.execute(question, values).fetchall()
