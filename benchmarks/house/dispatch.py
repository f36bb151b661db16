"""Files that dispatch on the kind of a filter, or on the kind of a mode.

A file dispatches when it does one of these:

- It compares a kind (==, !=, in, not in, is, is not), or matches it with `case`. A kind is its string ("coupon_book"),
  the same word as a constant (COUPON_BOOK), a class of that kind, or the `kind` or `name` of either. A class has
  a kind when its body sets `kind` or `name` to the kind's string.
- It passes such a class to `isinstance` or `issubclass`.
- It writes a dictionary with two kinds or more among its keys.
- For modes only, it tests a flag: a name, attribute, call or `.get("…")` is a condition, or an operand of `not`, `and`
  or `or`, and its name has the word "sealed" or is in `_MODE_FLAGS`. A comparison of `selection` or `public` with None
  is such a test too.

The kinds of a filter are "total_steps", "coupon_book", "fixed_order", "one_release", "sealed" and "voted_labels"; those
of a mode are "composition", "selection", "public", "release" and "votes". A type that lists kinds, a default value,
passing a kind or a flag on, and asking an object for what it says of its own kind (`mode.runs_hidden`,
`filter.charged_whole`) are not dispatch.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from benchmarks.house.tree import Source

__all__ = ["filter_dispatch", "mode_dispatch"]

_FILTERS = frozenset({"total_steps", "coupon_book", "fixed_order", "one_release", "sealed", "voted_labels"})
_MODES = frozenset({"composition", "selection", "public", "release", "votes"})
_MODE_FLAGS = frozenset({"public_search", "is_public_search", "is_public", "is_selection", "is_composition"})


def filter_dispatch(sources: list[Source]) -> list[str]:
    """Return the files that dispatch on the kind of a filter."""
    kinds = _kinds(sources, _FILTERS)
    return [source.path for source in sources if any(map(kinds.decide, source.nodes))]


def mode_dispatch(sources: list[Source]) -> list[str]:
    """Return the files that dispatch on the kind of a mode."""
    kinds = _kinds(sources, _MODES)
    return [source.path for source in sources if any(kinds.decide(node) or _tests_flag(node) for node in source.nodes)]


@dataclass(frozen=True)
class _Kinds:
    """The strings and classes that name a kind."""

    strings: frozenset[str]
    classes: frozenset[str]

    def decide(self, node: ast.AST) -> bool:
        """Return whether a node compares, matches or looks up a kind."""
        match node:
            case ast.Compare():
                return any(map(self._has, (node.left, *node.comparators)))
            case ast.MatchValue(value=value):
                return self._has(value)
            case ast.MatchClass(cls=value):
                return self._has(value)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, value]):
                return self._has(value)
            case ast.Dict(keys=keys):
                return sum(key is not None and self._has(key) for key in keys) > 1
        return False

    def _has(self, node: ast.expr) -> bool:
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return any(map(self._has, parts))
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._has(left) or self._has(right)
            case ast.Attribute(value=owner, attr="kind" | "name"):
                return self._names_kind(_name(owner))
        return _text(node) in self.strings or self._names_kind(_name(node))

    def _names_kind(self, name: str) -> bool:
        return name in self.classes or (name.isupper() and name.lower() in self.strings)


def _kinds(sources: list[Source], strings: frozenset[str]) -> _Kinds:
    classes = [
        node.name
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and any(_sets_kind(statement, strings) for statement in node.body)
    ]
    return _Kinds(strings, frozenset(classes))


def _sets_kind(statement: ast.stmt, strings: frozenset[str]) -> bool:
    match statement:
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return _name(target) in ("kind", "name") and _text(value) in strings
    return False


def _tests_flag(node: ast.AST) -> bool:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return _is_flag(test)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_flag(operand)
        case ast.BoolOp(values=values) | ast.comprehension(ifs=values):
            return any(map(_is_flag, values))
        case ast.Compare(left=left, comparators=[ast.Constant(value=None)]):
            return _name(left) in ("selection", "public")
    return False


def _is_flag(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            name = _text(key)
        case ast.Call(func=function):
            name = _name(function)
        case _:
            name = _name(node)
    return name in _MODE_FLAGS or "sealed" in name.split("_")


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
