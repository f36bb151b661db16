"""Explanations of all error codes, for `tune explain` and the documentation."""

from __future__ import annotations

import search_spaces.errors
import trainables.errors

__all__ = ["EXPLANATIONS", "explanation"]

_PLATFORM: dict[str, str] = {
    # commands and sweeps
    # experiment files
    # plans
    # studies
    # the ledger and its accountant
    "ledger-busy": "Another process holds the ledger, or wrote it while it was read. End that process, or try again.",
    "ledger-damaged": (
        "The ledger is not what was written: a file was cut off, a page or an entry was changed, or tables "
        "are missing. Restore it from a backup that holds every entry; a ledger is never started afresh, "
        "because its spending would be forgotten."
    ),
    "ledger-disk-full": "The disk of the ledger is full. Nothing more is charged. Free space, then resume.",
    "ledger-driver-missing": (
        'A ledger in PostgreSQL needs the driver psycopg. Install it with pip install "dp-tuner[postgres]".'
    ),
    "ledger-encoding": (
        "The database of a ledger must be in UTF8, so that it holds every name. Create one with that encoding."
    ),
    "ledger-foreign": "The file is a database of another program, and is left alone. Name another file.",
    "ledger-format": "Another version of dp-tuner wrote this ledger. Nothing was changed. Open it with that version.",
    "ledger-not-durable": (
        "The server may lose committed transactions in a crash, so a charge would not be durable. Set fsync = "
        "on and use logged tables."
    ),
    "ledger-not-found": (
        "There is no ledger at this address. Check the address. A lost ledger is restored from a backup, "
        "never started afresh."
    ),
    "ledger-not-granted": "The database role lacks rights on the tables of the ledger. Its owner grants them.",
    "ledger-not-owner": "Only owners of the ledger set caps and shares. Let the owner of the data do it.",
    "ledger-not-readable": (
        "This user may not read the ledger, or its last entries must first be merged by a user with write access."
    ),
    "ledger-not-writable": "No ledger can be created in this folder. Name a folder that can be written.",
    "ledger-other-user": "A search belongs to the database role that opens it. Connect as that role.",
    "ledger-read-only": (
        "This user may only read the ledger, and nothing can be charged. Give the user the right to write, or "
        "name the primary server."
    ),
    "ledger-replaced": (
        "Another ledger was put in the place of the one that was in use. Put the original back; only it holds "
        "what was charged."
    ),
    "ledger-trigger-missing": (
        "Triggers that keep the ledger append-only, and check who writes, were dropped or disabled. Put them "
        "back, and compare the ledger with a backup."
    ),
    "ledger-unavailable": (
        "The ledger cannot be used just now: the server does not answer, or the transaction failed. Nothing "
        "more is charged. Follow the message, then resume."
    ),
    "ledger-url": (
        "The ledger must be an SQLite file (sqlite:///FILE) or a PostgreSQL database (postgresql://user@host/database)."
    ),
    "ledger-url-password": (
        "The ledger's URL is stored in every sweep and shown in MLflow, so it may not contain a password. Put "
        "the password into ~/.pgpass or PGPASSWORD."
    ),
    # privacy cards
    # executors and records
}

EXPLANATIONS: dict[str, str] = {**_PLATFORM, **trainables.errors.EXPLANATIONS, **search_spaces.errors.EXPLANATIONS}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


def explanation(code: str) -> str | None:
    """Return the explanation of a code; None when there is no such code."""
    return EXPLANATIONS.get(code.strip("[]"))
