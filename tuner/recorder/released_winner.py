"""Records of a sealed search for MLflow. They show only the winner, and their timestamps show only the day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tuner.privacy.card.claims import guarantee_words
from tuner.privacy.modes import SELECTION
from tuner.recorder.history import read_history
from tuner.recorder.recorder import SweepInfo
from tuner.recorder.records import Clock, artifact_record, flatten, metrics_record
from tuner.recorder.shipper import SPOOL
from tuner.recorder.spool import Spool

__all__ = ["record_winner"]

_WINNER = "winner"


def record_winner(
    folder: Path,
    sweep: SweepInfo,
    *,
    parameters: Mapping[str, object] | None,
    score: float,
    artifacts: Sequence[Path],
    day: datetime,
) -> None:
    """Write the records of the parent run and the winner's run to the spool. `sync.send_unsent` uploads them.

    The number of records and their timestamps do not depend on the number of runs. After a complete call, a
    second call writes nothing. After a crash, the next call repeats every record. Repeated records change nothing in
    MLflow.

    Args:
        folder: the sweep's folder.
        sweep: facts about the sweep.
        parameters: the winner's configuration, or None if the search has no winner.
        score: the winner's score.
        artifacts: files for the parent run.
        day: midnight at the start of the day on which the sweep began. The timestamps of all records follow directly
            after it.

    Raises:
        TrackingError: the spool cannot be written.
    """
    with Spool(folder / SPOOL) as spool:
        if read_history(spool.path).ended:
            return
        # A sealed search is charged once at its start, so the cap reveals nothing about the runs.
        values = {"epsilon_cap": float(sweep.settings["privacy"]["epsilon"])}
        records = [sweep.start_record(tags={"state": "done"}, claim=_claim(sweep), step=0, values=values)]
        records += [artifact_record(path) for path in artifacts]
        if parameters is not None:
            records += _child(sweep, parameters, score)
        state = "done" if parameters is not None else "done, without a winner"
        records.append({"kind": "sweep_finished", "trial": "", "status": "FINISHED", "tags": {"state": state}})
        spool.append(*Clock(now=day.timestamp).stamp(*records))


def _claim(sweep: SweepInfo) -> str:
    """Return the description of a sealed search: its guarantee, and a note that only one run is shown."""
    privacy, validation = sweep.settings["privacy"], sweep.settings["dataset"]["validation"]
    words = guarantee_words(
        float(privacy["epsilon"]),
        float(privacy["delta"]),
        mode=SELECTION,
        unit=sweep.unit,
        protected=validation["protected"],
    )
    return f"**Privacy budget.** {words} The search was sealed, so these pages show only one of its runs."


def _child(sweep: SweepInfo, parameters: Mapping[str, object], score: float) -> list[dict[str, object]]:
    values = {sweep.metric: score, **sweep.errors(score)}
    return [
        {"kind": "trial_started", "trial": _WINNER, "name": _WINNER, "params": flatten(parameters)},
        metrics_record({**values, "objective": score}, step=0, trial=_WINNER),
        metrics_record({f"best_{name}": value for name, value in values.items()}, step=0),
        {
            "kind": "trial_finished",
            "trial": _WINNER,
            "status": "FINISHED",
            "state": "complete",
            "score": score,
            "tags": {"state": "complete", "best": "1"},
        },
    ]
