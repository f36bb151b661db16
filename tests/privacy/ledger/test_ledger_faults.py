"""The ledger's file, hurt in every way that a file can be."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import MECHANISM, child, file_of, open_search, said_by, took

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.stores import open_store
from tuner.privacy.ledger.stores import sqlite as store_sqlite


@pytest.fixture
def used(ledger: Ledger, search: str) -> Ledger:
    ledger.reserve(search, "a", 100)
    ledger.lease(search, "a", 60, MECHANISM)
    ledger.settle(search, "a", 60)
    return ledger


def test_every_flipped_byte_of_an_entry_is_noticed(used: Ledger) -> None:
    path = file_of(used)
    whole = path.read_bytes()
    at = whole.index(b'"noise_multiplier":2.0')
    for offset in range(at, at + 22):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with pytest.raises(LedgerCorruptError):
            Ledger.open(used.url).search_state("first")
    path.write_bytes(whole)
    Ledger.open(used.url).search_state("first")


@pytest.mark.parametrize("size", [0, 50, 4096, 9000])
def test_a_truncated_file_is_never_started_afresh(used: Ledger, size: int) -> None:
    os.truncate(file_of(used), size)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(used.url).verify_chain()
    assert file_of(used).stat().st_size == size


@pytest.mark.parametrize("size", [0, 50, 4096, 9000, -1])
def test_who_uses_a_ledger_notices_that_it_was_cut_off(used: Ledger, size: int) -> None:
    used.reserve("first", "b", 2)  # what its connection remembers of the file would do for the next entries
    whole = file_of(used).stat().st_size
    size = size % whole  # -1: the last byte alone
    os.truncate(file_of(used), size)
    with raises_code(LedgerCorruptError, "ledger-damaged"):
        used.lease("first", "b", 1, MECHANISM)
    assert file_of(used).stat().st_size == size


def test_an_entry_stands_in_the_file_itself_while_others_use_it(used: Ledger, tmp_path: Path) -> None:
    other = Ledger.open(used.url)
    used.reserve("first", "b", 2)
    used.lease("first", "b", 1, MECHANISM)
    copy = tmp_path / "copy.db"  # of this file alone, as a backup takes it
    copy.write_bytes(file_of(used).read_bytes())
    assert Ledger.open(f"sqlite:///{copy}").search_state("first").trials["b"].leased == 1
    assert other.search_state("first").trials["b"].leased == 1


def test_a_writer_that_is_killed_leaves_no_wal_to_mix_with_another_ledger(used: Ledger) -> None:
    path = file_of(used)
    used.reserve("first", "a moment before", 1)
    victim = child("Ledger.open(url).reserve('first', 'b', 3)\nos.kill(os.getpid(), 9)\n", used.url)
    assert said_by(victim) == []
    assert victim.returncode == -9
    wal = path.with_name(f"{path.name}-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    assert Ledger.open(used.url).search_state("first").trials["b"].reserved == 3


def test_a_reader_in_the_middle_keeps_nobody_from_writing(used: Ledger) -> None:
    reader, count = _hold(used), "SELECT count(*) FROM entries"
    before = reader.execute(count).fetchone()
    took(used, "first", 2, "b")
    assert reader.execute(count).fetchone() == before
    reader.close()
    used.settle("first", "b", 2)
    wal = file_of(used).with_name(f"{file_of(used).name}-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_a_ledger_is_used_on_both_sides_of_a_fork(used: Ledger) -> None:
    used.reserve("first", "b", 100)
    forked = []
    for _ in range(3):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                for _ in range(5):
                    used.lease("first", "b", 1, MECHANISM)
                code = 0
            finally:
                os._exit(code)
        forked.append(pid)
    for _ in range(5):
        used.lease("first", "b", 1, MECHANISM)
    assert [os.waitpid(pid, 0)[1] for pid in forked] == [0, 0, 0]
    used.verify_chain()
    assert used.search_state("first").trials["b"].leased == 20


def test_another_programs_database_is_left_alone(used: Ledger, tmp_path: Path) -> None:
    for path, statement in (
        (tmp_path / "mlflow.db", "CREATE TABLE runs (a)"),
        (file_of(used), "PRAGMA application_id = 0"),
    ):
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute(statement)
        raw.close()
        before = path.read_bytes()
        with raises_code(LedgerCorruptError, "ledger-foreign"):
            Ledger.open(f"sqlite:///{path}")
        assert path.read_bytes() == before
    (tmp_path / "text.db").write_text("hello, I am no database at all, but long enough to look like a file" * 20)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(f"sqlite:///{tmp_path}/text.db")


def test_a_ledger_that_was_replaced_stops_who_used_it(used: Ledger, tmp_path: Path) -> None:
    file_of(used).rename(tmp_path / "moved.db")
    with raises_code(LedgerError, "ledger-not-found"):
        used.search_state("first")
    Ledger.open(used.url)
    with raises_code(LedgerError, "ledger-replaced"):
        used.reserve("first", "b", 1)


def test_a_full_disk_is_an_error_and_the_ledger_lives_on(used: Ledger) -> None:
    code = """
ledger = Ledger.open(url)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(word), int(word)))
try:
    for i in range(400):
        ledger.reserve('first', f't{i}', 1)
except LedgerError as error:
    print(type(error).__name__, error)
"""
    (said,) = said_by(child(code, used.url, str(file_of(used).stat().st_size + 60_000)))
    assert said.startswith("LedgerError"), said
    assert "Nothing more is charged" in said
    used.verify_chain()
    used.reserve("first", "afterwards", 1)


def _look_as_someone_else(url: str) -> list[str]:
    """What a user sees who may read the ledger and write neither it nor its folder."""
    code = """
import dp_accounting.pld.privacy_loss_distribution  # while it may still read the libraries
os.getuid() == 0 and os.setuid(65534)
try:
    ledger = Ledger.open(url, create=False)
    ledger.verify_chain()
    print(ledger.search_state('first').leased_steps, ledger.cap('digits').epsilon)
    ledger.set_cap('digits', 9.0, 1e-5)
except LedgerError as error:
    print(type(error).__name__, error.code)
"""
    process = child(code, url)
    said, errors = process.communicate(timeout=60)
    if process.returncode:
        pytest.skip(f"another user cannot run this interpreter here: {errors[-300:]}")
    return said.splitlines()


@pytest.fixture
def shelf() -> Iterator[Ledger]:
    """A ledger with 5 steps leased, outside pytest's own folder, which other users may not enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Ledger.open(f"sqlite:///{folder}/sub/ledger.db")
        made.set_cap("digits", 8.0, 1e-4)
        open_search(made, "first")
        took(made, "first", 5)
        yield made
        (Path(folder) / "sub").chmod(0o755)


def _close_shelf(ledger: Ledger) -> None:
    path = file_of(ledger)
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


def _hold(ledger: Ledger) -> sqlite3.Connection:
    """Keep a reader open: SQLite leaves new entries next to the file meanwhile."""
    holder = sqlite3.connect(file_of(ledger), isolation_level=None)
    holder.execute("BEGIN")
    holder.execute("SELECT count(*) FROM entries").fetchone()
    return holder


def test_who_may_only_read_can_look_and_is_told_why_no_more(shelf: Ledger) -> None:
    _close_shelf(shelf)
    before = file_of(shelf).read_bytes()
    assert _look_as_someone_else(shelf.url) == ["5 8.0", "LedgerError ledger-read-only"]
    assert file_of(shelf).read_bytes() == before


def test_who_may_only_read_sees_what_is_still_in_the_wal(shelf: Ledger) -> None:
    holder = _hold(shelf)
    took(shelf, "first", 2, "b")
    _close_shelf(shelf)
    assert _look_as_someone_else(shelf.url)[0] == "7 8.0"
    holder.close()


def test_entries_that_only_a_writer_can_reach_are_an_error_not_overlooked(shelf: Ledger) -> None:
    holder = _hold(shelf)
    shelf.reserve("first", "b", 2)
    copy = file_of(shelf).parent.parent / "copy"
    copy.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):  # a copy without -shm, as backups are
        (copy / name).write_bytes((file_of(shelf).parent / name).read_bytes())
        (copy / name).chmod(0o444)
    holder.close()
    copy.chmod(0o555)
    said = _look_as_someone_else(f"sqlite:///{copy}/ledger.db")
    copy.chmod(0o755)
    assert said == ["LedgerError ledger-not-readable"]


def test_a_file_that_was_written_while_it_was_read_is_an_error(used: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sqlite, "_may_write", lambda _path: False)
    assert used.search_state("first").leased_steps == 60
    with raises_code(LedgerError, "ledger-busy"), used._chain.store.reading():
        os.utime(file_of(used), ns=(1, 1))


# Its address and its user.


def test_the_user_of_a_file_is_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", create=True)
    monkeypatch.setenv("USER", "somebody else")
    monkeypatch.setenv("LOGNAME", "somebody else")
    assert store.user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 3_000_000_000)
    assert store.user() == "uid 3000000000"
