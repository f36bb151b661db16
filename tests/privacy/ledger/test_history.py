"""The history that people read: what is in it, and what a sealed search must not show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ledgers import BOOK, MECHANISM, SEALED, as_user, lease, took

from tuner.privacy.accountant.filters import Filter, TotalSteps
from tuner.privacy.ledger import chain
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.history import lines, points, room, rule, search_lines, share_lines
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetCap

STEPS = TotalSteps(MECHANISM, 100)
CARD = "ab" * 32


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def now(self, zone: Any) -> datetime:  # noqa: ANN401 - the signature of datetime.now
        assert zone is UTC
        return self.moment

    def move(self, **by: float) -> None:
        self.moment += timedelta(**by)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(chain, "datetime", clock)
    return clock


def test_what_happened_in_its_order(ledger: Ledger, clock: Clock) -> None:
    as_user(ledger, "alice").set_cap("digits", 8.0, 1e-4)
    clock.move(hours=1)
    ledger.grant("digits", "alice", 5.0, 5e-5)
    ledger.open_search("digits", "one", filter=STEPS, epsilon=2.0, delta=1e-5)
    took(ledger, "one", 5)
    ledger.settle("one", "a", 5)
    clock.move(hours=1)
    ledger.record_card("one", CARD, "release")
    ledger.close_search("one")
    ledger.reopen_search("one")
    ledger.open_search("digits", "idle", filter=STEPS, epsilon=2.0, delta=1e-5)
    ledger.close_search("idle")
    ledger.revoke("digits", "alice")
    found = lines(ledger.entries("digits"))
    assert [(line.what, line.search, line.user, line.committed[0]) for line in found] == [
        ("cap", None, None, 0.0),
        ("share", None, "alice", 0.0),
        ("opened", "one", "alice", 2.0),
        ("card", "one", "alice", 2.0),
        ("closed", "one", "alice", 2.0),
        ("reopened", "one", "alice", 2.0),
        ("opened", "idle", "alice", 4.0),
        ("closed", "idle", "alice", 2.0),
        ("share", None, "alice", 2.0),
    ]
    assert [line.time for line in found[:4]] == ["2026-03-02"] * 4, "no entry tells the hour"
    assert CARD[:16] in found[3].text


def history_of(folder: Path, clock: Clock, filter: Filter, ending: Callable[[Ledger, Clock], None]) -> tuple[Any, ...]:
    """All that is shown of a data set on which one search of `filter` ends in a certain way."""
    clock.moment = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
    ledger.set_cap("digits", 20.0, 1e-3)
    clock.moment = datetime(2026, 3, 3, 10, 0, tzinfo=UTC)
    ledger.open_search("digits", "first", filter=filter, epsilon=4.0, delta=1e-5)
    if filter is SEALED:
        ledger.begin_sealed("first", "0" * 64)
    else:
        took(ledger, "first", 1)
    ending(ledger, clock)
    clock.moment = datetime(2026, 3, 20, tzinfo=UTC)
    ledger.open_search("digits", "next", filter=STEPS, epsilon=2.0, delta=1e-5)
    history = ledger.entries("digits")
    state = history[-1][1]
    shown = [asdict(line) for line in search_lines(state)], [asdict(line) for line in share_lines(state)]
    return [asdict(line) for line in lines(history)], [asdict(point) for point in points(history)], shown


def _soon(ledger: Ledger, clock: Clock) -> None:
    clock.move(hours=1)
    ledger.close_search("first")


def _late(ledger: Ledger, clock: Clock) -> None:
    clock.move(days=9, hours=5)
    ledger.close_search("first")
    clock.move(hours=1)
    for card in (CARD, "cd" * 32):
        ledger.record_card("first", card, "release")


def _never(ledger: Ledger, clock: Clock) -> None:
    pass


def _later_that_day(ledger: Ledger, clock: Clock) -> None:
    ledger.close_search("first")
    ledger.reopen_search("first")


ENDINGS = (_soon, _late, _never, _later_that_day)


def test_how_a_sealed_search_ended_changes_nothing_that_is_shown(tmp_path: Path, clock: Clock) -> None:
    shown = [history_of(tmp_path / str(i), clock, SEALED, ending) for i, ending in enumerate(ENDINGS)]
    assert all(each == shown[0] for each in shown)
    (opened,) = [line for line in shown[0][0] if line["search"] == "first"]
    assert (opened["what"], opened["time"]) == ("opened", "2026-03-03")
    # The control: the same endings, of a search that is not sealed, can be told apart.
    shown = [history_of(tmp_path / f"open {i}", clock, STEPS, ending) for i, ending in enumerate(ENDINGS)]
    assert all(shown[i] != shown[j] for i in range(4) for j in range(i))


def test_a_clock_that_jumps_back_turns_no_chart_around(ledger: Ledger, clock: Clock) -> None:
    ledger.set_cap("digits", 8.0, 1e-4)
    clock.move(days=-30)
    ledger.open_search("digits", "one", filter=STEPS, epsilon=2.0, delta=1e-5)
    clock.move(days=60)
    ledger.set_cap("digits", 9.0, 1e-4)
    found = points(ledger.entries("digits"))
    assert [(point.committed, point.cap) for point in found] == [(0.0, 8.0), (2.0, 8.0), (2.0, 9.0)]
    assert found[0].moment == found[1].moment < found[2].moment
    assert lines(ledger.entries("digits"))[1].time == "2026-01-31", "shown as it was written"
    (entry, state), *_ = ledger.entries("digits")
    strange = Entry(**{**vars(entry), "time": "half past nine"})
    assert lines([(strange, state)])[0].time == "unknown"
    assert points([(strange, state)]) == []


def test_searches_say_who_what_and_how(ledger: Ledger) -> None:
    as_user(ledger, "alice")
    for name, filter in (("one", STEPS), ("two", BOOK), ("three", SEALED)):
        ledger.open_search("digits", name, filter=filter, epsilon=4.0, delta=1e-5)
    ledger.reserve("one", "a", 5)
    lease(ledger, "one", "a", 3)
    one, two, three = search_lines(ledger.dataset_state("digits"))
    assert (one.user, one.unit, one.mode, one.cap_kind) == ("alice", "record", "composition", "total_steps")
    assert (one.trials, one.steps_spent, one.steps_reserved) == (1, 3, 2)
    assert (two.mode, two.cap_kind) == ("composition", "coupon_book")
    assert (three.mode, three.status, three.epsilon) == ("sealed selection", "sealed", 4.0)
    assert (three.trials, three.steps_spent, three.steps_reserved, three.cards) == (None, None, None, ())


def test_shares_and_what_is_left_of_them(ledger: Ledger) -> None:
    as_user(ledger, "carol").open_search("digits", "before", filter=STEPS, epsilon=2.0, delta=1e-5)
    ledger.set_cap("digits", 8.0, 1e-4)
    ledger.grant("digits", "alice", 2.5, 5e-5)
    ledger.grant("digits", "bob", 3.0, 4e-5)
    as_user(ledger, "alice").open_search("digits", "one", filter=STEPS, epsilon=2.2, delta=1e-5)
    ledger.grant("digits", "bob", 1.0, 1e-6)
    alice, bob, carol = share_lines(ledger.dataset_state("digits"))
    assert (alice.user, alice.granted, alice.committed, alice.left) == ("alice", (2.5, 5e-5), (2.2, 1e-5), (0.3, 4e-5))
    assert (bob.granted, bob.committed, bob.left) == ((1.0, 1e-6), (0.0, 0.0), (1.0, 1e-6))
    assert (carol.granted, carol.committed, carol.left) == (None, (2.0, 1e-5), None)
    assert room(1.0, 2.0) == 0.0
    assert room(0.3, 0.1) == 0.2, "in decimals, not in doubles"


def test_a_rule_says_that_delta_is_split() -> None:
    assert rule(DatasetCap(8.0, 1e-4, order=6.0, units=10)).count("5e-05") == 2
    for cap in (None, DatasetCap(8.0, 1e-4), DatasetCap(8.0, 1e-4, order=6.0, units=None)):
        assert "OR if their Rényi" not in rule(cap)
