"""Recorder that writes the events of a sweep to the spool. Another process sends the spool to MLflow.

In MLflow, a sweep is a parent run and each trial is a child run. Recorded values may depend on private records only
through a charged mechanism. The recorded metrics of a trial are therefore only the objective, the learning rate and
metrics whose name starts with ``validation_``. Timestamps are accurate to the minute (see `records.Clock`). The
learning rate of a step is the metric ``learning_rate_now``, because a parameter has the name ``learning_rate``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tuner.errors import SweepInterrupted, TrackingError
from tuner.privacy.card.claims import budget_sentence
from tuner.recorder.history import read_history
from tuner.recorder.records import (
    Clock,
    artifact_record,
    encode_metrics,
    flatten,
    metrics_record,
    mlflow_name,
    mlflow_text,
    public_reason,
    unfinished_trial,
)
from tuner.recorder.sender import SendStatus
from tuner.recorder.sender_process import SenderProcess
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import Spool

if TYPE_CHECKING:
    from trainables.score_error import ScoreError
    from tuner.privacy.ledger.search_budget import BudgetReading, SearchBudget
    from tuner.study.types import TrialView

__all__ = ["MLflowRecorder", "SweepInfo"]

log = logging.getLogger(__name__)

_RATE = "learning_rate"
_TRIAL_STATUS = {"COMPLETE": "FINISHED", "PRUNED": "FINISHED", "FAILED": "FAILED", "LOST": "KILLED"}
_OF_A_TRIAL = ("method", "model", "optimizer", "batch_size", "epochs")
_NOISE = ("noise_multiplier",)  # of the search; that of the committed run is in the plan
_SWEEP_STATUS = {
    "interrupted": "KILLED",
    "stopped": "KILLED",
    "failed": "FAILED",
}


@dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """Facts about a sweep that are recorded for MLflow when the sweep starts or resumes."""

    id: str  # name of the sweep, which identifies the parent run and does not change after a resume
    uri: str  # absolute tracking address (see `mlflow_store.absolute_uri`)
    experiment: str  # name of the MLflow experiment
    metric: str = "validation_accuracy"  # name of the objective
    mode: str = "max"  # or "min"
    settings: Mapping[str, Any] = field(default_factory=dict)  # the resolved experiment file, logged as parameters
    tags: Mapping[str, str] = field(default_factory=dict)  # of the parent run: ``code_version``, ``dataset``, ...
    data: Mapping[str, str] = field(default_factory=dict)  # PUBLIC facts about the records: name, digest, records
    claim: str = ""  # budget sentence; if empty, the recorder writes it from the current budget
    error: ScoreError | None = None  # standard error of the scores; None if it is not known

    def errors(self, score: float | None) -> dict[str, float]:
        """Return the metric with the standard error of a score, or nothing if it is not known."""
        if self.error is None or score is None or not math.isfinite(score):
            return {}
        return {f"{self.metric}_se": self.error.of(score)}

    def trial_settings(self, trial: TrialView) -> dict[str, str]:
        """Return what decides a trial beside the parameters that were searched, under their names, and those."""
        sections = {"dataset": ("name",), "trainable": _OF_A_TRIAL, "privacy": () if trial.committed else _NOISE}
        fixed = {
            "dataset" if section == "dataset" else name: value
            for section, names in sections.items()
            for name, value in self.settings.get(section, {}).items()
            if name in names
        }
        seed = {"seed": self.settings["seed"]} if "seed" in self.settings else {}
        return flatten({**fixed, **seed, **trial.parameters})

    @property
    def unit(self) -> str:
        """The unit of privacy: ``record`` or ``user``."""
        return str(self.settings.get("privacy", {}).get("unit", "record"))

    def start_record(
        self, *, tags: Mapping[str, str], claim: str, step: int, values: Mapping[str, float]
    ) -> dict[str, object]:
        """Return the record that opens the parent run, or opens it again after a resume.

        `claim` is Markdown and becomes the description of the sweep in MLflow. `values` are logged at `step`, which is
        the total number of charged steps.
        """
        return {
            "kind": "sweep_started",
            "trial": "",
            "sweep": self.id,
            "uri": self.uri,
            "experiment": self.experiment,
            "params": flatten(self.settings),
            "data": dict(self.data),
            "tags": {
                **{mlflow_name(name): mlflow_text(value) for name, value in self.tags.items()},
                **tags,
                "objective": f"{self.mode} {self.metric}",
                "mlflow.note.content": claim,
            },
            "step": step,
            "values": encode_metrics(values),
        }


class MLflowRecorder:
    """Recorder of a sweep. It is an `Observer` of the search and the only writer of the sweep's spool.

    When a method returns, its records are on the disk. They are sent to MLflow later, and the sweep does not wait for
    MLflow.

    Args:
        folder: the sweep's folder, which may already contain a spool.
        sweep: facts about the sweep.
        budget: the search's budget in the ledger; None if the search is not private. After a restart, more
            steps are charged to a trial than its step number shows, because repeated steps are charged again.
        send: whether to send the records to MLflow. False only writes the spool.

    Raises:
        TrackingError: the spool cannot be written. Every method may raise this error, and the sweep must then stop.
    """

    def __init__(
        self,
        folder: Path,
        sweep: SweepInfo,
        *,
        budget: SearchBudget | None,
        send: bool = True,
    ) -> None:
        self._sweep = sweep
        self._budget = budget
        self.withheld: set[str] = set()
        self._sender: SenderProcess | None = None
        self._spool = Spool(folder / SPOOL)
        try:
            self._history = read_history(self._spool.path)
            self._clock = Clock(last=self._history.last_tick)
            spent = self._budget_metrics()
            state = {"state": "running", "reason": ""}
            step = self._sweep_step(spent)
            self._append(
                sweep.start_record(tags=state, claim=self._budget_note(), step=step, values=spent),
                # A resumed sweep has no winner yet. Every trial loses the tag, whether it had it or not, so that the
                # number of records tells nothing of the scores.
                *(metrics_record({}, step=0, trial=each, tags={"best": "0"}) for each in self._history.ended_trials()),
            )
        except BaseException:
            self._spool.close()
            raise
        if send:
            self._sender = SenderProcess(folder)
            self._sender.start()

    def trial_started(self, trial: TrialView) -> None:
        """Open the trial's run in MLflow, or open it again when the trial is resumed."""
        self._append(
            {
                "kind": "trial_started",
                "trial": trial.id,
                "number": trial.number,
                "params": self._sweep.trial_settings(trial),
                "tags": {
                    "state": "running",
                    "reason": "",
                    "mlflow.note.content": self._trial_note(),
                    **_committed(trial),
                },
            }
        )

    def trial_reported(self, trial: TrialView, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a rung and the budget charged so far."""
        shown = self._shown(metrics)
        if self._sweep.metric in metrics:
            shown["objective"] = metrics[self._sweep.metric]
            shown |= self._sweep.errors(metrics[self._sweep.metric])
        read = None if self._budget is None else self._budget.read()
        budget = _budget_metrics(read, live=True)
        own = {**_trial_budget(read, trial), **({"epsilon_search": budget["epsilon_spent"]} if budget else {})}
        self._append(
            metrics_record({**shown, **own}, step=step, trial=trial.id),
            metrics_record(budget, step=self._sweep_step(budget)),
        )

    def trial_paused(self, trial: TrialView) -> None:
        """Mark the trial's run in MLflow as paused. The run stays open."""
        self._append(metrics_record({}, step=trial.step, trial=trial.id, tags={"state": trial.state.name.lower()}))

    def trial_lost(self, trial: TrialView, why: str) -> None:
        """Record nothing: the charged steps, which are recorded, tell what was paid again."""

    def trial_finished(self, trial: TrialView) -> None:
        """Close the trial's run in MLflow with its final status, and update the best score of the sweep."""
        read = None if self._budget is None else self._budget.read()
        state = trial.state.name
        score = trial.last_score if trial.last_score is not None and math.isfinite(trial.last_score) else None
        finished: dict[str, object] = {
            "kind": "trial_finished",
            "trial": trial.id,
            "number": trial.number,
            "status": _TRIAL_STATUS[state],
            "state": state.lower(),
            "score": score,
            "tags": {"state": state.lower(), "reason": public_reason(trial.reason), "best": "0", **_committed(trial)},
            "step": trial.step,
            "values": encode_metrics(_trial_budget(read, trial)),
        }
        budget = _budget_metrics(read, live=True)
        step = self._sweep_step(budget)
        self._history.apply(finished)
        best = self._history.best(self._sweep.mode)
        parent: dict[str, float] = {
            **budget,
            **{f"trials_{name}": float(count) for name, count in self._history.counts().items()},
            **({f"best_{name}": value for name, value in self._best_values(best[1]).items()} if best else {}),
        }
        self._append(
            finished,
            metrics_record(parent, step=step, tags={"best_trial": best[0]} if best else {}),
        )

    def _best_values(self, score: float) -> dict[str, float]:
        return {self._sweep.metric: score, **self._sweep.errors(score)}

    def artifact(self, path: Path | str, *, under: str = "") -> None:
        """Add a file or folder to the folder `under` of the parent run's artifacts.

        A relative path is relative to the sweep's folder. The file is read when it is sent.
        """
        self._append(artifact_record(path, under=under))

    def tag(self, name: str, value: str) -> None:
        """Set a tag of the parent run."""
        self._append(metrics_record({}, step=self._history.steps, tags={name: value}))

    def finish(self, state: str, *, reason: str = "") -> None:
        """Record the final state of the sweep, for example ``done``, and end every trial that has not ended."""
        if self._history.ended:
            return
        budget, best = self._budget_metrics(), self._history.best(self._sweep.mode)
        self._append(
            *([] if best is None else [metrics_record({}, step=0, trial=best[0], tags={"best": "1"})]),
            *(unfinished_trial(trial, "interrupted") for trial in self._history.open_trials()),
            {
                "kind": "sweep_finished",
                "trial": "",
                "status": _SWEEP_STATUS.get(state, "FINISHED"),
                "tags": {"state": state, "reason": public_reason(reason)},
                "step": self._sweep_step(budget),
                "values": encode_metrics(budget),
            },
        )

    def status(self) -> SendStatus:
        """Return the progress of sending to MLflow."""
        return SendStatus() if self._sender is None else self._sender.status()

    def flush(self, timeout: float = 60.0) -> SendStatus:
        """Wait until MLflow has every record or does not respond, for at most `timeout` seconds.

        No error of MLflow is raised. The returned status shows the problem.
        """
        return SendStatus() if self._sender is None else self._sender.flush(timeout)

    def close(self) -> None:
        """Stop sending and close the spool. `sync.send_unsent` or a resume of the sweep sends the remaining records."""
        if self._sender is not None:
            self._sender.stop()
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Record the end of the sweep if `finish` was not called, wait for MLflow, and close the recorder."""
        try:
            if error is None:
                self.finish("done")
            elif isinstance(error, (KeyboardInterrupt, SweepInterrupted)):
                self.finish("interrupted")
            else:
                self.finish("failed", reason=f"{type(error).__name__}:")
        except TrackingError as failure:
            if error is None:
                raise
            log.warning("the end of the sweep could not be recorded: %s", failure)  # Python raises `error` itself
        finally:
            self.flush()
            self.close()

    def _append(self, *records: Mapping[str, object]) -> None:
        stamped = self._clock.stamp(*records)
        self._spool.append(*stamped)
        for record in stamped:
            self._history.apply(record)
        if self._sender is not None:
            self._sender.notify()

    def _shown(self, metrics: Mapping[str, float]) -> dict[str, float]:
        allowed = {
            name: value
            for name, value in metrics.items()
            if name.startswith("validation_") or name in (self._sweep.metric, _RATE)
        }
        new = metrics.keys() - allowed.keys() - self.withheld
        if new:
            self.withheld |= new
            log.warning("metrics withheld because they may depend on private records: %s", ", ".join(sorted(new)))
        return {f"{_RATE}_now" if name == _RATE else name: value for name, value in allowed.items()}

    def _budget_metrics(self) -> dict[str, float]:
        return _budget_metrics(None if self._budget is None else self._budget.read())

    def _sweep_step(self, budget: Mapping[str, float]) -> int:
        return int(budget["steps_spent"]) if budget else self._history.steps

    def _trial_note(self) -> str:
        """Return what a trial's page says about its numbers: they are part of a search, and no ε of them is a claim."""
        about = f"A trial of the sweep {self._sweep.id}. {self._budget_note()}"
        if self._budget is None:
            return about
        return (
            f"{about}\n\n`epsilon_trial` is the ε of this trial's own steps, and `epsilon_search` is that of all steps "
            "so far. Both are estimates, not guarantees."
        )

    def _budget_note(self) -> str:
        if self._sweep.claim:
            return self._sweep.claim
        if self._budget is None:
            return "**Not private.** This sweep was run with `private: false`, so nothing in it has a guarantee."
        view = self._budget.view(compose=False)  # the note names the claim alone
        steps = "" if view.step_cap is None else f"The search may take {view.step_cap} steps in all. "
        return (
            f"**Privacy budget.** {budget_sentence(view, unit=self._sweep.unit)} {steps}"
            "The metric `epsilon_spent` is an estimate: the ε of the steps charged so far, rounded up by at most "
            "about 3 % until the sweep ends.\n\n"
            "Times are accurate to the minute only, so short durations mean nothing. Exact durations would reveal how "
            "many records were sampled."
        )


def _trial_budget(read: BudgetReading | None, trial: TrialView) -> dict[str, float]:
    if read is None:
        return {}
    steps = read.charged_steps(trial.id)
    return {"epsilon_trial": read.trial_epsilon(trial.id, steps), "steps_charged": float(steps)}


def _budget_metrics(read: BudgetReading | None, *, live: bool = False) -> dict[str, float]:
    """Return the metrics of a search's budget. With `live`, ε is up to 3 % higher (`odometer.read_search`)."""
    if read is None:
        return {}
    view = read.view(live=live)
    scores = view.validation
    return {
        "epsilon_spent": view.epsilon_spent,
        "epsilon_cap": view.epsilon_cap,
        "steps_spent": float(view.spent_steps),
        **({"scores_spent": float(scores.spent_steps), "epsilon_scores": scores.epsilon_spent} if scores else {}),
    }


def _committed(trial: TrialView) -> dict[str, str]:
    """Return the tag of the committed run, whose model is released. Trials of the search have no such tag."""
    return {"committed": "true"} if trial.committed else {}
