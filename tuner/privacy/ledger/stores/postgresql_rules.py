"""Triggers of a PostgreSQL ledger: what the server itself checks of every entry, whatever program writes it.

The server checks who writes, that the chain goes on, and that the body is JSON. Whether the ledger's rules allow the
entry, only dp-tuner can tell. An entry that breaks a rule damages its own data set, and no other.
"""

from __future__ import annotations

from tuner.privacy.ledger.entries import GENESIS

__all__ = ["LOCK", "NAMESPACE", "NOT_CHAINED", "NOT_OWNER", "NOT_USER", "TRIGGERS", "TRIGGER_NAMES"]

NAMESPACE = "dp_tuner"
"""A separate schema, so that tables of other programs are never touched."""
LOCK = 0x44505442
"""Number ("DPTB") of the advisory lock that a writer of this database takes."""
NOT_OWNER, NOT_CHAINED, NOT_USER = "DP001", "DP002", "DP003"
"""SQLSTATEs that the triggers raise: for a cap or share of someone who is no owner, for an entry that does not continue
its chain, and for an entry about another user's search."""
TRIGGER_NAMES = frozenset(
    {
        "divisions_are_final",
        "entries_are_final",
        "entries_are_vouched_for",
        "entries_move_heads",
        "heads_follow",
        "heads_stay",
        "meta_is_final",
    }
)

_FINAL = f"""
CREATE FUNCTION {NAMESPACE}.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {NAMESPACE}.entries
    FOR EACH STATEMENT EXECUTE FUNCTION {NAMESPACE}.refuse();
CREATE TRIGGER divisions_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {NAMESPACE}.divisions
    FOR EACH STATEMENT EXECUTE FUNCTION {NAMESPACE}.refuse();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON {NAMESPACE}.heads
    FOR EACH STATEMENT EXECUTE FUNCTION {NAMESPACE}.refuse();
CREATE TRIGGER meta_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {NAMESPACE}.meta
    FOR EACH STATEMENT EXECUTE FUNCTION {NAMESPACE}.refuse();
"""
_FIELDS = ("body", "dataset", "kind", "previous", "seq", "time", "writer")
# The text that `entry_hash` hashes. `to_json` escapes a text as Python's json does without `ensure_ascii`.
_TEXT = " || ',' || ".join(f"'\"{field}\":' || to_json(NEW.{field})::text" for field in _FIELDS)
# The function has a search_path of its own, so that no object of the role can replace what it calls. `session_user` is
# the role that logged in, even after SET ROLE. If a comparison gives NULL, the entry is refused. In any isolation but
# READ COMMITTED, the queries could miss what the writer before has committed. The number of the row is the trigger's,
# so that rows become visible in the order of their numbers: readers only ask for the rows after the last one they saw.
_VOUCH = f"""
CREATE UNIQUE INDEX entries_open_searches ON {NAMESPACE}.entries ((body::jsonb ->> 'search'))
    WHERE kind = 'open_search';
CREATE FUNCTION {NAMESPACE}.vouch() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said jsonb;
    last record;
    owner text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'entries must be written in READ COMMITTED mode';
    END IF;
    PERFORM pg_advisory_xact_lock({LOCK});
    BEGIN said := NEW.body::jsonb; EXCEPTION WHEN others THEN said := NULL; END;
    IF jsonb_typeof(said) IS DISTINCT FROM 'object'
        OR octet_length(convert_to(NEW.body, 'UTF8')) <> length(NEW.body) THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'the body must be a JSON object in ASCII';
    END IF;
    SELECT seq, hash INTO last FROM {NAMESPACE}.entries WHERE dataset = NEW.dataset ORDER BY seq DESC LIMIT 1;
    IF (NEW.seq = coalesce(last.seq, 0) + 1 AND NEW.previous = coalesce(last.hash, '{GENESIS}')) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'the entry does not follow the last entry';
    END IF;
    IF (NEW.hash = encode(sha256(convert_to('{{' || {_TEXT} || '}}', 'UTF8')), 'hex')) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'the hash of the entry is wrong';
    END IF;
    IF (NEW.writer COLLATE "C" = session_user::text COLLATE "C") IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_USER}',
            MESSAGE = session_user || ' cannot write an entry in the name of another user';
    END IF;
    IF NEW.kind IN ('cap', 'grant', 'public', 'void') THEN
        IF (SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = TG_RELID) IS NOT TRUE THEN
            RAISE EXCEPTION USING ERRCODE = '{NOT_OWNER}',
                MESSAGE = 'only an owner of the ledger can set caps and shares, not ' || session_user;
        END IF;
    ELSE
        owner := said ->> 'user';
        IF NEW.kind <> 'open_search' THEN
            SELECT writer INTO owner FROM {NAMESPACE}.entries WHERE kind = 'open_search'
                AND body::jsonb ->> 'search' = said ->> 'search' AND dataset = NEW.dataset;
        END IF;
        IF (owner COLLATE "C" = session_user::text COLLATE "C") IS NOT TRUE THEN
            RAISE EXCEPTION USING ERRCODE = '{NOT_USER}',
                MESSAGE = session_user || ' cannot write about a search of another user';
        END IF;
    END IF;
    SELECT coalesce(max(id), 0) + 1 INTO NEW.id FROM {NAMESPACE}.entries;
    RETURN NEW;
END $$;
CREATE TRIGGER entries_are_vouched_for BEFORE INSERT ON {NAMESPACE}.entries
    FOR EACH ROW EXECUTE FUNCTION {NAMESPACE}.vouch();
"""
# A head names the last entry, and at the end of a transaction each new entry is in its head.
_HEADS = f"""
CREATE FUNCTION {NAMESPACE}.follow() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$ BEGIN
    IF TG_OP = 'UPDATE' AND NEW.dataset IS DISTINCT FROM OLD.dataset THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'the head of a data set stays with it';
    END IF;
    IF (SELECT seq = NEW.seq AND hash = NEW.hash FROM {NAMESPACE}.entries WHERE dataset = NEW.dataset
        ORDER BY seq DESC LIMIT 1) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'the head of a data set must be its last entry';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER heads_follow BEFORE INSERT OR UPDATE ON {NAMESPACE}.heads
    FOR EACH ROW EXECUTE FUNCTION {NAMESPACE}.follow();
CREATE FUNCTION {NAMESPACE}.moved() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$ BEGIN
    IF (SELECT seq >= NEW.seq FROM {NAMESPACE}.heads WHERE dataset = NEW.dataset) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_CHAINED}', MESSAGE = 'an entry must move the head of its data set';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER entries_move_heads AFTER INSERT ON {NAMESPACE}.entries
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {NAMESPACE}.moved();
"""
TRIGGERS = _FINAL + _VOUCH + _HEADS
"""SQL that creates all triggers on new tables."""
