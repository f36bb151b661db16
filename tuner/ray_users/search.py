"""Our samplers and pruners as searcher and scheduler of your own `tune.Tuner`, with or without privacy.

    search = StudySearch(UnimodalSampler("radius", tolerance=0.01, last_step=4),
                         UnimodalPruner("radius", tolerance=0.01, last_step=4), last_step=4)
    tune.Tuner(trainable, param_space={"radius": tune.uniform(0, 3)}, tune_config=tune.TuneConfig(
        metric="validation_accuracy", mode="max", search_alg=search, scheduler=search.scheduler()))

Any sampler and any pruner of Optuna can be used this way.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState
from ray.tune.experiment import Trial as RayTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch
from ray.tune.utils.util import flatten_dict

from tuner.errors import InputError
from tuner.study.protocols import sampler_of

__all__ = ["StudyScheduler", "StudySearch"]

_DRAWS = 100
"""Number of candidates that the pruner may exclude in a row before their first step."""


class StudySearch(Searcher):  # type: ignore[misc]  # Ray has no types
    """Searcher of Ray over an Optuna study of its own, which it keeps in memory.

    A trial that the pruner excludes before its first step is never given to Ray. The search ends early if the sampler
    says that it may (`UnimodalSampler.is_over`).

    Args:
        sampler: sampler of Optuna or of ours. By default Optuna's choice.
        pruner: pruner of Optuna or of ours. It also stops running trials if the Tuner has `scheduler()`.
        step: name of the result that counts reports or steps. `last_step` of our samplers and pruners has this unit.
        last_step: value of `step` at which trials end. A trial that ends earlier, for whatever reason, counts as
            pruned. By default, only trials that the pruner stopped count as pruned.
        space: space of the search, `tune.uniform` and so on. By default it is `param_space` of the Tuner.
        metric: name of the score. By default it is `metric` of the `TuneConfig`.
        mode: 'max' or 'min'. By default it is `mode` of the `TuneConfig`.
    """

    def __init__(
        self,
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
        *,
        step: str = "training_iteration",
        last_step: int | None = None,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self._metric: str | None
        self._mode: str | None
        if not isinstance(sampler, BaseSampler | None) or not isinstance(pruner, BasePruner | None):
            raise InputError(
                "ray-searcher",
                f"`sampler` and `pruner` must be a sampler and a pruner of Optuna (got {sampler!r} and {pruner!r}).",
            )
        if not isinstance(metric, str | None):
            raise InputError("ray-searcher", f"`metric` must be the name of one score (got {metric!r}).")
        self._sampler, self._pruner = sampler, pruner or optuna.pruners.NopPruner()
        self._step, self._last_step = step, last_step
        self._space: dict[str, Any] | None = None
        self._study: optuna.Study | None = None
        self._trials: dict[str, Trial] = {}
        self._stopped: set[str] = set()
        self._has_scheduler = False
        self._unconfirmed: set[str] = set()  # trials that ran when the study was saved, and that Ray may have forgotten
        if space is not None:
            self.set_search_properties(metric, mode, dict(space))

    @property
    def study(self) -> optuna.Study:
        """The study. It exists as soon as space, metric and mode are known.

        Raises:
            InputError: the Tuner has named no space, no metric or no mode.
        """
        if self._study is None:
            raise InputError(
                "ray-search-incomplete",
                "The searcher needs `param_space` of the Tuner, and `metric` and `mode` of its TuneConfig. Set them, "
                "or give `space`, `metric` and `mode` to `StudySearch`.",
            )
        return self._study

    def scheduler(self) -> StudyScheduler:
        """Return the scheduler that stops the trials of this search that its pruner excludes."""
        self._has_scheduler = True
        return StudyScheduler(self)

    def confirm(self, trial_id: str) -> None:
        """Note that Ray has a running trial, also after `restore`."""
        self._unconfirmed.discard(trial_id)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **_spec: object
    ) -> bool:
        """Take over what the Tuner names. Return False if the space is known already; see Ray's `Searcher`.

        Raises:
            InputError: the Tuner names another metric or mode than the searcher has.
        """
        if self._study is not None and (metric or self._metric, mode or self._mode) != (self._metric, self._mode):
            raise InputError(
                "ray-searcher",
                f"`metric` and `mode` of the Tuner must be those of the searcher, {self._metric!r} and {self._mode!r} "
                f"(got {metric!r} and {mode!r}).",
            )
        if metric is not None:
            self._metric = metric
        if mode is not None:
            self._mode = mode
        if self._space is not None and config:
            return False
        if config:
            self._space = OptunaSearch.convert_search_space(config)
        if self._space and self._metric and self._mode and self._study is None:
            direction = StudyDirection.MAXIMIZE if self._mode == "max" else StudyDirection.MINIMIZE
            self._study = optuna.create_study(direction=direction, sampler=self._sampler, pruner=self._pruner)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the configuration of a trial; None to be asked again later; ``FINISHED`` at the end of the search."""
        study = self.study
        while self._unconfirmed:  # a sampler would wait for them for ever
            self.on_trial_complete(self._unconfirmed.pop(), error=True)
        known = sampler_of(study)
        if known.is_over(study):
            return str(Searcher.FINISHED)
        if known.waits(study):
            return None
        for _ in range(_DRAWS):
            trial = study.ask(self._space)
            if not trial.should_prune():
                self._trials[trial_id] = trial
                return dict(trial.params)
            study.tell(trial, state=TrialState.PRUNED)
        return None if self._trials else str(Searcher.FINISHED)

    def report(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Store the score of a running trial, and return whether the pruner lets the trial continue."""
        step = self._store(trial_id, result)
        if step is None or (self._last_step is not None and step >= self._last_step):
            return True
        if not self._trials[trial_id].should_prune():
            return True
        self._stopped.add(trial_id)
        return False

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Store the score of a running trial; see Ray's `Searcher`."""
        self._store(trial_id, result)

    def _store(self, trial_id: str, result: Mapping[str, Any]) -> int | None:
        """Store a finite score of a trial, once for each step, and return the step."""
        trial, value = self._trials.get(trial_id), self._score(result)
        if trial is None or value is None or not math.isfinite(value):
            return None
        step = result.get(self._step)
        if not isinstance(step, int | np.integer):
            raise InputError(
                "ray-searcher",
                f"`step` must be the name of a whole number that every result has (got {self._step!r}, which is "
                f"{step!r}).",
            )
        step = int(step)
        if step not in self.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
            trial.report(value, step)
        return step

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: FBT001, FBT002 - Ray's signature
        """Tell the study how a trial ended; see Ray's `Searcher`. A trial without a finite score has failed."""
        step = self._store(trial_id, result or {})
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        if error or step is None:
            self.study.tell(trial, state=TrialState.FAIL)
        elif trial_id in self._stopped or (self._last_step is not None and step < self._last_step):
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, self._score(result or {}))

    def ended(self, trial_id: str, result: Mapping[str, Any], *, failed: bool) -> None:
        """Take over the end of a trial that came after the searcher's last save, with Ray's last result of the trial.

        Without `last_step`, the result does not say whether the trial was stopped early, so the trial counts as failed.
        """
        self.on_trial_complete(trial_id, flatten_dict(dict(result)), error=failed or self._last_step is None)

    def save(self, checkpoint_path: str) -> None:
        """Write the study to a file; see Ray's `Searcher`."""
        state = (self._space, self._metric, self._mode, self._study, self._trials, self._stopped)
        Path(checkpoint_path).write_bytes(pickle.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Continue with the study in a file that `save` has written; see Ray's `Searcher`.

        Ray does not write its own file at the same instant, so it may not know a trial that runs in the study. With
        `scheduler()`, such a trial counts as failed.
        """
        state = pickle.loads(Path(checkpoint_path).read_bytes())
        self._space, self._metric, self._mode, self._study, self._trials, self._stopped = state
        self._unconfirmed = set(self._trials) if self._has_scheduler else set()

    def _score(self, result: Mapping[str, Any]) -> float | None:
        value = result.get(str(self._metric))
        return None if value is None else float(value)


class StudyScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray has no types
    """Scheduler of Ray that asks the pruner of a `StudySearch` after every result. Made by `StudySearch.scheduler`."""

    _supports_buffered_results = False

    def __init__(self, search: StudySearch) -> None:
        super().__init__()
        self._search = search

    def on_trial_add(self, tune_controller: object, trial: Any) -> None:  # noqa: ANN401 - Ray's trial
        """Tell the searcher what Ray knows of a trial after a restore; see Ray's `TrialScheduler`."""
        if trial.is_finished():
            self._search.ended(trial.trial_id, trial.last_result, failed=trial.status == RayTrial.ERROR)
        else:
            self._search.confirm(trial.trial_id)

    def on_trial_result(self, tune_controller: object, trial: Any, result: dict[str, Any]) -> str:  # noqa: ANN401 - Ray's trial
        """Return whether the trial continues or stops; see Ray's `TrialScheduler`."""
        continues = self._search.report(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if continues else TrialScheduler.STOP)
