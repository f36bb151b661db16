"""The ledger in PostgreSQL, with a real server: what it survives, and what it refuses with a clear word."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from errors_helper import raises_code
from ledgers import TRAINING_STEPS, child, said_by
from postgres_server import PostgresServer

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetCap
from tuner.privacy.ledger.stores import open_store, store_exists
from tuner.privacy.ledger.stores import postgresql as store_postgres

pytestmark = pytest.mark.timeout(400)  # a server's start after a kill is the disk's business


@pytest.fixture(scope="module")
def own_server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """Another server, for those tests that stop it."""
    server = PostgresServer(postgres.programs)
    yield server
    server.remove()


@pytest.fixture
def victim(own_server: PostgresServer) -> PostgresServer:
    """It, with its own settings and an empty database, whatever the test before did to it."""
    own_server.restore()
    return own_server


# What it survives.


@pytest.mark.slow
def test_a_server_killed_amid_leases_loses_nothing_that_was_answered(victim: PostgresServer) -> None:
    """Three kills, hard and harder; the sweep stops each time, and goes on when the server is back."""
    url = victim.emptied()
    ledger = Ledger.open(url)
    ledger.open_search("digits", "first", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
    code = """
ledger = Ledger.open(url, create=False)
ledger.reserve('first', word, 300)
try:
    for _ in range(300):
        ledger.lease('first', word, 1, step)
        print(1, flush=True)
except LedgerError as error:
    print(error.code)
"""
    answered = 0
    for number, fell in enumerate((victim.kill, lambda: victim.stop("immediate"), victim.kill)):
        sweep = child(code, url, f"t{number}")
        assert sweep.stdout is not None
        mine = sum(int(sweep.stdout.readline()) for _ in range(8))
        fell()
        *more, said = said_by(sweep)
        mine += sum(map(int, more))
        assert mine < 300
        assert said == "ledger-unavailable"
        with raises_code(LedgerError, "ledger-unavailable"):
            ledger.search_state("first")
        victim.start()
        leased = ledger.search_state("first").trials[f"t{number}"].leased
        assert mine <= leased <= mine + 1
        answered += mine
        ledger.settle("first", f"t{number}", mine)
    ledger.verify_chain()
    assert answered <= ledger.search_state("first").leased_steps <= answered + 3


def test_a_writer_that_hangs_is_ended_and_what_it_wrote_is_not_there(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = store_postgres._WRITE.replace("session_timeout = '30s'", "session_timeout = '100ms'")
    assert impatient != store_postgres._WRITE
    monkeypatch.setattr(store_postgres, "_WRITE", impatient)
    store = open_store(url, create=False)

    def hang() -> None:
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE heads SET seq = seq")
            time.sleep(1)

    with raises_code(LedgerError, "ledger-unavailable"):
        hang()
    ledger.verify_chain()
    ledger.set_cap("digits", 9.0, 1e-4)


def test_a_lock_that_never_comes_is_an_error(ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url, create=False).writing():
        impatient = store_postgres._WRITE.replace("lock_timeout = '60s'", "lock_timeout = '100ms'")
        assert impatient != store_postgres._WRITE
        monkeypatch.setattr(store_postgres, "_WRITE", impatient)
        with raises_code(LedgerError, "ledger-busy"):
            ledger.set_cap("digits", 9.0, 1e-4)
        assert ledger.cap("digits") == DatasetCap(8.0, 1e-4)


def test_settings_of_role_and_database_change_nothing(postgres: PostgresServer) -> None:
    """Neither durability, nor which tables, nor what a writer sees may depend on who set what."""
    url = postgres.database()
    ledger = Ledger.open(url)
    name = postgres.name_of(url)
    postgres.sql("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.entries (a int)", url)
    for setting in (
        "synchronous_commit = off",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "search_path = elsewhere",
        "statement_timeout = 5000",
    ):
        postgres.sql(f"ALTER DATABASE {name} SET {setting}")
    store = open_store(url, create=False)
    with store.writing() as connection:
        wanted = ("synchronous_commit", "transaction_isolation", "statement_timeout")
        asked = [connection.exec_driver_sql(f"SHOW {setting}").scalar_one() for setting in wanted]
    assert asked == ["on", "read committed", "0"]
    with store.reading() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "repeatable read"
    ledger.set_cap("digits", 9.0, 1e-4)
    assert Ledger.open(url).cap("digits") == DatasetCap(9.0, 1e-4)


def test_another_programs_tables_are_left_alone(postgres: PostgresServer) -> None:
    url = postgres.database()
    postgres.sql("CREATE TABLE public.entries (a int); CREATE TABLE public.meta (b int)", url)
    assert not store_exists(url)
    Ledger.open(url).set_cap("digits", 1.0, 1e-5)
    assert postgres.sql("SELECT count(*) FROM public.entries", url) == [(0,)]


# What it refuses.


def test_a_server_that_is_down_is_an_error_and_no_fresh_start(victim: PostgresServer) -> None:
    url = victim.emptied()
    ledger = Ledger.open(url)
    ledger.set_cap("digits", 8.0, 1e-4)
    victim.stop()
    for use in (
        lambda: store_exists(url),
        lambda: store_exists("postgresql://somebody@127.0.0.1:9/db"),
        lambda: Ledger.open(url),
        lambda: Ledger.open(url, create=False),
        lambda: ledger.cap("digits"),
        lambda: ledger.set_cap("digits", 9.0, 1e-4),
    ):
        with raises_code(LedgerError, "ledger-unavailable"):
            use()
    victim.start()
    assert ledger.cap("digits") == DatasetCap(8.0, 1e-4)
    ledger.set_cap("digits", 9.0, 1e-4)


def test_a_server_without_fsync_is_refused_for_charges_only(victim: PostgresServer) -> None:
    ledger = Ledger.open(victim.emptied())
    ledger.set_cap("digits", 8.0, 1e-4)
    victim.stop()
    victim.start("fsync=off")
    assert ledger.cap("digits") == DatasetCap(8.0, 1e-4)
    with raises_code(LedgerError, "ledger-not-durable"):
        ledger.set_cap("digits", 9.0, 1e-4)
    victim.stop()
    victim.start()
    ledger.set_cap("digits", 9.0, 1e-4)


@pytest.mark.parametrize("table", ["divisions", "entries", "heads", "meta"])
def test_unlogged_tables_are_refused(postgres: PostgresServer, ledger: Ledger, url: str, table: str) -> None:
    postgres.sql(f"ALTER TABLE {table} SET UNLOGGED", url)
    for use in (lambda: Ledger.open(url), ledger.verify_chain):
        with raises_code(LedgerError, "ledger-not-durable"):
            use()


@pytest.mark.parametrize("table", ["entries", "heads", "meta"])
def test_a_part_that_is_missing_is_never_made_anew(
    postgres: PostgresServer, ledger: Ledger, url: str, table: str
) -> None:
    postgres.sql(f"DROP TABLE {table}", url)
    for use in (
        lambda: Ledger.open(url),
        lambda: store_exists(url),
        lambda: ledger.cap("digits"),
        lambda: ledger.set_cap("digits", 9.0, 1e-4),
    ):
        with raises_code(LedgerCorruptError, "ledger-damaged"):
            use()
    assert len(postgres.sql("SELECT 1 FROM pg_tables WHERE schemaname = 'dp_tuner'", url)) == 3


def test_a_database_that_was_made_again_stops_who_used_it(postgres: PostgresServer) -> None:
    url = postgres.database()
    ledger = Ledger.open(url)
    name = postgres.name_of(url)
    postgres.sql(f"DROP DATABASE {name}")
    with raises_code(LedgerError, "ledger-unavailable"):
        ledger.cap("digits")
    postgres.sql(f"CREATE DATABASE {name}")
    with raises_code(LedgerCorruptError, "ledger-damaged"):
        ledger.set_cap("digits", 9.0, 1e-4)
    with raises_code(LedgerError, "ledger-not-found"):
        Ledger.open(url, create=False)
    again = Ledger.open(url)
    for use in (lambda: ledger.cap("digits"), lambda: ledger.set_cap("digits", 9.0, 1e-4)):
        with raises_code(LedgerError, "ledger-replaced"):
            use()
    assert again.datasets() == ()


def test_not_even_the_owner_takes_a_line_away_by_accident(postgres: PostgresServer, ledger: Ledger, url: str) -> None:
    for table in ("divisions", "entries", "heads", "meta"):
        for change in (f"TRUNCATE {table}", f"DELETE FROM {table}", f"DELETE FROM {table} WHERE false"):
            with pytest.raises(Exception, match="append-only"):
                postgres.sql(change, url)
    ledger.verify_chain()


def test_a_full_disk_is_an_error_and_the_ledger_lives_on(postgres: PostgresServer, ledger: Ledger, url: str) -> None:
    """The server's own error, raised where it would come; the disk of the test is not filled."""
    postgres.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
        url,
    )
    postgres.sql("CREATE TRIGGER full_disk BEFORE UPDATE ON heads EXECUTE FUNCTION full_disk()", url)
    with raises_code(LedgerError, "ledger-disk-full"):
        ledger.set_cap("digits", 9.0, 1e-4)
    postgres.sql("DROP TRIGGER full_disk ON heads", url)
    assert ledger.cap("digits") == DatasetCap(8.0, 1e-4)
    ledger.verify_chain()


def test_only_utf8_holds_every_name(postgres: PostgresServer) -> None:
    url = postgres.database("ENCODING 'LATIN1' TEMPLATE template0")
    with raises_code(LedgerError, "ledger-encoding"):
        Ledger.open(url)
    assert not store_exists(url)


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with raises_code(InputError, "ledger-driver-missing"):
        open_store("postgresql://me@host/db", create=False)
