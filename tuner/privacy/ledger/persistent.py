"""Immutable mapping for the states of the ledger. A copy with one change is cheap."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TypeVar

__all__ = ["Persistent"]

K = TypeVar("K")
V = TypeVar("V")


class Persistent(Mapping[K, V]):
    """Immutable mapping with a large part that its copies share, and a small part with recent changes.

    If the large part has n keys and the small part more than √n, both are merged into a new large part. So a change
    copies about √n keys on average. Iteration follows the order in which the keys were first set.
    """

    __slots__ = ("_recent", "_shared", "_size")

    def __init__(self, values: Mapping[K, V] | None = None) -> None:
        self._shared: dict[K, V] = dict(values or {})
        self._recent: dict[K, V] = {}
        self._size = len(self._shared)

    def with_item(self, key: K, value: V) -> Persistent[K, V]:
        """Return a copy in which `key` has the value `value`."""
        copy: Persistent[K, V] = Persistent.__new__(Persistent)
        recent = {**self._recent, key: value}
        if len(recent) ** 2 > len(self._shared):
            copy._shared, copy._recent = {**self._shared, **recent}, {}
        else:
            copy._shared, copy._recent = self._shared, recent
        copy._size = self._size + (key not in self._recent and key not in self._shared)
        return copy

    def __getitem__(self, key: K) -> V:
        return self._recent[key] if key in self._recent else self._shared[key]

    def __iter__(self) -> Iterator[K]:
        yield from self._shared
        yield from (key for key in self._recent if key not in self._shared)

    def items(self) -> ItemsView[K, V]:
        """Return all (key, value) pairs. This method is faster than the inherited one."""
        return {**self._shared, **self._recent}.items()

    def values(self) -> ValuesView[V]:
        """Return all values. This method is faster than the inherited one."""
        return {**self._shared, **self._recent}.values()

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return repr(dict(self))
