"""What MLflow is told of a sealed search: one run, when all is over, and of the time only the day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tuner.privacy.card.claims import guarantee_words
from tuner.recorder.history import fold
from tuner.recorder.recorder import SweepInfo
from tuner.recorder.records import Clock, encode_metrics, flatten, key, privacy_unit, text
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
    """Write down the parent run and the one child run of a sealed sweep; `replay` sends them.

    How many records there are, and their times, are the same however many runs were made. Called again it writes
    nothing, or, after a crash, all of it again, which changes nothing in MLflow.

    Args:
        folder: the sweep's folder.
        sweep: what the sweep is.
        parameters: of the winner; None when there is none.
        score: of the winner.
        artifacts: files for the parent run.
        day: the sweep's day at midnight: the time of everything.

    Raises:
        TrackingError: the spool cannot be written.
    """
    with Spool(folder / SPOOL) as spool:
        if fold(spool.path).ended:
            return
        clock = Clock(now=day.timestamp)
        records: list[dict[str, object]] = [
            _started(sweep),
        ]
        records += [{"kind": "artifact", "path": str(path), "under": ""} for path in artifacts]
        if parameters is not None:
            records += _child(sweep, parameters, score)
        state = "done" if parameters is not None else "done, without a winner"
        records.append({"kind": "sweep_finished", "trial": "", "status": "FINISHED", "tags": {"state": state}})
        spool.append(*({**record, "t": clock.tick()} for record in records))


def _started(sweep: SweepInfo) -> dict[str, object]:
    """The parent run. Its ε is that of the file, which is charged as a whole and tells nothing of the runs."""
    cap = _cap(sweep)
    return {
        "kind": "sweep_started",
        "trial": "",
        "sweep": sweep.id,
        "uri": sweep.uri,
        "experiment": sweep.experiment,
        "params": flatten(sweep.settings),
        "tags": {
            **{key(name): text(value) for name, value in sweep.tags.items()},
            "state": "done",
            "objective": f"{sweep.mode} {sweep.metric}",
            "mlflow.note.content": "\n\n".join(part for part in (sweep.note, _claim(sweep)) if part),
        },
        "step": 0,
        "values": encode_metrics({} if cap is None else {"epsilon_cap": cap[0]}),
    }


def _cap(sweep: SweepInfo) -> tuple[float, float] | None:
    """The (ε, δ) that the file claims."""
    privacy = sweep.settings.get("privacy")
    if not isinstance(privacy, Mapping):
        return None
    return float(privacy["epsilon"]), float(privacy["delta"])


def _claim(sweep: SweepInfo) -> str:
    """The budget sentence of a sealed search, in the words of its plan."""
    cap, dataset = _cap(sweep), sweep.settings.get("dataset")
    if cap is None:
        return sweep.claim
    validation = dataset.get("validation", {}) if isinstance(dataset, Mapping) else {}
    words = guarantee_words(
        *cap, sealed=True, unit=privacy_unit(sweep.settings), protected=bool(validation.get("protected", False))
    )
    return f"**Privacy budget.** {words} The search was sealed: of all its runs, these pages show one."


def _child(sweep: SweepInfo, parameters: Mapping[str, object], score: float) -> list[dict[str, object]]:
    values = encode_metrics({sweep.metric: score, "objective": score})
    return [
        {"kind": "trial_started", "trial": _WINNER, "name": _WINNER, "params": flatten(parameters)},
        {"kind": "metrics", "trial": _WINNER, "step": 0, "values": values},
        {"kind": "metrics", "trial": "", "step": 0, "values": encode_metrics({f"best_{sweep.metric}": score})},
        {
            "kind": "trial_finished",
            "trial": _WINNER,
            "status": "FINISHED",
            "state": "complete",
            "score": score,
            "tags": {"state": "complete"},
        },
    ]
