"""What is wrong with a search space: one problem with its rule, value and fix, or all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["EXPLANATIONS", "DomainError", "SpaceError", "SpaceProblem"]


EXPLANATIONS: dict[str, str] = {}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


class DomainError(ValueError):
    """A domain that cannot be searched.

    Args:
        rule: what must hold.
        value: what was found, as text.
        fix: what to write instead; empty when the rule says it all.
    """

    def __init__(self, rule: str, value: str, fix: str = "") -> None:
        self.rule, self.value, self.fix = rule, value, fix
        super().__init__(f"{rule}, got {value}" + (f". {fix}" if fix else ""))


@dataclass(frozen=True, kw_only=True)
class SpaceProblem:
    """One thing wrong with a search space.

    Attributes:
        path: keys from the top of the space down to the place, as they were written.
        rule: what must hold.
        value: what was found, as text.
        fix: what to write instead; empty when the rule says it all.
    """

    path: tuple[str | int, ...]
    rule: str
    value: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{'.'.join(map(str, self.path))}: {self.rule}, got {self.value}"
        return f"{line}. {self.fix}" if self.fix else line


class SpaceError(ValueError):
    """All problems of one search space, reported together.

    Args:
        problems: at least one problem, in the order of the file.
    """

    def __init__(self, problems: Iterable[SpaceProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
