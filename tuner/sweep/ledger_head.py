"""Check that a sweep's ledger has not gone back in time, for example to an older backup.

The sweep's folder keeps the head of the ledger that was seen last: number and hash of the data set's last entry.
Through the hash chain, this hash covers all charges before it. Later charges are known from what they paid for: each
report of a trial and each checkpoint says how many steps and scores were leased. A ledger that lacks the head, or that
has fewer charges of a trial, is refused before a step is taken or a model is exported. A newer ledger is accepted.

So an accepted ledger has all charges of its data set up to the last report that the sweep showed, and all charges of
this sweep that its study or a checkpoint tells of. Proof: a report is stored in the study, then the head is kept, then
the report is shown. A sealed search keeps its head before its first run. What was charged and shown nowhere may be
forgotten; a loss of power may take the heads since the last trial ended. It is not noticed if the folder and the ledger
are both restored to the same earlier moment.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.checkpoint import read_state
from trainables.errors import InfrastructureError
from trainables.rungs import checkpoint_step, intact_checkpoint
from tuner.errors import LedgerError, TunerError
from tuner.files import write_text
from tuner.study.types import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import SearchState
    from tuner.study.types import TrialView
    from tuner.sweep.folder import SweepFolder

__all__ = ["HeadWatch", "charged_search", "remember_head", "require_charged", "require_head", "require_not_behind"]

_FILE = "ledger_head.jsonl"


class HeadWatch(Observer):
    """Observer that keeps the ledger's head, before any other observer shows what the charges paid for.

    The driver has stored a report in the study before it tells an observer. So a report that was stored when the
    process died, and whose head is lacking, is known by its step and its scores.
    """

    def __init__(self, sweep: SweepFolder, ledger: Ledger) -> None:
        self._sweep, self._ledger = sweep, ledger
        self._datasets = ledger.search_state(sweep.id).datasets

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Keep the head without waiting for the disk, which a checkpoint and the study's journal have waited for."""
        remember_head(self._sweep, self._ledger, self._datasets, durable=False)

    def trial_finished(self, trial: TrialView) -> None:
        """Keep the head durably."""
        remember_head(self._sweep, self._ledger, self._datasets)


def remember_head(sweep: SweepFolder, ledger: Ledger, datasets: Sequence[str] = (), *, durable: bool = True) -> None:
    """Keep the last entries of data sets in the sweep's folder; by default, of those on which the sweep counts.

    Without `durable`, a loss of power may lose them, but no crash.
    """
    if not datasets:
        datasets = ledger.search_state(sweep.id).datasets
    states = ledger.states()
    entries = [[name, states[name].seq, states[name].head] for name in datasets if name in states]
    path, line = sweep.work / _FILE, json.dumps({"ledger": ledger.id, "entries": entries}) + "\n"
    if durable:
        write_text(path, line, mode=0o600)
        return
    with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
        file.write(line)


def charged_search(sweep: SweepFolder, ledger: Ledger, search: str) -> SearchState:
    """Return what the ledger has of the search that was charged for a sweep.

    Raises:
        LedgerError: the ledger has no such search, or has gone back in time (``ledger-behind``).
    """
    if not ledger.has_search(search):
        require_head(sweep, ledger)
    return ledger.search_state(search)


def require_not_behind(sweep: SweepFolder, ledger: Ledger, charged: SearchState) -> None:
    """Refuse a ledger that has gone back in time since the sweep last saw it.

    Raises:
        LedgerError: the ledger lacks the head that the sweep saw last.
        TunerError: the study or a checkpoint has more steps or scores than the ledger charged, or the file of the head
            is missing or unreadable.
    """
    from tuner.study.storage import stored_charges

    require_head(sweep, ledger)
    if charged.charged_whole:
        return  # charged before its first run or draw, and the head was kept after that
    for trial in stored_charges(sweep.work, sweep.id):
        require_charged(charged, trial.id, trial.number, trial.steps)
        if charged.validation is not None:
            _require(charged, "validation", trial.id, trial.number, trial.scores)
    for folder in sorted(sweep.trials.iterdir()) if sweep.trials.is_dir() else ():
        path = intact_checkpoint(sweep.work, folder.name)
        if path is not None:
            _require_checkpoint(charged, folder.name, path)


def require_head(sweep: SweepFolder, ledger: Ledger) -> None:
    """Raise a LedgerError if the ledger lacks an entry that the sweep saw. See `require_not_behind`."""
    seen = _last_head(sweep)
    if seen is None:
        return
    for dataset, seq, digest in seen.entries:
        if seen.ledger != ledger.id or not ledger.has_entry(dataset, seq, digest):
            raise LedgerError(
                "ledger-behind",
                f"The ledger {ledger.url} is an older copy, or another ledger: it lacks entry {seq} of data set "
                f"{dataset!r}, the last entry that {sweep.id} saw. Such a ledger lacks charges, so nothing is run or "
                "exported with it. Restore the ledger with all its entries.",
            )


def require_charged(charged: SearchState, trial: str, number: int | None, steps: int) -> None:
    """Raise a TunerError if a trial has more steps than are charged for it in the ledger."""
    _require(charged, "training", trial, number, steps)


@dataclass(frozen=True)
class _Head:
    """Last entries in a ledger that a sweep saw: name of the data set, number of the entry, hash."""

    ledger: str
    entries: list[tuple[str, int, str]]


def _last_head(sweep: SweepFolder) -> _Head | None:
    """Return the head that was kept last; None if the sweep stopped before it ran anything."""
    path = sweep.work / _FILE
    if not path.exists() and not sweep.started:
        return None
    try:
        *before, last = path.read_text("utf-8").splitlines()
        try:
            return _Head(**json.loads(last))
        except (ValueError, TypeError):
            return _Head(**json.loads(before[-1]))  # the last line was torn by a loss of power
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise TunerError(
            "sweep-file-unreadable",
            f"{path}, which names the last entry of the ledger that the sweep saw, cannot be read "
            f"({type(error).__name__}). Restore the file from a copy.",
        ) from error


def _require_checkpoint(charged: SearchState, trial: str, path: Path) -> None:
    require_charged(charged, trial, None, checkpoint_step(path))
    if charged.training.account(trial).settled:
        return  # an entry after all of its charges
    try:
        state = read_state(path)
        steps, scores = max(int(state["step"]), int(state["leased"])), int(state["released"])
    except InfrastructureError:
        return  # its trial continues from the checkpoint before, or ends
    require_charged(charged, trial, None, steps)
    if charged.validation is not None:
        _require(charged, "validation", trial, None, scores)


def _require(charged: SearchState, pool: str, trial: str, number: int | None, found: int) -> None:
    leased = charged.pools[pool].account(trial).leased
    if leased < found:
        raise TunerError(
            "search-not-charged",
            f"Trial {trial if number is None else number} has {found} {'steps' if pool == 'training' else 'scores'}, "
            f"but only {leased} are charged in the ledger. The sweep's folder or the ledger was changed; restore both "
            "from a copy.",
        )
