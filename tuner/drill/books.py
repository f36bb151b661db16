"""The comparison of a sweep's books: steps leased in the ledger, noise draws, trials, and records in MLflow."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.drill.draws import gaps, leased_steps, read_draws
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import read_spool

__all__ = ["Reconciliation", "reconcile"]

_RUNS = """
SELECT r.run_uuid, r.status, trial.value FROM runs r
JOIN tags sweep ON sweep.run_uuid = r.run_uuid AND sweep.key = 'dp_tuner.sweep' AND sweep.value = ?
JOIN tags trial ON trial.run_uuid = r.run_uuid AND trial.key = 'dp_tuner.trial'
WHERE NOT EXISTS (SELECT 1 FROM tags d WHERE d.run_uuid = r.run_uuid AND d.key = 'state' AND d.value = 'duplicate')
"""
_METRICS = "SELECT key, timestamp, step, value, is_nan FROM metrics WHERE run_uuid = ?"


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What the books of a sweep say.

    Attributes:
        trials: trials of the study by their state.
        leased: steps in the ledger, over all trials.
        drawn: noise draws that began.
        uncharged: draws that the ledger misses, over all trials; above 0 the ledger is wrong.
        unused: leased steps whose noise was never drawn.
        recorded: metrics in the sweep's spool.
        tracked: metrics in MLflow.
        missing: metrics of the spool that MLflow does not have.
        doubled: metrics that MLflow has and the spool does not, or runs of MLflow for the same trial.
        unfinished: trials of the study, or runs of MLflow, that did not end.
    """

    trials: dict[str, int]
    leased: int
    drawn: int
    uncharged: int
    unused: int
    recorded: int
    tracked: int
    missing: int
    doubled: int
    unfinished: int

    def problems(self, *, trials: int) -> list[str]:
        """Return a sentence for each thing that does not agree, for a sweep of this many trials."""
        found = []
        if self.uncharged:
            found.append(f"{self.uncharged} noise draws are not in the ledger")
        if (count := sum(self.trials.values())) != trials:
            found.append(f"{count} of {trials} trials are in the study")
        if self.unfinished:
            found.append(f"{self.unfinished} trials or MLflow runs did not end")
        if self.missing:
            found.append(f"{self.missing} records are not in MLflow")
        if self.doubled:
            found.append(f"{self.doubled} records are in MLflow twice")
        return found

    def values(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        return asdict(self)


def reconcile(sweep: Path, draws: Path, ledger: str, mlflow: Path, *, dataset: str = "digits") -> Reconciliation:
    """Compare the books of a sweep that has ended.

    Args:
        sweep: folder of the sweep.
        draws: folder in which `counted` counted its draws.
        ledger: address of its ledger, which has no other search on the data set.
        mlflow: SQLite file of MLflow's store.
        dataset: name of the data set.
    """
    counted = read_draws(draws)
    found = gaps(leased := leased_steps(ledger, dataset), counted, counted)
    states = _states(sweep)
    spooled: Counter[tuple[object, ...]] = Counter()
    for line in read_spool(sweep / SPOOL):
        record: dict[str, Any] = line.record
        for name, value in record.get("values", {}).items():
            spooled[(record["trial"] or "-", name, record["t"], record["step"], *_number(float(value)))] += 1
    tracked: Counter[tuple[object, ...]] = Counter()
    runs: Counter[str] = Counter()
    open_runs = 0
    with sqlite3.connect(f"file:{mlflow}?mode=ro", uri=True) as database:
        for run, status, trial in database.execute(_RUNS, (sweep.name,)).fetchall():
            runs[trial] += 1
            open_runs += status == "RUNNING"
            for name, at, step, value, is_nan in database.execute(_METRICS, (run,)):
                tracked[(trial, name, at, step, *((0.0, True) if is_nan else (value, False)))] += 1
    database.close()
    doubled = (tracked - spooled).total() + sum(count - 1 for count in runs.values())
    return Reconciliation(
        trials=dict(states),
        leased=sum(leased.values()),
        drawn=sum(attempt.begun for attempts in counted.values() for attempt in attempts),
        uncharged=sum(max(gap.below, 0) for gap in found),
        unused=sum(gap.above for gap in found),
        recorded=spooled.total(),
        tracked=tracked.total(),
        missing=(spooled - tracked).total(),
        doubled=doubled,
        unfinished=open_runs + states["RUNNING"] + states["PAUSED"],
    )


def _number(value: float) -> tuple[float, bool]:
    """Return a metric as MLflow's store writes it: the value, and whether it is not a number."""
    return (0.0, True) if value != value else (value, False)


def _states(sweep: Path) -> Counter[str]:
    from tuner.study import views
    from tuner.study.storage import open_storage

    storage = open_storage(sweep)
    states: Counter[str] = Counter()
    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id):
            if views.TRIAL_ID in trial.user_attrs:
                states[views.view_of(trial, mode="max", steps_planned=0).state.value] += 1
            elif not trial.state.is_finished():  # a rejected candidate is finished, and is no trial
                states[trial.state.name] += 1
    return states
