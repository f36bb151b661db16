"""Every error that a user may meet, drawn as one tree, each with the exit code of its family.

    TunerError                      1   the sweep or command failed
    ├── InputError                  2   what the user wrote cannot be run; nothing was started
    │   └── ExperimentError         2   all problems of one experiment file at once
    ├── BudgetRefusedError          3   the privacy budget does not allow it; nothing was charged
    ├── LedgerError                 1   the ledger cannot be used; the sweep stops, nothing is started afresh
    │   └── LedgerCorruptError      1   the ledger contradicts itself
    ├── VerificationError           1   a privacy card does not hold
    ├── TrackingError               1   a record could not be written down
    └── SweepInterrupted          130   stopped by the user; `--resume` goes on

A message gives the rule, the value that broke it, and the mend.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "BudgetRefusedError",
    "ExperimentError",
    "InputError",
    "LedgerCorruptError",
    "LedgerError",
    "Problem",
    "SweepInterrupted",
    "TrackingError",
    "TunerError",
    "VerificationError",
]


class TunerError(Exception):
    """Base of every error that this project raises on purpose."""

    exit_code = 1


class InputError(TunerError):
    """What the user wrote cannot be run. Nothing was started and nothing was charged."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with an experiment file.

    Attributes:
        where: ``file:line`` when known, else the file or the option (``--set``) it came from.
        key: dotted path in the file, for example ``privacy.epsilon``.
        rule: what must hold.
        value: what was found, as the user wrote it.
        mend: what to write instead, or an empty string when the rule says it all.
    """

    where: str
    key: str
    rule: str
    value: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"{self.where}: {self.key}: {self.rule}, got {self.value}"
        return f"{line}. {self.mend}" if self.mend else line


class ExperimentError(InputError):
    """All problems of one experiment file, reported together.

    Args:
        problems: at least one problem, in file order.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BudgetRefusedError(TunerError):
    """The privacy budget of the search or of the data set does not allow what was asked. Nothing was charged."""

    exit_code = 3


class LedgerError(TunerError):
    """The ledger cannot be read or written. The sweep stops; a ledger is never started afresh."""


class LedgerCorruptError(LedgerError):
    """The ledger contradicts itself: a broken hash chain, or an entry that its history does not allow."""


class VerificationError(TunerError):
    """A privacy card does not follow from its ledger."""


class TrackingError(TunerError):
    """A record of the sweep could not be written to the spool on disk."""


class SweepInterrupted(TunerError):  # noqa: N818 - an interruption by the user is not an error
    """The user stopped the sweep. Everything charged stays charged; ``--resume`` goes on."""

    exit_code = 130
