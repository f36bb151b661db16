"""Sizes: lines and files of rooms, flat modules, rows of the import contract, long modules, functions and docs."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from statistics import median

from benchmarks.house.tree import Source

__all__ = ["contract_rows", "doc_words", "flat_modules", "function_median", "lines_and_files", "long_modules"]

_LONG_MODULE = 400


def lines_and_files(sources: list[Source], group: str) -> dict[str, dict[str, int]]:
    """Return the number of lines and files of each group: `room` or `area`."""
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        size = found.setdefault(getattr(source, group), {"lines": 0, "files": 0})
        size["lines"] += source.lines
        size["files"] += 1
    return dict(sorted(found.items()))


def flat_modules(sources: list[Source]) -> list[str]:
    """Return the files directly in `tuner/`, without `__init__` and `__main__`."""
    flat = [source.path for source in sources if source.path.startswith("tuner/") and source.path.count("/") == 1]
    return [path for path in flat if not path.endswith(("/__init__.py", "/__main__.py"))]


def contract_rows(root: Path) -> int:
    """Return the number of rows of the layers contract of `tuner`.

    Raises:
        LookupError: pyproject.toml has no such contract.
        OSError: there is no pyproject.toml.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract.get("containers") == ["tuner"]:
            return len(contract["layers"])
    raise LookupError("pyproject.toml has no layers contract with `containers = ['tuner']`")


def long_modules(sources: list[Source]) -> dict[str, int]:
    """Return the files of more than 400 lines, the longest first."""
    found = {source.path: source.lines for source in sources if source.lines > _LONG_MODULE}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def function_median(sources: list[Source]) -> float:
    """Return the median length of functions and methods, from `def` to the last line."""
    lengths = [
        node.end_lineno - node.lineno + 1
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    return median(lengths) if lengths else 0


def doc_words(root: Path, paths: list[str]) -> dict[str, int]:
    """Return the number of words of README.md and of each page in docs/; a word has a letter or a digit."""
    pages = [path for path in paths if path == "README.md" or (path.startswith("docs/") and path.endswith(".md"))]
    words = {page: (root / page).read_text(encoding="utf-8").split() for page in pages}
    return {page: sum(any(map(str.isalnum, word)) for word in found) for page, found in words.items()}
