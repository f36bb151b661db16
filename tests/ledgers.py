"""What the tests of the ledger share: mechanisms, searches, and chains that nobody asked whether they are allowed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tuner.privacy.accountant.filters import CouponBook, Filter, OneRelease, Sealed, TotalSteps, VotedLabels
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.noisy_records import NoisyRecords
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.voted_labels import VotingNoise
from tuner.privacy.ledger.division import Division
from tuner.privacy.ledger.entries import GENESIS, Entry, canonical, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.rules import checked_state_after
from tuner.privacy.ledger.state import DatasetState, PoolState, SearchState

MECHANISM = SampledGaussian(0.05, 2.0)
CHEAP = SampledGaussian(0.01, 4.0)
RELEASE = SampledGaussian(1.0, 50.0)

TRAINING_STEPS = TotalSteps(MECHANISM, 1000)
BOOK = CouponBook(((MECHANISM, 10), (CHEAP, 20)))
SEALED = Sealed(RunLaw(name="geometric", mean=2.0), 60, ((CHEAP, 5),))
NOISY = OneRelease(NoisyRecords(clip=1.0, noise=3.0, label_epsilon=1.0, classes=3), 100)
VOTED = VotedLabels(VotingNoise(queries=100, answers=30, threshold_noise=40.0, answer_noise=20.0), 12.0)
SCORES = {"validation": TotalSteps(RELEASE, 6), "validation_claim": (1.0, 1e-6)}

OWNERS_WORD = {"user_key": "patient number", "pairs": "0" * 64}
"""What an entry says of a division among users that is the owner's word."""

_PRELUDE = """
import os, resource, signal, sys, time
from tuner.errors import BudgetRefusedError, LedgerError
from tuner.privacy.accountant.filters import Filter, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.entries import GENESIS, Entry, entry_hash
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.stores import open_store
url, word = sys.argv[1], sys.argv[-1]
step = SampledGaussian(0.05, 2.0)
"""


def child(code: str, *words: str) -> subprocess.Popen[str]:
    """Start a process that runs this code with the names of the ledger imported; the first word is its URL."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", _PRELUDE + code, *words], text=True, **pipes)


def said_by(process: subprocess.Popen[str], *, word: str = "") -> list[str]:
    """The lines that it prints until its end, after `word` was sent to it.

    Not by `communicate`, which loses what a `readline` before it has read ahead.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdin.write(word)
        process.stdin.close()
        said, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode in {0, -9}, errors
    return said.splitlines()


def division_of(owners: Mapping[int, Iterable[str]]) -> Division:
    """A division of records, which are numbers, among the users who own them."""
    pairs = [f"{record:016d}{user:>16}".encode() for record, users in owners.items() for user in users]
    return Division(np.unique(np.array(pairs, dtype="S32")))


def file_of(ledger: Ledger) -> Path:
    return Path(ledger.url.removeprefix("sqlite:///"))


def head_of(ledger: Ledger) -> tuple[int, str]:
    """Number and hash of the last entry of the data set `digits`."""
    state = ledger.dataset_state("digits")
    return state.seq, state.head


def left_steps(search: SearchState) -> int:
    """Training steps that are neither leased nor promised; coupons of all kinds together."""
    return sum(search.training.left(mechanism) for mechanism in search.filter.mechanisms)


def reserved_mechanism(ledger: Ledger, search: str, trial: str, pool: str = "training") -> SampledGaussian:
    """The mechanism that a trial reserved; one that nobody reserved where it has none."""
    account = ledger.search_state(search).pools[pool].trials.get(trial)
    return MECHANISM if account is None or account.mechanism is None else account.mechanism


def lease(ledger: Ledger, search: str, trial: str, steps: int, *, pool: str = "training") -> None:
    """Lease steps of the mechanism that the trial reserved, as an honest trainer does."""
    ledger.lease(search, trial, steps, reserved_mechanism(ledger, search, trial, pool), pool=pool)


def took(ledger: Ledger, search: str, steps: int, trial: str = "a", *, pool: str = "training", **more: Any) -> None:  # noqa: ANN401 - as `Ledger.reserve`
    """Reserve steps and lease all of them."""
    ledger.reserve(search, trial, steps, pool=pool, **more)
    lease(ledger, search, trial, steps, pool=pool)


def used_steps(pool: PoolState) -> dict[SampledGaussian, int]:
    """Steps of each mechanism that are leased or promised."""
    return {mechanism: pool.leased.get(mechanism, 0) + steps for mechanism, steps in pool.reserved.items()}


def open_search(ledger: Ledger, name: str, epsilon: float = 4.0, *, dataset: str = "digits", **more: Any) -> None:  # noqa: ANN401 - as it comes
    """A small search; its filter may be given by `mechanism` and `step_cap`."""
    filter = more.pop("filter", None) or TotalSteps(more.pop("mechanism", MECHANISM), more.pop("step_cap", 10))
    ledger.open_search(dataset, name, filter=filter, **{"epsilon": epsilon, "delta": 1e-5, **more})


def as_user(ledger: Ledger, name: str) -> Ledger:
    """The same ledger, from now on written by another user."""
    ledger._chain.store.backend.user = lambda: name  # type: ignore[method-assign]
    return ledger


def opening(filter: Filter | None = None, **more: object) -> tuple[str, dict[str, object]]:
    """(kind, body) of an entry that opens a search `s` of `ada`."""
    body = (filter or TotalSteps(MECHANISM, 100)).body()
    said = {
        "search": "s", "filter": body, "validation": None, "unit": "record", "user": "ada",
        "epsilon": 4.0, "delta": 1e-5, "fingerprint": None, "details": {}, "units": None,
        "division": OWNERS_WORD if more.get("unit") == "user" else None,
    }  # fmt: skip
    return "open_search", {**said, **more}


def entry_of(
    seq: int, kind: str, body: str, previous: str, *, dataset: str = "digits", time: str = "", writer: str = "ada"
) -> Entry:
    """An entry whose hash holds, whatever it says."""
    said: Any = {
        "dataset": dataset, "seq": seq, "time": time, "kind": kind, "writer": writer, "body": body,
        "previous": previous,
    }  # fmt: skip
    return Entry(**said, hash=entry_hash(**said))


Row: TypeAlias = tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], str]
"""Kind, body and writer of an entry. Without a writer, `ada` writes it."""


def chained(rows: Iterable[Row], *, dataset: str = "digits", times: Sequence[str] = ("",)) -> list[Entry]:
    """Entries with hashes that hold, whatever they say; `times` are used in turn."""
    entries: list[Entry] = []
    previous = GENESIS
    for seq, (row, time) in enumerate(zip(rows, cycle(times), strict=False), start=1):
        kind, body, *rest = row
        said: Any = {"dataset": dataset, "time": time, "writer": str(rest[0]) if rest else "ada"}
        entries.append(entry_of(seq, kind, canonical(dict(body)), previous, **said))
        previous = entries[-1].hash
    return entries


def folded(entries: Iterable[Entry]) -> DatasetState:
    """What they add up to.

    Raises:
        LedgerCorruptError: one is not allowed.
    """
    states: dict[str, DatasetState] = {}
    for entry in entries:
        states[entry.dataset] = checked_state_after(states, entry)
    (state,) = states.values()
    return state
