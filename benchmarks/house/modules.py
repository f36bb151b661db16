"""Import circles, and public names with two meanings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from benchmarks.house.tree import Source

__all__ = ["double_names", "import_circles"]

_DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SAME_BY_DESIGN = {"build": "tuner.study.", "main": "", "stages": "trainables.methods."}
"""Exempt names, and the start of the modules where they are: entry points, and what each method, sampler and pruner has
to define."""


def double_names(sources: list[Source]) -> dict[str, list[str]]:
    """Return each public name of a class or function that two or more modules define at top level."""
    found: dict[str, list[str]] = {}
    for source in sources:
        defined = {node.name for node in source.tree.body if isinstance(node, _DEFINITIONS)}
        for name in defined:
            exempt = name in _SAME_BY_DESIGN and source.module.startswith(_SAME_BY_DESIGN[name])
            if not name.startswith("_") and not exempt:
                found.setdefault(name, []).append(source.module)
    return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}


def import_circles(sources: list[Source], *, type_checking: bool) -> list[list[str]]:
    """Return the sets of modules that all import each other, directly or through others.

    Imports inside functions count. An import is of the submodule where there is one, else of the package:
    `from tuner.privacy import ledger` imports `tuner.privacy.ledger`, not `tuner.privacy`. A package's `__init__` is a
    module like any other.

    Args:
        sources: the files.
        type_checking: whether imports below `if TYPE_CHECKING:` count.
    """
    known = {source.module for source in sources}
    graph = {source.module: set(_imports(source, known, type_checking=type_checking)) for source in sources}
    reachable = {module: _reachable(graph, module) for module in graph}
    circles = {
        frozenset(other for other in graph if {module, other} <= reachable[module] & reachable[other])
        for module in graph
    }
    return sorted(sorted(circle) for circle in circles if len(circle) > 1)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def _imports(source: Source, known: set[str], *, type_checking: bool) -> Iterator[str]:
    for statement in _statements(source.tree, type_checking=type_checking):
        for name in _names(statement, source):
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name and name != source.module:
                yield name


def _statements(node: ast.AST, *, type_checking: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and not type_checking and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = node.orelse
    for child in children:
        yield from _statements(child, type_checking=type_checking)


def _names(statement: ast.Import | ast.ImportFrom, source: Source) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    package = source.path.split("/")[: -statement.level] if statement.level else []
    base = ".".join([*package, statement.module] if statement.module else package)
    return [f"{base}.{alias.name}" for alias in statement.names]
