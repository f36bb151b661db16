"""Workers of a run share one copy of the records, which no death of a worker takes from the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from records_fakes import noting_training
from test_end_to_end import CAP, DELTA, MECHANISM, REQUEST, SPEC, STEPS, driver_of, spec_for

from trainables import data
from trainables.charge import NoCharge
from trainables.data import loading, shared
from trainables.data.requests import Splits
from trainables.data.shared import SharedRecords
from trainables.training import PrivateTraining
from tuner.executors.base import ExecutorSettings, TrialSetup
from tuner.executors.registry import EXECUTORS
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import SearchBudget

PROGRAM = str(Path(__file__).parent / "records_program.py")
Start = Callable[..., "Worker"]


class Worker:
    """A process that holds the records."""

    def __init__(self, scope: str, how: str = "loads") -> None:
        command = [sys.executable, PROGRAM, scope, how]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def says(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.line())
        return answer

    def told(self, what: str = "") -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.says()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def mapped(self) -> dict[str, int]:
        """KiB of the shared memory in this process, by the kernel's own account."""
        smaps = Path(f"/proc/{self.process.pid}/smaps").read_text()
        (entry,) = re.findall(r"/memfd:dp-tuner-.*?VmFlags", smaps, re.DOTALL)
        return {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB", entry, re.MULTILINE)}


@pytest.fixture
def scope() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def start(scope: str) -> Iterator[Start]:
    started: list[Worker] = []

    def begin(how: str = "loads", *, within: str = scope) -> Worker:
        started.append(Worker(within, how))
        return started[-1]

    yield begin
    for worker in started:
        worker.kill()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, scope: str) -> Iterator[str]:
    """The scope of this process, which forgets what it has loaded before and after."""
    data._loaded.cache_clear()
    monkeypatch.setattr(shared, "_scope", scope)
    yield scope
    data._loaded.cache_clear()


def bits(splits: Splits) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in vars(splits).values() if tensor is not None]


@pytest.mark.slow
def test_workers_share_one_copy_with_the_bits_of_the_file_and_outlive_each_other(start: Start) -> None:
    workers = [start(), start()]
    alone = start(within=uuid.uuid4().hex)
    said = [worker.says() for worker in workers]
    assert sorted(answer["loads"] for answer in said) == [0, 1]
    other = alone.says()
    assert other["loads"] == 1, "another run of a sweep shares nothing"
    assert {answer["bits"] for answer in said} == {other["bits"]}
    for worker in workers:
        mapped = worker.mapped()
        assert mapped["Rss"] > 400
        assert mapped["Pss"] == mapped["Rss"] // 2
        assert mapped["Private_Dirty"] == 0

    first, second = sorted(workers, key=lambda worker: -said[workers.index(worker)]["loads"])
    assert first.told("write")["bits"] != other["bits"]
    assert second.told()["bits"] == other["bits"], "a write stays in its process"
    first.kill()
    assert second.told() == {"bits": other["bits"], "loads": 0}
    third = start()
    assert third.says() == {"bits": other["bits"], "loads": 0}, "the copy of the second worker is found"


def test_a_worker_that_dies_while_it_loads_leaves_its_turn_to_the_next(start: Start) -> None:
    first = start("hangs")
    assert first.line() == "loading"
    second = start()
    first.kill()
    assert second.says()["loads"] == 1


def test_nobody_waits_for_ever(here: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start("hangs", within=here).line() == "loading"
    monkeypatch.setattr(shared, "_PATIENCE", 0.3)
    assert len(data.load_records(REQUEST).y_train) > 1000


def test_memory_that_is_not_complete_or_not_sealed_is_not_read(here: str) -> None:
    request = repr((here, REQUEST)).encode()
    name = f"dp-tuner-{shared.hashlib.sha256(request).hexdigest()[:32]}"
    file = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.write(file, b"half of it")
    try:
        assert shared._find(name) is None
        found = data.load_records(REQUEST)
        assert shared._find(name) is not None
    finally:
        os.close(file)
    assert bits(found) == bits(loading.load_splits(data.info(REQUEST), REQUEST))


@pytest.mark.parametrize("missing", ["memfd_create", "pwrite", "listdir"])
def test_where_memory_cannot_be_shared_each_worker_loads(
    here: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(12, "out of memory")

    monkeypatch.setattr(os, missing, refused)
    assert bits(data.load_records(REQUEST)) == bits(loading.load_splits(data.info(REQUEST), REQUEST))


def test_records_without_validation_and_of_users_are_shared_too(here: str, scope: str) -> None:
    splits = loading.load_splits(data.info(REQUEST), REQUEST)
    empty = torch.zeros((0, 1, 8, 8))
    users = torch.arange(12).reshape(4, 3)
    asked = Splits(**{**vars(splits), "x_validation": empty, "y_validation": splits.y_train[:0], "users_train": users})
    found = shared.shared_or_loaded(REQUEST, lambda: asked)
    assert bits(found) == bits(asked)
    assert found.x_validation.shape == empty.shape
    assert found.users_train is not None
    assert found.users_train is not users
    assert found.users_validation is None


def test_a_training_on_shared_records_is_bit_identical(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SPEC, private=False, noise_seed=1)
    reached = []
    for make in (PrivateTraining, SharedRecords(PrivateTraining, here)):
        data._loaded.cache_clear()
        monkeypatch.setattr(shared, "_scope", None)
        training = make(spec, NoCharge())
        training.run_to(STEPS)
        reached.append((training._theta.clone(), training.evaluate()))
    assert shared._scope is None, "what this process loads later is not shared"
    assert torch.equal(reached[0][0], reached[1][0])
    assert reached[0][1] == reached[1][1]


@pytest.mark.slow
def test_concurrent_trials_on_ray_load_the_records_once(tmp_path: Path, ray_two_slots: None) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.open_search(
        "digits", "sweep", filter=TotalSteps(MECHANISM, CAP), epsilon=epsilon(MECHANISM, CAP, DELTA), delta=DELTA
    )
    budget = SearchBudget(ledger, "sweep")
    setup = TrialSetup(
        spec_for=spec_for,
        charge_for=budget.charge_for,
        folder=tmp_path,
        make_training=partial(noting_training, tmp_path / "loads"),
    )
    EXECUTORS["ray"](ExecutorSettings(concurrent_trials=2)).run(driver_of(tmp_path, budget), setup)
    assert ledger.search_state("sweep").leased_steps == CAP
    assert (tmp_path / "loads").read_text() == "."
