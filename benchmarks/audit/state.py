"""State probe: one hostile record more, and whether anything that a trial shows is another.

A trial runs through the local executor on D and on D′, with fresh secret noise and the same public seeds. What is shown
is the output of the process (by Python and by C), the warnings, and every call of the driver: reports, states, reasons
and steps. Scores are charged outputs (or outside the claim), so only their names and whether they are numbers count.
A record that validates is left out where scores are exact, because no
guarantee covers it there. Two groups of equal law differ at a level of 1 % over all cells, by a permutation test.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from benchmarks.audit.models import TRIGGER
from benchmarks.harness import Results, Settings, Table, at_least, at_most

if TYPE_CHECKING:
    from trainables.data import DatasetRequest

BARS = {
    "state.unlike": at_most(0),
    "state.least_p": at_least(0.01),
    "state.planted_leak_p": at_most(0.01),
    "state.planted_leak_found": at_least(1),
}
LEVEL = 0.01
MODES: Mapping[str, Mapping[str, Any]] = {
    "exact scores": {},
    "protected scores": {"protected": True},
    "users": {"users": True},
    "users, protected scores": {"users": True, "protected": True},
}
"""How a trial of composition, selection or the charged run of a public search may run. All modes use these trials."""
MODELS = (
    "logistic_regression",
    "mlp_64",
    "benchmarks.audit.models:rows",
    "benchmarks.audit.models:raising",
    "benchmarks.audit.models:warning",
    "benchmarks.audit.models:printing",
)
FEATURES, CLASSES = 4, 3
_RECORDS = 40
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Folder of what is written and read once; a disk would cost more than the trials."""
_RATE = 0.8
"""Sample rate: the inserted record is in both batches of 64 % of the trials, in one of 32 %, and in none of 4 %."""
_PERMUTATIONS = 4000
_ALL_PAIRED = 50
_NUMBER = re.compile(r"\S*\d\S*")


@dataclass(frozen=True)
class Hostile:
    """One record that is inserted: its name, values, label and user."""

    name: str
    values: tuple[float, ...]
    label: int
    user: str = "new user"


def hostile_records(count: int, draw: np.random.Generator) -> Iterator[Hostile]:
    """Yield `count` hostile records: the listed ones first, then random ones."""
    plain = (0.5,) * FEATURES
    listed = [
        *(
            Hostile(f"all {value:g}", (value,) * FEATURES, 0)
            for value in (1e300, -1e300, math.inf, math.nan, 1e-320, 0)
        ),
        *(Hostile(f"label {label}", plain, label) for label in (-1, CLASSES, 2**62, -(2**62))),
        Hostile("trigger", (TRIGGER, *plain[1:]), 1),
        Hostile("huge integer", (2.0**60, *plain[1:]), 1),
        Hostile("a user without a name", plain, 0, ""),
        Hostile("a user with a long name", plain, 0, "x" * 50),
        Hostile("a record of a known user", (TRIGGER, *plain[1:]), 2, "user 3"),
    ]
    turn = int(draw.integers(len(listed)))  # a short probe takes other ones of the list each time, and the trigger
    listed = [next(each for each in listed if each.name == "trigger"), *listed[turn:], *listed[:turn]]
    yield from listed[:count]
    for number in range(count - len(listed)):
        size = 10.0 ** draw.uniform(-10, 305)
        values = size * draw.normal(size=FEATURES)
        values[draw.random(FEATURES) < 0.2] = draw.choice([math.nan, math.inf, 0.0, 1e300])
        if number % 4 == 0:
            values[0] = TRIGGER
        label = int(draw.integers(-2, CLASSES + 2))
        yield Hostile(f"random {number}", tuple(values.tolist()), label, f"user {draw.integers(60)}")


def masked(text: str) -> str:
    """Return a text without numbers and layout, which may be charged outputs, times or random names."""
    words = re.sub(r"[│─╭╮╰╯█░|]+|/tmp/\S+", " ", text)
    return " ".join(_NUMBER.sub("#", words).split())


class _Listening:
    """A driver that asks for one trial and keeps every call that an analyst could see."""

    def __init__(self, suggestion: Any, stop: Any, decide: Any) -> None:  # noqa: ANN401 - types of the study
        self._next = [suggestion, stop]
        self._shape, self._decide = suggestion.shape, decide
        self.calls: list[str] = []

    def next(self) -> Any:  # noqa: ANN401
        return self._next.pop(0)

    def shape_of_trial(self, _trial: str) -> Any:  # noqa: ANN401
        return self._shape

    def step_of(self, _trial: str) -> int:
        return 0

    def report(self, _trial: str, step: int, metrics: Mapping[str, float]) -> Any:  # noqa: ANN401
        self.calls.append(f"report {step} {sorted((name, math.isnan(value)) for name, value in metrics.items())}")
        return self._decide

    def __getattr__(self, name: str) -> Callable[..., None]:
        def called(*args: object, **more: object) -> None:
            if name != "reconcile":
                self.calls.append(f"{name} {args} {sorted(more.items(), key=str)}")

        return called


def shown_by_trial(folder: Path, file: Path, model: str, *, users: bool = False, protected: bool = False) -> str:
    """Run one private trial on a file of records, and return what it shows, without charged numbers."""
    from trainables.charge import NoCharge
    from trainables.training import TrainingSpec
    from tuner.executors.base import TrialSetup
    from tuner.executors.local import LocalExecutor
    from tuner.study.types import Decision, Stop, StopReason, Suggestion, TrialShape

    request = _request(file, users=users)
    shape = TrialShape(
        batch_size=10, sample_rate=_RATE, noise_multiplier=1.0, steps=2, rungs=(1, 2), releases=2 if protected else 0
    )
    suggestion = Suggestion(trial_id="t", number=0, parameters={}, shape=shape)
    spec = TrainingSpec(
        method="dp_sgd", model=model, dataset=request, batch_size=10, steps=2, noise_multiplier=1.0, sample_rate=_RATE,
        parameters={}, device="cpu", score_noise=3.0 if protected else None,
    )  # fmt: skip
    driver = _Listening(suggestion, Stop(next(iter(StopReason))), Decision.CONTINUE)
    setup = TrialSetup(spec_for=lambda _: spec, charge_for=lambda _: NoCharge(), folder=folder)
    with captured() as told:
        try:
            LocalExecutor().run(driver, setup)  # type: ignore[arg-type]  # it listens to all that a driver is told
        except Exception as error:  # noqa: BLE001 - an error is shown, and compared
            driver.calls.append(f"raised {type(error).__name__} {error}")
    calls = " ; ".join(driver.calls).replace(str(folder), "FOLDER")  # with their steps: a trial must not tell them
    return f"{calls} ; printed {masked(told.getvalue().replace(str(folder), ''))}"


def _request(file: Path, *, users: bool) -> DatasetRequest:
    from trainables.data import DatasetRequest, as_it_is

    per_user: dict[str, Any] = {"unit": "user", "records_per_user": 3, "public_users": 20} if users else {}
    request = DatasetRequest(
        name="probed", path=str(file), public_size=_RECORDS, validation_fraction=0.3, split_seed=0, **per_user
    )
    return as_it_is(request)  # so that no copy of another content is used


def _validating(file: Path, *, users: bool) -> int:
    """Return the number of validation records of a file."""
    from trainables.data import load_records

    with captured():
        return len(load_records(_request(file, users=users)).y_validation)


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Collect what this process prints, by Python and by C, with every warning shown each time."""
    told = io.StringIO()
    with tempfile.TemporaryFile("w+") as sink, warnings.catch_warnings():
        warnings.simplefilter("always")
        saved = [os.dup(descriptor) for descriptor in (1, 2)]
        try:
            with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
                for descriptor in (1, 2):
                    os.dup2(sink.fileno(), descriptor)
                yield told
        finally:
            sink.flush()
            for descriptor, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
            sink.seek(0)
            told.write(sink.read())


def write_records(path: Path, more: Hostile | None) -> Path:
    """Write D, or D′ with one record more."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(_RECORDS, FEATURES)), draw.integers(0, CLASSES, _RECORDS)
    owners = np.array([f"user {number % 20}" for number in range(_RECORDS)])
    x_test, y_test = draw.normal(size=(12, FEATURES)), np.arange(12) % CLASSES
    if more is not None:
        x, y = np.vstack([x, [more.values]]), np.append(y, more.label)
        owners = np.append(owners, more.user)
    np.savez(path, x_train=x, y_train=y, user_train=owners, x_test=x_test, y_test=y_test, classes=np.int64(CLASSES))
    return path


def permutation_p(here: Sequence[str], there: Sequence[str], draw: np.random.Generator) -> float:
    """Return the p-value of a permutation test for two samples of outcomes, by the χ² statistic of the table."""
    names = {name: number for number, name in enumerate(dict.fromkeys([*here, *there]))}
    outcome = np.array([names[name] for name in (*here, *there)])
    total = np.bincount(outcome, minlength=len(names))

    def statistic(order: np.ndarray) -> float:
        first = np.bincount(outcome[order[: len(here)]], minlength=len(names))
        return float((np.square(first - total * len(here) / len(outcome)) / total).sum())

    seen = statistic(np.arange(len(outcome)))
    as_far = sum(statistic(draw.permutation(len(outcome))) >= seen - 1e-9 for _ in range(_PERMUTATIONS))
    return (1 + as_far) / (1 + _PERMUTATIONS)


@contextlib.contextmanager
def _public_work_once() -> Iterator[None]:
    """Do once, and not for each trial, what no record enters: the gates of a model, and waiting for the disk.

    The first trial of the ``with`` block, on D, does all of it; the others of the same model remember its answers.
    """
    from trainables import gradients, model_gate, models
    from trainables.engine import sources

    gates = ((model_gate, "_samples_mix"), (models, "check_domain"), (gradients, "refuse_raising"), (sources, "_holds"))
    with contextlib.ExitStack() as stack:
        for owner, name in gates:
            stack.enter_context(mock.patch.object(owner, name, _once(getattr(owner, name))))
        stack.enter_context(mock.patch.object(os, "fsync", return_value=None))
        yield


def _once(gate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a gate that remembers its answer by the types of its arguments."""
    known: dict[object, Any] = {}

    def remembered(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the gate's own
        key = tuple((type(each), getattr(each, "guard", None)) for each in arguments)
        if key not in known:
            known[key] = gate(*arguments, **named)
        return known[key]

    return remembered


@dataclass(frozen=True)
class Cell:
    """Result of one mode and model: trials on D′ and on D, outcomes that D never had, p-value, and an example."""

    records: int
    plain: int
    unlike: int
    p: float
    example: str


def probe_cell(pairs: int, mode: str, model: str, draw: np.random.Generator) -> Cell:
    """Run a trial on D′ for each of `pairs` hostile records, and as many on D (above `_ALL_PAIRED` a fifth as many)."""
    here, there, names = [], [], []
    rules = MODES[mode]
    users, covered = bool(rules.get("users")), bool(rules.get("protected"))
    every = 1 if pairs <= _ALL_PAIRED else 5
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name, _public_work_once():
        folder = Path(name)
        plain = write_records(folder / "plain.npz", None)
        validating = _validating(plain, users=users)
        for number, hostile in enumerate(hostile_records(4 * pairs, draw)):
            if len(there) == pairs:
                break
            other = write_records(folder / "other.npz", hostile)
            if not covered and _validating(other, users=users) != validating:
                continue  # no guarantee covers a validation record whose scores are exact
            if len(there) % every == 0:
                here.append(shown_by_trial(folder / f"plain-{number}", plain, model, **rules))
            there.append(shown_by_trial(folder / f"other-{number}", other, model, **rules))
            names.append(hostile.name)
    known = Counter(here)
    unlike = [(name, shown) for name, shown in zip(names, there, strict=True) if shown not in known]
    example = "" if not unlike else f"{unlike[0][0]}: {unlike[0][1][-90:]}"
    return Cell(len(there), len(here), len(unlike), permutation_p(here, there, draw), example.replace("|", " "))


def measure(settings: Settings, results: Results) -> None:
    """Probe every mode and model, and a planted leak."""
    import torch

    torch.set_num_threads(1)
    draw = np.random.default_rng(settings.seed)
    pairs = settings.own.pairs or (7 if settings.quick else 42)
    rows, least, unlike = [], 1.0, 0
    cells = len(MODES) * len(MODELS)
    for mode in MODES:
        for model in MODELS:
            cell = probe_cell(pairs, mode, model, draw)
            rows.append((mode, model.rpartition(":")[2], cell.records, cell.plain, cell.unlike, cell.p, cell.example))
            least, unlike = min(least, cell.p * cells), unlike + cell.unlike
            results.tables["state probe"] = Table(
                ("mode", "model", "trials on D′", "trials on D", "unlike", "p", "example"), tuple(rows)
            )
    results.count("state.records", sum(row[2] for row in rows), note="trials on D′, each with another hostile record")
    results.count("state.cells", cells)
    results.count("state.fewest_records", min(row[2] for row in rows), note="in one cell")
    results.count("state.unlike", unlike, note="outcomes on D′ that no run on D showed")
    results.count("state.least_p", min(1.0, least), note=f"smallest p-value times {cells} cells; level {LEVEL:g}")
    leak = planted_leak(max(pairs, 24) if settings.quick else 300, draw)
    results.count("state.planted_leak_p", leak.p)
    results.count("state.planted_leak_found", leak.unlike)


def planted_leak(pairs: int, draw: np.random.Generator) -> Cell:
    """Probe a trial whose reports show whether the number of training records is even."""
    from trainables.engine import step

    seen: list[bool] = []
    real = step.poisson_batch

    def noted(generator: Any, records: int, rate: float) -> Any:  # noqa: ANN401 - as the engine's
        seen.append(records % 2 == 0)
        return real(generator, records, rate)

    report = _Listening.report

    def leaking(driver: _Listening, trial: str, at: int, metrics: Mapping[str, float]) -> Any:  # noqa: ANN401
        print("an even number of records" if seen[-1] else "an odd number of records")
        return report(driver, trial, at, metrics)

    with mock.patch.object(step, "poisson_batch", noted), mock.patch.object(_Listening, "report", leaking):
        return probe_cell(pairs, "exact scores", "logistic_regression", draw)
