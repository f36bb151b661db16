"""The budget benchmark's machinery: what it counts, its judge, its faults and its arms; no timing is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import budget, budget_buys, budget_buys_runs, budget_checks, budget_storm
from benchmarks.budget_bars import BARS, SECTIONS
from benchmarks.budget_brute import Outcome as Enumerated
from benchmarks.budget_buys import ARMS, EPSILONS, WORKLOADS, Outcome, Run, append, read, runs_of
from benchmarks.budget_common import ROOT, Results, Settings, Table, child_environment, count
from benchmarks.budget_draws import Attempt, counted_training, read_draws
from benchmarks.budget_faults import FAULTS, Scene
from benchmarks.budget_processes import descendants, kill, wait_until_gone
from benchmarks.budget_report import as_json, table_text
from benchmarks.budget_storm import LEASE, gaps
from benchmarks.engine_bars import judge
from benchmarks.engine_measure import Figure
from trainables.data import DatasetRequest, public_train_size
from trainables.engine import step
from trainables.training import LEASE_STEPS, PrivateTraining, TrainingSpec
from tuner.errors import LedgerCorruptError
from tuner.experiment import load
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge

STEPS = 450
DIGITS = DatasetRequest(name="digits")
QUICK = Settings(quick=True)

# What must be shown, as it was asked for: section -> words of its bars and their limits.
ASKED = {
    "tables": {"differing": 0},
    "counter_example": {"delta_order_2": 1e-5, "delta_order_8": 1e-5},
    "brute_force": {"cases": 10_000, "violations": 0, "faults_unseen": 0},
    "speed": {
        "admission_ms": 1,
        "epsilon_ms.after_a_lease": 100,
        "plan_ms.total_steps": 2000,
        "plan_ms.coupon_book": 2000,
        "plan_ms.fixed_order": 2000,
        "plan_ms.selection": 2000,
        "plan_command_ms.total_steps": 2000,
        "ledger_percent.logistic_mnist": 1,
        "ledger_percent.cnn_fashion": 1,
    },
    "faults": dict.fromkeys(("full_disk", "read_only", "truncated", "flipped_byte", "clock"), 0),
    "storm": {"kills": 200, "draws_below": 0, "leases_above_per_trial": 1},
}


def test_every_bar_that_was_asked_for_is_there_with_its_limit() -> None:
    limits = {bar.name: bar.limit for bar in BARS}
    assert len(limits) == len(BARS)
    assert {name.partition(".")[0] for name in limits} == set(SECTIONS)
    for section, asked in ASKED.items():
        for name, limit in asked.items():
            assert limits[f"{section}.{name}"] == limit


# What really happened, against what the ledger says.


def _attempt(begun: int, done: int | None = None, started: int = 0) -> Attempt:
    return Attempt(process=1, started=started, begun=begun, done=begun if done is None else done)


def test_a_ledger_that_knows_every_draw_is_neither_below_nor_above() -> None:
    draws = {"a": (_attempt(200), _attempt(400))}
    (gap,) = gaps({"a": 600}, draws, draws)
    assert (gap.below, gap.above, gap.attempts) == (0, 0, 2)


@pytest.mark.parametrize(
    ("leased", "below"),
    [({"a": 599}, 1), ({}, 600), ({"b": 600}, 600)],
    ids=["a step not charged", "nothing charged", "another trial charged"],
)
def test_a_draw_that_the_ledger_does_not_know_is_seen(leased: dict[str, int], below: int) -> None:
    draws = {"a": (_attempt(200), _attempt(400))}
    assert max(gap.below for gap in gaps(leased, draws, draws)) == below


def test_a_draw_that_was_begun_counts_against_the_ledger_and_never_for_it() -> None:
    draws = {"a": (_attempt(201, 200),)}
    (gap,) = gaps({"a": 200}, draws, draws)
    assert (gap.below, gap.above) == (1, 0)
    (gap,) = gaps({"a": 400}, draws, draws)
    assert (gap.below, gap.above) == (-199, 200)


def test_what_is_drawn_while_the_ledger_is_read_is_no_gap() -> None:
    (gap,) = gaps({"a": 200}, {"a": (_attempt(150),)}, {"a": (_attempt(260),)})
    assert gap.below < 0
    assert gap.above == -60, "60 steps of a lease that came after the look"


def test_a_lease_is_what_the_product_leases() -> None:
    assert LEASE == LEASE_STEPS


@pytest.fixture
def charge(tmp_path: Path) -> LedgerCharge:
    """Of a trial that may take `STEPS` steps."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/books/ledger.db")
    mechanism = SampledGaussian(64 / public_train_size(DIGITS), 4.0)
    allowance = TotalSteps(mechanism, 10 * STEPS)
    claim = epsilon(mechanism, 10 * STEPS, 1e-5)
    ledger.open_search("digits", "sweep", allowance=allowance, epsilon=claim, delta=1e-5)
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


def test_every_draw_is_counted_once_by_who_drew_it(tmp_path: Path, charge: LedgerCharge, spec: TrainingSpec) -> None:
    folder = tmp_path / "draws"
    first = counted_training(folder, spec, charge)
    first.run_to(30)
    second = counted_training(folder, spec, LedgerCharge(charge.url, "sweep", "b"))
    second.run_to(7)
    counted_training(folder, spec, charge).run_to(STEPS)
    found = read_draws(folder)
    assert [attempt.done for attempt in found["a"]] == [30, STEPS]
    assert [attempt.done for attempt in found["b"]] == [7]
    assert first.noise_draws == 30
    assert {attempt.process for attempts in found.values() for attempt in attempts} == {os.getpid()}
    leased = {"a": charge.leased(), "b": LedgerCharge(charge.url, "sweep", "b").leased()}
    assert leased == {"a": 30 + STEPS, "b": 7}
    assert all(gap.below == gap.above == 0 for gap in gaps(leased, found, found))


def test_a_draw_that_was_cut_off_is_begun_and_not_done(
    tmp_path: Path, charge: LedgerCharge, spec: TrainingSpec
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the machine died")

    step.add_noise = broken
    training = counted_training(tmp_path / "draws", spec, charge)
    with pytest.raises(RuntimeError, match="died"):
        training.run_to(1)
    (attempt,) = read_draws(tmp_path / "draws")["a"]
    assert (attempt.begun, attempt.done) == (1, 0)


def test_processes_of_processes_are_found_and_only_they(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    child = subprocess.Popen([sys.executable, "-c", script])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        until = time.monotonic() + 30
        while not (below := descendants(child.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        (grandchild,) = below
        assert "time.sleep(60)" in grandchild.title
        assert grandchild.runs
        assert wait_until_gone([grandchild], seconds=0.0) == [grandchild]
        kill([replace(grandchild, started=grandchild.started + 1)])  # one of the same number that came later
        assert grandchild.runs
        kill([grandchild])
        assert wait_until_gone([grandchild], seconds=30) == []
        assert other.poll() is None
    finally:
        for process in (child, other):
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_small_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_storm, "_QUICK_KILLS", 4)
    results = Results()
    budget_storm.measure(QUICK, results)
    figures = {name: figure.median for name, figure in results.figures.items()}
    assert figures["storm.draws"] > 0
    assert figures["storm.draws_below"] == 0
    assert figures["storm.leases_above_per_attempt"] <= 1
    assert figures["storm.errors"] == 0, results.remarks


# Faults that are faults.


@pytest.mark.parametrize("name", ["truncated", "flipped_byte"])
def test_damage_is_noticed_and_its_mend_brings_everything_back(tmp_path: Path, charge: LedgerCharge, name: str) -> None:
    charge.lease(100)
    charge.lease(100)
    scene = Scene(tmp_path, SimpleNamespace(pid=0))  # type: ignore[arg-type]
    before = scene.ledger.read_bytes()
    fix = FAULTS[name](scene)
    assert scene.ledger.read_bytes() != before
    with pytest.raises(LedgerCorruptError):
        Ledger.open(charge.url, create=False).verify_chain()
    fix()
    assert scene.ledger.read_bytes() == before
    Ledger.open(charge.url, create=False).verify_chain()


def test_the_clock_jumps_for_the_ledger_too(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from datetime import UTC\n"
        "from pathlib import Path\n"
        "from benchmarks.budget_clock import _install\n"
        "jump = Path(sys.argv[1])\n"
        "_install(jump)\n"
        "from tuner.privacy import chain\n"
        "for seconds in (0, -86400, 86400):\n"
        "    before = time.time(), chain.datetime.now(UTC)\n"
        "    jump.write_text(str(seconds))\n"
        "    moved = time.time() - before[0], (chain.datetime.now(UTC) - before[1]).total_seconds()\n"
        "    print(*(round(seconds, -2) for seconds in moved))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "jump")],
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(),
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert [tuple(map(float, line.split())) for line in done.stdout.splitlines()] == [
        (0, 0),
        (-86400, -86400),
        (2 * 86400, 2 * 86400),
    ]


# The sections that compute.


def test_the_counter_example_tells_the_rule_that_is_wrong_from_the_one_that_is_right() -> None:
    results = Results()
    budget_checks.counter_example(QUICK, results)
    bars = [bar for bar in BARS if bar.name.startswith("counter_example")]
    assert judge(results.figures, bars).falls_short == ()
    assert results.figures["counter_example.delta_some_order"].median == pytest.approx(1.97e-5, rel=2e-3)
    for order in (2, 8):  # the order that is fixed is used up, not passed over
        assert results.figures[f"counter_example.delta_order_{order}"].median > 0.9e-5


def test_a_printed_digit_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    row = SimpleNamespace(table="§2", what="one run", printed="2.0", shown="2.1", agrees=False)
    monkeypatch.setattr(budget_checks, "rows", lambda: [row, SimpleNamespace(**{**vars(row), "agrees": True})])
    results = Results()
    budget_checks.tables(QUICK, results)
    assert "tables.differing" in judge(results.figures, BARS).falls_short
    assert [cells[-1] for cells in results.tables["Printed and computed"].rows] == ["NO", "yes"]


@pytest.mark.parametrize(
    ("honest", "planted", "short"),
    [(0, 5, ()), (1, 5, ("brute_force.violations",)), (0, 0, ("brute_force.faults_unseen",))],
)
def test_a_case_above_its_claim_and_a_fault_that_passes_are_told(
    monkeypatch: pytest.MonkeyPatch, honest: int, planted: int, short: tuple[str, ...]
) -> None:
    def cases(number: int, _seed: int, *, fault: str | None = None, modes: tuple[str, ...] = ()) -> list[Enumerated]:
        return [Enumerated((*modes, "all")[0], number, planted if fault else honest, 1.0)]

    monkeypatch.setattr(budget_checks, "run_cases", cases)
    results = Results()
    budget_checks.brute_force(replace(QUICK, quick=False), results)
    assert judge(results.figures, BARS).falls_short == short
    assert results.figures["brute_force.cases"].median == 10_000


# What a budget buys.


def test_the_table_has_every_arm_at_every_epsilon_with_its_seeds() -> None:
    runs = list(runs_of())
    assert len(set(runs)) == len(runs) == sum(each.seeds for each in WORKLOADS) * len(EPSILONS) * len(ARMS)
    assert EPSILONS == (0.3, 1.0, 3.0, 8.0)
    assert WORKLOADS[0].seeds == 5
    for workload in WORKLOADS:
        assert {workload.dataset, workload.proxy} == {"mnist", "fashion_mnist"}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.dataset)
def test_the_file_of_every_arm_is_one_that_the_product_takes(tmp_path: Path, workload: budget_buys.Workload) -> None:
    path = tmp_path / "arm.yaml"
    for arm in ARMS:
        run = Run(workload=workload.name, arm=arm, epsilon=1.0, seed=0)
        path.write_text(json.dumps(budget_buys.file_of(workload, run)))
        experiment = load(path, ())
        searches = arm in ("composition", "selection", "public")
        assert experiment.search.trials == (workload.trials if searches else 1)
        assert set(experiment.space.searched) == (set(workload.space) if searches else set())
        assert (experiment.privacy.epsilon, experiment.privacy.delta) == (1.0, 1e-5)
        assert experiment.privacy.accounting == (arm if arm in ("selection", "public") else "composition")
        assert experiment.dataset.validation.fraction == 0.1


def test_the_published_rate_falls_as_one_over_t() -> None:
    workload = WORKLOADS[0]
    trainable, space = workload.published
    steps = round(float(str(trainable["epochs"])) * 54_000 / int(str(trainable["batch_size"])))
    assert space["schedule"] == {"inverse_time": {"decay": steps}}


def test_an_arm_is_a_search_of_the_product_and_scores_the_test_set_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(WORKLOADS[0], name="small", dataset="digits", batch_size=256, epochs=2, trials=2, seeds=1)
    scored = []
    evaluate = PrivateTraining.evaluate

    def counting(training: PrivateTraining, split: str = "validation") -> dict[str, float]:
        scored.append(split)
        return evaluate(training, split)

    monkeypatch.setattr(PrivateTraining, "evaluate", counting)
    run = Run(workload="small", arm="composition", epsilon=8.0, seed=0)
    outcome = budget_buys_runs.train(small, run, tmp_path, None)
    assert scored.count("test") == 1
    assert scored.count("validation") == outcome.trainings == 2
    assert outcome.claim <= 8.0
    assert 10 < outcome.test < 100
    (tmp_path / "again").mkdir()
    assert budget_buys_runs.train(small, run, tmp_path / "again", None) == outcome, "a run is repeatable"


@pytest.mark.data
@pytest.mark.parametrize("arm", ["selection", "public"])
def test_the_other_searches_train_as_they_say(tmp_path: Path, data_dir: Path, arm: str) -> None:
    small = replace(WORKLOADS[0], epochs=0.5, trials=3)
    outcome = budget_buys_runs.train(
        small, Run(workload=small.name, arm=arm, epsilon=8.0, seed=1), tmp_path, str(data_dir)
    )
    assert outcome.claim <= 8.0
    assert outcome.test > 20
    assert set(outcome.parameters) == set(small.space)
    if arm == "public":  # the proxy's trials are beside it, and charged nowhere
        assert outcome.trainings == 1
        assert (tmp_path / "private" / "ledger.db").exists()
        assert not (tmp_path / "proxy" / "ledger.db").exists()
        assert len(list((tmp_path / "proxy" / "trials").iterdir())) == small.trials
    else:
        assert outcome.trainings == len(list((tmp_path / "private" / "trials").iterdir()))


def test_results_are_kept_over_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "buys.jsonl"
    outcome = Outcome(
        test=90.0, validation=91.0, noise_multiplier=2.0, claim=1.0, trainings=3, parameters={"a": 1.0}, seconds=1.0
    )
    first, second = list(runs_of())[:2]
    assert read(path) == {}
    append(path, first, outcome)
    with path.open("a") as file:
        file.write('{"run": {"workl')
    append(path, second, outcome)
    assert read(path) == {first: outcome, second: outcome}


def test_what_is_missing_of_the_table_is_told_and_standard_errors_are_over_seeds() -> None:
    first = WORKLOADS[0]
    known = {
        Run(workload=first.name, arm="middle", epsilon=1.0, seed=seed): Outcome(
            test=score, validation=0.0, noise_multiplier=2.0, claim=1.0, trainings=1, parameters={}, seconds=1.0
        )
        for seed, score in zip(first.numbers, (80.0, 82.0, 84.0, 86.0, 88.0), strict=True)
    }
    results = Results()
    budget_buys.note_tables(known, results)
    assert results.figures["buys.missing"].median == len(list(runs_of())) - 5
    assert "buys.missing" in judge(results.figures, BARS).falls_short
    table = results.tables[f"{first.name}: test accuracy, %"]
    row = next(row for row in table.rows if row[0] == ARMS["middle"])
    assert row == (ARMS["middle"], "–", "84.00 ± 1.41", "–", "–")


# How it tells.


def _at_the_limits() -> dict[str, Figure]:
    return {bar.name: Figure(float(bar.limit)) for bar in BARS}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """A `main` that measures nothing: what it prints is about the figures given."""
    figures: dict[str, Figure] = {}
    monkeypatch.setattr(budget, "measure", lambda _settings, _sections: Results(figures=figures))
    return figures


def test_the_last_line_is_one_json_object_and_the_status_says_whether_all_bars_hold(
    planted: dict[str, Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    planted.update(_at_the_limits())
    assert budget.main(["--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (shown["falls_short"], shown["left_out"]) == ([], [])
    assert set(shown["figures"]) == {bar.name for bar in BARS}


def test_what_falls_short_and_what_is_left_out_is_named(
    planted: dict[str, Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    planted.update(_at_the_limits())
    planted["storm.draws_below"] = count(1)
    planted["speed.admission_ms"] = Figure(nan)
    del planted["storm.kills"]
    assert budget.main(["--quick", "--json"]) == 1
    *text, last = capsys.readouterr().out.splitlines()
    shown = json.loads(last)
    assert set(shown["falls_short"]) == {"storm.draws_below", "speed.admission_ms"}
    assert shown["left_out"] == ["storm.kills"]
    assert shown["figures"]["speed.admission_ms"]["median"] is None
    assert any(line.startswith("falls short:") and "storm.draws_below (1, at most 0)" in line for line in text)
    assert any(line.startswith("left out:") and "storm.kills" in line for line in text)


def test_only_the_sections_asked_for_are_measured_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(budget, "MEASURES", {name: lambda *_, name=name: called.append(name) for name in SECTIONS})
    budget.measure(QUICK, ["storm", "tables", "buys"])
    assert called == ["tables", "storm", "buys"]
    assert set(budget.MEASURES) == set(SECTIONS)


@pytest.mark.parametrize("section", ["faults", "storm", "buys"])
def test_a_quick_run_without_time_says_what_it_leaves_out(section: str) -> None:
    results = Results()
    budget.MEASURES[section](Settings(quick=True, deadline=time.perf_counter()), results)
    assert not [name for name in results.figures if name in {bar.name for bar in BARS}]
    assert any("left out" in remark for remark in results.remarks)


def test_tables_are_markdown_and_json_has_no_number_that_is_none() -> None:
    table = Table(("what", "value"), (("a", 0.12345), ("b", 1234.5), ("c", 7)))
    assert list(table_text(table)) == ["| what | value |", "|---|---|", "| a | 0.123 |", "| b | 1234 |", "| c | 7 |"]
    results = Results(figures={"x": Figure(1.0)}, tables={"t": Table(("y",), ((nan,),))})
    shown = as_json(results, judge(results.figures, BARS), {})
    assert "NaN" not in shown
    assert json.loads(shown)["tables"]["t"]["rows"] == [[None]]


def test_a_child_finds_this_checkout() -> None:
    assert child_environment()["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    assert (ROOT / "benchmarks" / "budget.py").exists()
