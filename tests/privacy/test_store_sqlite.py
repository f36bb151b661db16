"""The ledger in a file: version 1 is brought to version 2, all or nothing, by who may write and by nobody else."""

from __future__ import annotations

import os
import pwd
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger import Ledger
from tuner.privacy.store import absolute_url, open_store

# A ledger as version 1 wrote it, byte for byte: a cap, a search, and a trial of 60 steps.
VERSION_1 = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, kind TEXT NOT NULL,
    body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
    UNIQUE (dataset, seq)
);
INSERT INTO entries VALUES (1, 'digits', 1, '2026-11-21T19:09:29.129733+00:00', 'cap',
    '{"delta":0.0001,"epsilon":8.0}',
    '0000000000000000000000000000000000000000000000000000000000000000',
    '2a9067c052bac972d6374a7dff9bddae0efd433e6a339536934dcdfbe5bb35f9');
INSERT INTO entries VALUES (2, 'digits', 2, '2026-11-21T19:09:29.988412+00:00', 'open_search',
    '{"accounting":"composition","adjacency":"add_or_remove_one","delta":1e-05,"details":{"plan":"abc"},'
    || '"epsilon":4.0,"fingerprint":null,"noise_multiplier":2.0,"nonce":"2551d69bfcad4fded072de3e9d13915a",'
    || '"sample_rate":0.05,"search":"first","step_cap":1000}',
    '2a9067c052bac972d6374a7dff9bddae0efd433e6a339536934dcdfbe5bb35f9',
    '9ce04b5e39a69d280c35b70667936bbae894a874d694cfaee447c6e77803f031');
INSERT INTO entries VALUES (3, 'digits', 3, '2026-11-21T19:09:29.991687+00:00', 'reserve',
    '{"search":"first","steps":100,"trial":"a"}',
    '9ce04b5e39a69d280c35b70667936bbae894a874d694cfaee447c6e77803f031',
    '19d85c8209f6687c4c6d495a9a036879bab7d5a2f9d920bd58efe4a1840869ea');
INSERT INTO entries VALUES (4, 'digits', 4, '2026-11-21T19:09:29.994155+00:00', 'lease',
    '{"search":"first","steps":60,"trial":"a"}',
    '19d85c8209f6687c4c6d495a9a036879bab7d5a2f9d920bd58efe4a1840869ea',
    'ed64958016479dd8e893806409e9a6d348617da90e9f4dd56b19e01c0572e20b');
INSERT INTO entries VALUES (5, 'digits', 5, '2026-11-21T19:09:29.996406+00:00', 'settle',
    '{"search":"first","steps_taken":60,"trial":"a"}',
    'ed64958016479dd8e893806409e9a6d348617da90e9f4dd56b19e01c0572e20b',
    '2babc6200d59521903b4a47c4fe656870175c043e2c20bf4540445d692405768');
CREATE TABLE heads (dataset TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL);
INSERT INTO heads VALUES ('digits', 5, '2babc6200d59521903b4a47c4fe656870175c043e2c20bf4540445d692405768');
CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
PRAGMA application_id = 1146115138;
PRAGMA user_version = 1;
"""


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
    """A version-1 file at `path`."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(VERSION_1)
    connection.close()
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return lay(tmp_path / "ledger.db")


def test_version_1_is_migrated_and_its_chain_stays_as_it_is(old: Path) -> None:
    before = raw(old, "SELECT * FROM entries ORDER BY id"), raw(old, "SELECT * FROM heads")
    ledger = Ledger.open(f"sqlite:///{old}", create=False)
    assert (raw(old, "SELECT * FROM entries ORDER BY id"), raw(old, "SELECT * FROM heads")) == before
    assert raw(old, "PRAGMA user_version") == [(2,)]
    assert raw(old, "SELECT one, schema, ledger FROM meta") == [(1, 2, ledger.id)]
    state = ledger.search_state("first")
    assert (state.leased_steps, state.reserved_steps, state.left_steps) == (60, 0, 940)
    assert ledger.head("digits") == (5, "2babc6200d59521903b4a47c4fe656870175c043e2c20bf4540445d692405768")
    ledger.reserve("first", "b", 1)
    ledger.verify_chain()
    assert Ledger.open(f"sqlite:///{old}").id == ledger.id


def test_who_holds_it_open_meanwhile_goes_on(old: Path) -> None:
    holder = sqlite3.connect(old, isolation_level=None)
    holder.execute("BEGIN")
    assert holder.execute("SELECT count(*) FROM entries").fetchone() == (5,)
    Ledger.open(f"sqlite:///{old}").reserve("first", "b", 1)
    assert holder.execute("SELECT count(*) FROM entries").fetchone() == (5,)
    holder.execute("COMMIT")
    assert holder.execute("SELECT count(*) FROM entries").fetchone() == (6,)
    holder.close()


def test_a_migration_is_made_once_by_many(old: Path) -> None:
    code = (
        "import sys; from tuner.privacy.store import open_store\nprint(open_store(sys.argv[1], create=False).ledger_id)"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{old}"]
    openers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {opener.communicate(timeout=60)[0].strip() for opener in openers}
    assert said == {row[0] for row in raw(old, "SELECT ledger FROM meta")}


@pytest.mark.parametrize(
    "at", ["CREATE TABLE meta", "CREATE TRIGGER meta", "INSERT INTO meta", "PRAGMA user_version = ", "COMMIT"]
)
def test_kill_minus_nine_in_the_middle_leaves_version_1(old: Path, at: str) -> None:
    code = (
        "import os, signal, sys\n"
        "from sqlalchemy import Engine, event\n"
        "from tuner.privacy.store import open_store\n"
        "written = []\n"
        "@event.listens_for(Engine, 'before_cursor_execute')\n"
        "def _kill(connection, cursor, statement, *rest):\n"
        "    written.append(statement)\n"
        "    if statement.startswith(sys.argv[2]) and any(each.startswith('BEGIN IMM') for each in written):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "open_store(sys.argv[1], create=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, f"sqlite:///{old}", at], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert raw(old, "PRAGMA user_version") == [(1,)]
    assert raw(old, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'meta%'") == [(0,)]
    Ledger.open(f"sqlite:///{old}").verify_chain()
    assert raw(old, "PRAGMA user_version") == [(2,)]


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A version-1 file that nobody may write, outside pytest's own folder, which other users may not enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        inner = Path(folder) / "sub"
        inner.mkdir()
        path = lay(inner / "ledger.db")
        path.chmod(0o444)
        inner.chmod(0o555)
        yield path
        inner.chmod(0o755)


def test_who_may_only_read_reads_version_1_and_leaves_it(shelf: Path) -> None:
    code = (
        "import os, sys\n"
        "from tuner.errors import LedgerError\n"
        "from tuner.privacy.ledger import Ledger\n"
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
    assert seen == "60 None"
    assert "may only read" in refused
    assert shelf.read_bytes() == before


@pytest.mark.parametrize(("found", "error"), [(0, LedgerCorruptError), (3, LedgerError), (-1, LedgerCorruptError)])
def test_a_format_that_is_not_ours_is_refused_and_left_alone(old: Path, found: int, error: type[LedgerError]) -> None:
    raw(old, f"PRAGMA user_version = {found}")
    with pytest.raises(error, match=rf"format must be .* got {found}"):
        Ledger.open(f"sqlite:///{old}")
    assert raw(old, "PRAGMA user_version") == [(found,)]


def test_a_broken_chain_of_version_1_is_still_broken_after(old: Path) -> None:
    raw(old, "DROP TRIGGER entries_are_final", "UPDATE entries SET body = replace(body, '60', '10') WHERE id = 4")
    with pytest.raises(LedgerCorruptError, match="entry 4"):
        Ledger.open(f"sqlite:///{old}")


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
        with pytest.raises(InputError, match="ledger must be"):
            use(bad)
