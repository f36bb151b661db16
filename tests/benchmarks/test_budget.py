"""The budget benchmark: its independent count of draws."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainables.data import DatasetRequest, public_train_size
from trainables.engine import step
from trainables.training import TrainingSpec
from tuner.drill.counted import counted_training
from tuner.drill.draws import Attempt, gaps, read_draws
from tuner.drill.processes import descendants, kill, wait_until_gone
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge

STEPS = 450
DIGITS = DatasetRequest(name="digits")


def attempt(begun: int, done: int | None = None) -> Attempt:
    return Attempt(process=1, started=0, begun=begun, done=begun if done is None else done)


DRAWS = {"a": (attempt(200), attempt(400))}


@pytest.mark.parametrize(
    ("leased", "below"),
    [({"a": 600}, 0), ({"a": 599}, 1), ({}, 600), ({"b": 600}, 600)],
    ids=["all charged", "a step not charged", "nothing charged", "another trial charged"],
)
def test_a_draw_that_the_ledger_misses_is_seen(leased: dict[str, int], below: int) -> None:
    assert max(gap.below for gap in gaps(leased, DRAWS, DRAWS)) == below


def test_a_draw_that_began_counts_against_the_ledger_and_never_for_it() -> None:
    draws = {"a": (attempt(201, 200),)}
    (gap,) = gaps({"a": 200}, draws, draws)
    assert (gap.below, gap.above) == (1, 0)
    (gap,) = gaps({"a": 400}, draws, draws)
    assert (gap.below, gap.above) == (-199, 200)
    (gap,) = gaps({"a": 200}, {"a": (attempt(150),)}, {"a": (attempt(260),)})
    assert (gap.below < 0, gap.above) == (True, -60), "60 steps of a lease that came after the ledger was read"


@pytest.fixture
def charge(tmp_path: Path) -> LedgerCharge:
    """Of a trial that may take `STEPS` steps, twice."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/books/ledger.db")
    mechanism = SampledGaussian(64 / public_train_size(DIGITS), 4.0)
    claim = epsilon(mechanism, 10 * STEPS, 1e-5)
    ledger.open_search("digits", "sweep", filter=TotalSteps(mechanism, 10 * STEPS), epsilon=claim, delta=1e-5)
    for trial in ("a", "b"):
        ledger.reserve("sweep", trial, 2 * STEPS)
    return LedgerCharge(ledger.url, "sweep", "a")


@pytest.fixture
def spec() -> Iterator[TrainingSpec]:
    draw = step.add_noise
    yield TrainingSpec(
        method="dp_sgd",
        dataset=DIGITS,
        batch_size=64,
        steps=STEPS,
        noise_multiplier=4.0,
        sample_rate=64 / public_train_size(DIGITS),
        parameters={"learning_rate": 0.1, "max_grad_norm": 1.0},
        device="cpu",
    )
    step.add_noise = draw


def test_every_draw_is_counted_once_for_its_trial(tmp_path: Path, charge: LedgerCharge, spec: TrainingSpec) -> None:
    folder = tmp_path / "draws"
    counted_training(folder, spec, charge).run_to(30)
    counted_training(folder, spec, LedgerCharge(charge.url, "sweep", "b")).run_to(7)
    counted_training(folder, spec, charge).run_to(STEPS)
    found = read_draws(folder)
    assert [each.done for each in found["a"]] == [30, STEPS]
    assert [each.done for each in found["b"]] == [7]
    assert {each.process for attempts in found.values() for each in attempts} == {os.getpid()}
    leased = {"a": charge.leased(), "b": LedgerCharge(charge.url, "sweep", "b").leased()}
    assert all(gap.below == gap.above == 0 for gap in gaps(leased, found, found))


def test_only_descendants_are_found_and_killed() -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({sleep!r})"])
    other = subprocess.Popen(sleep)
    try:
        until = time.monotonic() + 30
        while not (below := descendants(child.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        (grandchild,) = below
        assert wait_until_gone([grandchild], seconds=0.0) == [grandchild]
        kill([replace(grandchild, started=grandchild.started + "1")])  # a later process of the same number
        assert grandchild.runs
        kill([grandchild])
        assert wait_until_gone([grandchild], seconds=30) == []
        assert other.poll() is None
    finally:
        for process in (child, other):
            process.kill()
            process.wait()
