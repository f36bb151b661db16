"""Fixtures and settings of all tests: hypothesis profiles, the folder of real data sets, and a PostgreSQL server."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import PostgresServer, binaries

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("DP_TUNER_LEDGER", None)  # no test may charge a developer's own ledger
os.environ.pop("DP_TUNER_LEDGER_KEY", None)
# No test may write into a developer's home: keys and default ledgers of this process and its children go here.
_HOME = tempfile.mkdtemp(prefix="dp-tuner-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_DATA_HOME"] = _HOME

# In the background a shell lets the suite ignore Ctrl-C, and so would every sweep that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; skips where there is none."""
    folder = os.environ.get("DP_TUNER_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set DP_TUNER_DATA to the folder with the real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL server; without an installed one it skips, or fails if DP_TUNER_REQUIRE_POSTGRES is set."""
    programs = binaries()
    if programs is None:
        why = "no PostgreSQL server is installed (on Debian: apt-get install postgresql)"
        if os.environ.get("DP_TUNER_REQUIRE_POSTGRES"):
            pytest.fail(why)
        pytest.skip(why)
    server = PostgresServer(programs)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session", autouse=True)
def _sender_in_a_thread() -> Iterator[None]:
    """Send records from a thread of this process: a process of its own loads MLflow, for seconds, at every sweep."""
    from tuner.recorder import recorder, sender_process
    from tuner.recorder.sender import Sender

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "SenderProcess", Sender)
        patch.setattr(sender_process, "start_early", lambda: None)
        yield
