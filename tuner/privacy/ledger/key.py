"""The operator's secret key of a ledger, with which checksums of records and users are made unguessable.

A checksum without a key answers a guess: whoever reads the ledger could compute the checksum of the records that they
suspect, and compare. The key is kept outside the ledger: next to an SQLite file, in the user's configuration for a
PostgreSQL database, or in the file that `DP_TUNER_LEDGER_KEY` names. Only programs that compute such checksums need it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tuner.errors import LedgerError
from tuner.files import require_kept

__all__ = ["ENVIRONMENT", "RECORDS_PURPOSE", "LedgerKey", "created_key", "key_file", "read_key"]

ENVIRONMENT = "DP_TUNER_LEDGER_KEY"
"""Environment variable that names the key's file."""

RECORDS_PURPOSE = "records"
"""Purpose of the digest of a data set's records."""

_BYTES = 32
_TEXT = re.compile(r"[0-9a-f]{64}\n?")


class LedgerKey:
    """Secret key of one ledger. It never shows its bytes, for example in a traceback."""

    def __init__(self, secret: bytes) -> None:
        self.__secret = secret

    def digest(self, purpose: str, content: bytes) -> str:
        """Return the HMAC-SHA-256 of `content` as 64 hexadecimal digits. Digests of two purposes are unrelated."""
        name = purpose.encode()
        message = len(name).to_bytes(4, "big") + name + content
        return hmac.new(self.__secret, message, hashlib.sha256).hexdigest()

    def check(self, ledger_id: str) -> str:
        """Return the value that a ledger stores to recognise its key. The key cannot be computed from it."""
        return self.digest("ledger-key-check", ledger_id.encode())


def key_file(default: Path) -> Path:
    """Return the file of the key: `$DP_TUNER_LEDGER_KEY` if it is set, else `default`."""
    named = os.environ.get(ENVIRONMENT)
    return Path(named).expanduser().absolute() if named else default


def created_key(default: Path) -> LedgerKey:
    """Return the key for a new ledger. If its file exists, the key in it is used and never replaced.

    The file becomes visible only when it is complete, so two processes that create one ledger use the same key.

    Raises:
        LedgerError: the file cannot be written, or is not a key.
        InputError: Ray will delete the file.
    """
    path = key_file(default)
    require_kept(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            # mkstemp gives the file the mode 0600.
            descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with open(descriptor, "w", encoding="ascii") as file:
                    file.write(secrets.token_bytes(_BYTES).hex() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # another process was first; keep its key
                    os.link(draft, path)
            finally:
                Path(draft).unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(
            "ledger-not-writable",
            f"The key of the new ledger cannot be written to {path} ({error.strerror or error}). Choose a file that "
            f"this user may write: {ENVIRONMENT}=FILE.",
        ) from error
    return _read(path)


def read_key(default: Path, *, ledger_id: str, check: str, url: str) -> LedgerKey:
    """Return the key of an existing ledger.

    Raises:
        LedgerError: the key's file is missing, unreadable, or has the key of another ledger.
    """
    path = key_file(default)
    key = _read(path, url)
    if not hmac.compare_digest(key.check(ledger_id), check):
        raise _refused(path, "the file has the key of another ledger", url)
    return key


def _read(path: Path, url: str = "") -> LedgerKey:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, getattr(error, "strerror", None) or "the file does not contain a key", url) from None
    if not _TEXT.fullmatch(text):
        raise _refused(path, "the file does not contain a key of 64 hexadecimal digits", url)
    return LedgerKey(bytes.fromhex(text.strip()))


def _refused(path: Path, why: str, url: str) -> LedgerError:
    ledger = f" of the ledger {url}" if url else ""
    return LedgerError(
        "ledger-key",
        f"The key{ledger} cannot be read from {path}: {why}. Restore the file. Or get the key file from the operator "
        f"who made the ledger, and set {ENVIRONMENT}=FILE. A ledger never gets a new key, because with a new key "
        "the ledger would no longer recognise its records.",
    )
