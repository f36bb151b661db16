"""The ledger in a file: its address, its user, and who may only read it."""

from __future__ import annotations

import os
import pwd
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import lease, open_search

from tuner.errors import InputError, LedgerCorruptError
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.stores import absolute_url, open_store


def raw(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run SQL past the ledger; the rows of the last statement."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            found = connection.execute(statement).fetchall()
    finally:
        connection.close()
    return found


def lay(path: Path) -> Path:
    """A ledger with a trial of 60 steps."""
    ledger = Ledger.open(f"sqlite:///{path}")
    open_search(ledger, "first", step_cap=1000)
    ledger.reserve("first", "a", 100)
    lease(ledger, "first", "a", 60)
    return path


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    return lay(tmp_path / "ledger.db")


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A file that nobody may write, outside pytest's own folder, which other users may not enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        inner = Path(folder) / "sub"
        inner.mkdir()
        path = lay(inner / "ledger.db")
        path.chmod(0o444)
        inner.chmod(0o555)
        yield path
        inner.chmod(0o755)


def test_who_may_only_read_reads_and_leaves_it(shelf: Path) -> None:
    code = (
        "import os, sys\n"
        "from tuner.errors import LedgerError\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "os.getuid() == 0 and os.setuid(65534)\n"
        "ledger = Ledger.open(sys.argv[1], create=False)\n"
        "ledger.verify_chain()\n"
        "print(ledger.search_state('first').leased_steps, ledger.id)\n"
        "try:\n"
        "    ledger.reserve('first', 'b', 1)\n"
        "except LedgerError as error:\n"
        "    print(error)\n"
    )
    before = shelf.read_bytes()
    command = [sys.executable, "-c", code, f"sqlite:///{shelf}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip(f"another user cannot run this interpreter here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    seen, refused = done.stdout.splitlines()
    assert seen.startswith("60 ")
    assert "may only read" in refused
    assert shelf.read_bytes() == before


def test_another_database_is_refused_and_left_alone(laid: Path) -> None:
    raw(laid, "PRAGMA application_id = 0")
    before = laid.read_bytes()
    with raises_code(LedgerCorruptError, "ledger-foreign"):
        Ledger.open(f"sqlite:///{laid}")
    assert laid.read_bytes() == before


def test_the_user_of_a_file_is_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", create=True)
    monkeypatch.setenv("USER", "somebody else")
    monkeypatch.setenv("LOGNAME", "somebody else")
    assert store.user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 3_000_000_000)
    assert store.user() == "uid 3000000000"


def test_a_relative_url_is_made_absolute_and_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_url("sqlite:///runs/ledger.db") == f"sqlite:///{tmp_path}/runs/ledger.db"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", ["sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "sqlite://host/a.db", ""])
def test_only_a_file_can_be_a_ledger(bad: str) -> None:
    for use in (absolute_url, lambda url: open_store(url, create=True)):
        with raises_code(InputError, "ledger-url"):
            use(bad)
