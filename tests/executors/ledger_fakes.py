"""Fake ledgers, in one file and in memory, with the rules of `tuner.privacy`."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tuner.errors import BudgetRefusedError, LedgerError
from tuner.study.types import Ask

LedgerLine: TypeAlias = tuple[str, str, int, int, float | None]
"""One line of a fake ledger: kind, trial, steps, scores, sample rate."""


@dataclass(frozen=True)
class Held:
    """Steps and scores that a trial has reserved and not leased."""

    steps: int = 0
    releases: int = 0


@dataclass(frozen=True)
class FileLedger:
    """Ledger in one file of JSON lines, with the rules of `tuner.privacy` for reserve, lease, release and settle.

    The cap counts units: a step costs the price of its sample rate in `prices`, or one.
    """

    path: str
    cap: int = 10**9
    score_cap: int = 10**9
    prices: tuple[tuple[float, int], ...] = ()

    def fits(self, *asks: Ask) -> bool:
        units = sum(ask.steps * self.price(ask.sample_rate) for ask in asks)
        scores = self.released() + sum(held.releases for held in self.outstanding().values())
        scores += sum(ask.releases for ask in asks)
        return self.committed() + units <= self.cap and scores <= self.score_cap

    def reserve(self, trial: str, ask: Ask, *, rung: bool = False) -> None:
        if not self.fits(ask):
            raise BudgetRefusedError("cap-exceeded", "full")
        if rung and (self.held().get(trial) != 0 or not self.leased(trial)):
            raise LedgerError("rung-not-finished", f"{trial} has not taken all that it had reserved")
        if trial in self.settled():
            raise LedgerError("trial-settled", f"{trial} is settled")
        before = self._rates()
        if before.get(trial, ask.sample_rate) != ask.sample_rate:
            raise LedgerError("mechanism-not-reserved", f"{trial} has another mechanism")
        self._write("reserve", trial, ask.steps, ask.releases, ask.sample_rate)

    def lease(self, trial: str, steps: int) -> None:
        if steps > self.outstanding().get(trial, Held()).steps:
            raise BudgetRefusedError("not-reserved", f"{trial} has no reservation for {steps} steps")
        self._write("lease", trial, steps)

    def release(self, trial: str, count: int) -> None:
        if count > self.outstanding().get(trial, Held()).releases:
            raise BudgetRefusedError("not-reserved", f"{trial} has no reservation for {count} scores")
        self._write("release", trial, 0, count)

    def settle(self, trial: str, steps_taken: int) -> None:
        if trial not in self.outstanding():
            raise LedgerError("trial-settled", f"{trial} cannot be settled twice, or was never reserved")
        if steps_taken > self.leased(trial):
            raise LedgerError("steps-not-leased", f"{trial} took {steps_taken} steps and leased {self.leased(trial)}")
        self._write("settle", trial, steps_taken)

    def forfeit(self, trial: str, steps_taken: int, rungs: Sequence[int]) -> None:
        held = self.outstanding()[trial]
        if held.steps:
            self.lease(trial, held.steps)
        if held.releases:
            self.release(trial, held.releases)
        self.settle(trial, steps_taken)

    def outstanding(self) -> dict[str, Held]:
        left: dict[str, Held] = {}
        for kind, trial, steps, releases, _ in self.entries():
            held = left.get(trial, Held())
            if kind == "reserve":
                left[trial] = Held(held.steps + steps, held.releases + releases)
            elif kind == "settle":
                del left[trial]
            else:
                left[trial] = Held(held.steps - (steps if kind == "lease" else 0), held.releases - releases)
        return left

    def held(self) -> dict[str, int]:
        """Return the steps that each unsettled trial may still take."""
        return {trial: held.steps for trial, held in self.outstanding().items()}

    def settled(self) -> dict[str, int]:
        return {trial: steps for kind, trial, steps, *_ in self.entries() if kind == "settle"}

    def leased(self, trial: str | None = None) -> int:
        return sum(s for kind, name, s, *_ in self.entries() if kind == "lease" and trial in (None, name))

    def released(self, trial: str | None = None) -> int:
        return sum(r for kind, name, _, r, _ in self.entries() if kind == "release" and trial in (None, name))

    def reserved(self, trial: str) -> int:
        return sum(s for kind, name, s, *_ in self.entries() if kind == "reserve" and name == trial)

    def price(self, rate: float | None) -> int:
        return dict(self.prices).get(rate, 1) if rate is not None else 1

    def committed(self) -> int:
        """Return the units that are leased or may still be."""
        rates, held = self._rates(), self.held()
        leased = sum(s * self.price(rates[name]) for kind, name, s, *_ in self.entries() if kind == "lease")
        return leased + sum(steps * self.price(rates[trial]) for trial, steps in held.items())

    def charge_for(self, trial: str) -> FileCharge:
        return FileCharge(self, trial)

    def entries(self) -> list[LedgerLine]:
        path = Path(self.path)
        if not path.exists():
            return []
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()]

    def _rates(self) -> dict[str, float | None]:
        return {name: rate for kind, name, *_, rate in self.entries() if kind == "reserve"}

    def _write(self, kind: str, trial: str, steps: int, releases: int = 0, rate: float | None = None) -> None:
        with Path(self.path).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps([kind, trial, steps, releases, rate]) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class MemoryLedger(FileLedger):
    """The same ledger in memory."""

    lines: list[LedgerLine] = field(default_factory=list)

    def entries(self) -> list[LedgerLine]:
        return self.lines

    def _write(self, kind: str, trial: str, steps: int, releases: int = 0, rate: float | None = None) -> None:
        self.lines.append((kind, trial, steps, releases, rate))


@dataclass(frozen=True)
class FileCharge:
    """Charge of one trial."""

    ledger: FileLedger
    trial: str

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        self.ledger.lease(self.trial, steps)

    def leased(self) -> int:
        return self.ledger.leased(self.trial)

    def restarts(self) -> int:
        return 0

    def release(self, count: int = 1, *, noise: float) -> None:
        self.ledger.release(self.trial, count)

    def released(self) -> int:
        return self.ledger.released(self.trial)
