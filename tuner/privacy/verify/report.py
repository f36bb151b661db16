"""Report on a card: its checks and the answer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "Report", "not_judged"]

_LAST_LINES = {
    "yes": "yes: the card follows from its ledger",
    "no": "no: the card does not hold",
    "not confirmed": "not confirmed independently: nothing contradicts the card, but some numbers were not recomputed",
}


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: stable name.
        ok: None if the check could neither confirm nor refute the card.
        detail: the finding in words, with figures to 6 digits.
        exact: the finding with every digit, for programs; None if `detail` has every digit.
    """

    name: str
    ok: bool | None
    detail: str
    exact: str | None = None


@dataclass(frozen=True)
class Report:
    """All checks of a card."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def answer(self) -> str:
        """`yes`, `no`, or `not confirmed` if no check failed but some could not be computed."""
        if self.ok:
            return "yes"
        return "no" if not self.checks or any(check.ok is False for check in self.checks) else "not confirmed"

    def __str__(self) -> str:
        marks = {True: "ok ", False: "NO ", None: "?? "}
        lines = [f"{marks[check.ok]} {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([*lines, _LAST_LINES[self.answer]])


def not_judged(error: ArithmeticError) -> str:
    """Return the detail of a check whose accountant failed."""
    return f"not judged: the accountant cannot compute it ({type(error).__name__}: {error})"
