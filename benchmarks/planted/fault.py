"""One planted fault: an edit of one source file, what it breaks, and the test that must fail with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Fault", "NotPlantableError", "planted_text"]


class NotPlantableError(Exception):
    """The source no longer holds the text that a fault replaces, or holds it more than once."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An edit that breaks a promise, and the test that must fail with it.

    Attributes:
        name: unique, in words joined by hyphens.
        breaks: what it breaks in the privacy claim or in the bookkeeping, in one line.
        file: source file, relative to the root of the repository.
        old: text of the file, found exactly once.
        new: text that replaces it.
        test: pytest node, `file::function`.
        may_hang: whether a test that does not end counts as noticing the fault.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    test: str
    may_hang: bool = False


def planted_text(fault: Fault, root: Path) -> str:
    """Return the source file with the fault in it.

    Args:
        fault: the fault.
        root: root of the copied repository.

    Raises:
        NotPlantableError: the file is gone, its text was not found exactly once, or the result is not Python.
    """
    path = root / fault.file
    if not path.is_file():
        raise NotPlantableError(f"{fault.file} does not exist")
    text = path.read_text(encoding="utf-8")
    count = text.count(fault.old)
    if count != 1:
        raise NotPlantableError(f"the old text occurs {count} times in {fault.file}")
    changed = text.replace(fault.old, fault.new)
    if changed == text:
        raise NotPlantableError("the fault changes nothing")
    try:
        compile(changed, fault.file, "exec")
    except SyntaxError as error:
        raise NotPlantableError(f"{fault.file} would not be Python: {error}") from error
    return changed
