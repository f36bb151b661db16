"""The benchmark of the audit: its comparisons find what they must, and its list of planted faults is complete."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.audit import state
from benchmarks.audit.__main__ import BENCHMARK
from benchmarks.audit.planted import CHECKS
from benchmarks.planted.catalogue import FAULTS


def test_every_fault_of_the_table_is_in_the_catalogue() -> None:
    assert CHECKS.keys() <= {fault.name for fault in FAULTS}
    assert BENCHMARK.bars


def test_the_permutation_test_has_its_level_and_finds_a_difference() -> None:
    draw = np.random.default_rng(0)
    assert state.permutation_p(["a"] * 30, ["a"] * 30, draw) == 1.0
    assert state.permutation_p(["a"] * 30, ["a"] * 15 + ["b"] * 15, draw) < 0.001
    equal = [state.permutation_p(*draw.choice(["a", "b", "c"], (2, 20)).tolist(), draw) for _ in range(40)]
    assert sum(p <= 0.1 for p in equal) <= 10


def test_charged_numbers_and_names_are_masked_and_words_are_not() -> None:
    one, other = "trial 3 step 5/10 validation_accuracy -0.12 0x1f", "trial 4 step 5/10 validation_accuracy 0.9 0xaa"
    assert state.masked(one) == state.masked(other)
    assert state.masked(one) != state.masked(one.replace("step", "failed"))


def test_hostile_records_begin_with_the_trigger() -> None:
    found = list(state.hostile_records(40, np.random.default_rng(1)))
    assert len(found) == 40
    assert found[0].values[0] == state.TRIGGER
    assert len({each.name for each in found}) > 35


@pytest.mark.parametrize("mode", ["exact scores", "users, protected scores"])
def test_ordinary_records_show_nothing_and_a_planted_leak_is_found(mode: str) -> None:
    draw = np.random.default_rng(2)
    assert state.probe_cell(2, mode, "benchmarks.audit.models:rows", draw).p == 1.0
    if mode == "exact scores":
        leak = state.planted_leak(24, draw)
        assert leak.unlike > 2
        assert leak.p < 0.05


@pytest.mark.slow
def test_hostile_records_show_nothing_in_any_mode() -> None:
    draw = np.random.default_rng(3)
    for mode in state.MODES:
        for model in state.MODELS:
            cell = state.probe_cell(16, mode, model, draw)
            assert cell.unlike == 0, (mode, model, cell.example)
