"""What all tests share: the floor on their number, the hypothesis profiles, and where the real data lie."""

from __future__ import annotations

import os
import signal
import sys
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
os.environ.pop("DP_TUNER_LEDGER", None)  # a developer's own must never be charged by a test

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every sweep that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--floor", type=int, default=0, help="fail when fewer tests than this passed")


class Floor:
    """Counts the tests that passed: a suite that silently collects nothing must not be green."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        if exitstatus == 0 and self.passed < self.floor:
            session.exitstatus = 1
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed < self.floor:
            terminalreporter.write_line(f"only {self.passed} tests passed, the floor is {self.floor}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Floor(config.getoption("--floor")), "floor")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; skips (and so lowers the count under the floor) where there is none."""
    folder = os.environ.get("DP_TUNER_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set DP_TUNER_DATA to the folder with the real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL server; where none is installed it skips, or fails if DP_TUNER_REQUIRE_POSTGRES is set."""
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
