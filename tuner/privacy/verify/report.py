"""Report on the verification of a card: the results of its checks, and the overall answer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "Report", "not_judged"]

_LAST_LINES = {
    "yes": "yes: the card follows from its ledger",
    "no": "no: at least one check failed; do not rely on this card",
    "not confirmed": "not confirmed independently: nothing contradicts the card, but not every part was confirmed",
}

_OUTDATED = ". What it says of ALL searches together no longer holds: see !!"


@dataclass(frozen=True)
class Check:
    """Result of one check of a card.

    Attributes:
        name: name of the check. It never changes.
        ok: True if the check passed; False if it failed; None if it could neither confirm nor refute the card.
        detail: the finding in words, with floats rounded to 6 digits.
        exact: the finding with all digits, for programs; None if `detail` has all digits.
        outdated: whether the card was right when it was made, but says more than what holds today.
    """

    name: str
    ok: bool | None
    detail: str
    exact: str | None = None
    outdated: bool = False


@dataclass(frozen=True)
class Report:
    """Results of all checks of a card."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether at least one check was made, and every check passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def answer(self) -> str:
        """`yes` if all checks passed, `no` if any check failed or no check was made, and `not confirmed` otherwise."""
        if self.ok:
            return "yes"
        return "no" if not self.checks or any(check.ok is False for check in self.checks) else "not confirmed"

    def __str__(self) -> str:
        marks = {True: "ok ", False: "NO ", None: "?? "}
        lines = [f"{'!! ' if check.outdated else marks[check.ok]}{check.name}: {check.detail}" for check in self.checks]
        outdated = any(check.outdated for check in self.checks) and self.answer != "no"
        return "\n".join([*lines, f"{_LAST_LINES[self.answer]}{_OUTDATED if outdated else ''}"])


def not_judged(error: ArithmeticError) -> str:
    """Return the `detail` of a check whose computation failed."""
    return f"not judged: the accountant cannot compute this value ({type(error).__name__}: {error})"
