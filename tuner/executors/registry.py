"""The executors by name. A new executor is one module and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tuner.executors.base import Executor, ExecutorSettings

__all__ = ["EXECUTORS", "make_executor"]


def _local(_: ExecutorSettings) -> Executor:
    from tuner.executors.local import LocalExecutor

    return LocalExecutor()


def _ray(settings: ExecutorSettings) -> Executor:
    from tuner.executors.ray.runner import RayExecutor

    return RayExecutor(settings)


EXECUTORS: Mapping[str, Callable[[ExecutorSettings], Executor]] = MappingProxyType({"local": _local, "ray": _ray})
"""Executor by name. Each imports its module when it is made, because Ray takes seconds to import."""


def make_executor(name: str, settings: ExecutorSettings) -> Executor:
    """Return the executor with this name.

    Args:
        name: a key of `EXECUTORS`.
        settings: how it places trials; an executor ignores what it has no use for.
    """
    return EXECUTORS[name](settings)
