"""The exception tree of the platform, with the exit code of each family.

    TunerError                      1   the sweep or command failed
    ├── InputError                  2   the input cannot be run; nothing was started
    │   ├── ExperimentError         2   all problems of one experiment file
    │   └── ClusterError            2   all problems of the machines of a cluster
    ├── BudgetRefusedError          3   the privacy budget does not allow the request; nothing was charged
    ├── LedgerError                 1   the ledger cannot be read or written; the sweep stops
    │   └── LedgerCorruptError      1   the ledger contradicts itself
    ├── VerificationError           1   a privacy card does not follow from its ledger
    ├── TrackingError               1   a record could not be written to disk
    └── SweepInterrupted          130   stopped by the user; `tune resume` continues

Every error has a stable code at the end of its line; `tune explain CODE` explains it (`tuner.error_codes`). A message
says what is wrong with the value and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "BudgetRefusedError",
    "ClusterError",
    "ExperimentError",
    "InputError",
    "LedgerCorruptError",
    "LedgerError",
    "NodeProblem",
    "Problem",
    "SweepInterrupted",
    "TrackingError",
    "TunerError",
    "VerificationError",
    "disk_full",
    "is_disk_full",
]

_FULL = (errno.ENOSPC, errno.EDQUOT)


class TunerError(Exception):
    """Base class of every error that the platform raises on purpose. Programs and tests check its `code`."""

    exit_code = 1

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, says that a disk or a quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full(what: str) -> TunerError:
    """Return the error for a full disk. `what` is the file that could not be written, or empty."""
    where = f"{what}: " if what else ""
    return TunerError(
        "disk-full",
        f"{where}the disk is full. All charges remain. Free some space. Then repeat the command, or resume the sweep "
        "that it stopped.",
    )


class InputError(TunerError):
    """Input that cannot be run. Nothing was started and nothing was charged."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of an experiment file: the value of a key breaks a rule.

    Attributes:
        where: ``file:line`` if known, else the file or the ``--set`` option.
        key: dotted path in the file, for example ``privacy.epsilon``.
        value: the value as the user wrote it.
        fix: what to write instead; empty if the rule is enough.
    """

    code: str
    where: str
    key: str
    rule: str
    value: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.where}: {self.key}: {self.rule} (got {self.value})."
        return f"{line} {self.fix} [{self.code}]" if self.fix else f"{line} [{self.code}]"


class ExperimentError(InputError):
    """All problems of one experiment file, in the order of the file. The message has one line for each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems[0].code, "\n".join(str(problem) for problem in self.problems))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[ExperimentError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


@dataclass(frozen=True, kw_only=True)
class NodeProblem:
    """One problem of a machine of a cluster.

    Attributes:
        node: name of the machine in the cluster.
        what: what is wrong there.
        fix: what to do.
    """

    code: str
    node: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}. {self.fix} [{self.code}]"


class ClusterError(InputError):
    """All problems of the machines of a cluster. The message has one line for each, below a table of the machines."""

    def __init__(self, problems: Iterable[NodeProblem], table: str) -> None:
        self.problems, self.table = tuple(problems), table
        lines = "\n".join(str(problem) for problem in self.problems)
        super().__init__(self.problems[0].code, f"The cluster cannot run this search.\n{table}\n{lines}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[ClusterError], tuple[tuple[NodeProblem, ...], str]]:
        return type(self), (self.problems, self.table)


class BudgetRefusedError(TunerError):
    """A request that exceeds the privacy budget of the search or of the data set. Nothing was charged."""

    exit_code = 3


class LedgerError(TunerError):
    """A ledger that cannot be read or written. The sweep stops; no new ledger replaces the old one."""


class LedgerCorruptError(LedgerError):
    """A ledger with a broken hash chain, or with an entry that the entries before it do not allow."""


class VerificationError(TunerError):
    """A privacy card that does not follow from its ledger."""


class TrackingError(TunerError):
    """A record of the sweep that could not be written to disk."""


class SweepInterrupted(TunerError):  # noqa: N818 - an interruption by the user is not an error
    """A stop of the sweep by the user. Charged steps stay charged; `tune resume` continues."""

    exit_code = 130
