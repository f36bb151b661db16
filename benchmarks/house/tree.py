"""Python files that git tracks: their text, syntax tree, module name and room."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["Source", "read_sources", "tracked_files"]

_PACKAGES = ("tuner", "search_spaces", "trainables")
_AREAS = {**dict.fromkeys(_PACKAGES, "packages"), "benchmarks": "benchmarks", "tests": "tests"}
_ROOMS_BELOW = ("tuner", "tuner/privacy", "trainables", "benchmarks")  # each folder directly in these is a room


@dataclass(frozen=True)
class Source:
    """One Python file; its path is relative to the root of the checkout."""

    path: str
    text: str

    @property
    def area(self) -> str:
        """'packages', 'benchmarks' or 'tests'."""
        return _AREAS[self.path.partition("/")[0]]

    @property
    def module(self) -> str:
        """Dotted name; a package has the name of its folder."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """Deepest folder of the path that is a room."""
        room, *below = self.path.split("/")[:-1]
        for folder in below:
            if room in _ROOMS_BELOW:
                room = f"{room}/{folder}"
        return room

    @property
    def lines(self) -> int:
        """Number of lines, with blank lines and comments."""
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree."""
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the syntax tree."""
        return tuple(ast.walk(self.tree))


def tracked_files(root: Path) -> list[str]:
    """Return the paths of the tracked files that exist.

    Raises:
        OSError: git is not installed.
        subprocess.CalledProcessError: `root` is not in a git checkout.
    """
    command = ["git", "-C", str(root), "ls-files", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in listed.split("\0") if path and (root / path).is_file())


def read_sources(root: Path, paths: list[str]) -> list[Source]:
    """Read the Python files of the packages, benchmarks and tests."""
    wanted = [path for path in paths if path.endswith(".py") and "/" in path and path.partition("/")[0] in _AREAS]
    return [Source(path, (root / path).read_text(encoding="utf-8")) for path in wanted]
