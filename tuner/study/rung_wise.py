"""Rung-wise reservation: paused trials, their promotion, and the reserve that completes the best of them.

A trial reserves the steps up to its next level only. A reservation is made only if the budget that is left afterwards
still completes the leader, which is the trial with the best score among those with the most steps. So:

    Invariant. Until a trial is complete, for each CONTENDER the budget has room for all that it has not reserved yet.
    The contenders are the trials that are paused or running and whose reserved steps reach the deepest report.

    Proof. A reservation is refused if the invariant would not hold after it. Other events keep it. A report at a deeper
    rung removes contenders and adds none, because its trial had reserved the steps up to there. A trial that ends gives
    back what it did not lease. The leader is never pruned, so that the deepest report is never taken away.

The leader is a contender. So once nothing else fits, it can be completed from its checkpoint, and no step is repeated.
What can break the invariant is a contender that fails, or steps that an interruption makes a trial repeat. A trial with
repeated steps that the invariant does not allow pauses again at its last report. If the leader cannot be completed, the
best trial that can be is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.names import canonical_pruner
from tuner.study.pauses import Climber, Levels, best_first, next_promotion
from tuner.study.running_trial import stored
from tuner.study.types import Ask, TrialShape

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

    from tuner.study.budget_room import BudgetRoom
    from tuner.study.live_trials import LiveTrials
    from tuner.study.running_trial import RunningTrial
    from tuner.study.trial_shapes import TrialShapes

__all__ = ["UNUSED", "RungWise", "asks_pruner", "paused_as"]

UNUSED = "it was paused, and the budget was used to complete better trials"


class RungWise:
    """Rule that grants the trials of a study the steps up to their next level.

    Args:
        study: the Optuna study.
        levels: rungs at which trials pause.
        shapes: shapes of the trials, with these levels.
        live: the running and the paused trials.
        room: remaining budget.
        mode: ``"max"`` or ``"min"``.
        asks_pruner: whether the study's pruner decides about paused trials. Successive halving and Hyperband do not,
            because their rule is that of the promotions.
    """

    def __init__(
        self,
        study: Study,
        levels: Levels,
        shapes: TrialShapes,
        live: LiveTrials,
        room: BudgetRoom,
        *,
        mode: str,
        asks_pruner: bool,
    ) -> None:
        self._study = study
        self._levels = levels
        self._shapes = shapes
        self._live = live
        self._room = room
        self._mode = mode
        self._asks_pruner = asks_pruner

    @property
    def is_complete(self) -> bool:
        """Whether a trial of the study is complete."""
        return any(frozen.state.name == "COMPLETE" for frozen in self._study.get_trials(deepcopy=False))

    def allows(self, shape: TrialShape, ask: Ask, until: int, *, trial_id: str = "") -> bool:
        """Return whether the budget allows `ask`, with which a trial reserves its steps up to `until`.

        The rule is that of the module's docstring. A step is worth nothing if its trial can no longer reach the deepest
        report, so the steps up to there must fit too. Once a trial is complete, a trial's own completion must fit.

        Args:
            shape: the trial's shape.
            ask: what the trial reserves now.
            until: the step up to which all of the trial's steps are then reserved.
            trial_id: the trial's id; empty for a new trial.
        """
        if self.is_complete:
            return self.completes(shape, ask, until)
        alive, level_of = self._live.alive, self._shapes.level_of
        deepest = max((level_of(each.shape, each.reported) for each in alive.values()), default=-1)
        reached = max(until, self._shapes.own_levels(shape)[max(deepest, 0)])
        rests = [shape.between(reached, shape.steps)]
        rests += [
            self._rest(each)
            for each in alive.values()
            if each.id != trial_id and level_of(each.shape, each.granted) >= deepest
        ]
        return all(self._room.holds_all(_plus(ask, shape.between(until, reached)), rest) for rest in rests)

    def completes(self, shape: TrialShape, ask: Ask, until: int) -> bool:
        """Return whether the budget allows `ask` and all that a trial of this shape needs after `until`."""
        return self._room.holds_all(_plus(ask, shape.between(until, shape.steps)))

    def next(self, refused: Collection[str] = ()) -> RunningTrial | None:
        """Return the paused trial that is promoted next, or None if none fits, or if reports of others may decide.

        If nothing else fits and no trial runs, the leader is completed. `refused` are ids of trials that the ledger
        refused although they seemed to fit.
        """
        numbers, waits = next_promotion(self._climbers(), self._levels, mode=self._mode)
        by_number = {each.trial.number: each for each in self._live.paused.values() if each.id not in refused}
        for trial in (by_number[number] for number in numbers if number in by_number):
            ask, until, _ = self._next_rung(trial)
            missing = self._room.beyond(trial.id, ask)
            if self.allows(trial.shape, missing, until, trial_id=trial.id):
                return trial
        if waits or self._live.running:
            return None
        return next((trial for trial in self.completable() if trial.id not in refused), None)

    def completable(self) -> Iterator[RunningTrial]:
        """Yield the paused trials that the budget can complete: first those with the most steps, then the best."""
        by_number = {each.trial.number: each for each in self._live.paused.values()}
        for each in best_first(self._climbers(), mode=self._mode):
            trial = by_number.get(each.number)
            if trial is None:
                continue
            ask, until, _ = self._next_rung(trial)
            if self.completes(trial.shape, self._room.beyond(trial.id, ask), until):
                yield trial

    def promote(self, trial: RunningTrial) -> bool:
        """Reserve a paused trial's steps up to its next pause, and return whether the ledger admitted them."""
        ask, until, rung = self._next_rung(trial)
        if not self._room.extend(trial.id, ask, rung=rung):
            return False
        trial.grant(until)
        del self._live.paused[trial.id]
        return True

    def _next_rung(self, trial: RunningTrial) -> tuple[Ask, int, bool]:
        """Return what a paused trial needs for its next rung, the rung, and whether it repeats no step."""
        done, until = self._live.checkpoint_of(trial.id), self._shapes.until(trial.shape, trial.reported)
        at_rest = done == trial.reported
        held = self._room.outstanding().get(trial.id)
        ask = trial.shape.between(done, until, again=done > 0 and not at_rest)
        return ask, until, at_rest and not (held and held.steps)

    def best_of(self, interrupted: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """Return interrupted trials, those that lead first, and those without a report last."""
        rank = {each.number: place for place, each in enumerate(best_first(self._climbers(), mode=self._mode))}
        return sorted(interrupted, key=lambda frozen: rank.get(frozen.number, len(rank)))

    def leads(self, trial: RunningTrial) -> bool:
        """Return whether no paused or running trial is better than this one."""
        alive = {each.trial.number for each in self._live.alive.values()} | {trial.trial.number}
        ranked = [each for each in best_first(self._climbers(), mode=self._mode) if each.number in alive]
        return not ranked or ranked[0].number == trial.trial.number

    def prunes(self, trial: RunningTrial) -> bool:
        """Return whether the study's pruner stops a trial, given all scores so far. It never stops the leader."""
        if not self._asks_pruner or self.leads(trial):
            return False
        import optuna

        with paused_as(self._study, optuna.trial.TrialState.COMPLETE, running=True, but=trial.trial.number):
            return self._study.pruner.prune(self._study, stored(self._study, trial.trial))

    def _rest(self, trial: RunningTrial) -> Ask:
        """Return what a trial needs to be completed, beyond what it has reserved."""
        needed = trial.shape.between(trial.granted, trial.shape.steps)
        return self._room.beyond(trial.id, needed) if trial.id in self._live.paused else needed

    def _climbers(self) -> list[Climber]:
        alive = self._live.alive
        found = []
        for frozen in self._study.get_trials(deepcopy=False):
            if views.TRIAL_ID not in frozen.user_attrs or views.REJECTED in frozen.user_attrs:
                continue
            mine = alive.get(str(frozen.user_attrs[views.TRIAL_ID]))
            view = views.view_of(frozen, mode=self._mode, steps_planned=self._shapes.rungs[-1])
            shape = TrialShape(steps=view.steps_planned, rungs=())
            granted = mine.granted if mine is not None else int(frozen.user_attrs.get(views.GRANTED, 0))
            curve = dict(views.learning_curve(frozen))
            scores = {level: curve[own] for level, own in enumerate(self._shapes.own_levels(shape)) if own in curve}
            found.append(
                Climber(
                    number=frozen.number,
                    at=max(scores, default=-1),
                    to=self._shapes.level_of(shape, granted),
                    scores=scores,
                    paused=mine is not None and mine.id in self._live.paused,
                    over=mine is None,
                )
            )
        return found


def asks_pruner(name: str) -> bool:
    """Return whether a pruner is asked about paused trials. The others are the rule of promotion, or no rule."""
    return canonical_pruner(name) not in ("none", "successive_halving", "hyperband")


def _plus(one: Ask, other: Ask) -> Ask:
    return Ask(one.steps + other.steps, one.sample_rate, one.noise_multiplier, one.releases + other.releases)


@contextmanager
def paused_as(study: Study, state: TrialState, *, running: bool = False, but: int | None = None) -> Iterator[None]:
    """Show the paused trials of a study to its sampler or pruner as trials in this state.

    Optuna's samplers and pruners ignore trials that have not ended. With `running`, running trials that have reported
    are shown this way too. `but` is the number of a trial that is left alone.
    """

    def shows(frozen: FrozenTrial) -> bool:
        if frozen.number == but or frozen.state.name != "RUNNING" or not frozen.intermediate_values:
            return False
        return running or views.is_paused(frozen)

    honest: Callable[..., list[FrozenTrial]] = study._get_trials

    def shown(
        deepcopy: bool = True,  # noqa: FBT001, FBT002 - Optuna's signature
        states: Container[TrialState] | None = None,
        use_cache: bool = False,  # noqa: FBT001, FBT002
    ) -> list[FrozenTrial]:
        found = [_in_state(each, state) if shows(each) else each for each in honest(deepcopy=False)]
        return [each for each in found if states is None or each.state in states]

    study._get_trials = shown  # type: ignore[method-assign]
    try:
        yield
    finally:
        study._get_trials = honest  # type: ignore[method-assign]


def _in_state(frozen: FrozenTrial, state: TrialState) -> FrozenTrial:
    seen = copy(frozen)
    seen.state = state
    if state.name == "COMPLETE":
        seen.value = frozen.intermediate_values[max(frozen.intermediate_values)]
    return seen
