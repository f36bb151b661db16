"""Whole searches by the commands, on D and on D with one hostile record more or one record less.

Each play runs `tune run`, `tune export`, `tune verify`, `tune status` and `tune show` in a folder, a ledger and an
MLflow database of its own, and keeps all that an analyst can see (`benchmarks.audit.shown`). Two things are judged.
Words, and numbers that are not random by right, must be known from a search on D. All outputs together must have one
law on D and on D′, by one exact test a case (`benchmarks.audit.likeness`).

The claim lets random outputs differ by its own ε. So the noise is large: n searches on D′ differ from n on D by n times
`EPSILON` at most, and the p-value is multiplied by e to this power, and by the number of cases.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from benchmarks.audit import leaks
from benchmarks.audit.breaks import Bench
from benchmarks.audit.likeness import Search, law_p, unlike
from benchmarks.audit.shown import (
    KINDS,
    Shown,
    shown_answer,
    shown_by_ledger,
    shown_in_folder,
    shown_on_mlflow,
    shown_text,
)
from benchmarks.audit.state import CLASSES, FEATURES, SCRATCH, Hostile, captured, hostile_records
from benchmarks.harness import Results, Settings, Table, at_least, at_most

__all__ = ["BARS", "CASES", "Case", "Records", "measure", "neighbours", "play", "probe"]

BARS = {
    "searches.unlike": at_most(0),
    "searches.least_p": at_least(1e-3),
    "searches.leaks_missed": at_most(0),
    "searches.leak_of_a_number_p": at_most(1e-3),
}
LEVEL: Final = 1e-3
EPSILON: Final = 0.02
"""ε of one search; δ is 1e-6."""
_PAIRS, _QUICK_PAIRS, _LEAK_PAIRS = 12, 4, 12
_RAISING: Final = "benchmarks.audit.models:raising"
_PUBLIC, _USERS, _VALIDATING, _POOL = 40, 20, 40, 240
_BLOCK: Final = "2026-11"


@dataclass(frozen=True)
class Case:
    """One kind of search.

    Attributes:
        mode: 'open', 'protected' (open, protected scores), 'resumed' (open, continued with more trials), 'sealed', or
            'public' (a public search and its charged run).
        unit: 'record' or 'user'.
        records: how many records D has that the claim covers.
        block: whether they are one block of a table that has others.
        model: name of the model.
    """

    mode: str
    unit: str = "record"
    records: int = 30
    block: bool = False
    model: str = _RAISING

    @property
    def protected(self) -> bool:
        """Whether the claim covers validation records."""
        return "protected" in self.mode

    def __str__(self) -> str:
        block = ", a block" if self.block else ""
        return f"{self.mode}, {self.unit}, {self.records} records{block}, {self.model.rpartition(':')[2]}"


CASES: Final[tuple[Case, ...]] = (
    *(
        Case(mode, unit, records)
        for mode in ("open", "protected", "sealed", "public")
        for unit in ("record", "user")
        for records in (30, 1, 0)
        if (mode, unit) != ("public", "user")  # it is refused: public trials average over records
    ),
    *(Case(mode, "record", records, block=True) for mode in ("open", "protected", "sealed") for records in (1, 0)),
    Case("resumed"),
    *(Case("open", model=f"benchmarks.audit.models:{name}") for name in ("warning", "printing", "rows")),
)
_LEAKING: Final = Case("open", model="logistic_regression")
QUICK: Final = (
    Case("open"),
    Case("protected", "user", 1),
    Case("sealed", "record", 0, block=True),
    Case("public"),
)


class Records:
    """The records of one case: D, and D with changes.

    D has the first training records of a pool (for protected scores, of both sides) and, with exact scores, always the
    same validation records, which the claim does not cover.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self._case = case
        draw = np.random.default_rng(1)
        self._x, self._y = draw.normal(size=(_POOL, FEATURES)), draw.integers(0, CLASSES, _POOL)
        self._owners = np.array([f"user {number % (_POOL // 2)}" for number in range(_POOL)])
        self._test = draw.normal(size=(40, FEATURES)), np.arange(40) % CLASSES
        pool = folder / "pool.npz"
        self._write(pool, np.arange(_POOL), None)
        validates = self._validate(pool, self._x)
        self._covered = np.arange(_POOL) if case.protected else np.flatnonzero(~validates)
        beside = np.flatnonzero(validates)[:_VALIDATING]
        self._beside = beside[:0] if case.protected else beside

    def write(self, path: Path, change: Hostile | str | None) -> None:
        """Write D, D with a hostile record more, or D without its last record, which must have one ('one less')."""
        fewer = int(change == "one less")
        chosen = np.concatenate([self._covered[: self._case.records - fewer], self._beside])
        self._write(path, chosen, change if isinstance(change, Hostile) else None)

    def covers(self, record: Hostile, folder: Path) -> bool:
        """Return whether the claim covers a record that is added: with exact scores, only if it trains."""
        if self._case.protected:
            return True
        sizes = []
        for more in (None, record):
            self.write(folder / "side.npz", more)
            sizes.append(len(self._loaded(folder / "side.npz").y_validation))
        return sizes[0] == sizes[1]

    def _write(self, path: Path, chosen: np.ndarray, more: Hostile | None) -> None:
        x, y, owners = self._x[chosen], self._y[chosen], self._owners[chosen]
        if more is not None:
            x, y = np.vstack([x, [more.values]]), np.append(y, more.label)
            owners = np.append(owners, more.user)
        blocks = np.full(len(y), _BLOCK)
        if self._case.block:  # the other block is in the file and not in the search
            x, y = np.vstack([x, self._x[-20:]]), np.append(y, self._y[-20:])
            owners, blocks = np.append(owners, self._owners[-20:]), np.append(blocks, ["2026-10"] * 20)
        np.savez(
            path, x_train=x, y_train=y, user_train=owners, block_train=blocks,
            x_test=self._test[0], y_test=self._test[1], classes=np.int64(CLASSES),
        )  # fmt: skip

    def _validate(self, path: Path, x: np.ndarray) -> np.ndarray:
        aside = {row.tobytes() for row in self._loaded(path).x_validation.numpy()}
        return np.array([row.tobytes() in aside for row in x.astype(np.float32)])

    def _loaded(self, path: Path) -> Any:  # noqa: ANN401 - Splits
        from trainables.data import DatasetRequest, as_it_is, load_records

        users: dict[str, Any] = {"unit": "user", "records_per_user": 3, "public_users": _USERS}
        request = DatasetRequest(
            name="own", path=str(path), public_size=_PUBLIC, validation_fraction=0.3, split_seed=0,
            **(users if self._case.unit == "user" else {}),
        )  # fmt: skip
        with captured():
            return load_records(as_it_is(request))


def neighbours(case: Case, records: Records, folder: Path, draw: np.random.Generator) -> Iterator[Hostile | str]:
    """Yield without end: each listed hostile record that the claim covers, a random one, and one record less."""
    while True:
        for number, each in enumerate(hostile_records(24, draw)):
            if case.records and number == 1:
                yield "one less"
            if records.covers(each, folder):
                yield each


def _changes(case: Case) -> dict[str, Any]:
    split: dict[str, Any] = {"fraction": 0.3}
    if case.protected:
        split |= {"protected": True, "epsilon": EPSILON, "delta": 1e-6}
    dataset: dict[str, Any] = {"name": "own", "path": "own.npz", "public_size": _PUBLIC, "validation": split}
    if case.unit == "user":
        dataset |= {"public_users": _USERS, "records_per_user": 3}
    if case.block:
        dataset["block"] = _BLOCK
    trials = 1 if case.mode == "resumed" else 3 if case.mode.startswith("sealed") else 2
    changes: dict[str, Any] = {
        "dataset": dataset,
        "privacy": {"epsilon": EPSILON, "delta": 1e-6, "noise_multiplier": 1000.0, "unit": case.unit},
        "search__trials": trials,
        "search__rungs": 2,
        "trainable": {
            "method": "dp_sgd", "model": case.model, "batch_size": 7 if case.unit == "record" else 4, "epochs": 1,
        },
    }  # fmt: skip
    if case.mode.startswith("sealed"):
        changes["privacy"]["accounting"] = "selection"
    if case.mode == "public":
        changes["privacy"]["accounting"] = "public"
        changes["search__public"] = {"name": "open", "path": "open.npz", "public_size": 60}
    return changes


def play(case: Case, records: Records, change: Hostile | str | None, bench: Bench) -> Search:
    """Run one whole search and return all that it shows."""
    records.write(bench.folder / "own.npz", change)
    ledger = f"sqlite:///{bench.folder}/runs/ledger.db"
    words: list[tuple[str, ...]] = []
    if case.mode == "public":
        bench.records("open.npz")
        data = np.load(bench.folder / "open.npz")
        flat = {key: data[key].reshape(len(data[key]), -1)[:, :FEATURES] for key in ("x_train", "x_test")}
        np.savez(bench.folder / "open.npz", **{**{key: data[key] for key in data.files}, **flat})
        words.append(("budget", "public", "open", "open.npz", "--ledger", ledger))
    words.append(("run", bench.write(**_changes(case)), "--local"))
    if case.mode == "resumed":
        words.append(("resume", "break", "--local", "--set", "search.trials=2"))
    words += [
        ("export", "break", "--out", "out"),
        ("verify", "out/privacy_card.json"),
        ("status", "--json"),
        ("show", "break", "--json"),
    ]
    codes, output = Shown(), Shown()
    for command in words:
        with captured() as told:
            try:
                said = bench(*command)
                code, text = str(said.code), said.text
            except Exception as error:  # noqa: BLE001 - an error is shown, and compared
                code, text = "raised", f"{type(error).__name__}: {error}"
        codes.lines.append(f"{command[0]} {code}")
        shown_answer(output, command[0], text, bench.folder)
        shown_text(output, told.getvalue(), bench.folder)
    runs = bench.folder / "runs"
    return {
        "exit codes": codes,
        "output": output,
        "ledger": shown_by_ledger(runs / "ledger.db"),
        "mlflow": shown_on_mlflow(runs / "mlflow.db"),
        **shown_in_folder(bench.folder),
    }


@dataclass(frozen=True)
class Cell:
    """Result of one case: how many searches, D′ searches that show something new, the p-value, and an example."""

    searches: int
    unlike: int
    p: float
    example: str
    without_winner: int


def probe(case: Case, pairs: int, make: Callable[[], Bench], draw: np.random.Generator) -> Cell:
    """Run searches on D, and as many on D′ with another change each."""
    here, there, names = [], [], []
    with tempfile.TemporaryDirectory() as name:
        records = Records(case, Path(name))
        changes = neighbours(case, records, Path(name), draw)
        for _ in range(pairs):
            change = next(changes)
            here.append(_played(case, records, None, make))
            there.append(_played(case, records, change, make))
            names.append(change if isinstance(change, str) else change.name)
    new = [(name, kinds) for name, shown in zip(names, there, strict=True) if (kinds := unlike(here, shown))]
    example = "" if not new else "; ".join(f"{new[0][0]}: {kind} {what}" for kind, what in new[0][1].items())
    without_winner = sum("export 0" not in search["exit codes"].lines for search in here)
    return Cell(2 * pairs, len(new), law_p(here, there, draw), example.replace("|", " "), without_winner)


def _played(case: Case, records: Records, change: Hostile | str | None, make: Callable[[], Bench]) -> Search:
    bench = make()
    try:
        return play(case, records, change, bench)
    finally:
        shutil.rmtree(bench.folder)


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Remember what slow functions of public values returned, and do not wait for the disk. None sees a record."""
    from tuner.privacy.card import curve
    from tuner.privacy.card.sections import caps
    from tuner.privacy.verify import checks, second_opinion
    from tuner.sweep import preflight

    drawn: dict[str, tuple[str, str]] = {}
    real = curve.render_svg

    def render_svg(card: Mapping[str, Any]) -> str:
        numbers, title = repr(curve.picture_numbers(card)), curve._title(card)
        if numbers not in drawn:
            drawn[numbers] = (title, real(card))
        return drawn[numbers][1].replace(drawn[numbers][0], title)

    def model_of(prepared: Any) -> str:  # noqa: ANN401 - a ReadySearch
        return repr((prepared.experiment.trainable, prepared.about.input_shape, prepared.about.classes))

    with contextlib.ExitStack() as stack:
        for owner, name, key in (
            (caps, "claim_curve", repr),
            (second_opinion, "_prv", repr),
            (second_opinion, "epsilon_ranges_of_steps", repr),
            (preflight, "check_model", lambda arguments: model_of(*arguments)),
        ):
            stack.enter_context(mock.patch.object(owner, name, _by_key(getattr(owner, name), key)))
        for owner in (curve, checks):
            stack.enter_context(mock.patch.object(owner, "render_svg", render_svg))
        stack.enter_context(mock.patch.object(os, "fsync", return_value=None))
        yield


def _by_key(real: Callable[..., Any], key: Callable[[tuple[Any, ...]], str]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    @functools.wraps(real)
    def known_or_real(*arguments: Any) -> Any:  # noqa: ANN401 - the function's own
        found = key(arguments)
        if found not in known:
            known[found] = real(*arguments)
        return known[found]

    return known_or_real


def measure(settings: Settings, results: Results) -> None:
    """Compare the searches of every case, then plant each leak."""
    import torch

    from tuner.recorder.mlflow_store import connect

    torch.set_num_threads(1)
    draw = np.random.default_rng(settings.seed)
    cases = QUICK if settings.quick else CASES
    pairs = settings.own.pairs or (_QUICK_PAIRS if settings.quick else _PAIRS)
    rows: list[tuple[object, ...]] = []
    found: list[Cell] = []
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name, remembered(), wide_output():
        root = Path(name)
        connect(f"sqlite:///{root}/mlflow.db")
        numbers = iter(range(1_000_000))

        def make() -> Bench:
            return Bench(root / f"bench-{next(numbers):06}", root / "mlflow.db")

        for case in cases:
            cell = probe(case, pairs, make, draw)
            found.append(cell)
            rows.append((str(case), cell.searches, cell.without_winner, cell.unlike, cell.p, cell.example[-160:]))
            columns = ("searches on D and D′", "searches", "without a card", "unlike", "p", "example")
            results.tables["whole searches"] = Table(columns, tuple(rows))
        missed, p = leaks_missed(make, draw, pairs=_LEAK_PAIRS)
    level = LEVEL / math.exp(EPSILON * pairs)
    results.count("searches.cases", len(found))
    results.count("searches.searches", sum(cell.searches for cell in found))
    results.count("searches.unlike", sum(cell.unlike for cell in found), note="searches on D′ that show something new")
    least = min(cell.p for cell in found) * len(found)
    results.count("searches.least_p", min(1.0, least * LEVEL / level), note="smallest p-value, corrected; level 0.001")
    results.count("searches.leaks", len(leaks.LEAKS))
    results.count("searches.leaks_missed", len(missed), note=", ".join(missed))
    results.count("searches.leak_of_a_number_p", p, note=f"times {len(found)} cases is the corrected value")


def leaks_missed(make: Callable[[], Bench], draw: np.random.Generator, *, pairs: int) -> tuple[list[str], float]:
    """Plant each leak. Return the kinds of output in which it was not found, and the p-value of a leaked number."""
    missed = []
    with tempfile.TemporaryDirectory() as name:
        records = Records(_LEAKING, Path(name))
        several = (Hostile("ordinary", (number / 9, 0.2, 0.3, 0.4), 0) for number in range(99))
        ordinary = next(each for each in several if records.covers(each, Path(name)))
        here = [_played(_LEAKING, records, None, make) for _ in range(pairs)]
        for kind in KINDS:
            with leaks.planted(kind):
                if kind not in unlike(here, _played(_LEAKING, records, ordinary, make)):
                    missed.append(kind)
        with leaks.planted(leaks.NUMBER):
            there = [_played(_LEAKING, records, ordinary, make) for _ in range(pairs)]
        p = law_p(here, there, draw)
    return [*missed, *([leaks.NUMBER] if p > LEVEL else [])], p


@contextlib.contextmanager
def wide_output() -> Iterator[None]:
    """Let the commands print lines of any length, so that no length of a random name breaks one."""
    with mock.patch.dict(os.environ, {"COLUMNS": "400"}):
        yield
