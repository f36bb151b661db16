"""Who may write what into a ledger in PostgreSQL, with a real server: asked by the program, held by the server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from errors_helper import raises_code
from ledgers import TRAINING_STEPS, as_user, chained, division_of, entry_of, head_of, opening, took
from postgres_server import PostgresServer

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetCap
from tuner.privacy.ledger.stores import open_store
from tuner.privacy.ledger.stores import postgresql as store_postgres
from tuner.privacy.ledger.stores.store import Backend, Store
from tuner.report.budget import budget_values

CAP = {"epsilon": 99.0, "delta": 1e-4}

pytestmark = pytest.mark.timeout(400)


def by_hand(
    postgres: PostgresServer,
    url: str,
    kind: str,
    body: dict[str, object] | str,
    *,
    before: str = "",
    move: str = "UPDATE dp_tuner.heads SET seq = %(seq)s, hash = %(hash)s WHERE dataset = %(dataset)s",
    **changed: object,
) -> None:
    """Write an entry past the program, with hashes that hold, as the role of `url`; or `changed` after the hash."""
    import psycopg

    with open_store(url, create=False).reading() as connection:
        seq, previous = Store.heads(connection)["digits"]
    text = body if isinstance(body, str) else canonical(body)
    writer = str(changed.get("writer", postgres.role_of(url)))
    entry = {**vars(entry_of(seq + 1, kind, text, previous, writer=writer)), **changed}
    where = {"host": str(postgres.sockets), "dbname": postgres.name_of(url), "user": postgres.role_of(url)}
    with closing(psycopg.connect(**where)) as connection, connection as raw:  # a commit that fails closes nothing
        if before:
            raw.execute(before.encode())
        raw.execute(
            "INSERT INTO dp_tuner.entries (dataset, seq, time, kind, writer, body, previous, hash) VALUES "
            "(%(dataset)s, %(seq)s, %(time)s, %(kind)s, %(writer)s, %(body)s, %(previous)s, %(hash)s)",
            entry,
        )
        if move:
            raw.execute(move.encode(), entry)


def opened(user: object) -> dict[str, object]:
    """The body of an entry that opens a search for a user, or for nobody if it is None."""
    _, body = opening(search="forged", user=user)
    return {key: value for key, value in body.items() if value is not None or key != "user"}


def test_caps_and_shares_are_set_by_the_owner_alone(ledger: Ledger, trainer: str) -> None:
    other = Ledger.open(trainer, create=False)
    uses = (
        lambda: other.set_cap("digits", 99.0, 1e-4),
        lambda: other.set_first_cap("without a cap", 99.0, 1e-4),
        lambda: other.grant("digits", other.user(), 4.0, 1e-5),
        lambda: other.enter_public("open", "0" * 64),
        lambda: other.void_total("digits", use="public", why="w", sweep="s"),
    )
    for use in uses:
        with raises_code(LedgerError, "ledger-not-owner"):
            use()
    ledger.enter_public("open", "0" * 64)
    ledger.grant("digits", "somebody", 4.0, 1e-5)  # the control: the owner, whose name is nobody's share
    with raises_code(LedgerError, "ledger-not-owner"):
        other.revoke("digits", "somebody")
    assert other.cap("digits") == DatasetCap(8.0, 1e-4)


def test_a_search_is_of_the_role_that_opens_it_and_nobody_else_writes_about_it(ledger: Ledger, trainer: str) -> None:
    """A copied sweep folder with another role in its ledger's URL charges nothing to the first role's search."""
    other = Ledger.open(trainer, create=False)
    for each in (other, ledger):
        each.open_search("digits", each.user(), filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
        assert ledger.search_state(each.user()).user == each.user()
        took(each, each.user(), 5)
        each.close_search(each.user())
    for each, name in ((other, ledger.user()), (ledger, other.user())):  # the owner of the tables either
        head = head_of(ledger)
        uses: tuple[Callable[[], object], ...] = (
            lambda each=each, name=name: each.reopen_search(name),
            lambda each=each, name=name: each.settle(name, "a", 5),
            lambda each=each, name=name: each.record_card(name, "0" * 64, "release"),
        )
        for use in uses:
            with raises_code(LedgerError, "ledger-other-user"):
                use()
        assert head_of(ledger) == head
    other.reopen_search(other.user())  # the control


def test_the_server_refuses_an_entry_about_anothers_search_however_it_is_written(
    postgres: PostgresServer, ledger: Ledger, trainer: str
) -> None:
    other = Ledger.open(trainer, create=False)
    for each, name in ((ledger, "theirs"), (other, "mine")):
        each.open_search("digits", name, filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
        each.reserve(name, "a", 5)
    closing = {"search": "theirs"}
    reserving = {"search": "theirs", "trial": "a", "steps": 1, "pool": "training"}
    leasing = reserving | {"mechanism": TRAINING_STEPS.mechanism.body()}
    kinds = {
        "reserve": leasing, "lease": leasing, "settle": {"search": "theirs", "trial": "a", "steps_taken": 0},
        "close_search": closing, "reopen_search": {**closing, "units": None}, "begin": closing, "revoke": closing,
        "card": {**closing, "card_sha256": "0" * 64, "card_kind": "release"},
    }  # fmt: skip
    for kind, body in kinds.items():
        with pytest.raises(Exception, match="cannot write about a search of another user"):
            by_hand(postgres, trainer, kind, body)
        with pytest.raises(Exception, match="cannot write an entry in the name of another user"):
            by_hand(postgres, trainer, kind, body, writer=postgres.admin)
    with pytest.raises(Exception, match="cannot write about a search of another user"):
        by_hand(postgres, trainer, "lease", {**leasing, "search": "nowhere"})
    by_hand(postgres, trainer, "lease", {**leasing, "search": "mine"})  # the control
    assert ledger.search_state("mine").leased_steps == 1
    ledger.verify_chain()


def test_the_server_refuses_what_does_not_continue_the_chain(
    postgres: PostgresServer, ledger: Ledger, url: str, trainer: str
) -> None:
    body = opened(postgres.role_of(trainer))
    bad: list[dict[str, Any]] = [
        {"seq": 3}, {"seq": 1}, {"previous": "0" * 64}, {"hash": "0" * 64}, {"time": "changed"},
        {"dataset": "another"}, {"move": ""},
    ]  # fmt: skip
    for changed in bad:
        with pytest.raises(Exception, match=r"follow|hash of the entry|must move the head") as refused:
            by_hand(postgres, trainer, "open_search", body, **changed)
        assert getattr(refused.value, "sqlstate", "") == "DP002", changed
    for text in ("no JSON", "[1]", '"text"', '{"a":NaN}', '{"a":"é"}', "", "{"):
        with pytest.raises(Exception, match="must be a JSON object"):
            by_hand(postgres, trainer, "open_search", text)
    for isolation in ("REPEATABLE READ", "SERIALIZABLE"):
        with pytest.raises(Exception, match="READ COMMITTED"):
            by_hand(postgres, trainer, "open_search", body, before=f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    head = "UPDATE heads SET seq = 7 WHERE dataset = 'digits'", "UPDATE heads SET dataset = 'x'"
    for change in (*head, "INSERT INTO heads VALUES ('x', 1, 'y')"):
        with pytest.raises(Exception, match="the head of a data set"):
            postgres.sql(change, url)
    # A new data set takes the head of another one, which would be damaged by an entry that is not its own.
    (first,) = chained([("open_search", {**body, "search": "new"}, postgres.role_of(trainer))], dataset="new")
    steal = "UPDATE dp_tuner.heads SET dataset = %(dataset)s, seq = %(seq)s, hash = %(hash)s WHERE dataset = 'digits'"
    with pytest.raises(Exception, match="the head of a data set stays with it"):
        by_hand(
            postgres,
            trainer,
            first.kind,
            first.body,
            move=steal,
            **{name: value for name, value in vars(first).items() if name not in {"kind", "body"}},
        )
    by_hand(postgres, trainer, "open_search", body)  # the control
    with pytest.raises(Exception, match="entries_open_searches"):
        by_hand(postgres, trainer, "open_search", body)
    ledger.verify_chain()
    assert ledger.search_state("forged").user == postgres.role_of(trainer)


def test_an_entry_that_only_the_rules_refuse_stops_its_own_data_set_alone(
    postgres: PostgresServer, ledger: Ledger, trainer: str
) -> None:
    """The server does not check caps. Each reader does, and can still use the other data sets."""
    ledger.set_cap("mnist", 8.0, 1e-4)
    other = Ledger.open(trainer, create=False)
    by_hand(postgres, trainer, "open_search", {**opened(other.user()), "epsilon": 99.0, "fingerprint": "sha256:1"})
    for each in (ledger, Ledger.open(trainer, create=False)):
        for use in (lambda each=each: each.cap("digits"), lambda each=each: each.set_cap("digits", 9.0, 1e-4)):
            with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):
                use()
        with raises_code(LedgerCorruptError, "ledger-entry-not-allowed"):
            each.search_state("forged")
        assert each.cap("mnist") == DatasetCap(8.0, 1e-4)
    other.open_search("mnist", "fine", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
    assert list(other.verify_chain("mnist")) == ["digits"]


def test_no_number_of_a_row_hides_later_rows(postgres: PostgresServer, ledger: Ledger, url: str, trainer: str) -> None:
    """Readers ask for the rows after the last one that they saw."""
    ledger.cap("digits")
    import psycopg

    where = {"host": str(postgres.sockets), "dbname": postgres.name_of(url), "user": postgres.role_of(trainer)}
    _, previous = head_of(ledger)
    entry = entry_of(2, "open_search", canonical(opened(where["user"])), previous, writer=where["user"])
    with psycopg.connect(**where) as raw:  # type: ignore[arg-type]
        raw.execute(
            "INSERT INTO dp_tuner.entries (id, dataset, seq, time, kind, writer, body, previous, hash) OVERRIDING "
            "SYSTEM VALUE VALUES (9000000000, %(dataset)s, %(seq)s, %(time)s, %(kind)s, %(writer)s, %(body)s, "
            "%(previous)s, %(hash)s)",
            vars(entry),
        )
        raw.execute("UPDATE dp_tuner.heads SET seq = %(seq)s, hash = %(hash)s WHERE dataset = 'digits'", vars(entry))
    assert postgres.sql("SELECT max(id) FROM entries", url) == [(2,)]
    ledger.set_cap("digits", 9.0, 1e-4)
    ledger.verify_chain()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("cap", CAP),
        ("grant", {"user": "me", "epsilon": 4.0, "delta": 1e-5}),
        ("grant", {"user": "somebody", "epsilon": 0.0, "delta": 0.0}),
        ("void", {"use": "public", "why": "w", "sweep": "s", "user": "me"}),
    ],
)
def test_the_server_refuses_a_trainers_cap_or_share_however_it_is_written(
    postgres: PostgresServer, ledger: Ledger, url: str, trainer: str, kind: str, body: dict[str, object]
) -> None:
    with pytest.raises(Exception, match="only an owner of the ledger can") as refused:
        by_hand(postgres, trainer, kind, body)
    assert getattr(refused.value, "sqlstate", "") == "DP001"
    ledger.verify_chain()
    by_hand(postgres, url, kind, body)  # the control: the owner, by the same hand
    ledger.verify_chain()


@pytest.mark.parametrize("user", ["owner", "nobody", None, 7])
def test_the_server_refuses_a_search_of_another_user_however_it_is_written(
    postgres: PostgresServer, ledger: Ledger, trainer: str, user: object
) -> None:
    other = Ledger.open(trainer, create=False)
    body = opened(postgres.admin if user == "owner" else user)
    with pytest.raises(Exception, match="cannot write about a search of another user"):
        by_hand(postgres, trainer, "open_search", body)
    by_hand(postgres, trainer, "open_search", {**body, "user": other.user()})  # the control
    assert ledger.search_state("forged").user == other.user()
    ledger.verify_chain()


def test_no_search_path_of_the_role_gets_round_the_server(
    postgres: PostgresServer, ledger: Ledger, url: str, trainer: str
) -> None:
    """Functions and operators of the role's own, of the names that the trigger uses, which say yes to everything."""
    role = Ledger.open(trainer, create=False).user()
    for statement in (
        f"CREATE SCHEMA own AUTHORIZATION {role}",
        "CREATE FUNCTION own.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE FUNCTION own.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR own.= (LEFTARG = text, RIGHTARG = text, FUNCTION = own.yes)",
    ):
        postgres.sql(statement, url)
    try:
        path = "SET search_path = own, pg_catalog"
        for kind, said in (("cap", CAP), ("open_search", opened("nobody"))):
            with pytest.raises(Exception, match=r"only an owner|of another user"):
                by_hand(postgres, trainer, kind, said, before=path)
        with pytest.raises(Exception, match=r"permission denied|must be"):
            by_hand(postgres, trainer, "cap", CAP, before=f"SET ROLE {postgres.admin}")
        with pytest.raises(Exception, match=r"permission denied|must be"):
            by_hand(postgres, trainer, "cap", CAP, before="ALTER TABLE dp_tuner.entries DISABLE TRIGGER USER")
    finally:
        postgres.sql("DROP SCHEMA own CASCADE", url)
    ledger.verify_chain()


def test_a_program_that_does_not_ask_first_is_told_what_the_server_said(
    trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own check is taken out here."""
    monkeypatch.setattr(store_postgres.Postgres, "check_author", Backend.check_author)
    other = Ledger.open(trainer, create=False)
    with raises_code(LedgerError, "ledger-not-owner"):
        other.set_cap("digits", 99.0, 1e-4)
    with raises_code(LedgerError, "ledger-other-user"):
        other = as_user(other, "nobody")
        other.open_search("digits", "x", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)


def test_a_member_of_the_owner_sets_caps_under_a_name_of_its_own(postgres: PostgresServer) -> None:
    url = postgres.database()
    team, person, guest = (postgres.role() for _ in range(3))
    name = postgres.name_of(url)
    for statement in (f"GRANT CREATE ON DATABASE {name} TO {team}", f"GRANT {team} TO {person}"):
        postgres.sql(statement)
    Ledger.open(postgres.url(name, team)).set_cap("digits", 8.0, 1e-4)
    member = Ledger.open(postgres.url(name, person))
    member.set_cap("digits", 9.0, 1e-4)
    member.open_search("digits", "first", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
    assert member.search_state("first").user == person
    postgres.sql(f"GRANT USAGE ON SCHEMA dp_tuner TO {guest}", url)
    postgres.sql(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA dp_tuner TO {guest}", url)
    with raises_code(LedgerError, "ledger-not-owner"):
        Ledger.open(postgres.url(name, guest)).set_cap("digits", 10.0, 1e-4)
    member.verify_chain()


@pytest.mark.parametrize(
    "change",
    [
        "DROP FUNCTION vouch CASCADE",
        "DROP FUNCTION moved CASCADE",
        "DROP FUNCTION follow CASCADE",
        "ALTER TABLE entries DISABLE TRIGGER entries_are_vouched_for",
        "ALTER TABLE entries DISABLE TRIGGER USER",
    ],
)
def test_a_trigger_that_is_gone_is_noticed_and_not_put_back_in_silence(
    postgres: PostgresServer, ledger: Ledger, url: str, change: str
) -> None:
    postgres.sql(change, url)
    for each in (ledger, Ledger.open(url)):
        with raises_code(LedgerCorruptError, "ledger-trigger-missing"):
            each.verify_chain()


def test_rights_decide_who_makes_and_who_looks(postgres: PostgresServer, ledger: Ledger, url: str, reader: str) -> None:
    stranger = postgres.role()
    for elsewhere in (url, postgres.database()):  # a ledger to look at, and none yet
        with raises_code(LedgerError, "ledger-not-granted"):
            Ledger.open(postgres.url(postgres.name_of(elsewhere), stranger))
    looking = Ledger.open(reader)
    looking.verify_chain()
    assert looking.cap("digits") == DatasetCap(8.0, 1e-4)
    with raises_code(LedgerError, "ledger-not-granted"):
        looking.open_search("digits", "first", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)


def test_rights_decide_who_charges(postgres: PostgresServer, ledger: Ledger, trainer: str) -> None:
    training = Ledger.open(trainer, create=False)
    assert training.user() == postgres.role_of(trainer)
    training.open_search("digits", "first", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
    training.reserve("first", "a", 2)
    training.lease("first", "a", 1, TRAINING_STEPS.mechanism)
    training.verify_chain()
    assert ledger.search_state("first").leased_steps == 1


def test_who_may_not_charge_does_not_see_the_division_into_users(ledger: Ledger, url: str, reader: str) -> None:
    ledger.open_search(
        "digits", "s", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, unit="user", division=division_of({1: ["ann"]})
    )
    looking = Ledger.open(reader)
    looking.verify_chain()
    with raises_code(LedgerError, "ledger-not-granted"):
        looking.verify_division("digits")
    (shown,) = budget_values(reader, "digits")["datasets"]
    assert "may not read" in shown["division_fault"]
    (shown,) = budget_values(url, "digits")["datasets"]
    assert shown["division_fault"] is None


def test_the_user_is_who_logged_in_whatever_role_was_put_on(postgres: PostgresServer) -> None:
    url = postgres.database()
    person, team = postgres.role(), postgres.role()
    name = postgres.name_of(url)
    for statement in (
        f"GRANT {team} TO {person}",
        f"ALTER ROLE {person} SET role = {team}",
        f"GRANT CREATE ON DATABASE {name} TO {team}",
    ):
        postgres.sql(statement)
    assert Ledger.open(postgres.url(name, person)).user() == person
