"""Puts the shared fakes on the path, of this process and of those it starts; one Ray for all tests."""

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
    """One Ray of this machine, two CPUs, for every test that needs one: starting it takes seconds."""
    import ray

    from tuner.executors.ray.session import ray_session

    with ray_session(address=None, cpus=1, gpus=0, concurrent_trials=2):
        assert ray.is_initialized()
        yield
