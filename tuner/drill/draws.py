"""The counted noise draws of a sweep, compared with the leases in its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.privacy.ledger.ledger import Ledger


@dataclass(frozen=True)
class Attempt:
    """One attempt of a process at one trial."""

    process: int
    started: int  # in nanoseconds
    begun: int  # draws
    done: int  # draws


Draws = Mapping[str, tuple[Attempt, ...]]
"""The attempts of every trial, the first one first."""


def read_draws(folder: Path) -> dict[str, tuple[Attempt, ...]]:
    """Return the draws counted so far, also while trials run."""
    found: dict[str, tuple[Attempt, ...]] = {}
    for trial in sorted(folder.iterdir()) if folder.exists() else ():
        attempts = [_attempt(path) for path in trial.iterdir()]
        found[trial.name] = tuple(sorted(attempts, key=lambda attempt: attempt.started))
    return found


def draws_begun(draws: Draws) -> int:
    """Return the number of draws that began, over all trials."""
    return sum(attempt.begun for attempts in draws.values() for attempt in attempts)


def _attempt(path: Path) -> Attempt:
    process, started = map(int, path.name.split("-"))
    size = path.stat().st_size
    return Attempt(process, started, begun=(size + 1) // 2, done=size // 2)


def leased_steps(url: str, dataset: str = "digits") -> dict[str, int]:
    """Return the steps leased by every trial of all searches on a data set."""
    searches = Ledger.open(url, create=False).dataset_state(dataset).searches
    return {name: trial.leased for search in searches for name, trial in search.trials.items()}


@dataclass(frozen=True)
class Gap:
    """The difference between the ledger and the draws of one trial."""

    trial: str
    below: int  # draws that began and are not in the ledger; above 0 the ledger is wrong
    above: int  # steps leased whose draw never ended
    attempts: int


def gaps(leased: Mapping[str, int], before: Draws, after: Draws) -> list[Gap]:
    """Compare the ledger with the draws, also while trials run.

    Args:
        leased: steps of each trial in the ledger.
        before: draws counted before the ledger was read; the ledger must hold all of them.
        after: draws counted after the ledger was read; a leased step without a draw here counts as above.
    """
    found = []
    for trial in sorted(leased.keys() | before.keys() | after.keys()):
        attempts = after.get(trial, ())
        steps = leased.get(trial, 0)
        begun = sum(attempt.begun for attempt in before.get(trial, ()))
        done = sum(attempt.done for attempt in attempts)
        found.append(Gap(trial, below=begun - steps, above=steps - done, attempts=len(attempts)))
    return found
