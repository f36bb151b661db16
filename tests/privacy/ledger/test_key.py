"""The operator's key: made with the ledger, kept outside it, never replaced, needed only to compute fingerprints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from errors_helper import raises_code
from ledgers import child, open_search, said_by

from tuner.errors import InputError, LedgerError
from tuner.privacy.ledger.key import ENVIRONMENT, LedgerKey
from tuner.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path}/ledger.db")


def test_the_key_is_next_to_the_file_and_nothing_of_it_is_in_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db.key"
    assert file.stat().st_mode & 0o777 == 0o600
    secret = file.read_text().strip()
    open_search(ledger, "s", fingerprint=ledger.key.digest("records", b"x"))
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path != file)
    assert secret.encode() not in stored
    assert bytes.fromhex(secret) not in stored
    assert Ledger.open(ledger.url).key.digest("records", b"x") == ledger.key.digest("records", b"x")


def test_digests_differ_by_key_and_purpose() -> None:
    one, other = LedgerKey(b"1" * 32), LedgerKey(b"2" * 32)
    made = {key.digest(purpose, b"bc") for key in (one, other) for purpose in ("a", "users")}
    assert len(made | {one.digest("ab", b"c")}) == 5
    assert "1" * 32 not in repr(one)


def test_a_missing_or_foreign_key_is_refused_and_never_replaced(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db.key"
    mine = file.read_text()
    for number, wrong in enumerate((None, "", "0" * 64, mine.strip() + "0", "\udcff")):
        file.unlink(missing_ok=True)
        if wrong is not None:
            file.write_bytes(wrong.encode(errors="surrogateescape"))
        again = Ledger.open(ledger.url)  # readers and workers do not need the key
        open_search(again, f"s{number}")
        with raises_code(LedgerError, "ledger-key"):
            _ = again.key
        assert file.exists() == (wrong is not None)
        assert wrong is None or file.read_bytes() == wrong.encode(errors="surrogateescape")
    file.write_text(mine)
    assert Ledger.open(ledger.url).key


def test_another_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "safe" / "key"))
    made = Ledger.open(f"sqlite:///{tmp_path}/l.db")
    assert made.key
    assert not (tmp_path / "l.db.key").exists()
    monkeypatch.delenv(ENVIRONMENT)
    with raises_code(LedgerError, "ledger-key"):
        _ = Ledger.open(made.url).key
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "working_dir_files" / "key"))  # Ray deletes this folder
    with raises_code(InputError, "job-copy"):
        Ledger.open(f"sqlite:///{tmp_path}/other.db")
    assert not (tmp_path / "other.db").exists()


@pytest.mark.slow
def test_processes_that_create_one_ledger_agree_on_its_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    code = "print(Ledger.open(url).key.digest('records', b''))"
    made = [child(code, url) for _ in range(3)]
    assert len({line for maker in made for line in said_by(maker)}) == 1


def test_the_key_of_a_database_is_in_the_configuration(postgres: object) -> None:
    ledger = Ledger.open(postgres.emptied())  # type: ignore[attr-defined]
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "dp-tuner" / "keys" / f"{ledger.id}.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert ledger.key
    file.unlink()
    with raises_code(LedgerError, "ledger-key"):
        _ = Ledger.open(ledger.url, create=False).key
