"""Rung-wise reservation: pauses, promotions, and the reserve that completes the winner, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna
import pytest
from driver_fakes import Machine, driver_of, random_study, states
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_fakes import MemoryLedger
from sweep_fakes import Recorder
from test_driver_shapes import CHEAPEST, PricedSpace, book, make_study, scored
from test_driver_shapes import RUNGS as SHAPED_RUNGS

from tuner.privacy.accountant.filters import steps_of_runs
from tuner.study import views
from tuner.study.driver import StudyDriver
from tuner.study.pauses import levels_of, reached
from tuner.study.rung_wise import UNUSED, RungWise
from tuner.study.types import Stop, StopReason, Suggestion, TrialShape, TrialStatus, TrialView, Wait

RUNGS = (10, 20, 40)
HALVING = levels_of("asha", {"reduction_factor": 2}, RUNGS)
SHAPE = TrialShape(steps=40, rungs=RUNGS, releases=3)


def rung_wise(study: optuna.Study, ledger: MemoryLedger, **options: Any) -> StudyDriver:  # noqa: ANN401
    values = {"levels": HALVING, "steps_per_trial": 40, "rung_steps": RUNGS, "asks_pruner": False, **options}
    return driver_of(study, ledger, **values)


@dataclass
class Sweep(Machine):
    """A machine whose trials have scores of their own, by number."""

    scores: tuple[float, ...] = ()

    def score(self, trial_id: str, step: int) -> float:
        number = self.running[trial_id][0].number
        return self.scores[number] if number < len(self.scores) else 0.05

    def fill(self, slots: int) -> Wait | Stop | None:
        """Start trials until all slots are taken, or the driver starts none."""
        while len(self.running) < slots:
            decision = self.driver.next()
            if not isinstance(decision, Suggestion):
                return decision
            self.placed(decision.trial_id, decision)
            self.check()
        return None


def sweep(cap: int, scores: tuple[float, ...], **options: Any) -> Sweep:  # noqa: ANN401
    ledger, study = MemoryLedger("", cap=cap, score_cap=3 * len(scores)), random_study()
    settings = {"trials": len(scores), "shape_of": lambda _: SHAPE, "max_first_failures": 99, **options}
    return Sweep(lambda: rung_wise(study, ledger, **settings), ledger, scores=scores)


def test_halving_takes_the_planned_steps_and_completes_the_best() -> None:
    recorder = Recorder()
    machine = sweep(80, (0.1, 0.3, 0.4, 0.2), observers=[recorder])
    while not isinstance(end := machine.fill(1), Stop):
        machine.act("rung", 0)
    trials = machine.driver.study.trials
    assert end == Stop(StopReason.DONE)
    assert [trial.user_attrs[views.STEPS_TAKEN] for trial in trials] == [10, 20, 40, 10]
    assert [trial.state.name for trial in trials] == ["PRUNED", "PRUNED", "COMPLETE", "PRUNED"]
    assert {trial.user_attrs[views.REASON] for trial in trials if trial.state.name == "PRUNED"} == {UNUSED}
    assert machine.ledger.leased() == 80, "no step is repeated"
    assert machine.ledger.released() == 4 + 2 + 1, "no score either"
    assert machine.ledger.outstanding() == {}
    assert recorder.finished[0].number == 2


def test_a_stopped_search_completes_its_leader_and_a_resume_continues_the_others() -> None:
    machine = sweep(100, (0.1, 0.3, 0.4, 0.2))
    for _ in range(4):
        machine.fill(1)
        machine.act("rung", 0)
    machine.driver.stop("enough")
    while not isinstance(end := machine.fill(1), Stop):
        machine.act("rung", 0)
    assert end == Stop(StopReason.STOPPED, "enough")
    assert completed(machine) == [2]
    paused = views.read_trials(machine.driver.study, mode="max", steps_planned=40)
    assert [view.state.name for view in paused] == ["PAUSED", "PAUSED", "COMPLETE", "PAUSED"]
    machine.complete()
    assert machine.ledger.leased() == 100, "the next best is completed, and no step is repeated"
    assert completed(machine) == [1, 2]


def test_a_pruner_stops_paused_trials_for_good_but_never_the_leader() -> None:
    study, ledger = random_study(optuna.pruners.ThresholdPruner(lower=0.9)), MemoryLedger("", cap=80)
    machine = Sweep(lambda: rung_wise(study, ledger, trials=4, asks_pruner=True), ledger, scores=(0.2, 0.1, 0.4, 0.3))
    while not isinstance(machine.fill(1), Stop):
        machine.act("rung", 0)
    assert completed(machine) == [2]
    reasons = [trial.user_attrs[views.REASON] for trial in study.trials]
    assert [reason == UNUSED for reason in reasons] == [True, False, False, False], "the first led when it reported"
    assert ledger.leased() == 4 * 10 + 30


def test_a_trial_that_cannot_draw_its_last_score_again_is_lost_and_never_paused_at_its_end() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=40, score_cap=3)
    make = lambda: rung_wise(study, ledger, trials=1, shape_of=lambda _: SHAPE)  # noqa: E731
    machine = Sweep(make, ledger, scores=(0.3,))
    machine.fill(1)
    while machine.ledger.released() < 2:
        machine.act("rung", 0)
        machine.fill(1)
    machine.ledger.lease(*next((trial, 20) for trial in machine.running))
    ledger.release(*next((trial, 1) for trial in machine.running))
    machine.saved = dict.fromkeys(machine.running, 40)
    machine.driver._live.running[next(iter(machine.running))].trial.report(0.3, 40)  # and the driver dies
    machine.complete()
    assert states(study) == ["FAIL"]
    assert study.trials[0].user_attrs[views.OUTCOME] == "LOST"


def test_a_trial_that_lost_steps_and_pauses_for_want_of_budget_is_told() -> None:
    class Told(Recorder):
        def trial_lost(self, trial: TrialView, why: str) -> None:
            losses.append((trial.state, trial.step, why))

    losses: list[tuple[TrialStatus, int, str]] = []
    machine = sweep(2 * 10 + 30, (0.1, 0.3), observers=[Told()])
    while not any(step == 10 for _, step, _ in machine.running.values()):
        machine.fill(1)
        machine.act("rung", 0)
        machine.fill(1)
    (trial,) = machine.running
    machine.ledger.lease(trial, 3)
    assert not machine.driver.restarted(trial, "its worker hung")
    assert losses == [(TrialStatus.PAUSED, 10, "its worker hung")]


# -- every interleaving of small searches ------------------------------------------------------------------------------


class Path:
    """One path through all choices: the given ones, then always the first."""

    def __init__(self, chosen: list[int]) -> None:
        self.chosen, self.options, self.at = chosen, [0] * len(chosen), 0

    def choose(self, options: int) -> int:
        if self.at == len(self.chosen):
            self.chosen.append(0)
            self.options.append(options)
        self.options[self.at] = options
        self.at += 1
        return self.chosen[self.at - 1]


def every_path(run: Callable[[Path], None]) -> int:
    """Run a search once for each sequence of choices, and return how many there are."""
    todo: list[list[int]] = [[]]
    count = 0
    while todo:
        given = todo.pop()
        path = Path(list(given))
        run(path)
        count += 1
        for place in range(len(given), len(path.chosen)):
            todo += [[*path.chosen[:place], other] for other in range(1, path.options[place])]
    return count


def through(path: Path, cap: int, scores: tuple[float, ...], slots: int, *, fault: str = "") -> Sweep:
    """Run a search to its end. The path chooses which trial reports next, and where the one fault happens, if any."""
    machine, happened = sweep(cap, scores), not fault
    for _ in range(200):
        end = machine.fill(slots)
        if isinstance(end, Stop):
            return machine
        moves = [("rung", which) for which in range(len(machine.running))]
        if not happened:
            moves += [(fault, which) for which in range(len(machine.running) if fault != "crash" else 1)]
        action, which = moves[path.choose(len(moves))]
        happened = happened or action == fault
        machine.act(action, which)
    raise AssertionError("the search does not end")


def completed(machine: Sweep) -> list[int]:
    return [trial.number for trial in machine.driver.study.trials if trial.state.name == "COMPLETE"]


SMALL = [
    (70, (0.2, 0.4, 0.1, 0.3), 1),
    (70, (0.2, 0.4, 0.1, 0.3), 2),
    (60, (0.3, 0.1, 0.2), 3),
    (60, (0.1, 0.2, 0.3), 2),
]


@pytest.mark.parametrize(("cap", "scores", "slots"), SMALL)
def test_in_every_interleaving_the_best_trial_is_completed_and_no_step_is_repeated(
    cap: int, scores: tuple[float, ...], slots: int
) -> None:
    def run(path: Path) -> None:
        machine = through(path, cap, scores, slots)
        assert scores.index(max(scores)) in completed(machine)
        taken = sum(trial.user_attrs[views.STEPS_TAKEN] for trial in machine.driver.study.trials)
        assert machine.ledger.leased() == machine.ledger.committed() == taken <= cap
        assert len(machine.driver.study.trials) == len(scores), "the reserve leaves room for every first rung"

    assert every_path(run) >= (1 if slots == 1 else 4)


@pytest.mark.parametrize("fault", ["crash", "torn", "lost", "ends"])
@pytest.mark.parametrize(("cap", "scores", "slots"), SMALL[:1] + SMALL[3:])
def test_a_fault_anywhere_passes_no_cap_and_leaves_nothing_reserved(
    cap: int, scores: tuple[float, ...], slots: int, fault: str
) -> None:
    def run(path: Path) -> None:
        machine = through(path, cap, scores, slots, fault=fault)
        assert machine.ledger.committed() == machine.ledger.leased() <= cap
        assert machine.ledger.outstanding() == {}
        assert all(trial.state.is_finished() for trial in machine.driver.study.trials)
        if fault in ("crash", "lost"):  # a driver or a worker that dies before it leased anything loses nothing
            assert scores.index(max(scores)) in completed(machine)

    assert every_path(run) > 3


def test_without_the_reserve_the_winner_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RungWise, "allows", lambda self, shape, ask, *_, **__: self._room.holds_all(ask))
    machine = through(Path([]), 70, (0.2, 0.4, 0.1, 0.3), 1)
    assert completed(machine) == []


# -- random searches with everything -----------------------------------------------------------------------------------

ACTIONS = st.sampled_from(["next", "next", "rung", "rung", "rung", "ends", "crash", "torn", "lost"])


@settings(max_examples=40)
@given(
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 3)), max_size=60),
    cap=st.integers(0, 300),
    pruner=st.sampled_from(["none", "asha", "median"]),
)
def test_at_every_moment_what_is_reserved_is_what_the_trials_may_still_take(
    actions: list[tuple[str, int]], cap: int, pruner: str
) -> None:
    study = random_study(optuna.pruners.MedianPruner(n_startup_trials=1) if pruner == "median" else None)
    ledger = MemoryLedger("", cap=cap, score_cap=40)
    options = {"trials": 6, "shape_of": lambda _: SHAPE, "max_first_failures": 99, "asks_pruner": pruner == "median"}
    options["levels"] = levels_of(pruner, {}, RUNGS)
    machine = Sweep(lambda: rung_wise(study, ledger, **options), ledger, scores=(0.1, 0.5, 0.2, 0.4, 0.3, 0.6))
    for action, which in actions:
        machine.act(action, which)
    machine.complete()


@settings(max_examples=40)
@given(actions=st.lists(st.tuples(ACTIONS, st.integers(0, 3)), max_size=60), cap=st.integers(0, 900))
def test_trials_of_different_lengths_and_prices_too(actions: list[tuple[str, int]], cap: int) -> None:
    study, ledger = make_study(), book(cap, 40)
    options: dict[str, Any] = {"trials": 8, "max_first_failures": 99, "shape_of": scored, "cheapest": CHEAPEST}
    options |= {"space": PricedSpace(), "steps_per_trial": 80, "rung_steps": SHAPED_RUNGS}
    options["levels"] = levels_of("none", {}, SHAPED_RUNGS)
    machine = Sweep(lambda: rung_wise(study, ledger, **options), ledger, scores=(0.1, 0.5, 0.2, 0.4, 0.3, 0.6))
    for action, which in actions:
        machine.act(action, which)
    machine.complete()


# -- the plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruner", ["none", "asha"])
def test_the_planned_numbers_of_trials_are_those_of_the_driver(pruner: str) -> None:
    rungs, trials = (16, 33, 66, 132), 9
    for runs in (2.1, 2.5, 3.2, 4.0, 6.5, 9.0):
        levels = levels_of(pruner, {}, rungs, trials=trials, full_runs=runs)
        ledger, study = MemoryLedger("", cap=steps_of_runs(runs, 132)), random_study()
        options: dict[str, Any] = {"trials": trials, "levels": levels, "steps_per_trial": 132, "rung_steps": rungs}
        machine = Sweep(
            lambda study=study, ledger=ledger, options=options: rung_wise(study, ledger, **options),  # type: ignore[misc]
            ledger,
            scores=tuple(1 - number / 100 for number in range(trials)),
        )
        while not isinstance(machine.fill(1), Stop):
            machine.act("rung", 0)
        taken = [trial.user_attrs[views.STEPS_TAKEN] for trial in study.trials]
        assert reached(levels, trials=trials, full_runs=runs) == tuple(
            sum(each >= level for each in taken) for level in levels.steps
        )
