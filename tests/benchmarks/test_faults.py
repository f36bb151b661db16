"""Schedules of faults: none breaks a promise, and planted flaws are found."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.faults.schedules import FLAWS, replay


@pytest.mark.slow
def test_no_schedule_of_faults_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    states: Counter[str] = Counter()
    for seed in range(200):
        outcome = replay(seed)
        assert not outcome.broken, (seed, outcome.broken)
        seen, states = seen + outcome.seen, states + outcome.states
    for kind in ("driver killed after a write", "checkpoint damaged", "charge written and its answer lost"):
        assert seen[kind], kind
    assert {"COMPLETE", "PRUNED", "LOST"} <= set(states)
    assert "RUNNING" not in states


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_found(flaw: str) -> None:
    assert any(replay(seed, flaw=flaw).broken for seed in range(60))
