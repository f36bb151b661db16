"""What a record may hold: names and lengths that MLflow takes, no passwords, no private values, and coarse time."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping

from tuner.recorder.mlflow_store import hide_password

__all__ = [
    "Clock",
    "closed_trial",
    "decode_metrics",
    "encode_metrics",
    "flatten",
    "key",
    "privacy_unit",
    "public_reason",
    "text",
]

MINUTE_MS = 60_000
PARAMETER_LIMIT = 6_000  # characters; the limits of MLflow 3
TAG_LIMIT = 8_000
KEY_LIMIT = 250

_NOT_IN_KEYS = re.compile(r"[^\w.\- :/]")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b.*$", re.DOTALL)


class Clock:
    """Time for the analyst's view: strictly increasing milliseconds, true to the minute and no finer.

    How long some steps took depends on how many records Poisson sampling drew, which no analyst may see
    (docs: the three views). So a timestamp is the start of its minute, or one millisecond after the last one.

    Args:
        last: the last tick of an earlier run of this sweep, in milliseconds since 1970.
        now: seconds since 1970.
    """

    def __init__(self, *, last: int = 0, now: Callable[[], float] = time.time) -> None:
        self._last = last
        self._now = now

    def tick(self) -> int:
        """The next timestamp, in milliseconds since 1970."""
        minute = int(self._now() * 1000) // MINUTE_MS * MINUTE_MS
        self._last = max(self._last + 1, minute)
        return self._last


def key(name: str) -> str:
    """A name that MLflow takes for a parameter, a metric or a tag."""
    parts = [part for part in _NOT_IN_KEYS.sub("_", name).split("/") if part.strip(".")]
    return "/".join(parts)[:KEY_LIMIT] or "_"


def text(value: object, limit: int = TAG_LIMIT) -> str:
    """A value as MLflow keeps it: numbers in full, passwords hidden, cut where it is too long."""
    if isinstance(value, str):
        plain = hide_password(value)
    elif value is None or isinstance(value, (bool, int, float)):
        plain = repr(value)
    else:
        plain = hide_password(json.dumps(value, default=str, ensure_ascii=False))
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow parameters with dotted names; lists stay one value."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            flat.update(flatten({str(inner): item for inner, item in value.items()}, path))
        else:
            flat[key(path)] = text(value, PARAMETER_LIMIT)
    return flat


def privacy_unit(settings: Mapping[str, object]) -> str:
    """What a sweep with these settings protects: a ``record``, or a ``user`` with all records."""
    privacy = settings.get("privacy")
    return str(privacy.get("unit", "record")) if isinstance(privacy, Mapping) else "record"


def public_reason(reason: str) -> str:
    """Why a trial ended, without what an exception says.

    The message of an exception may carry what depends on private records (how much memory a realised batch asked for,
    a loss, an index), so only the exception's name leaves the operator's view.
    """
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    found = _EXCEPTION.match(first)
    return f"{found.group(1)} (its message is in the sweep's folder)" if found else text(first, KEY_LIMIT)


def encode_metrics(values: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as JSON can hold them: what is not finite becomes its name."""
    return {key(name): float(value) if math.isfinite(value) else repr(float(value)) for name, value in values.items()}


def decode_metrics(values: object) -> dict[str, float]:
    """The inverse of `encode_metrics`."""
    if not isinstance(values, Mapping):
        return {}
    return {str(name): float(value) for name, value in values.items()}


def closed_trial(trial: str, state: str) -> dict[str, object]:
    """The record that ends a trial which its sweep left open."""
    return {
        "kind": "trial_finished",
        "trial": trial,
        "status": "KILLED",
        "state": state,
        "score": None,
        "tags": {"state": state, "reason": "the sweep ended before the trial did"},
    }
