"""Release and votes mode: all trials train on a release, which was charged before it was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.privacy.card.claims import release_claim
from tuner.runner.composition import run_open
from tuner.runner.run import RunOptions, RunResult
from tuner.sweep.releases import hold_release

if TYPE_CHECKING:
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = ["run_on_release"]


def run_on_release(sweep: SweepFolder, prepared: ReadySearch, ledger: Ledger | None, options: RunOptions) -> RunResult:
    """Run or resume a sweep on the release that its folder names. No trial is charged.

    Raises:
        TunerError: the release is missing or was changed, or the sweep failed.
        SweepInterrupted: Ctrl-C was pressed. The sweep can be resumed.
    """
    if prepared.plan.private and ledger is None:
        raise TunerError(
            "sweep-files-changed",
            f"The plan of {sweep.id} says that the sweep is private, but the sweep has no ledger. Restore its files "
            "from a copy.",
        )
    release = hold_release(sweep, ledger)
    claim = release_claim(prepared.plan.mode) if prepared.plan.private else ""
    return run_open(sweep, prepared, None, options, claim=claim, release=release, of_ledger=ledger)
