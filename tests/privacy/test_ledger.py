"""The ledger: what it admits, what it refuses, and what it says when its file is hurt."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy import accounting, store
from tuner.privacy.budget import LedgerCharge, SearchBudget
from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Cap, Ledger

MECHANISM = SampledGaussian(0.05, 2.0)


def file_of(ledger: Ledger) -> Path:
    return Path(ledger.url.removeprefix("sqlite:///"))


def open_search(ledger: Ledger, name: str, epsilon: float = 4.0, *, dataset: str = "digits", **more: object) -> None:
    arguments = {"mechanism": MECHANISM, "epsilon": epsilon, "delta": 1e-5, "step_cap": 10, **more}
    ledger.open_search(dataset, name, **arguments)  # type: ignore[arg-type]


def test_reserve_lease_settle_moves_steps(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 300)
    ledger.lease(search, "a", 200)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, state.left_steps) == (200, 100, 700)
    ledger.settle(search, "a", 150)
    state = ledger.search_state(search)
    assert (state.leased_steps, state.reserved_steps, state.left_steps) == (200, 0, 800)
    assert state.trials["a"].taken == 150


def test_refusals_of_steps_charge_nothing(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 900)
    before = ledger.head("digits")
    with pytest.raises(BudgetRefusedError, match="100 left, 101 asked"):
        ledger.reserve(search, "b", 101)
    with pytest.raises(BudgetRefusedError, match="901 steps asked"):
        ledger.lease(search, "a", 901)
    with pytest.raises(BudgetRefusedError):
        ledger.lease(search, "never reserved", 1)
    with pytest.raises(LedgerError, match="leased before they are taken"):
        ledger.settle(search, "a", 1)
    with pytest.raises(LedgerError, match="unknown"):
        ledger.settle(search, "zzz", 0)
    assert ledger.head("digits") == before
    ledger.reserve(search, "b", 100)


@pytest.mark.parametrize("steps", [0, -1, 1.0, nan, inf, True, "1", None])
def test_steps_must_be_whole_and_positive(ledger: Ledger, search: str, steps: object) -> None:
    for call in (ledger.reserve, ledger.lease):
        with pytest.raises(InputError, match="steps must be a whole number"):
            call(search, "a", steps)  # type: ignore[arg-type]


def test_a_settled_trial_is_over_but_settling_again_is_harmless(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    ledger.lease(search, "a", 10)
    ledger.settle(search, "a", 10)
    before = ledger.head("digits")
    ledger.settle(search, "a", 10)
    assert ledger.head("digits") == before
    for call in (
        lambda: ledger.lease(search, "a", 1),
        lambda: ledger.reserve(search, "a", 1),
        lambda: ledger.settle(search, "a", 9),
    ):
        with pytest.raises(LedgerError, match="settled"):
            call()


def test_a_resumed_trial_pays_again(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    ledger.lease(search, "a", 10)
    ledger.reserve(search, "a", 5)
    ledger.lease(search, "a", 5)
    assert ledger.search_state(search).trials["a"].leased == 15


def test_a_closed_search_is_closed_until_reopened(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    ledger.lease(search, "a", 4)
    ledger.close_search(search)
    for call in (lambda: ledger.lease(search, "a", 1), lambda: ledger.reserve(search, "b", 1)):
        with pytest.raises(LedgerError, match="closed"):
            call()
    ledger.reopen_search(search)
    ledger.lease(search, "a", 6)
    assert ledger.search_state(search).leased_steps == 10


def test_a_search_must_fit_its_own_cap(ledger: Ledger) -> None:
    fits = accounting.max_steps(MECHANISM, epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetRefusedError, match="step_cap must fit"):
        open_search(ledger, "greedy", 1.0, step_cap=fits + 1)
    open_search(ledger, "exact", 1.0, step_cap=fits)


@pytest.mark.parametrize("value", [nan, inf, -1.0, 0.0])
def test_caps_must_be_finite_and_positive(ledger: Ledger, value: float) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        ledger.set_cap("digits", value, 1e-5)
    with pytest.raises(InputError, match="delta must be"):
        ledger.set_cap("digits", 1.0, value)
    with pytest.raises(InputError, match="epsilon must be"):
        open_search(ledger, "bad", value)
    assert ledger.datasets() == ()


def test_details_must_be_finite_json(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="finite"):
        open_search(ledger, "bad", details={"x": nan})
    assert ledger.datasets() == ()


def test_the_data_sets_cap_holds_over_all_searches(ledger: Ledger) -> None:
    ledger.set_cap("digits", 0.3, 1e-4)
    for name in ("one", "two", "three"):  # 0.1 + 0.1 + 0.1 is 0.3 for people, whatever doubles say
        open_search(ledger, name, 0.1, step_cap=1, mechanism=SampledGaussian(0.01, 10.0))
    with pytest.raises(BudgetRefusedError, match="would make it"):
        open_search(ledger, "four", 1e-3, step_cap=1, mechanism=SampledGaussian(0.001, 50.0))
    assert ledger.dataset_state("digits").committed_epsilon == 0.3


def test_the_data_sets_delta_is_capped_too(ledger: Ledger) -> None:
    ledger.set_cap("digits", 100.0, 1.5e-5)
    open_search(ledger, "one")
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "two")


def test_a_search_that_never_leased_gives_its_cap_back_when_closed(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)
    open_search(ledger, "idle")
    ledger.reserve("idle", "a", 5)
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "next")
    ledger.close_search("idle")
    open_search(ledger, "next")
    with pytest.raises(BudgetRefusedError):  # and it cannot sneak back
        ledger.reopen_search("idle")


def test_a_search_that_leased_once_counts_for_ever(ledger: Ledger) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)
    open_search(ledger, "used")
    ledger.reserve("used", "a", 1)
    ledger.lease("used", "a", 1)
    ledger.settle("used", "a", 0)
    ledger.close_search("used")
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "next")


def test_a_cap_lowered_below_the_committed_starts_nothing_more(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "running", 10)
    ledger.set_cap("digits", 1.0, 1e-5)
    with pytest.raises(BudgetRefusedError, match=r"cap of epsilon 1\.0"):
        ledger.reserve(search, "new", 1)
    ledger.lease(search, "running", 10)
    assert ledger.cap("digits") == Cap(1.0, 1e-5)
    assert ledger.cap("unheard of") is None


def test_names_are_unique_and_records_have_one_budget(ledger: Ledger) -> None:
    open_search(ledger, "one", fingerprint="sha256:1")
    with pytest.raises(LedgerError, match="name of its own"):
        open_search(ledger, "one", dataset="other")
    with pytest.raises(BudgetRefusedError, match="known as 'digits'"):
        open_search(ledger, "two", dataset="alias", fingerprint="sha256:1")
    open_search(ledger, "three", fingerprint="sha256:1")


def test_odometer_is_the_composition_of_what_was_leased(ledger: Ledger, search: str) -> None:
    assert ledger.dataset_state("digits").epsilon_spent == 0.0
    ledger.reserve(search, "a", 120)
    ledger.lease(search, "a", 120)
    assert ledger.dataset_state("digits").epsilon_spent == accounting.epsilon(MECHANISM, 120, 1e-5)


def test_floats_survive_the_ledger_bit_for_bit(ledger: Ledger, url: str) -> None:
    mechanism = SampledGaussian(1 / 3, 2.0 + 2**-51)
    ledger.open_search("d", "s", mechanism=mechanism, epsilon=12.1 + 2**-49, delta=1e-5 / 3, step_cap=3)
    state = Ledger.open(url).search_state("s")
    assert (state.mechanism, state.epsilon, state.delta) == (mechanism, 12.1 + 2**-49, 1e-5 / 3)


def test_budget_view_and_charge(ledger: Ledger, search: str) -> None:
    budget = SearchBudget(ledger, search)
    assert budget.fits(1000)
    assert not budget.fits(1001)
    budget.reserve("a", 50)
    charge = pickle.loads(pickle.dumps(budget.charge_for("a")))
    charge.lease(30)
    assert charge.leased() == 30
    view = budget.view()
    assert (view.spent_steps, view.reserved_steps, view.left_steps, view.step_cap) == (30, 20, 950, 1000)
    assert view.epsilon_spent == accounting.epsilon(MECHANISM, 30, 1e-5) == budget.trial_epsilon(30)
    assert view.epsilon_cap == 4.0
    budget.settle("a", 30)
    with pytest.raises(LedgerError):
        charge.lease(1)


def test_a_worker_never_starts_a_ledger_afresh(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="never started afresh"):
        LedgerCharge(f"sqlite:///{tmp_path}/gone.db", "s", "t").lease(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", ["postgresql://host/db", "sqlite://", "sqlite:///:memory:", "not a url"])
def test_only_a_file_can_be_a_ledger(bad: str) -> None:
    with pytest.raises(InputError, match="ledger must be"):
        Ledger.open(bad)


# What a process may do to another.


def test_threads_and_processes_racing_never_pass_the_cap(ledger: Ledger, search: str) -> None:
    script = (
        "import sys\n"
        "from tuner.errors import BudgetRefusedError\n"
        "from tuner.privacy.ledger import Ledger\n"
        "ledger, who, won = Ledger.open(sys.argv[1], create=False), sys.argv[2], 0\n"
        "for i in range(40):\n"
        "    try:\n"
        "        ledger.reserve('first', f'{who}{i}', 30)\n"
        "        ledger.lease('first', f'{who}{i}', 30)\n"
        "        won += 30\n"
        "    except BudgetRefusedError:\n"
        "        pass\n"
        "print(won)\n"
    )
    command = [sys.executable, "-c", script, ledger.url]
    racers = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in "pq"]
    errors: list[BaseException] = []

    def here() -> None:
        try:
            for i in range(5):
                ledger.reserve(search, f"{threading.get_ident()}-{i}", 1)
        except BudgetRefusedError:
            pass
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=here) for _ in range(2)]
    for thread in threads:
        thread.start()
    won = sum(int(racer.communicate(timeout=60)[0]) for racer in racers)
    for thread in threads:
        thread.join()
    assert not errors
    state = ledger.search_state(search)
    assert state.leased_steps == won
    assert state.leased_steps + state.reserved_steps <= state.step_cap
    assert state.left_steps < 30  # both were stopped by the cap and by nothing else
    ledger.verify_chain()


def test_kill_minus_nine_leaves_every_lease_that_was_answered(ledger: Ledger, search: str) -> None:
    script = (
        "import sys\n"
        "from tuner.privacy.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1], create=False)\n"
        "ledger.reserve('first', 'victim', 1000)\n"
        "while True:\n"
        "    ledger.lease('first', 'victim', 1)\n"
        "    print(1, flush=True)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", script, ledger.url], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    answered = sum(int(victim.stdout.readline()) for _ in range(25))
    victim.send_signal(signal.SIGKILL)
    answered += sum(int(line) for line in victim.communicate(timeout=60)[0].split())
    leased = ledger.search_state(search).trials["victim"].leased
    assert answered <= leased <= answered + 1
    ledger.verify_chain()
    ledger.settle(search, "victim", answered)
    assert ledger.search_state(search).left_steps == 1000 - leased


def test_creation_is_won_by_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deep/er/ledger.db"
    script = (
        "import sys; from tuner.privacy.ledger import Ledger; Ledger.open(sys.argv[1]).set_cap(sys.argv[2], 1.0, 1e-5)"
    )
    makers = [subprocess.Popen([sys.executable, "-c", script, url, f"d{i}"]) for i in range(3)]
    assert [maker.wait(timeout=60) for maker in makers] == [0, 0, 0]
    assert Ledger.open(url).datasets() == ("d0", "d1", "d2")
    assert not [name for name in os.listdir(tmp_path / "deep/er") if "draft" in name or name.startswith(".ledger")]


# What can happen to a file.


@pytest.fixture
def used(ledger: Ledger, search: str) -> Ledger:
    ledger.reserve(search, "a", 100)
    ledger.lease(search, "a", 60)
    ledger.settle(search, "a", 60)
    return ledger


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
        "DELETE FROM entries",
        "UPDATE heads SET seq = 3",
        "DELETE FROM heads",
        "DROP TABLE heads",
    ],
)
def test_any_change_is_noticed_on_opening_and_by_verify(used: Ledger, change: str) -> None:
    raw = sqlite3.connect(file_of(used))
    raw.executescript("DROP TRIGGER entries_are_final; DROP TRIGGER entries_stay;")
    raw.execute(change)
    raw.commit()
    raw.close()
    with pytest.raises(LedgerCorruptError):
        Ledger.open(used.url)
    with pytest.raises(LedgerCorruptError):
        used.verify_chain()


def test_losing_the_tail_with_its_head_is_noticed_by_who_saw_it(used: Ledger) -> None:
    raw = sqlite3.connect(file_of(used))
    raw.executescript("DROP TRIGGER entries_stay; DELETE FROM entries WHERE seq = 4;")
    raw.execute("UPDATE heads SET seq = 3, hash = (SELECT hash FROM entries WHERE seq = 3)")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerCorruptError):
        used.search_state("first")
    with pytest.raises(LedgerCorruptError):
        used.verify_chain()


def test_sql_cannot_rewrite_history_by_accident(used: Ledger) -> None:
    raw = sqlite3.connect(file_of(used))
    for change in ("UPDATE entries SET seq = 1", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(change)
    raw.close()


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


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE runs (a)")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerCorruptError, match="another database"):
        Ledger.open(f"sqlite:///{path}")
    (tmp_path / "text.db").write_text("hello, I am no database at all, but long enough to look like a file" * 20)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(f"sqlite:///{tmp_path}/text.db")


def test_a_ledger_that_was_replaced_stops_who_used_it(used: Ledger, tmp_path: Path) -> None:
    file_of(used).rename(tmp_path / "moved.db")
    with pytest.raises(LedgerError, match="never started afresh"):
        used.search_state("first")
    Ledger.open(used.url)
    with pytest.raises(LedgerError, match="was replaced"):
        used.reserve("first", "b", 1)


def _in_child(prepare: str, url: str) -> str:
    script = (
        f"import os, resource, signal, sys\n"
        "from tuner.privacy.ledger import Ledger\n"
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
    "from tuner.privacy.ledger import Ledger\n"
    "os.getuid() == 0 and os.setuid(65534)\n"
    "try:\n"
    "    ledger = Ledger.open(sys.argv[1], create=False)\n"
    "    ledger.verify_chain()\n"
    "    print(ledger.search_state('first').leased_steps, ledger.cap('digits'))\n"
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
        made.lease("first", "a", 5)
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
    assert seen == "5 Cap(epsilon=8.0, delta=0.0001)"
    assert refused.startswith("LedgerError")
    assert "may only read" in refused
    assert "Nothing is charged" in refused
    assert file_of(shelf).read_bytes() == before


def test_who_may_only_read_sees_what_is_still_in_the_wal(shelf: Ledger) -> None:
    holder = sqlite3.connect(file_of(shelf))  # while it is open SQLite leaves the newest entries beside the file
    holder.execute("SELECT count(*) FROM entries").fetchone()
    shelf.reserve("first", "b", 2)
    shelf.lease("first", "b", 2)
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
    monkeypatch.setattr(store, "_may_write", lambda _path: False)
    assert used.search_state("first").leased_steps == 60
    with pytest.raises(LedgerError, match="just written"), used._store.reading():
        os.utime(file_of(used), ns=(1, 1))


def test_the_history_of_caps_stays(ledger: Ledger) -> None:
    assert ledger.cap_history("digits") == ()
    for epsilon in (8.0, 2.0, 4.0):
        ledger.set_cap("digits", epsilon, 1e-5)
        ledger.set_cap("other", 1.0, 1e-6)
    open_search(ledger, "one")
    assert ledger.cap_history("digits") == (Cap(8.0, 1e-5), Cap(2.0, 1e-5), Cap(4.0, 1e-5))
    assert ledger.cap_history("digits")[-1] == ledger.cap("digits")


# Any interleaving.


class AnyInterleaving(RuleBasedStateMachine):
    """Reserve, lease, settle, close, crash in any order against a model that only counts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{self.folder.name}/ledger.db"
        self.ledger = Ledger.open(self.url)
        open_search(self.ledger, "s", 4.0, step_cap=50)
        self.leased: dict[str, int] = {}
        self.dead: set[str] = set()

    trials = st.sampled_from("abcd")
    amounts = st.integers(1, 30)

    @rule(trial=trials, steps=amounts)
    def reserve(self, trial: str, steps: int) -> None:
        try:
            self.ledger.reserve("s", trial, steps)
        except BudgetRefusedError:
            assert steps > self.ledger.search_state("s").left_steps
        except LedgerError:
            assert trial in self.dead or self.ledger.search_state("s").status == "closed"

    @rule(trial=trials, steps=amounts)
    def lease(self, trial: str, steps: int) -> None:
        try:
            self.ledger.lease("s", trial, steps)
        except LedgerError:
            assert trial in self.dead or self.ledger.search_state("s").status == "closed"
        except BudgetRefusedError:
            pass
        else:
            self.leased[trial] = self.leased.get(trial, 0) + steps

    @rule(trial=trials, taken=st.integers(0, 30))
    def settle(self, trial: str, taken: int) -> None:
        try:
            self.ledger.settle("s", trial, taken)
        except LedgerError:
            return
        assert taken <= self.leased.get(trial, 0)
        self.dead.add(trial)

    @rule()
    def close(self) -> None:
        self.ledger.close_search("s")

    @rule()
    def reopen(self) -> None:
        self.ledger.reopen_search("s")

    @rule()
    def crash(self) -> None:
        self.ledger = Ledger.open(self.url, create=False)

    @invariant()
    def never_under_counted_and_never_over_the_cap(self) -> None:
        state = self.ledger.search_state("s")
        assert {name: trial.leased for name, trial in state.trials.items() if trial.leased} == self.leased
        assert state.leased_steps == sum(self.leased.values())
        assert state.reserved_steps == sum(trial.outstanding for trial in state.trials.values())
        assert state.leased_steps + state.reserved_steps <= 50
        assert all(trial.outstanding >= 0 for trial in state.trials.values())

    def teardown(self) -> None:
        self.ledger.verify_chain()
        self.folder.cleanup()


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, derandomize=True)
