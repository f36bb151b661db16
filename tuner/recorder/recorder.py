"""The recorder: what a sweep does, written to the spool as it happens and sent on to MLflow behind its back.

One parent run a sweep, one child run a trial. Nothing recorded here may depend on private records except through a
charged mechanism: scores under ``validation_``, the objective and the learning rate are let through, everything else
that a trial reports is withheld; timestamps are true to the minute (`records.Clock`). The learning rate of a step is
the metric ``learning_rate_now``, for ``learning_rate`` is a parameter.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tuner.errors import SweepInterrupted, TrackingError
from tuner.privacy.card.claims import budget_sentence
from tuner.recorder.history import fold
from tuner.recorder.records import Clock, closed_trial, encode_metrics, flatten, key, privacy_unit, public_reason, text
from tuner.recorder.sender import Sender, SendStatus
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import Spool

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.study.types import TrialView

__all__ = ["MLflowRecorder", "SweepInfo"]

log = logging.getLogger(__name__)

_RATE = "learning_rate"
_TRIAL_STATUS = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAILED": "FAILED"}
_SWEEP_STATUS = {
    "interrupted": "KILLED",
    "stopped": "KILLED",
    "failed": "FAILED",
    "the first trials all failed": "FAILED",
}


@dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """What MLflow is told about a sweep when it starts or goes on.

    Attributes:
        id: name of the sweep, the same when it is resumed; the parent run is found by it.
        uri: absolute tracking address (`store.absolute_uri`).
        experiment: name of the MLflow experiment.
        metric: name of the metric that is searched for.
        mode: ``max`` or ``min``.
        settings: the resolved experiment, nested; logged as dotted parameters.
        tags: for example ``code_version``, ``dataset``, ``dataset_checksum``.
        note: what the MLflow page of the sweep says, in Markdown; the budget sentence is added.
        claim: the budget sentence of a sweep that charges nothing; empty for the words of its budget.
    """

    id: str
    uri: str
    experiment: str
    metric: str = "validation_accuracy"
    mode: str = "max"
    settings: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    claim: str = ""


class MLflowRecorder:
    """Writes a sweep down. An `Observer` of the search; the one writer of its spool.

    Everything is on the disk when a call returns; MLflow follows when it can and stalls nobody.

    Args:
        folder: the sweep's folder; the spool stands in it. An existing spool is gone on with.
        sweep: what the sweep is.
        budget_view: the search's budget now, from the ledger; None for a sweep that is not private.
        trial_epsilon: ε of a trial and a number of its charged steps, from the ledger's accountant; None when not
            private.
        charged_steps: steps charged to a trial so far, from the ledger; the trial's own step when None, which is too
            little for a trial that was continued after a crash and pays for some steps twice.
        send: False to write the spool only.
        now: seconds since 1970.

    Raises:
        TrackingError: the spool cannot be written, here and from every method: the sweep must stop.
    """

    def __init__(
        self,
        folder: Path,
        sweep: SweepInfo,
        *,
        budget_view: Callable[[], BudgetView] | None,
        trial_epsilon: Callable[[str, int], float] | None,
        charged_steps: Callable[[str], int] | None = None,
        send: bool = True,
    ) -> None:
        self._sweep = sweep
        self._budget_view = budget_view
        self._trial_epsilon = trial_epsilon
        self._charged_steps = charged_steps
        self.withheld: set[str] = set()
        self.finished = False
        self._spool = Spool(folder / SPOOL)
        try:
            self._history = fold(self._spool.path)
            self._clock = Clock(last=self._history.last_tick)
            self._append(self._sweep_started())
        except BaseException:
            self._spool.close()
            raise
        self._sender = Sender(folder) if send else None
        if self._sender is not None:
            self._sender.start()

    def trial_started(self, trial: TrialView) -> None:
        """Opens the trial's run, or opens it again when the trial is continued."""
        self._append(
            {
                "kind": "trial_started",
                "trial": trial.id,
                "number": trial.number,
                "params": flatten(trial.parameters),
                "tags": {"state": "running", "reason": ""},
            }
        )

    def trial_reported(self, trial: TrialView, step: int, metrics: Mapping[str, float]) -> None:
        """Records the scores of a rung and what has been charged until then."""
        shown = self._shown(metrics)
        if self._sweep.metric in metrics:
            shown["objective"] = metrics[self._sweep.metric]
        budget = self._budget_metrics()
        own = {**self._trial_budget(trial), **({"epsilon_search": budget["epsilon_spent"]} if budget else {})}
        self._append(
            {"kind": "metrics", "trial": trial.id, "step": step, "values": encode_metrics({**shown, **own})},
            {"kind": "metrics", "trial": "", "step": self._sweep_step(budget), "values": encode_metrics(budget)},
        )

    def trial_finished(self, trial: TrialView) -> None:
        """Closes the trial's run with its final status."""
        state = trial.state.name
        score = trial.last_score if trial.last_score is not None and math.isfinite(trial.last_score) else None
        finished: dict[str, object] = {
            "kind": "trial_finished",
            "trial": trial.id,
            "number": trial.number,
            "status": _TRIAL_STATUS[state],
            "state": state.lower(),
            "score": score,
            "tags": {"state": state.lower(), "reason": public_reason(trial.reason)},
            "step": trial.step,
            "values": encode_metrics(self._trial_budget(trial)),
        }
        self._history.trial_finished(trial.id, number=trial.number, state=state.lower(), score=score)
        best = self._history.best(self._sweep.mode)
        budget = self._budget_metrics()
        parent: dict[str, float] = {
            **budget,
            **{f"trials_{name}": float(count) for name, count in self._history.counts().items()},
            **({f"best_{self._sweep.metric}": best[1]} if best else {}),
        }
        self._append(
            finished,
            {
                "kind": "metrics",
                "trial": "",
                "step": self._sweep_step(budget),
                "values": encode_metrics(parent),
                "tags": {"best_trial": best[0]} if best else {},
            },
        )

    def artifact(self, path: Path | str, *, under: str = "") -> None:
        """Logs a file or folder to the parent run; it is read when it is sent.

        Args:
            path: relative to the sweep's folder, or absolute.
            under: folder among the artifacts.
        """
        self._append({"kind": "artifact", "path": str(path), "under": under})

    def tag(self, name: str, value: str) -> None:
        """Sets a tag of the parent run."""
        tags = {key(name): text(value)}
        self._append({"kind": "metrics", "trial": "", "step": self._history.steps_seen(), "values": {}, "tags": tags})

    def finish(self, state: str, *, reason: str = "") -> None:
        """Gives the sweep, and every trial still open, a final status.

        Args:
            state: why it ended, for example ``done``, ``budget reached``, ``failed``, ``interrupted``.
            reason: one sentence more.
        """
        if self.finished:
            return
        budget = self._budget_metrics()
        self._append(
            *(closed_trial(trial, "interrupted") for trial in self._history.open_trials()),
            {
                "kind": "sweep_finished",
                "trial": "",
                "status": _SWEEP_STATUS.get(state, "FINISHED"),
                "tags": {"state": state, "reason": public_reason(reason)},
                "step": self._sweep_step(budget),
                "values": encode_metrics(budget),
            },
        )
        self.finished = True

    def status(self) -> SendStatus:
        """How far MLflow is behind the spool."""
        if self._sender is None:
            return SendStatus(sent=0, waiting=0, refused=0, problem="")
        return self._sender.status()

    def flush(self, timeout: float = 60.0) -> SendStatus:
        """Waits until MLflow has everything, but not longer than is of use; never raises because of MLflow.

        Args:
            timeout: seconds.
        """
        return self._sender.flush(timeout) if self._sender is not None else self.status()

    def close(self) -> None:
        """Stops sending and gives the spool back. What waits is sent by `replay` or by a resume."""
        if self._sender is not None:
            self._sender.stop()
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finishes what the runner has not finished, sends what can be sent, and closes."""
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
            log.warning("the sweep's end could not be recorded: %s", failure)  # the first error is the one to show
        finally:
            self.flush()
            self.close()

    def _append(self, *records: Mapping[str, object]) -> None:
        stamped = [{**record, "t": self._clock.tick()} for record in records]
        self._spool.append(*stamped)
        for record in stamped:
            self._history.apply(record)
        sender = getattr(self, "_sender", None)
        if sender is not None:
            sender.notify()

    def _sweep_started(self) -> dict[str, object]:
        sweep = self._sweep
        budget = self._budget_metrics()
        note = "\n\n".join(part for part in (sweep.note, self._budget_note()) if part)
        return {
            "kind": "sweep_started",
            "trial": "",
            "sweep": sweep.id,
            "uri": sweep.uri,
            "experiment": sweep.experiment,
            "params": flatten(sweep.settings),
            "tags": {
                **{key(name): text(value) for name, value in sweep.tags.items()},
                "state": "running",
                "reason": "",
                "objective": f"{sweep.mode} {sweep.metric}",
                "mlflow.note.content": note,
            },
            "step": self._sweep_step(budget),
            "values": encode_metrics(budget),
        }

    def _shown(self, metrics: Mapping[str, float]) -> dict[str, float]:
        allowed = {
            name: value
            for name, value in metrics.items()
            if name.startswith("validation_") or name in (self._sweep.metric, _RATE)
        }
        new = metrics.keys() - allowed.keys() - self.withheld
        if new:
            self.withheld |= new
            log.warning(
                "only scores on validation records and the learning rate are tracked, withheld: %s",
                ", ".join(sorted(new)),
            )
        return {f"{_RATE}_now" if name == _RATE else name: value for name, value in allowed.items()}

    def _trial_budget(self, trial: TrialView) -> dict[str, float]:
        if self._trial_epsilon is None:
            return {}
        steps = trial.step if self._charged_steps is None else self._charged_steps(trial.id)
        return {"epsilon_trial": self._trial_epsilon(trial.id, steps), "steps_charged": float(steps)}

    def _budget_metrics(self) -> dict[str, float]:
        if self._budget_view is None:
            return {}
        view = self._budget_view()
        scores = view.validation
        return {
            "epsilon_spent": view.epsilon_spent,
            "epsilon_cap": view.epsilon_cap,
            "steps_spent": float(view.spent_steps),
            **({"scores_spent": float(scores.spent_steps), "epsilon_scores": scores.epsilon_spent} if scores else {}),
        }

    def _sweep_step(self, budget: Mapping[str, float]) -> int:
        return int(budget["steps_spent"]) if budget else self._history.steps_seen()

    def _budget_note(self) -> str:
        if self._sweep.claim:
            return self._sweep.claim
        if self._budget_view is None:
            return "**Not private.** This sweep was run with `private: false`; nothing in it carries a guarantee."
        view = self._budget_view()
        steps = "" if view.step_cap is None else f"The search may take {view.step_cap} steps in all. "
        return (
            f"**Privacy budget.** {budget_sentence(view, unit=privacy_unit(self._sweep.settings))} {steps}"
            "`epsilon_spent` is that odometer: what has been charged so far.\n\n"
            "Times are true to the minute only, so durations mean nothing here: finer ones would tell how many records "
            "were drawn."
        )
