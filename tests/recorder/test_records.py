"""Content of records: coarse timestamps, names that MLflow accepts, no passwords, no messages of exceptions."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.recorder.records import Clock, encode_metrics, flatten, mlflow_name, mlflow_text, public_reason

SECONDS = st.lists(st.floats(min_value=1e9, max_value=2e9), min_size=1, max_size=20)


@given(times=SECONDS, last=st.integers(min_value=0, max_value=int(2e12)))
def test_time_goes_forward_and_tells_no_more_than_the_minute(times: list[float], last: int) -> None:
    """The ticks of any two moments in the same minutes are the same: nothing finer gets out."""
    exact, coarse = iter(times), iter([time // 60 * 60 for time in times])
    clock, other = Clock(last=last, now=lambda: next(exact)), Clock(last=last, now=lambda: next(coarse))
    ticks = [clock.tick() for _ in times]
    assert ticks == [other.tick() for _ in times]
    assert all(later > earlier for earlier, later in zip([last, *ticks], ticks, strict=False))


@given(values=st.dictionaries(st.text("abc_", min_size=1), st.floats()))
def test_every_float_survives_the_spool(values: dict[str, float]) -> None:
    stored = json.loads(json.dumps(encode_metrics(values), allow_nan=False))
    back = {name: float(value) for name, value in stored.items()}
    assert back.keys() == values.keys()
    for name, value in values.items():
        assert back[name] == value or (math.isnan(back[name]) and math.isnan(value))


@given(name=st.text())
def test_mlflow_takes_every_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    _validate_metric_name(mlflow_name(name))
    _validate_param_name(mlflow_name(name))


def test_no_password_and_nothing_too_long_gets_through() -> None:
    flat = flatten({"tracking": {"uri": "postgresql://me:secret@host/db"}, "long": "x" * 10_000})
    assert flat["tracking.uri"] == "postgresql://***@host/db"
    assert "secret" not in mlflow_text(["http://me:secret@host"])
    assert "me@db.example" in mlflow_text("postgresql://me@db.example/ledger"), "a user alone is no secret"
    assert len(flat["long"]) == 6_000


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("", ""),
        ("validation score is not a number", "validation score is not a number"),
        ("OutOfMemoryError: tried to allocate 3.27 GiB", "OutOfMemoryError (its message is in the sweep's folder)"),
        ("torch.OutOfMemoryError: 3.27", "OutOfMemoryError (its message is in the sweep's folder)"),
        ("ValueError('batch of 263 records')", "ValueError (its message is in the sweep's folder)"),
        ("first line\nbatch of 263 records", "first line"),
    ],
)
def test_an_exceptions_words_stay_with_the_operator(reason: str, expected: str) -> None:
    assert public_reason(reason) == expected
