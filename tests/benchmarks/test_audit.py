"""The benchmark of the audit: its comparisons find what they must, and its list of planted faults is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.audit import leaks, searches, state
from benchmarks.audit.__main__ import BENCHMARK
from benchmarks.audit.breaks import Bench
from benchmarks.audit.likeness import law_p, unlike
from benchmarks.audit.planted import CHECKS
from benchmarks.audit.shown import Shown
from benchmarks.planted.catalogue import FAULTS
from tuner.recorder.mlflow_store import connect


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


def search(accuracy: float, words: str = "trial 0 complete", steps: int = 4) -> dict[str, Shown]:
    shown = Shown()
    shown.add("", f"{words} steps {steps} validation_accuracy {accuracy}")
    return {"output": shown}


def test_words_and_fixed_numbers_must_be_known_and_scores_need_not_be() -> None:
    here = [search(0.1), search(0.2)]
    assert not unlike(here, search(0.3))
    assert "steps" in unlike(here, search(0.1, steps=5))["output"]
    assert "failed" in unlike(here, search(0.1, "trial 0 failed"))["output"]


def test_names_drawn_at_random_are_left_out() -> None:
    one, other = Shown(), Shown()
    one.add("", "tiny-20260102-030405-a1b2c3 trial 0001-99ffee 4 of 4")
    other.add("", "tiny-20270102-030405-000000 trial 0001-123456 4 of 4")
    assert (one.words, one.numbers) == (other.words, other.numbers)
    assert one.numbers == [4.0, 4.0]


def test_the_test_of_laws_has_its_level_and_finds_a_shift_and_a_spread() -> None:
    draw = np.random.default_rng(4)

    def group(scale: float = 1.0, shift: float = 0.0) -> list[dict[str, Shown]]:
        return [search(round(float(value), 6)) for value in shift + scale * draw.normal(size=24)]

    assert law_p(group(), group(shift=3.0), draw) < 1e-4
    assert law_p(group(), group(scale=50.0), draw) < 1e-3
    assert sum(law_p(group(), group(), draw) <= 0.1 for _ in range(40)) <= 10


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Bench]]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    numbers, mlflow = iter(range(1000)), tmp_path / "mlflow.db"
    connect(f"sqlite:///{mlflow}")
    with searches.remembered(), searches.wide_output():
        yield lambda: Bench(tmp_path / f"bench-{next(numbers):03}", mlflow)


@pytest.mark.slow
def test_a_leak_into_any_kind_of_output_is_found(make: Callable[[], Bench]) -> None:
    assert tuple(name for name in leaks.LEAKS if name != leaks.NUMBER) == searches.KINDS
    missed, _ = searches.leaks_missed(make, np.random.default_rng(5), pairs=2)
    assert missed == [leaks.NUMBER], "two searches show no difference of distributions"


@pytest.mark.slow
@pytest.mark.parametrize("case", searches.CASES, ids=str)
def test_whole_searches_show_nothing_of_a_hostile_record(case: searches.Case, make: Callable[[], Bench]) -> None:
    cell = searches.probe(case, 4, make, np.random.default_rng(6))
    assert cell.unlike == 0, cell.example
    assert cell.without_winner == 0, "the searches ran, and were exported and verified"


@pytest.mark.slow
def test_hostile_records_show_nothing_in_any_mode() -> None:
    draw = np.random.default_rng(3)
    for mode in state.MODES:
        for model in state.MODELS:
            cell = state.probe_cell(16, mode, model, draw)
            assert cell.unlike == 0, (mode, model, cell.example)
