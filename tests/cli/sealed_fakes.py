"""Sealed searches for tests: small, with the number of runs decided by the test, and all that can be seen of one."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from command_fakes import Tune

from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder

_RANDOM = re.compile(
    r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|\"(crc|target)\": ?\"[0-9a-f]{8}\"|\"(start|end)\": \d+"
)
"""Hashes, ids of runs and of ledgers, checksums and places of records (a score is not always as long)."""

SEALED: dict[str, object] = {
    "privacy__accounting": "selection",
    "privacy__noise_multiplier": 2.0,
    "search__trials": 3,
    "search__space": {"learning_rate": {"uniform": [0.4, 0.6]}},
}
"""A sealed search whose candidates differ in the rate and the seed, so that two winners differ in nothing else."""


class Tomorrow(datetime):
    """A clock for pages that say when they were written."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Tomorrow:
        day = datetime.now(tz).date() + timedelta(days=1)
        return cls(day.year, day.month, day.day, tzinfo=tz)


def draw(patch: pytest.MonkeyPatch, runs: int) -> list[tuple[RunLaw, int]]:
    """Decide K; the laws and limits by which it is drawn from now on."""
    asked: list[tuple[RunLaw, int]] = []

    def drawn(law: RunLaw, at_most: int) -> int:
        asked.append((law, at_most))
        return runs

    patch.setattr(RunLaw, "draw", drawn)
    return asked


def sealed(tune: Tune, runs: int, *words: str, code: int = 0, **changes: object) -> str:
    """Run a sealed search of so many runs; what was said."""
    tune.write(**{**SEALED, **changes})
    with pytest.MonkeyPatch.context() as patch:
        draw(patch, runs)
        return tune("run", "tiny.yaml", "--local", *words, code=code).text


def the_sweep(tune: Tune) -> SweepFolder:
    """The one sweep there is."""
    (root,) = tune.sweeps
    return SweepFolder(root)


def made(sweep: SweepFolder) -> int:
    """How many runs were begun: for the test alone to look at."""
    return sum(1 for each in (sweep.sealed / "trials").iterdir() if each.is_dir())


def seen(tune: Tune) -> dict[str, Any]:
    """All that an analyst can see in a folder in which one sealed sweep was run, and whatever a command tells of it.

    Random ids, the winner's own values and the times of the tests themselves are taken out; nothing else is.
    """
    sweep = the_sweep(tune)
    found: dict[str, Any] = {}
    for words in (("status",), ("status", "tiny"), ("show", "tiny"), ("watch", "tiny"), ("ls",), ("sync", "tiny")):
        for more in ((), ("--json",)) if words[0] in ("status", "show") else ((),):
            said = tune(*words, *more, code=None)
            found[" ".join((*words, *more))] = (said.code, said.out, said.err)
    tune("report", "tiny", "--out", "page.html")
    for more in ((), ("--json",)):
        found["budget" + "".join(more)] = tune("budget", *more).out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.report.budget.datetime", Tomorrow)
        tune("budget", "report", "digits", "--out", "budget.html")
    found["files"] = sorted(
        (str(path.relative_to(tune.folder)), path.is_dir() or path.name == "model.safetensors" or _content(path))
        for path in tune.folder.rglob("*")
        if not path.is_relative_to(sweep.sealed) and path.suffix not in (".db", ".db-wal", ".db-shm")
    )
    found["ledger"] = tune.entries
    tables = _tables(tune.folder / "runs" / "mlflow.db")
    return {
        **{name: without_chance(tune, repr(value)) for name, value in found.items()},
        **{f"table {name}": sorted(without_chance(tune, row) for row in rows) for name, rows in tables.items()},
    }


def outside(sweep: SweepFolder) -> set[str]:
    """Names of what lies in the sweep's folder and is not sealed."""
    return {path.name for path in sweep.root.iterdir()} - {"sealed"}


def times(tune: Tune) -> dict[str, int]:
    """The time of day, in seconds, of everything in the sweep's folder and of what MLflow copied from there.

    The folder itself, with the births of its files, is the operator's; when a copy was begun is the time of release.
    """
    root = the_sweep(tune).root
    copied = [path for path in tune.folder.rglob("mlartifacts/**/*") if path.is_file()]
    assert {path.name for path in copied} >= {"experiment.yaml", "plan.json"}
    assert root.stat().st_mode & 0o077 == 0
    seen = {"": root} | {path.name: path for path in root.iterdir()} | {f"copy of {path.name}": path for path in copied}
    return {name: int(path.stat().st_mtime) % 86400 for name, path in seen.items()}


def _content(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def _tables(path: Path) -> dict[str, list[str]]:
    """Every row of MLflow's database, read without MLflow. When it made an experiment is the time of the release."""
    found = {}
    with closing(sqlite3.connect(path)) as raw:
        raw.row_factory = sqlite3.Row
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = [dict(row) for row in raw.execute(f'SELECT * FROM "{name}"')]
            for row in rows if name == "experiments" else ():
                row["creation_time"] = row["last_update_time"] = None
            found[name] = [repr(row) for row in rows]
    return found


def without_chance(tune: Tune, text: str) -> str:
    """A text without what is random about every sweep, and without what belongs to the winner."""
    sweep = the_sweep(tune)
    text = text.replace(str(tune.folder), "<folder>").replace(sweep.id, "<sweep>")
    winner = sweeps.read_json(sweep.root / "winner.json")
    tested = sweep.root / "test_scores.json"
    scores = sweeps.read_json(tested)["scores"] if tested.exists() else {}
    own = [str(winner["seed"])] if winner["found"] else []
    for value in (winner.get("score"), winner.get("parameters", {}).get("learning_rate"), *scores.values()):
        if isinstance(value, float):
            own += [repr(value), f"{value:.4f}", f"{value:.6g}", f"{value:.4g}"]
    if isinstance(winner.get("score"), float):  # the standard error is a function of the winner's score
        plan = plan_from(sweeps.read_json(sweep.plan), trials=1)
        error = plan.score_error(load_experiment(sweep.experiment))
        own += [] if error is None else [repr(error.of(winner["score"])), f"± {error.of(winner['score']):.2g}"]
    for value in sorted(own, key=len, reverse=True):
        # Not inside a longer number: 0.59 is no part of the coordinate 10.597896.
        text = re.sub(rf"(?:(?<![\d.])|(?<=%[0-9A-F][0-9A-F])){re.escape(value)}(?!\d)", "<own>", text)
    # Chosen on the winner's own validation records.
    text = re.sub(r"(extrapolation\W+)(?:0\.5|[012](?:\.0)?)(?![\d.])", r"\1<own>", text)
    return _RANDOM.sub("<random>", text)
