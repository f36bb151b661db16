"""The ledger's file, hurt in every way that a file can be."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import MECHANISM, file_of, open_search

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.ledger import Ledger
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
            Ledger.open(used.url)
    path.write_bytes(whole)
    Ledger.open(used.url)


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
    script = (
        "import os, sys\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "Ledger.open(sys.argv[1]).reserve('first', 'b', 3)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = file_of(used)
    used.reserve("first", "a moment before", 1)
    done = subprocess.run([sys.executable, "-c", script, used.url], timeout=60, check=False)
    assert done.returncode == -9
    wal = path.with_name(f"{path.name}-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    assert Ledger.open(used.url).search_state("first").trials["b"].reserved == 3


def test_a_reader_in_the_middle_keeps_nobody_from_writing(used: Ledger) -> None:
    reader = sqlite3.connect(file_of(used), isolation_level=None)
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM entries").fetchone()
    used.reserve("first", "b", 2)
    used.lease("first", "b", 2, MECHANISM)
    assert reader.execute("SELECT count(*) FROM entries").fetchone() == before
    reader.execute("COMMIT")
    reader.close()
    used.settle("first", "b", 2)
    wal = file_of(used).with_name(f"{file_of(used).name}-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_a_ledger_is_used_on_both_sides_of_a_fork(used: Ledger) -> None:
    used.reserve("first", "b", 100)
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            code = 1
            try:
                for _ in range(5):
                    used.lease("first", "b", 1, MECHANISM)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    for _ in range(5):
        used.lease("first", "b", 1, MECHANISM)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    used.verify_chain()
    assert used.search_state("first").trials["b"].leased == 20


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE runs (a)")
    raw.commit()
    raw.close()
    with raises_code(LedgerCorruptError, "ledger-foreign"):
        Ledger.open(f"sqlite:///{path}")
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


def _in_child(prepare: str, url: str) -> str:
    script = (
        f"import os, resource, signal, sys\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "from tuner.errors import LedgerError\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        f"{prepare}\n"
        "try:\n"
        "    for i in range(400):\n"
        "        ledger.reserve('first', f't{i}', 1)\n"
        "except LedgerError as error:\n"
        "    print(type(error).__name__, error, i)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_an_error_and_the_ledger_lives_on(used: Ledger) -> None:
    limit = file_of(used).stat().st_size + 60_000
    prepare = (
        f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    )
    said = _in_child(prepare, used.url)
    assert said.startswith("LedgerError"), said
    assert "Nothing more is charged" in said
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    used.verify_chain()
    used.reserve("first", "afterwards", 1)


def test_a_read_only_ledger_is_an_error() -> None:
    # Not pytest's own folder: it is closed to the user whom root has to become, because root may write anything.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        used = Ledger.open(f"sqlite:///{folder}/sub/ledger.db")
        open_search(used, "first")
        file_of(used).chmod(0o444)
        (Path(folder) / "sub").chmod(0o555)
        try:
            said = _in_child("os.getuid() == 0 and os.setuid(65534)", used.url)
        finally:
            (Path(folder) / "sub").chmod(0o755)
            file_of(used).chmod(0o644)
        assert said.startswith("LedgerError"), said
        assert said.strip().endswith(" 0")
        used.reserve("first", "afterwards", 1)
        used.verify_chain()


_LOOK = (
    "import os, sys\n"
    "from tuner.errors import LedgerError\n"
    "from tuner.privacy.ledger.ledger import Ledger\n"
    "os.getuid() == 0 and os.setuid(65534)\n"
    "try:\n"
    "    ledger = Ledger.open(sys.argv[1], create=False)\n"
    "    ledger.verify_chain()\n"
    "    print(ledger.search_state('first').leased_steps, ledger.cap('digits').epsilon)\n"
    "    ledger.set_cap('digits', 9.0, 1e-5)\n"
    "except LedgerError as error:\n"
    "    print(type(error).__name__, error)\n"
)


def _look_as_someone_else(url: str) -> str:
    """What a user sees who may read the ledger and write neither it nor its folder."""
    done = subprocess.run([sys.executable, "-c", _LOOK, url], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"another user cannot run this interpreter here: {done.stderr[-300:]}")
    return done.stdout


@pytest.fixture
def shelf() -> Iterator[Ledger]:
    """A ledger with 5 steps leased, outside pytest's own folder, which other users may not enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Ledger.open(f"sqlite:///{folder}/sub/ledger.db")
        made.set_cap("digits", 8.0, 1e-4)
        open_search(made, "first")
        made.reserve("first", "a", 5)
        made.lease("first", "a", 5, MECHANISM)
        yield made
        (Path(folder) / "sub").chmod(0o755)


def _close_shelf(ledger: Ledger) -> None:
    path = file_of(ledger)
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


def test_who_may_only_read_can_look_and_is_told_why_no_more(shelf: Ledger) -> None:
    _close_shelf(shelf)
    before = file_of(shelf).read_bytes()
    seen, refused = _look_as_someone_else(shelf.url).splitlines()
    assert seen == "5 8.0"
    assert refused.startswith("LedgerError")
    assert "may only read" in refused
    assert "Nothing is charged" in refused
    assert file_of(shelf).read_bytes() == before


def test_who_may_only_read_sees_what_is_still_in_the_wal(shelf: Ledger) -> None:
    holder = sqlite3.connect(file_of(shelf))  # while it is open SQLite leaves the newest entries beside the file
    holder.execute("SELECT count(*) FROM entries").fetchone()
    shelf.reserve("first", "b", 2)
    shelf.lease("first", "b", 2, MECHANISM)
    _close_shelf(shelf)
    assert _look_as_someone_else(shelf.url).startswith("7 ")
    holder.close()


def test_entries_that_only_a_writer_can_reach_are_an_error_not_overlooked(shelf: Ledger) -> None:
    holder = sqlite3.connect(file_of(shelf))
    holder.execute("SELECT count(*) FROM entries").fetchone()
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
    assert said.startswith("LedgerError the ledger must be readable"), said
    assert "ledger.db-wal" in said


def test_a_file_that_was_written_while_it_was_read_is_an_error(used: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sqlite, "_may_write", lambda _path: False)
    assert used.search_state("first").leased_steps == 60
    with raises_code(LedgerError, "ledger-busy"), used._chain.store.reading():
        os.utime(file_of(used), ns=(1, 1))
