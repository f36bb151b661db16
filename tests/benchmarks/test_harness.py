"""The harness: missing and NaN figures fall short, results survive a kill, and exit codes tell the outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from pathlib import Path

import pytest

from benchmarks.harness import Benchmark, Figure, Kept, Results, Section, Settings, at_least, at_most, judge, run

BARS = {"a.few": at_most(3), "a.many": at_least(3)}


@pytest.mark.parametrize(
    ("few", "many", "short"),
    [(3, 3, ()), (3.1, 3, ("a.few",)), (3, 2.9, ("a.many",)), (nan, nan, ("a.few", "a.many")), (-inf, inf, ())],
)
def test_the_figure_on_the_wrong_side_of_its_bar_falls_short(few: float, many: float, short: tuple[str, ...]) -> None:
    results = Results(figures={"a.few": Figure(few), "a.many": Figure(many)})
    assert judge(results, BARS).falls_short == short


def test_a_missing_figure_falls_short_unless_there_is_a_reason() -> None:
    results = Results(figures={"a.few": Figure(1)})
    assert judge(results, BARS).falls_short == ("a.many",)
    assert judge(results, BARS, skipped=["a.many"]).left_out == ("a.many",)
    results.leave_out("*.many", "no time was left")
    assert judge(results, BARS) == judge(results, BARS, skipped=["a.many"])
    results.count("a.many", 2)  # a reason excuses no figure that was measured
    assert judge(results, BARS).falls_short == ("a.many",)


def test_a_value_that_is_missing_or_not_finite_makes_a_median_nan() -> None:
    figure = Figure.median_of([5.0, 1.0, 2.0, 4.0, 3.0], "ms")
    assert (figure.lower, figure.value, figure.upper) == (2.0, 3.0, 4.0)
    assert isnan(Figure.median_of([1.0, nan], "ms").value)
    assert isnan(Figure.median_of([], "ms").value)
    assert isnan(Figure.mean_of([1.0, nan], "%").value)
    assert Figure.mean_of([80.0, 82.0, 84.0, 86.0, 88.0], "%").plus_minus() == "84.00 ± 1.41"


@dataclass(frozen=True)
class Number:
    value: int
    path: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Half:
    scores: tuple[float, ...]
    seconds: float = 0.0


def halved(number: Number) -> Half:
    return Half((number.value / 2, nan))


def test_a_killed_measurement_performs_only_what_is_missing(tmp_path: Path) -> None:
    performed: list[int] = []

    def perform(number: Number) -> Half:
        performed.append(number.value)
        if len(performed) == 3:
            raise KeyboardInterrupt
        return halved(number)

    kept = Kept(tmp_path / "new" / "results.jsonl", Number, Half)
    wanted = [Number(value) for value in (1, 2, 3, 4, 2)]
    with pytest.raises(KeyboardInterrupt):
        kept.complete(wanted, perform, jobs=1)
    kept.path.write_bytes(kept.path.read_bytes()[:-20])  # and the machine failed during a write
    assert set(kept.read()) == {Number(1)}
    found = kept.complete(wanted, perform, jobs=1)
    assert performed == [1, 2, 3, 2, 3, 4]
    assert {number.value: outcome.scores[0] for number, outcome in found.items()} == {1: 0.5, 2: 1.0, 3: 1.5, 4: 2.0}
    assert all(isnan(outcome.scores[1]) for outcome in found.values())
    kept.complete(wanted, perform, jobs=1)
    assert len(performed) == 6


def benchmark_of(*order: str, datasets: tuple[str, ...] = (), figure: float = 1.0) -> tuple[Benchmark, list[str]]:
    called: list[str] = []

    def section(name: str) -> Callable[[Settings, Results], None]:
        def measure(_settings: Settings, results: Results) -> None:
            called.append(name)
            results.count(f"{name}.figure", figure)

        return measure

    sections = {
        name: Section(
            measure=section(name),
            bars={f"{name}.figure": at_most(1), f"{name}.slow": at_most(1, quick=False)},
            quick=name != "late",
            datasets=lambda _settings: datasets,
        )
        for name in order
    }
    return Benchmark(name="planted", about="Planted.", sections=sections, seed=1), called


def test_the_sections_asked_for_run_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark, called = benchmark_of("early", "middle", "late")
    assert run(benchmark, ["--quick", "--json", "--only", "late", "early"]) == 0
    assert called == ["early"]
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["falls_short"] == []
    assert set(told["left_out"]) == set(benchmark.bars) - {"early.figure"}


def test_a_whole_run_whose_figure_is_nan_or_missing_returns_1(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark, _ = benchmark_of("early", figure=nan)
    assert run(benchmark, ["--json"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["falls_short"] == ["early.figure", "early.slow"]
    assert told["figures"]["early.figure"]["value"] is None


def test_a_section_that_fails_keeps_its_figures_and_the_other_sections(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(_settings: Settings, results: Results) -> None:
        results.count("before", 2)
        raise RuntimeError("no memory")

    benchmark, called = benchmark_of("late")
    sections = {"broken": Section(measure=failing, bars={"after": at_most(1)}), **benchmark.sections}
    assert run(replace(benchmark, sections=sections), ["--json"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert called == ["late"]
    assert told["figures"].keys() == {"before", "late.figure"}
    assert told["falls_short"] == ["broken", "after", "late.slow"]


def test_data_that_is_missing_is_noticed_before_anything_runs(tmp_path: Path) -> None:
    benchmark, called = benchmark_of("early", datasets=("mnist",))
    assert run(benchmark, ["--data-dir", str(tmp_path)]) == 2
    assert called == []
