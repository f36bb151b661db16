"""What every store of the ledger must do, SQLite and PostgreSQL alike: one suite, run over both."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import lease, left_steps
from store_backdoors import Backdoor, PostgresBackdoor, SqliteBackdoor

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.entries import GENESIS, Entry, entry_hash
from tuner.privacy.ledger.ledger import DatasetCap, Ledger
from tuner.privacy.ledger.stores import Store, absolute_url, open_store, store_exists

STEPS = TotalSteps(SampledGaussian(0.05, 2.0), 1000)


@pytest.fixture(params=["sqlite", "postgresql"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Backdoor:
    if request.param == "sqlite":
        return SqliteBackdoor(tmp_path)
    return PostgresBackdoor(request.getfixturevalue("postgres"))


@pytest.fixture
def store(door: Backdoor) -> Store:
    return open_store(door.url, create=True)


@pytest.fixture
def used(door: Backdoor) -> Ledger:
    ledger = Ledger.open(door.url)
    ledger.open_search("digits", "first", filter=STEPS, epsilon=4.0, delta=1e-5)
    ledger.reserve("first", "a", 100)
    lease(ledger, "first", "a", 60)
    ledger.settle("first", "a", 60)
    return ledger


def line(seq: int, previous: str = GENESIS, dataset: str = "d", body: str = "{}") -> Entry:
    said = {"dataset": dataset, "seq": seq, "time": "now", "kind": "cap", "body": body, "previous": previous}
    return Entry(**said, hash=entry_hash(**said))  # type: ignore[arg-type]


def write(store: Store, entry: Entry) -> int:
    with store.writing() as connection:
        return store.append(connection, entry)


def read(store: Store) -> list[Entry]:
    with store.reading() as connection:
        return [entry for _, entry in store.after(connection, 0)]


def child(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)


# Making and finding.


def test_looking_makes_nothing_and_a_worker_makes_nothing(door: Backdoor) -> None:
    assert not store_exists(door.url)
    with raises_code(LedgerError, "ledger-not-found"):
        open_store(door.url, create=False)
    assert not store_exists(door.url)
    made = open_store(door.url, create=True)
    assert store_exists(door.url)
    assert read(made) == []


def test_a_ledger_has_an_id_that_stays(door: Backdoor, store: Store) -> None:
    assert store.ledger_id
    assert len(store.ledger_id) == 36
    for create in (True, False):
        assert open_store(door.url, create=create).ledger_id == store.ledger_id
    assert door.sql("SELECT one, schema, ledger FROM meta") == [(1, 1, store.ledger_id)]


def test_creation_is_won_by_one(door: Backdoor) -> None:
    code = (
        "import sys; from tuner.privacy.ledger.stores import open_store\n"
        "print(open_store(sys.argv[1], create=True).ledger_id)"
    )
    made = [child(code, door.url) for _ in range(3)]
    said = {maker.communicate(timeout=60)[0] for maker in made}
    assert [maker.returncode for maker in made] == [0, 0, 0]
    assert said == {f"{open_store(door.url, create=False).ledger_id}\n"}


def test_its_url_is_what_another_process_opens(store: Store) -> None:
    assert absolute_url(store.url) == store.url
    write(store, line(1))
    code = (
        "import sys; from tuner.privacy.ledger.stores import open_store\n"
        "store = open_store(sys.argv[1], create=False)\n"
        "with store.reading() as connection: print(len(store.after(connection, 0)))"
    )
    assert child(code, store.url).communicate(timeout=60)[0] == "1\n"


@pytest.mark.parametrize("found", [0, 2, 99])
def test_another_format_is_refused_and_left_alone(door: Backdoor, store: Store, found: int) -> None:
    write(store, line(1))
    door.unguard()
    door.sql(f"UPDATE meta SET schema = {found}")
    for use in (lambda: open_store(door.url, create=True), lambda: read(store)):
        with raises_code(LedgerError, "ledger-format"):
            use()
    assert door.sql("SELECT schema FROM meta") == [(found,)]


@pytest.mark.parametrize("bad", ["mysql://me:secret@host/db", "postgres://me:secret@host/db", "redis://h/0", "no url"])
def test_only_sqlite_and_postgresql_are_ledgers(bad: str) -> None:
    for use in (store_exists, absolute_url, lambda url: open_store(url, create=True)):
        with raises_code(InputError, "ledger-url") as refused:
            use(bad)
        assert "secret" not in str(refused.value)


# Reading and writing.


def test_entries_come_back_as_they_were_written(store: Store) -> None:
    first = line(1, body='{"x":"' + "é∂💡'\\" * 20_000 + '"}')
    second, other = line(2, first.hash), line(1, dataset="d’été; --")
    rows = [write(store, entry) for entry in (first, second, other)]
    assert rows == sorted(set(rows))
    with store.reading() as connection:
        assert store.after(connection, 0) == list(zip(rows, (first, second, other), strict=True))
        assert store.after(connection, rows[0]) == [(rows[1], second), (rows[2], other)]
        assert store.after(connection, rows[2]) == []
        assert store.heads(connection) == {"d": (2, second.hash), other.dataset: (1, other.hash)}


def test_a_block_that_fails_writes_nothing(store: Store) -> None:
    first = line(1)
    write(store, first)

    def fail() -> None:
        with store.writing() as connection:
            store.append(connection, line(2, first.hash))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read(store) == [first]
    write(store, line(2, first.hash))


def test_a_head_that_is_missing_is_no_new_chain(door: Backdoor, store: Store) -> None:
    first = line(1)
    write(store, first)
    door.unguard()
    door.sql("DELETE FROM heads")
    with raises_code(LedgerCorruptError, "ledger-damaged"):
        write(store, line(2, first.hash))
    assert read(store) == [first]


def test_a_number_is_given_once(store: Store) -> None:
    write(store, line(1))
    with pytest.raises(LedgerError):
        write(store, line(1, body='{"again":1}'))
    assert read(store) == [line(1)]


def test_a_reader_sees_one_moment(door: Backdoor, store: Store) -> None:
    first = line(1)
    write(store, first)
    other = open_store(door.url, create=False)
    with store.reading() as connection:
        assert len(store.after(connection, 0)) == 1
        write(other, line(2, first.hash))  # a reader holds no writer up
        assert store.heads(connection) == {"d": (1, first.hash)}
        assert len(store.after(connection, 0)) == 1
    assert len(read(store)) == 2


def test_a_writer_waits_for_the_one_before_and_sees_what_it_wrote(door: Backdoor, store: Store) -> None:
    order: list[str] = []
    holds = threading.Event()
    first = line(1)

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
        other.append(connection, line(2, first.hash))
    holder.join()
    assert order == ["first", "second"]


def test_a_killed_writer_leaves_nothing_and_holds_up_nobody(door: Backdoor, store: Store) -> None:
    code = (
        "import sys, time\n"
        "from tuner.privacy.ledger.entries import GENESIS, Entry\n"
        "from tuner.privacy.ledger.stores import open_store\n"
        "store = open_store(sys.argv[1], create=False)\n"
        "with store.writing() as connection:\n"
        "    entry = Entry(dataset='d', seq=1, time='', kind='', body='', previous=GENESIS, hash='h')\n"
        "    store.append(connection, entry)\n"
        "    print('written', flush=True)\n"
        "    time.sleep(60)\n"
    )
    victim = child(code, door.url)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "written\n"
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    write(store, line(1))
    assert read(store) == [line(1)]


# What two processes, and two sweeps, do to one data set.


def test_two_processes_racing_for_one_budget_see_each_other(door: Backdoor, used: Ledger) -> None:
    code = (
        "import sys\n"
        "from tuner.errors import BudgetRefusedError\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
        "ledger, won = Ledger.open(sys.argv[1], create=False), 0\n"
        "for i in range(40):\n"
        "    try:\n"
        "        ledger.reserve('first', sys.argv[2] + str(i), 30)\n"
        "        ledger.lease('first', sys.argv[2] + str(i), 30, SampledGaussian(0.05, 2.0))\n"
        "        won += 30\n"
        "    except BudgetRefusedError:\n"
        "        pass\n"
        "print(won)\n"
    )
    racers = [child(code, door.url, name) for name in "pq"]
    won = sum(int(racer.communicate(timeout=100)[0]) for racer in racers)
    state = used.search_state("first")
    assert state.leased_steps == 60 + won
    assert left_steps(state) == 10  # of 1000: 31 trials of 30 beside the 60, whoever won which
    used.verify_chain()


def test_two_sweeps_that_open_at_once_do_not_both_fit_the_last_room(door: Backdoor, used: Ledger) -> None:
    used.set_cap("digits", 8.0, 1e-4)
    code = (
        "import sys\n"
        "from tuner.errors import BudgetRefusedError\n"
        "from tuner.privacy.accountant.filters import TotalSteps\n"
        "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1], create=False)\n"
        "steps = TotalSteps(SampledGaussian(0.05, 2.0), 1000)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    ledger.open_search('digits', sys.argv[2], filter=steps, epsilon=4.0, delta=1e-5)\n"
        "    print('in')\n"
        "except BudgetRefusedError:\n"
        "    print('out')\n"
    )
    command = [sys.executable, "-c", code, door.url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    sweeps = [subprocess.Popen([*command, name], **pipes) for name in "pq"]  # type: ignore[call-overload]
    for sweep in sweeps:
        assert sweep.stdout.readline() == "ready\n"
    said = sorted(sweep.communicate("go\n", timeout=60)[0] for sweep in sweeps)
    assert said == ["in\n", "out\n"]
    assert used.dataset_state("digits").committed_epsilon == 8.0


def test_kill_minus_nine_of_a_client_leaves_every_lease_that_was_answered(door: Backdoor, used: Ledger) -> None:
    code = (
        "import sys\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
        "ledger = Ledger.open(sys.argv[1], create=False)\n"
        "ledger.reserve('first', 'victim', 900)\n"
        "while True:\n"
        "    ledger.lease('first', 'victim', 1, SampledGaussian(0.05, 2.0))\n"
        "    print(1, flush=True)\n"
    )
    victim = child(code, door.url)
    assert victim.stdout is not None
    answered = sum(int(victim.stdout.readline()) for _ in range(20))
    victim.send_signal(signal.SIGKILL)
    answered += sum(int(said) for said in victim.communicate(timeout=60)[0].split())
    leased = used.search_state("first").trials["victim"].leased
    assert answered <= leased <= answered + 1
    used.verify_chain()


def test_threads_share_a_ledger(used: Ledger) -> None:
    errors: list[BaseException] = []

    def reserve(name: str) -> None:
        try:
            for number in range(5):
                used.reserve("first", f"{name}{number}", 10)
        except (BudgetRefusedError, LedgerError) as error:
            errors.append(error)

    threads = [threading.Thread(target=reserve, args=(name,)) for name in "pqr"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert used.search_state("first").reserved_steps == 150


# What somebody does to the tables.


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET seq = 9",
        "DELETE FROM entries",
        "UPDATE meta SET ledger = 'another'",
        "DELETE FROM meta",
    ],
)
def test_sql_cannot_rewrite_history_by_accident(door: Backdoor, used: Ledger, change: str) -> None:
    with pytest.raises(Exception, match=r"append-only|keeps its id"):
        door.sql(change)
    used.verify_chain()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '60', '10') WHERE kind = 'lease'",
        "UPDATE entries SET time = replace(time, '20', '19') WHERE seq = 2",
        "UPDATE entries SET seq = 9 WHERE seq = 4",
        "UPDATE entries SET kind = 'settle' WHERE kind = 'lease'",
        "UPDATE entries SET dataset = 'other' WHERE seq = 1",
        "UPDATE entries SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE seq = 2",
        "UPDATE entries SET previous = hash WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 4",
        "DELETE FROM entries WHERE seq = 2",
        "DELETE FROM entries",
        "UPDATE heads SET seq = 3",
        "DELETE FROM heads",
        "DROP TABLE heads",
        "DROP TABLE meta",
        "DELETE FROM meta",
    ],
)
def test_any_change_is_noticed_on_opening_and_by_verify(door: Backdoor, used: Ledger, change: str) -> None:
    door.unguard()
    door.sql(change)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(door.url)
    with pytest.raises(LedgerCorruptError):
        used.verify_chain()


def test_losing_the_tail_with_its_head_is_noticed_by_who_saw_it(door: Backdoor, used: Ledger) -> None:
    door.unguard()
    door.sql("DELETE FROM entries WHERE seq = 4")
    door.sql("UPDATE heads SET seq = 3, hash = (SELECT hash FROM entries WHERE seq = 3)")
    for use in (lambda: used.search_state("first"), used.verify_chain, lambda: used.reserve("first", "b", 1)):
        with pytest.raises(LedgerCorruptError):
            use()


def test_another_ledger_in_its_place_stops_who_used_it(door: Backdoor, used: Ledger) -> None:
    door.unguard()
    door.sql("UPDATE meta SET ledger = 'another'")
    uses: tuple[Callable[[], object], ...] = (
        lambda: used.search_state("first"),
        lambda: used.reserve("first", "b", 1),
        used.verify_chain,
    )
    for use in uses:
        with raises_code(LedgerError, "ledger-replaced"):
            use()
    assert Ledger.open(door.url).search_state("first").leased_steps == 60


def test_the_ledger_says_who_charges_and_which_it_is(door: Backdoor) -> None:
    ledger = Ledger.open(door.url)
    ledger.set_cap("digits", 1.0, 1e-5)
    assert ledger.cap("digits") == DatasetCap(1.0, 1e-5)
    assert ledger.id == open_store(door.url, create=False).ledger_id
    assert ledger.user() == open_store(door.url, create=False).user()
