"""Executors by name. To add an executor, write a module and add an entry to `EXECUTORS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainables.loading import loading
from tuner.executors.base import Executor, ExecutorSettings

__all__ = ["EXECUTORS"]


def _local(_: ExecutorSettings) -> Executor:
    from tuner.executors.local import LocalExecutor

    return LocalExecutor()


def _ray(settings: ExecutorSettings) -> Executor:
    with loading():
        from tuner.executors.ray.runner import RayExecutor

    return RayExecutor(settings)


EXECUTORS: Mapping[str, Callable[[ExecutorSettings], Executor]] = {"local": _local, "ray": _ray}
"""Functions that create an executor, by name. The local executor ignores the settings.

Each function imports its executor only when called, because importing Ray takes seconds.
"""
