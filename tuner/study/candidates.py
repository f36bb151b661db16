"""The study's side of a new trial: what is drawn, what is turned away, and whether anything is needed at all.

A sampler may say more than values. Where it has these methods the driver asks them: `waits(study)`, `is_over(study)`,
`ranked(study)`, `best(study)`, and the attribute `left`. A pruner that excludes a trial before any report keeps it from
being started, and one with `why(study, trial)` says why.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tuner.study import views
from tuner.study.running_trial import stored
from tuner.study.suggest import OptunaSuggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.suggest import Space
    from tuner.study.types import WhenSure

__all__ = ["EXCLUDED", "REJECTED", "TRIES", "Drawing", "excluded_because", "is_waiting"]

REJECTED = "a trial with these parameters no longer fits in the privacy budget; it was not started"
EXCLUDED = "the pruner excluded it before its first step"
"""Why a configuration was not started, where its pruner does not say."""

TRIES = 20
"""Configurations that are drawn in search of one that fits what is left of the budget, or that is not excluded."""

_FEW = 3.0
"""With fewer whole trials left a search that replicates begins to."""


class Drawing:
    """Draws configurations from a study.

    Args:
        study: with its sampler and its pruner.
        space: what is searched.
        when_sure: what follows when a complete trial is surely near the best.
    """

    def __init__(self, study: Study, space: Space, when_sure: WhenSure) -> None:
        self._study = study
        self._space = space
        self._when_sure = when_sure

    @property
    def _sampler(self) -> Any:  # noqa: ANN401 - what it has beside Optuna's methods is asked for
        return self._study.sampler

    @property
    def needs_left(self) -> bool:
        """Whether it matters how many whole trials are left; to count them asks the ledger a few times."""
        return self._when_sure == "replicate" or hasattr(self._sampler, "left")

    def counts(self) -> tuple[int, int]:
        """How often Optuna was asked, and how many of these became trials; what waits in its queue is neither."""
        every = [frozen for frozen in self._study.get_trials(deepcopy=False) if not is_waiting(frozen)]
        return len(every), sum(views.REJECTED not in frozen.user_attrs for frozen in every)

    def is_exhausted(self) -> bool:
        """Whether every point of a grid was asked for."""
        return self.counts()[0] >= float(getattr(self._sampler, "grid_size", math.inf))

    def waits(self) -> bool:
        """Whether the sampler would rather see more of the running trials before another one starts."""
        waits = getattr(self._sampler, "waits", None)
        return waits is not None and bool(waits(self._study))

    def found(self) -> str:
        """In words, that the best is found and the search is to stop; empty where it is to go on."""
        if self._when_sure != "stop" or not self._sampler.is_over(self._study):
            return ""
        best = self._sampler.best(self._study)
        return "" if best is None else f"trial {best[0]} is within the tolerance with probability {best[1]:.2f}"

    def configurations(self, left: float | None) -> Iterator[tuple[Trial, dict[str, object]]]:
        """Trials with their parameters, until every point of a grid was asked for.

        What the pruner excludes is told to Optuna and passed over; after `TRIES` exclusions nothing is any more.

        Args:
            left: whole trials that the budget and their number still allow, the first of these included; None where
                nothing `needs_left`.
        """
        exclusions = 0
        refused: list[dict[str, object]] = []  # configurations whose repetition did not fit
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
        """Why a trial that was drawn need not start; empty where it is to. A replica always is."""
        if views.REPLICA_OF in trial.user_attrs or not trial.should_prune():
            return ""
        return self.why(trial) or EXCLUDED

    def why(self, trial: Trial) -> str:
        """Why the pruner has just said that a trial is not to go on; empty where it does not say."""
        why = getattr(self._study.pruner, "why", None)
        return "" if why is None else str(why(self._study, stored(self._study, trial)))

    def reject(self, trial: Trial, excluded: str = "") -> None:
        """Tell Optuna that a configuration is no trial: it did not fit, or was excluded for the given reason."""
        import optuna

        state = optuna.trial.TrialState
        trial.set_user_attr(views.REJECTED, excluded or REJECTED)
        if excluded:
            trial.set_user_attr(views.REASON, excluded)
        self._study.tell(trial, state=state.PRUNED if excluded else state.FAIL)

    def is_half(self, frozen: FrozenTrial) -> bool:
        """Whether the driver died between two values of a candidate that its sampler draws as a whole.

        Drawn again, the rest would be of another candidate; nothing of the first one ever ran.
        """
        whole = getattr(self._sampler, "draws_whole", False)
        return bool(whole and frozen.params and views.PARAMETERS not in frozen.user_attrs)

    def _ask(self, left: float | None, refused: Sequence[dict[str, object]]) -> Trial:
        """The next of Optuna's trials; one of the best two again where the search replicates."""
        if hasattr(self._sampler, "left"):
            self._sampler.left = left
        trials = self._study.get_trials(deepcopy=False)
        # What a driver that died had put into the queue is taken first, so that the queue never holds more than one.
        if self._when_sure == "replicate" and left is not None and not any(map(is_waiting, trials)):
            again = self._to_replicate(trials, left, refused)
            if again is not None:
                self._study.enqueue_trial(again.params, user_attrs={views.REPLICA_OF: again.number})
        return self._study.ask()

    def _to_replicate(
        self, trials: list[FrozenTrial], left: float, refused: Sequence[dict[str, object]]
    ) -> FrozenTrial | None:
        """Of the two configurations that are believed to be the best, the one that was run less often.

        Of equals the better one. None where the search still looks for them, or where neither fits any more.
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
    """Whether a trial stands in Optuna's queue and was not asked for yet."""
    return frozen.state.name == "WAITING"


def excluded_because(frozen: FrozenTrial) -> str:
    """Why a configuration was excluded before its first step; empty of every other."""
    said = str(frozen.user_attrs.get(views.REJECTED, ""))
    return "" if said == REJECTED else said
