"""Records of a sweep for MLflow. They contain no passwords and no private values, and their timestamps are coarse."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.passwords import hide_password

__all__ = [
    "Clock",
    "artifact_record",
    "encode_metrics",
    "flatten",
    "metrics_record",
    "mlflow_name",
    "mlflow_text",
    "public_reason",
    "unfinished_trial",
]

MINUTE_MS = 60_000
PARAMETER_LIMIT = 6_000  # characters; the limits of MLflow 3
TAG_LIMIT = 8_000
NAME_LIMIT = 250

_NOT_IN_NAMES = re.compile(r"[^\w.\- :/]")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b.*$", re.DOTALL)


class Clock:
    """Clock that returns strictly increasing timestamps, which are accurate to the minute only.

    Exact durations would reveal how many records a batch contains. A timestamp is therefore the start of the
    current minute. If that is not later than the previous timestamp, it is one millisecond after the previous one.

    Args:
        last: the last timestamp before the sweep was resumed, in milliseconds since 1970; 0 for a new sweep.
        now: returns the seconds since 1970.
    """

    def __init__(self, *, last: int = 0, now: Callable[[], float] = time.time) -> None:
        self._last = last
        self._now = now

    def tick(self) -> int:
        """Return the next timestamp, in milliseconds since 1970."""
        minute = int(self._now() * 1000) // MINUTE_MS * MINUTE_MS
        self._last = max(self._last + 1, minute)
        return self._last

    def stamp(self, *records: Mapping[str, object]) -> list[dict[str, object]]:
        """Return copies of the records, each with its own timestamp."""
        return [{**record, "t": self.tick()} for record in records]


def mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts for a parameter, a metric or a tag."""
    parts = [part for part in _NOT_IN_NAMES.sub("_", name).split("/") if part.strip(".")]
    return "/".join(parts)[:NAME_LIMIT] or "_"


def mlflow_text(value: object, limit: int = TAG_LIMIT) -> str:
    """Return a value as text for MLflow, with passwords hidden and at most `limit` characters."""
    if isinstance(value, str):
        plain = hide_password(value)
    elif value is None or isinstance(value, (bool, int, float)):
        plain = repr(value)
    else:
        plain = hide_password(json.dumps(value, default=str, ensure_ascii=False))
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return nested settings as MLflow parameters with dotted names. A list becomes one parameter."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            flat.update(flatten({str(inner): item for inner, item in value.items()}, path))
        else:
            flat[mlflow_name(path)] = mlflow_text(value, PARAMETER_LIMIT)
    return flat


def public_reason(reason: str) -> str:
    """Return the reason why a trial or sweep ended, without any exception's message.

    The message of an exception may depend on private records, so only the exception's name is returned.
    """
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    found = _EXCEPTION.match(first)
    return f"{found.group(1)} (its message is in the sweep's folder)" if found else mlflow_text(first, NAME_LIMIT)


def encode_metrics(values: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics as values for JSON. NaN and infinities become text that `float` can convert back."""
    return {
        mlflow_name(name): float(value) if math.isfinite(value) else repr(float(value))
        for name, value in values.items()
    }


def metrics_record(
    values: Mapping[str, float], *, step: int, trial: str = "", tags: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return the record that logs metrics and tags of a trial (or of the sweep, if `trial` is empty) at a step."""
    return {
        "kind": "metrics",
        "trial": trial,
        "step": step,
        "values": encode_metrics(values),
        "tags": {mlflow_name(name): mlflow_text(value) for name, value in (tags or {}).items()},
    }


def artifact_record(path: Path | str, *, under: str = "") -> dict[str, object]:
    """Return the record that requests the upload of a file or folder, to `under` in the parent run's artifacts."""
    return {"kind": "artifact", "path": str(path), "under": under}


def unfinished_trial(trial: str, state: str) -> dict[str, object]:
    """Return the record that ends a trial that was still running when its sweep ended."""
    return {
        "kind": "trial_finished",
        "trial": trial,
        "status": "KILLED",
        "state": state,
        "score": None,
        "tags": {"state": state, "reason": "the sweep ended before the trial did"},
    }
