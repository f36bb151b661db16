"""Puts the shared fakes on the path of children too, and shares one Ray among the tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[2])
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, ROOT, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture(scope="session")
def ray_two_slots() -> Iterator[None]:
    """Start one Ray with two slots for every test that needs one, because starting it takes seconds."""
    import ray

    from tuner.executors.base import ExecutorSettings
    from tuner.executors.ray.session import ray_session

    with ray_session(ExecutorSettings(concurrent_trials=2)):
        assert ray.is_initialized()
        yield
