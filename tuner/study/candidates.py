"""Candidate configurations of a search: drawing them, rejecting them, and deciding whether more are needed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.best import best_score
from tuner.study.protocols import StudySampler, pruner_of, sampler_of
from tuner.study.rung_wise import paused_as
from tuner.study.running_trial import stored
from tuner.study.suggest import OptunaSuggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.suggest import Space
    from tuner.study.types import WhenSure

__all__ = ["EXCLUDED", "REJECTED", "TRIES", "Candidates", "excluded_because", "is_waiting"]

REJECTED = "a trial with these parameters no longer fits in the privacy budget; it was not started"
EXCLUDED = "the pruner excluded it before its first step"
"""Reason that is stored if the pruner excludes a configuration without giving a reason."""

TRIES = 20
"""Maximum number of rejected configurations in the search for one that can start. Rejections by the pruner and
rejections because of the budget are counted separately."""

_FEW = 3.0
"""If the budget allows fewer than this number of further complete trials, a search with `when_sure: replicate` repeats
its best two configurations."""


class Candidates:
    """Candidate configurations of a study. See `StudyDriver` for the arguments."""

    def __init__(self, study: Study, space: Space, when_sure: WhenSure, *, shows_paused: bool = False) -> None:
        self._study = study
        self._shows_paused = shows_paused  # to the sampler, as trials that were pruned at their last report
        self._space = space
        self._when_sure = when_sure

    @property
    def _sampler(self) -> StudySampler:
        return sampler_of(self._study)

    @property
    def needs_left(self) -> bool:
        """Whether `configurations` needs to know how many more complete trials the budget allows.

        Computing this number takes several queries of the ledger.
        """
        return self._when_sure == "replicate"

    def counts(self) -> tuple[int, int]:
        """Return how many configurations Optuna has proposed, and how many of these were not rejected."""
        every = [frozen for frozen in self._study.get_trials(deepcopy=False) if not is_waiting(frozen)]
        return len(every), sum(views.REJECTED not in frozen.user_attrs for frozen in every)

    def is_exhausted(self) -> bool:
        """Return whether the sampler has proposed all its configurations. Only the grid sampler has finitely many."""
        points = self._sampler.points
        return points is not None and self.counts()[0] >= points

    def waits(self) -> bool:
        """Return whether the next trial must wait for further reports of running trials."""
        with self._paused_shown():
            return self._sampler.waits(self._study)

    def found(self) -> str:
        """Return the reason for ending the search early, or "" if the search continues.

        A search ends early only with `when_sure: stop`, and only when the best trial has very probably been found.
        """
        if self._when_sure != "stop" or not self._sampler.is_over(self._study):
            return ""
        best = self._sampler.best(self._study)
        return (
            ""
            if best is None
            else f"trial {best[0]} is within the tolerance of the best with probability {best[1]:.2f}"
        )

    def found_without(self, number: int, nominal: int, score: float, *, mode: str) -> str:
        """Return the reason to stop a running trial when the search ends early, or "" if the trial continues.

        See `found` for the early end. The trial always continues if no other trial has a better score at the rung
        `nominal`, because the model of such a trial may still become the best.
        """
        others = [t.intermediate_values for t in self._study.get_trials(deepcopy=False) if t.number != number]
        leads = score == best_score([score, *(each[nominal] for each in others if nominal in each)], mode=mode)
        return "" if leads else self.found()

    def configurations(self, left: float | None) -> Iterator[tuple[Trial, dict[str, object]]]:
        """Create trials, draw their parameters, and yield both. With a grid, end after the last grid point.

        Configurations that the pruner excludes are rejected and not yielded. After `TRIES` such rejections, the pruner
        is not asked again, and all further configurations are yielded.

        Args:
            left: number of complete trials that the budget still allows, including the next one. It may be None if
                `needs_left` is False.
        """
        exclusions = 0
        refused: list[dict[str, object]] = []  # configurations whose repetition did not fit the budget
        while not self.is_exhausted():
            with self._paused_shown():
                trial = self._ask(left, refused)
                parameters = self.parameters_of(trial)
            excluded = self.excluded(trial) if exclusions < TRIES else ""
            if excluded:
                self.reject(trial, excluded)
                exclusions += 1
            else:
                yield trial, parameters
                if views.REPLICA_OF in trial.user_attrs:
                    refused.append(trial.params)

    def parameters_of(self, trial: Trial) -> dict[str, object]:
        """Return the parameters of a trial. Those that are not stored yet are drawn."""
        return self._space.sample(OptunaSuggest(trial))

    def excluded(self, trial: Trial) -> str:
        """Return why the pruner excludes a new trial, or "" if the trial may start.

        A trial that repeats an earlier configuration is never excluded.
        """
        if views.REPLICA_OF in trial.user_attrs or not trial.should_prune():
            return ""
        return self.why(trial) or EXCLUDED

    def why(self, trial: Trial) -> str:
        """Return why the pruner has just stopped a trial, or "" if the pruner gives no reason."""
        return pruner_of(self._study).why(self._study, stored(self._study, trial))

    def reject(self, trial: Trial, excluded: str = "") -> None:
        """Mark a drawn configuration as rejected, and end its trial in Optuna.

        `excluded` is the pruner's reason. If `excluded` is empty, the configuration did not fit the budget.
        """
        import optuna

        state = optuna.trial.TrialState
        trial.set_user_attr(views.REJECTED, excluded or REJECTED)
        if excluded:
            trial.set_user_attr(views.REASON, excluded)
        self._study.tell(trial, state=state.PRUNED if excluded else state.FAIL)

    def is_half(self, frozen: FrozenTrial) -> bool:
        """Return whether a candidate may lack values because the driver's process died while storing them.

        This can be True only if the sampler draws all values of a candidate together. The caller rejects the candidate,
        because its missing values would come from another draw.
        """
        whole = self._sampler.draws_whole
        return whole and bool(frozen.params) and views.PARAMETERS not in frozen.user_attrs

    def _paused_shown(self) -> AbstractContextManager[None]:
        if not self._shows_paused:
            return nullcontext()
        import optuna

        return paused_as(self._study, optuna.trial.TrialState.PRUNED)

    def _ask(self, left: float | None, refused: Sequence[dict[str, object]]) -> Trial:
        """Create an Optuna trial, with a new configuration or with one of the best two configurations."""
        trials = self._study.get_trials(deepcopy=False)
        # Optuna's queue may contain a trial from a process that died. Optuna returns that trial first.
        if self._when_sure == "replicate" and left is not None and not any(map(is_waiting, trials)):
            again = self._to_replicate(trials, left, refused)
            if again is not None:
                self._study.enqueue_trial(again.params, user_attrs={views.REPLICA_OF: again.number})
        return self._study.ask()

    def _to_replicate(
        self, trials: list[FrozenTrial], left: float, refused: Sequence[dict[str, object]]
    ) -> FrozenTrial | None:
        """Return the trial whose configuration is repeated next, or None if no configuration is repeated.

        The search repeats the two configurations that are probably best, starting with the one that has fewer trials.
        It repeats nothing while it still searches for the best two, or if neither of the two fits the budget.
        """
        if left >= _FEW and not self._sampler.is_over(self._study):
            return None
        by_number = {frozen.number: frozen for frozen in trials}
        best: list[FrozenTrial] = []
        for number in self._sampler.ranked(self._study):
            if all(by_number[number].params != other.params for other in best):
                best.append(by_number[number])
        if len(best) < 2:
            return None
        fitting = [one for one in best[:2] if one.params not in refused]
        return min(fitting, key=lambda one: sum(frozen.params == one.params for frozen in trials), default=None)


def is_waiting(frozen: FrozenTrial) -> bool:
    """Return whether a trial is still in Optuna's queue."""
    return frozen.state.name == "WAITING"


def excluded_because(frozen: FrozenTrial) -> str:
    """Return why the pruner excluded a configuration before its first step, or "" if the pruner did not exclude it."""
    said = str(frozen.user_attrs.get(views.REJECTED, ""))
    return "" if said == REJECTED else said
