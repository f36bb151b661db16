"""What every store of the ledger must do, SQLite and PostgreSQL alike: one suite, run over both."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import child, entry_of, left_steps, said_by
from store_backdoors import Backdoor

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import GENESIS, Entry
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.stores import absolute_url, open_store, store_exists
from tuner.privacy.ledger.stores.file_url import file_of
from tuner.privacy.ledger.stores.store import Store


def line(store: Store, seq: int, previous: str = GENESIS, dataset: str = "d", body: str = "{}") -> Entry:
    return entry_of(seq, "cap", body, previous, dataset=dataset, time="né∂💡\x7f", writer=store.user())


def write(store: Store, entry: Entry) -> int:
    with store.writing() as connection:
        return store.append(connection, entry)


def read(store: Store) -> list[Entry]:
    with store.reading() as connection:
        return [entry for _, entry in store.after(connection, 0)]


# Making and finding.


def test_looking_makes_nothing_and_what_is_made_has_an_id_that_stays(door: Backdoor) -> None:
    assert not store_exists(door.url)
    with raises_code(LedgerError, "ledger-not-found"):
        open_store(door.url, create=False)
    assert not store_exists(door.url)
    made = open_store(door.url, create=True)
    assert store_exists(door.url)
    assert read(made) == []
    assert absolute_url(made.url) == made.url
    for create in (True, False):
        assert open_store(made.url, create=create).ledger_id == made.ledger_id
    assert door.sql("SELECT one, schema, ledger FROM meta") == [(1, 2, made.ledger_id)]
    assert Ledger.open(door.url).id == made.ledger_id


def test_creation_is_won_by_one(door: Backdoor) -> None:
    made = [child("print(open_store(url, create=True).ledger_id)", door.url) for _ in range(3)]
    said = {line for maker in made for line in said_by(maker)}
    assert said == {open_store(door.url, create=False).ledger_id}


@pytest.mark.parametrize("found", [0, 1, 3, 99])
def test_another_format_is_refused_and_left_alone(door: Backdoor, store: Store, found: int) -> None:
    write(store, line(store, 1))
    door.unguard()
    door.sql(f"UPDATE meta SET schema = {found}")
    for use in (lambda: open_store(door.url, create=True), lambda: read(store)):
        with raises_code(LedgerError, "ledger-format"):
            use()
    assert door.sql("SELECT schema FROM meta") == [(found,)]


# Addresses.


@pytest.mark.parametrize("path", ["a.db", "/x/a.db", "../a@b:c.db", "~/a.db", "a%20b#c.db", "ä/a+b.db", ":memory:x"])
def test_a_plain_address_names_the_file_that_is_opened(path: str) -> None:
    url = f"sqlite:///{path}"
    assert f"sqlite:///{file_of(url)}" == absolute_url(url)
    assert file_of(f"{url}?mode=ro") is None
    assert file_of(url.replace("sqlite:///", "sqlite+pysqlite:///")) is None


NO_LEDGERS = [
    "mysql://me:secret@host/db", "postgres://me:secret@host/db", "redis://h/0", "no url", "",
    "sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "sqlite://host/a.db",
    "postgresql://me@host/", "postgresql://me@host", "postgresql+psycopg2://me:secret@host/db",
    "postgresql://me@one,two/db", "postgresql://me@/db?host=one&host=two", "postgresql://me@/db?host=one,two",
    "me@host/db?password=secret", "postgresql://me@host/db?sslpassword=secret", "postgresql://me:secret@host:port/db",
    "postgresql://me@host/db?options=-csynchronous_commit%3Doff",
]  # fmt: skip
PASSWORDS = ["postgresql://me:secret@host/db", "postgresql://me@host/db?password=secret"]


@pytest.mark.parametrize("bad", [*NO_LEDGERS, *PASSWORDS])
def test_what_is_no_address_is_refused_before_anything_is_asked(bad: str) -> None:
    for use in (store_exists, absolute_url, lambda url: open_store(url, create=True)):
        with raises_code(InputError, "ledger-url-password" if bad in PASSWORDS else "ledger-url") as refused:
            use(bad)
        assert "secret" not in str(refused.value)


def test_an_address_is_made_absolute_and_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_url("sqlite:///runs/ledger.db") == f"sqlite:///{tmp_path}/runs/ledger.db"
    assert list(tmp_path.iterdir()) == []
    for good in ("postgresql://me@host/db", "postgresql:///db", "postgresql://me@host:5433/db?sslmode=require"):
        assert absolute_url(good) == good


# Reading and writing.


def test_entries_come_back_as_they_were_written(store: Store) -> None:
    first = line(store, 1, body='{"x":"' + "\\u00e9'\\\\" * 20_000 + '"}')
    second, other = line(store, 2, first.hash), line(store, 1, dataset='d’été; "\\--')
    rows = [write(store, entry) for entry in (first, second, other)]
    assert rows == sorted(set(rows))
    with store.reading() as connection:
        assert store.after(connection, 0) == list(zip(rows, (first, second, other), strict=True))
        assert store.after(connection, rows[0]) == [(rows[1], second), (rows[2], other)]
        assert store.after(connection, rows[2]) == []
        assert store.heads(connection) == {"d": (2, second.hash), other.dataset: (1, other.hash)}


def test_a_block_that_fails_writes_nothing(store: Store) -> None:
    first = line(store, 1)
    write(store, first)

    def fail() -> None:
        with store.writing() as connection:
            store.append(connection, line(store, 2, first.hash))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(LedgerError):
        write(store, line(store, 1, body='{"again":1}'))  # a number is given once
    assert read(store) == [first]
    write(store, line(store, 2, first.hash))


def test_a_head_that_is_missing_is_no_new_chain(door: Backdoor, store: Store) -> None:
    first = line(store, 1)
    write(store, first)
    door.unguard()
    door.sql("DELETE FROM heads")
    with raises_code(LedgerCorruptError, "ledger-damaged"):
        write(store, line(store, 2, first.hash))
    assert read(store) == [first]


def test_a_reader_sees_one_moment(door: Backdoor, store: Store) -> None:
    first = line(store, 1)
    write(store, first)
    other = open_store(door.url, create=False)
    with store.reading() as connection:
        assert len(store.after(connection, 0)) == 1
        write(other, line(store, 2, first.hash))  # a reader holds no writer up
        assert store.heads(connection) == {"d": (1, first.hash)}
        assert len(store.after(connection, 0)) == 1
    assert len(read(store)) == 2


def test_a_writer_waits_for_the_one_before_and_sees_what_it_wrote(door: Backdoor, store: Store) -> None:
    order: list[str] = []
    holds = threading.Event()
    first = line(store, 1)

    def hold() -> None:
        with store.writing() as connection:
            holds.set()
            threading.Event().wait(0.3)  # long enough for who does not wait to be caught below
            store.append(connection, first)
            order.append("first")

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(60)
    other = open_store(door.url, create=False)
    with other.writing() as connection:
        order.append("second")
        assert [entry for _, entry in other.after(connection, 0)] == [first]
        other.append(connection, line(store, 2, first.hash))
    holder.join()
    assert order == ["first", "second"]


def test_a_killed_writer_leaves_nothing_and_holds_up_nobody(door: Backdoor, store: Store) -> None:
    code = """
store = open_store(url, create=False)
with store.writing() as connection:
    said = dict(dataset='d', seq=1, time='', kind='cap', writer=store.user(), body='{}', previous=GENESIS)
    entry = Entry(**said, hash=entry_hash(**said))
    store.append(connection, entry)
    print('written', flush=True)
    time.sleep(60)
"""
    victim = child(code, door.url)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "written\n"
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    write(store, line(store, 1))
    assert read(store) == [line(store, 1)]


# What two processes, and two sweeps, do to one data set.


def test_threads_and_processes_racing_for_one_budget_never_pass_it(door: Backdoor, used: Ledger) -> None:
    code = """
ledger, won = Ledger.open(url, create=False), 0
for i in range(40):
    try:
        ledger.reserve('first', word + str(i), 30)
        ledger.lease('first', word + str(i), 30, step)
        won += 30
    except BudgetRefusedError:
        pass
print(won)
"""
    racers = [child(code, door.url, name) for name in "pq"]
    errors: list[BaseException] = []

    def reserve(name: str) -> None:
        try:
            for number in range(5):
                used.reserve("first", f"{name}{number}", 1)
        except BudgetRefusedError:
            pass
        except LedgerError as error:
            errors.append(error)

    threads = [threading.Thread(target=reserve, args=(name,)) for name in ("here", "there")]
    for thread in threads:
        thread.start()
    won = sum(int(said_by(racer)[0]) for racer in racers)
    for thread in threads:
        thread.join()
    assert errors == []
    state = used.search_state("first")
    assert state.leased_steps == 60 + won
    assert state.leased_steps + state.reserved_steps <= 1000
    assert left_steps(state) < 30  # both were stopped by the cap and by nothing else
    used.verify_chain()


@pytest.mark.parametrize(
    ("door", "by"),
    [("sqlite", "cap"), pytest.param("postgresql", "share", marks=pytest.mark.slow), ("sqlite", "order")],
    indirect=["door"],
)
def test_of_two_sweeps_that_want_the_last_room_exactly_one_gets_it(door: Backdoor, by: str) -> None:
    ledger = Ledger.open(door.url)
    # The order has room for one by its divergence, and for none by the sum.
    ledger.set_cap(
        "digits", {"cap": 7.9, "share": 100.0, "order": 1.03}[by], 1e-4, order=8.0 if by == "order" else None
    )
    if by == "share":
        ledger.grant("digits", ledger.user(), 7.9, 1e-4)
    code = """
ledger, steps = Ledger.open(url, create=False), TotalSteps(step, 10)
steps.claim(1e-5)
print('ready', flush=True)
sys.stdin.readline()
try:
    ledger.open_search('digits', word, filter=steps, epsilon=4.0, delta=1e-5)
    print('opened')
except BudgetRefusedError:
    print('refused')
"""
    sweeps = [child(code, door.url, name) for name in "pq"]
    for sweep in sweeps:
        assert sweep.stdout is not None
        assert sweep.stdout.readline() == "ready\n"
    assert sorted(line for sweep in sweeps for line in said_by(sweep, word="go\n")) == ["opened", "refused"]
    assert len(ledger.dataset_state("digits").searches) == 1
    ledger.verify_chain()


def test_kill_minus_nine_of_a_client_leaves_every_lease_that_was_answered(door: Backdoor, used: Ledger) -> None:
    code = """
ledger = Ledger.open(url, create=False)
ledger.reserve('first', 'victim', 900)
while True:
    ledger.lease('first', 'victim', 1, step)
    print(1, flush=True)
"""
    victim = child(code, door.url)
    assert victim.stdout is not None
    answered = sum(int(victim.stdout.readline()) for _ in range(20))
    victim.send_signal(signal.SIGKILL)
    answered += sum(map(int, said_by(victim)))
    leased = used.search_state("first").trials["victim"].leased
    assert answered <= leased <= answered + 1
    used.verify_chain()
    used.settle("first", "victim", answered)
    assert left_steps(used.search_state("first")) == 1000 - 60 - leased
