"""Who may write what into a ledger in PostgreSQL, with a real server: asked by the program, held by the server."""

from __future__ import annotations

import pytest
from errors_helper import raises_code
from ledgers import TRAINING_STEPS, division_of, entry_of, opening
from postgres_server import PostgresServer

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.ledger import DatasetCap, Ledger
from tuner.privacy.ledger.stores import Backend, Store, open_store
from tuner.privacy.ledger.stores import postgresql as store_postgres
from tuner.report.budget import budget_values

CAP = {"epsilon": 99.0, "delta": 1e-4}

pytestmark = pytest.mark.timeout(400)


def by_hand(postgres: PostgresServer, url: str, kind: str, body: dict[str, object], *, before: str = "") -> None:
    """Write an entry past the program, with hashes that hold, as the role of `url`."""
    import psycopg

    with open_store(url, create=False).reading() as connection:
        seq, previous = Store.heads(connection)["digits"]
    entry = vars(entry_of(seq + 1, kind, canonical(body), previous))
    where = {"host": str(postgres.sockets), "dbname": postgres.name_of(url), "user": postgres.role_of(url)}
    with psycopg.connect(**where) as raw:
        if before:
            raw.execute(before.encode())
        raw.execute(
            "INSERT INTO dp_tuner.entries (dataset, seq, time, kind, body, previous, hash) VALUES "
            "(%(dataset)s, %(seq)s, %(time)s, %(kind)s, %(body)s, %(previous)s, %(hash)s)",
            entry,
        )
        raw.execute("UPDATE dp_tuner.heads SET seq = %(seq)s, hash = %(hash)s WHERE dataset = %(dataset)s", entry)


def opened(user: object) -> dict[str, object]:
    """The body of an entry that opens a search for a user, or for nobody if it is None."""
    _, body = opening(search="forged", user=user)
    return {key: value for key, value in body.items() if value is not None or key != "user"}


def test_caps_and_shares_are_set_by_the_owner_alone(ledger: Ledger, trainer: str) -> None:
    other = Ledger.open(trainer, create=False)
    for use in (
        lambda: other.set_cap("digits", 99.0, 1e-4),
        lambda: other.grant("digits", other.user(), 4.0, 1e-5),
        lambda: other.enter_public("open", "0" * 64),
        lambda: other.void_total("digits", use="public", why="w", sweep="s"),
    ):
        with raises_code(LedgerError, "ledger-not-owner"):
            use()
    ledger.enter_public("open", "0" * 64)
    ledger.grant("digits", "somebody", 4.0, 1e-5)  # the control: the owner, whose name is nobody's share
    with raises_code(LedgerError, "ledger-not-owner"):
        other.revoke("digits", "somebody")
    assert other.cap("digits") == DatasetCap(8.0, 1e-4)


def test_a_search_is_of_the_role_that_opens_it(ledger: Ledger, trainer: str) -> None:
    other = Ledger.open(trainer, create=False)
    for each, name in ((other, ledger.user()), (ledger, other.user())):
        with raises_code(LedgerError, "ledger-other-user"):
            each.open_search("digits", "theirs", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, user=name)
    for each in (other, ledger):
        each.open_search("digits", each.user(), filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, user=each.user())
        assert ledger.search_state(each.user()).user == each.user()


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
    with pytest.raises(Exception, match="cannot open a search in the name of another"):
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
            with pytest.raises(Exception, match=r"only an owner|in the name of another"):
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
    with raises_code(LedgerError, "ledger-not-owner"):
        other.open_search("digits", "x", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5, user="nobody")


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
