"""Executors by name. A new executor is one module and one entry here."""

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
"""Functions that create an executor, by name. Each imports its module when called, because Ray takes seconds."""


def make_executor(name: str, settings: ExecutorSettings) -> Executor:
    """Return the executor with this name. An executor may ignore some settings."""
    return EXECUTORS[name](settings)
