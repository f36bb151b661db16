"""Ledgers that version 1 wrote, and clocks that jump."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from ledgers import MECHANISM, folded

from tuner.errors import LedgerCorruptError
from tuner.privacy import accounting, chain
from tuner.privacy.entries import GENESIS, Entry, entry_hash
from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Ledger
from tuner.privacy.states import Cap, TrialState

# What version 1 wrote for a cap, two searches, two trials that were settled, a card, a lower cap, and a search that was
# closed, opened again and closed without a step: (kind, body, hash).
VERSION_1 = (
    ("cap", '{"delta":0.0001,"epsilon":8.0}', "6cfc0f86644da6898160cf70598ec8b5d25ccfca3aa522d8d515cdfb52be3bce"),
    (
        "open_search",
        (
            '{"accounting":"composition","adjacency":"add_or_remove_one","delta":1e-05,"details":{"split":{"seed"'
            ':0}},"epsilon":4.0,"fingerprint":"sha256:1","noise_multiplier":2.0,"nonce":"000000000000000000000000'
            '00000001","sample_rate":0.05,"search":"first","step_cap":1000}'
        ),
        "7adfddff06b8f7070432dda8518f5cbe67a06ffe66998d6891524b91da935ac3",
    ),
    (
        "reserve",
        '{"search":"first","steps":100,"trial":"a"}',
        "a239791e74a834e2b9ac366ed3f9f58b9d3b99f6f72f793146a6dd482b1e3f69",
    ),
    (
        "lease",
        '{"search":"first","steps":60,"trial":"a"}',
        "b4c61626c3e04d18a856c9c42f3f18298db87d929fe59ebc21bddb3509aaa501",
    ),
    (
        "reserve",
        '{"search":"first","steps":50,"trial":"b"}',
        "d8b9c8dce2b1ff77f0b257d341c62341741c35711cb4d237854f04e2fb56e8d0",
    ),
    (
        "settle",
        '{"search":"first","steps_taken":55,"trial":"a"}',
        "c9b0489bfb6d2cf29e170a3bf0ce4aca90a6896d2821ad18db814550a0f8cfc7",
    ),
    (
        "lease",
        '{"search":"first","steps":20,"trial":"b"}',
        "6e3ff3899ac8b68376330f0a25972909c00e48b986fdec939a1a04c3edf791d5",
    ),
    (
        "open_search",
        (
            '{"accounting":"composition","adjacency":"add_or_remove_one","delta":1e-06,"details":{},"epsilon":1.0'
            ',"fingerprint":null,"noise_multiplier":4.0,"nonce":"00000000000000000000000000000002","sample_rate":'
            '0.01,"search":"idle","step_cap":10}'
        ),
        "2285036e6ace730e98334825ca7ffd524778cd3c95276a91ece3dd76ad6e7232",
    ),
    (
        "reserve",
        '{"search":"idle","steps":5,"trial":"x"}',
        "6429b5d79c43b35a842287e1de69357e742cb0bef3e37ffbbb316d756f06c536",
    ),
    ("close_search", '{"search":"idle"}', "23562eb3b853ff0d7cf7f80493b91a177fb07fc2676a43598dce162f9fd8c49f"),
    ("close_search", '{"search":"first"}', "410c317f3b937ea8e079073ecab1d8619e02fa7933f157068fe3392c05c37fee"),
    ("reopen_search", '{"search":"first"}', "8265536f029618d026384a746b6838f518f91222dc5c111255cc44f82ae4e9a3"),
    (
        "card",
        (
            '{"card_kind":"export","card_sha256":"abababababababababababababababababababababababababababababababa'
            'b","search":"first"}'
        ),
        "f72b05c24fccc26d61e15bc75157259ca0d23d51ac1ee36d98cc995378904a41",
    ),
    ("cap", '{"delta":2e-05,"epsilon":5.0}', "49e33b714b3feafb0330f930411036be609ddf20300e771557e48314508d7117"),
    ("reopen_search", '{"search":"idle"}', "9249f82393517a0691b5ce34113792dcc4af8b9109f13b0fa2ea6116f093b2b1"),
    (
        "settle",
        '{"search":"first","steps_taken":20,"trial":"b"}',
        "377be8b28ddc8e9c1100795dc2dd349136de8bc9ad00c90ad511d931ff8a7145",
    ),
    ("close_search", '{"search":"idle"}', "f4116c90dc39dffdb953acdd1da2eb6919e20b291ef8600d5a8b2d27b1165954"),
)


def version_1() -> list[Entry]:
    entries: list[Entry] = []
    for seq, (kind, body, digest) in enumerate(VERSION_1, start=1):
        time = f"2025-03-01T12:00:{seq:02}.000000+00:00"
        previous = entries[-1].hash if entries else GENESIS
        entries.append(
            Entry(dataset="digits", seq=seq, time=time, kind=kind, body=body, previous=previous, hash=digest)
        )
    return entries


def test_a_chain_of_version_1_folds_as_it_did() -> None:
    state = folded(version_1())
    assert state.head == "f4116c90dc39dffdb953acdd1da2eb6919e20b291ef8600d5a8b2d27b1165954"
    assert (state.seq, state.cap, dict(state.grants)) == (17, Cap(5.0, 2e-5), {})
    assert (state.committed_epsilon, state.committed_delta) == (4.0, 1e-5)
    first, idle = state.searches
    assert (first.mechanism, first.step_cap, first.left_steps) == (SampledGaussian(0.05, 2.0), 1000, 920)
    assert (first.leased_steps, first.reserved_steps, first.status, first.counts) == (80, 0, "open", True)
    assert dict(first.trials) == {
        "a": TrialState(MECHANISM, reserved=100, leased=60, settled=True, taken=55),
        "b": TrialState(MECHANISM, reserved=50, leased=20, settled=True, taken=20),
    }
    assert (first.cards, first.fingerprint, first.details) == (
        (("ab" * 32, "export", 13),),
        "sha256:1",
        {"split": {"seed": 0}},
    )
    assert (first.unit, first.user, first.validation, first.sealed) == ("record", None, None, False)
    assert (idle.mechanism, idle.status, idle.counts, idle.reserved_steps) == (
        SampledGaussian(0.01, 4.0),
        "closed",
        False,
        5,
    )
    assert state.epsilon_spent == accounting.epsilon(MECHANISM, 80, 2e-5)


def test_the_rules_of_version_1_hold_for_its_entries() -> None:
    entries = version_1()
    for seq in range(len(entries)):  # what came before each of them was needed
        with pytest.raises(LedgerCorruptError):
            folded(entries[:seq] + entries[seq + 1 :] + [entries[0]])


def test_times_that_jump_back_change_nothing() -> None:
    times = ("9999-12-31T23:59:59+00:00", "1970-01-01T00:00:00+00:00", "", "no time at all", "2025-03-01T12:00:00")
    entries: list[Entry] = []
    for number, entry in enumerate(version_1()):
        told = {
            "dataset": entry.dataset, "seq": entry.seq, "time": times[number % 5], "kind": entry.kind,
            "body": entry.body, "previous": entries[-1].hash if entries else GENESIS,
        }  # fmt: skip
        entries.append(Entry(**told, hash=entry_hash(**told)))
    there, here = folded(version_1()), folded(entries)
    assert here.head != there.head  # the note is in the hash
    for old, new in zip(there.searches, here.searches, strict=True):
        assert replace(new, opened_time=old.opened_time) == old
    assert (here.cap, here.committed, here.epsilon_spent) == (there.cap, there.committed, there.epsilon_spent)


def test_a_clock_that_jumps_while_it_is_written_changes_nothing(
    ledger: Ledger, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now() - timedelta(days=2000)

    monkeypatch.setattr(chain, "datetime", Jumping)
    ledger.reserve(search, "a", 10)
    ledger.lease(search, "a", 10)
    monkeypatch.undo()
    ledger.reserve(search, "b", 990)
    ledger.verify_chain()
    assert Ledger.open(ledger.url).search_state(search).left_steps == 0
