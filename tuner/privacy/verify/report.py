"""The checks of a card and the answer that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "Report", "not_judged"]

_LAST_LINES = {
    "yes": "yes: the card follows from its ledger",
    "no": "no: the card does not hold",
    "not confirmed": "not confirmed independently: nothing contradicts the card, but not all was recomputed",
}


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: stable name.
        ok: None where it could be neither confirmed nor refuted.
        detail: what was found, in words, with figures to 6 digits.
        exact: the same with every digit, for programs; None where the words say it all.
    """

    name: str
    ok: bool | None
    detail: str
    exact: str | None = None


@dataclass(frozen=True)
class Report:
    """All checks of a card, and the answer."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def answer(self) -> str:
        """`yes`, `no`, or `not confirmed` where nothing contradicts the card and not all of it could be recomputed."""
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
