"""Fakes for tests of the recorder: a budget, trials and an MLflow, without a ledger, a search or a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tuner.recorder.recorder import MLflowRecorder, SweepInfo
from tuner.recorder.sender import drain
from tuner.study.types import TrialStatus, TrialView

URI = "sqlite:////nowhere/mlflow.db"


@dataclass
class FakeBudget:
    """Budget of a ledger: steps by trial, and an ε that is not a round number."""

    cap: int = 1000
    steps: dict[str, int] = field(default_factory=dict)
    reserved: int = 0

    def charge(self, trial: str, steps: int) -> None:
        self.steps[trial] = self.steps.get(trial, 0) + steps

    def epsilon(self, steps: int) -> float:
        return 0.1234567890123 * steps**0.5

    def read(self) -> FakeBudget:
        return self

    def trial_epsilon(self, _trial: str, steps: int) -> float:
        return self.epsilon(steps)

    def charged_steps(self, trial: str) -> int:
        return self.steps.get(trial, 0)

    def view(self, *, live: bool = False, compose: bool = True) -> SimpleNamespace:
        spent = sum(self.steps.values())
        return SimpleNamespace(
            spent_steps=spent,
            reserved_steps=self.reserved,
            left_steps=self.cap - spent - self.reserved,
            step_cap=self.cap,
            epsilon_spent=self.epsilon(spent),
            epsilon_cap=self.epsilon(self.cap),
            delta=1e-5,
            validation=None,
        )


def sweep(uri: str, **changes: object) -> SweepInfo:
    values: dict[str, Any] = {
        "id": "digits-0001",
        "uri": uri,
        "experiment": "digits",
        "settings": {"privacy": {"epsilon": 8.0, "delta": 1e-5}, "search": {"trials": 3}},
        "tags": {"code_version": "0.1.0", "dataset": "digits"},
    }
    return SweepInfo(**{**values, **changes})


def recorder(folder: Path, uri: str, budget: FakeBudget, **changes: object) -> MLflowRecorder:
    send = bool(changes.pop("send", True))
    return MLflowRecorder(folder, sweep(uri, **changes), budget=budget, send=send)


def trial(number: int, state: TrialStatus = TrialStatus.RUNNING, **changes: object) -> TrialView:
    values: dict[str, Any] = {
        "id": f"t{number}",
        "number": number,
        "parameters": {"learning_rate": 0.1 + number, "schedule": "constant"},
        "state": state,
        "steps_planned": 100,
    }
    return TrialView(**{**values, **changes})


def run_trial(
    observer: MLflowRecorder,
    budget: FakeBudget,
    number: int,
    *,
    state: TrialStatus = TrialStatus.COMPLETE,
    score: float = 0.5,
) -> None:
    """Record a trial with two rungs, charged before each."""
    observer.trial_started(trial(number))
    for rung in (50, 100):
        budget.charge(f"t{number}", 50)
        metrics = {"validation_accuracy": score * rung / 100, "validation_loss": 1.0 / rung, "learning_rate": 0.1}
        observer.trial_reported(trial(number, step=rung, last_score=score * rung / 100), rung, metrics)
    observer.trial_finished(trial(number, state, step=100, last_score=score))


def small_sweep(folder: Path, budget: FakeBudget | None = None, *, uri: str = URI) -> FakeBudget:
    """Record four trials: two complete, one pruned, one failed."""
    budget = budget or FakeBudget()
    with recorder(folder, uri, budget, send=False) as observer:
        run_trial(observer, budget, 0, score=0.7)
        run_trial(observer, budget, 1, score=0.9)
        run_trial(observer, budget, 2, state=TrialStatus.PRUNED, score=0.95)
        run_trial(observer, budget, 3, state=TrialStatus.FAILED, score=float("nan"))
        observer.finish("budget reached")
    return budget


class Page(list[Any]):
    """A page of runs, with the token of the next one."""

    token: str | None = None


class FakeMLflowError(Exception):
    def __init__(self, message: str, code: str = "INTERNAL_ERROR") -> None:
        super().__init__(message)
        self.error_code = code


class FakeMLflow:
    """The part of MlflowClient that the shipper uses. As in MLflow's store, the same point twice is one point."""

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        self.requests = 0
        self.down = False
        self.refuse_metric = ""
        self.die_after_create = False
        self.fail_at = 0

    def _request(self) -> None:
        self.requests += 1
        if self.down or self.requests == self.fail_at:
            raise ConnectionError("connection refused")

    def connect(self, uri: str) -> FakeMLflow:
        self._request()
        return self

    def get_experiment_by_name(self, name: str) -> SimpleNamespace:
        self._request()
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active")

    def search_runs(
        self, experiments: list[str], *, filter_string: str, order_by: list[str], page_token: str | None
    ) -> Page:
        """Return two runs at a time, so that a sweep of a few trials has several pages."""
        self._request()
        wanted = [part.split("`")[1::2] + part.split("'")[1::2] for part in filter_string.split(" and ")]
        found = [
            run
            for run in self.runs.values()
            if run.info.lifecycle_stage == "active" and all(run.data.tags.get(name) == value for name, value in wanted)
        ]
        begin = int(page_token or 0)
        page = Page(found[begin : begin + 2])
        page.token = str(begin + 2) if begin + 2 < len(found) else None
        return page

    def create_run(self, experiment: str, *, start_time: int, tags: dict[str, str], run_name: str) -> SimpleNamespace:
        self._request()
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = SimpleNamespace(
            info=SimpleNamespace(
                run_id=run_id, run_name=run_name, status="RUNNING", lifecycle_stage="active", start_time=start_time
            ),
            data=SimpleNamespace(tags=dict(tags), params={}),
            points=set(),
            artifacts=[],
        )
        if self.die_after_create:
            self.die_after_create = False
            raise ConnectionError("the answer was lost")
        return self.runs[run_id]

    def get_run(self, run_id: str) -> SimpleNamespace:
        self._request()
        return self.runs[run_id]

    def _active(self, run_id: str) -> SimpleNamespace:
        self._request()
        run = self.runs[run_id]
        if run.info.lifecycle_stage != "active":
            raise FakeMLflowError("the run must be active", "INVALID_PARAMETER_VALUE")
        return run

    def log_batch(self, run_id: str, *, metrics: list[Any], params: list[Any], tags: list[Any]) -> None:
        run = self._active(run_id)
        if any(metric.key == self.refuse_metric for metric in metrics):
            raise FakeMLflowError("this metric is not welcome", "INVALID_PARAMETER_VALUE")
        for param in params:
            if run.data.params.setdefault(param.key, param.value) != param.value:
                raise FakeMLflowError("changing a parameter is not allowed", "INVALID_PARAMETER_VALUE")
        run.data.tags.update({tag.key: tag.value for tag in tags})
        run.points |= {(metric.key, repr(metric.value), metric.timestamp, metric.step) for metric in metrics}

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        self._active(run_id).data.tags[name] = value

    def update_run(self, run_id: str, *, status: str) -> None:
        self._active(run_id).info.status = status

    def set_terminated(self, run_id: str, *, status: str, end_time: int) -> None:
        self._active(run_id).info.status = status

    def log_artifact(self, run_id: str, path: str, under: str | None) -> None:
        self._active(run_id).artifacts.append((Path(path).name, under))

    def state(self) -> dict[str, Any]:
        """Return what MLflow shows, by our own names of the runs."""
        return {
            run.data.tags["dp_tuner.trial"]: (
                run.info.status,
                dict(run.data.params),
                dict(run.data.tags),
                frozenset(run.points),
            )
            for run in self.runs.values()
        }


def sent(folder: Path, server: FakeMLflow | None = None) -> FakeMLflow:
    """Send the records of a sweep to a fake MLflow and return it."""
    server = server or FakeMLflow()
    drain(folder, connect=server.connect)
    return server


def metric(server: FakeMLflow, run: str, name: str) -> dict[int, float]:
    """Return a metric's last value by step."""
    points = sorted((step, time, float(value)) for key, value, time, step in server.state()[run][3] if key == name)
    return {step: value for step, _, value in points}
