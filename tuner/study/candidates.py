"""Candidate configurations: draw them, reject those that the pruner excludes, and decide whether one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.best import best_score
from tuner.study.protocols import StudySampler, pruner_of, sampler_of
from tuner.study.running_trial import stored
from tuner.study.suggest import OptunaSuggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.suggest import Space
    from tuner.study.types import WhenSure

__all__ = ["EXCLUDED", "REJECTED", "TRIES", "Candidates", "excluded_because", "is_waiting"]

REJECTED = "a trial with these parameters no longer fits in the privacy budget; it was not started"
EXCLUDED = "the pruner excluded it before its first step"
"""Reason of a configuration that was not started, if its pruner gives none."""

TRIES = 20
"""Largest number of configurations drawn for one trial while they do not fit the budget or are excluded."""

_FEW = 3.0
"""With fewer whole trials left, a search that replicates repeats its best configurations."""


class Candidates:
    """Candidate configurations of a study. `StudyDriver` explains the arguments."""

    def __init__(self, study: Study, space: Space, when_sure: WhenSure) -> None:
        self._study = study
        self._space = space
        self._when_sure = when_sure

    @property
    def _sampler(self) -> StudySampler:
        return sampler_of(self._study)

    @property
    def needs_left(self) -> bool:
        """Whether `configurations` needs the number of whole trials left. Counting costs queries of the ledger."""
        return self._when_sure == "replicate" or self._sampler.wants_left

    def counts(self) -> tuple[int, int]:
        """Return how many configurations Optuna proposed, and how many of them became trials."""
        every = [frozen for frozen in self._study.get_trials(deepcopy=False) if not is_waiting(frozen)]
        return len(every), sum(views.REJECTED not in frozen.user_attrs for frozen in every)

    def is_exhausted(self) -> bool:
        """Return whether every point of a grid was proposed."""
        points = self._sampler.points
        return points is not None and self.counts()[0] >= points

    def waits(self) -> bool:
        """Return whether to start no trial before a running one has reported more."""
        return self._sampler.waits(self._study)

    def found(self) -> str:
        """Return the reason to stop the search because the best is found; empty if it continues."""
        if self._when_sure != "stop" or not self._sampler.is_over(self._study):
            return ""
        best = self._sampler.best(self._study)
        return "" if best is None else f"trial {best[0]} is within the tolerance with probability {best[1]:.2f}"

    def found_without(self, number: int, nominal: int, score: float, *, mode: str) -> str:
        """Return the reason to stop a run because the best configuration is found; empty if the run continues.

        A run with the best score of all at its rung (`nominal`) always continues: it may be the best model.
        """
        others = [t.intermediate_values for t in self._study.get_trials(deepcopy=False) if t.number != number]
        leads = score == best_score([score, *(each[nominal] for each in others if nominal in each)], mode=mode)
        return "" if leads else self.found()

    def configurations(self, left: float | None) -> Iterator[tuple[Trial, dict[str, object]]]:
        """Draw trials with their parameters, until every point of a grid was proposed.

        Configurations that the pruner excludes are skipped, at most `TRIES` of them.

        Args:
            left: number of whole trials that are still allowed, including the next one; None unless `needs_left`.
        """
        exclusions = 0
        refused: list[dict[str, object]] = []  # configurations whose replica did not fit
        while not self.is_exhausted():
            trial = self._ask(left, refused)
            parameters = self._space.sample(OptunaSuggest(trial))
            excluded = self.excluded(trial) if exclusions < TRIES else ""
            if excluded:
                self.reject(trial, excluded)
                exclusions += 1
            else:
                yield trial, parameters
                if views.REPLICA_OF in trial.user_attrs:
                    refused.append(trial.params)

    def excluded(self, trial: Trial) -> str:
        """Return why a drawn trial is not started; empty if it starts. A replica always starts."""
        if views.REPLICA_OF in trial.user_attrs or not trial.should_prune():
            return ""
        return self.why(trial) or EXCLUDED

    def why(self, trial: Trial) -> str:
        """Return the pruner's reason for stopping a trial just now; empty if it gives none."""
        return pruner_of(self._study).why(self._study, stored(self._study, trial))

    def reject(self, trial: Trial, excluded: str = "") -> None:
        """Tell Optuna that a configuration was excluded for this reason, or did not fit the budget."""
        import optuna

        state = optuna.trial.TrialState
        trial.set_user_attr(views.REJECTED, excluded or REJECTED)
        if excluded:
            trial.set_user_attr(views.REASON, excluded)
        self._study.tell(trial, state=state.PRUNED if excluded else state.FAIL)

    def is_half(self, frozen: FrozenTrial) -> bool:
        """Return whether the driver died between two values of a candidate that its sampler draws as a whole.

        The candidate is rejected, because its missing values would come from another draw.
        """
        whole = self._sampler.draws_whole
        return whole and bool(frozen.params) and views.PARAMETERS not in frozen.user_attrs

    def _ask(self, left: float | None, refused: Sequence[dict[str, object]]) -> Trial:
        """Ask Optuna for a trial: a new configuration, or a replica of one of the best two."""
        if self._sampler.wants_left:
            self._sampler.tell_left(left)
        trials = self._study.get_trials(deepcopy=False)
        # The queue may hold a trial of a driver that died. Optuna takes it first.
        if self._when_sure == "replicate" and left is not None and not any(map(is_waiting, trials)):
            again = self._to_replicate(trials, left, refused)
            if again is not None:
                self._study.enqueue_trial(again.params, user_attrs={views.REPLICA_OF: again.number})
        return self._study.ask()

    def _to_replicate(
        self, trials: list[FrozenTrial], left: float, refused: Sequence[dict[str, object]]
    ) -> FrozenTrial | None:
        """Return the trial whose configuration to repeat: of the two likely best, the one that ran less often.

        None while the search for them continues, or if neither fits the budget.
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
    """Return why the pruner excluded a configuration before its first step; empty for every other trial."""
    said = str(frozen.user_attrs.get(views.REJECTED, ""))
    return "" if said == REJECTED else said
