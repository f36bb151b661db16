"""Upload of a spool to MLflow, in a thread while a sweep runs and in the foreground for `tune sync`.

A sweep has this thread in a process of its own (see `sender_process`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TrackingError
from tuner.recorder import mlflow_store as store
from tuner.recorder.mlflow_store import cause_of
from tuner.recorder.shipper import RECORDS_A_CALL, Shipper

__all__ = ["SendStatus", "Sender", "drain"]

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
_ATTEMPTS = 3
_TOGETHER_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class SendStatus:
    """Progress of sending a sweep's records to MLflow, as counts of records."""

    sent: int = 0  # by this process, and acknowledged by MLflow
    waiting: int = 0  # on the disk, and not yet in MLflow
    refused: int = 0  # MLflow will never accept them; they are saved in ``spool.refused.jsonl``
    problem: str = ""  # the error that stops the upload

    @property
    def complete(self) -> bool:
        """Whether MLflow has every record."""
        return self.waiting == 0 and self.refused == 0

    def __str__(self) -> str:
        sent = f"{self.sent} {'entry' if self.sent == 1 else 'entries'} sent"
        parts = [sent if self.sent or not self.complete else "nothing left to send"]
        if self.waiting:
            parts.append(f"{self.waiting} on the disk, not yet sent")
        if self.refused:
            parts.append(f"{self.refused} refused by MLflow (spool.refused.jsonl)")
        if self.problem and self.waiting:
            parts.append(self.problem)
        return ", ".join(parts)


class Sender:
    """Thread that sends the records of a spool. It retries after every error and never interrupts the training.

    Args:
        folder: the sweep's folder.
        connect: as for `Shipper`.
        told: called with the progress after every attempt.
    """

    def __init__(
        self,
        folder: Path,
        *,
        connect: Callable[[str], Any] = store.connect,
        told: Callable[[SendStatus], None] = lambda status: None,
    ) -> None:
        self._told = told
        self._shipper = Shipper(folder, connect=connect)
        self._changed = threading.Condition()
        self._wake = False
        self._hurry = False
        self._stopping = False
        self._problem = ""
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="mlflow-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notify(self) -> None:
        """Tell the thread that there is a new record."""
        with self._changed:
            self._wake = True
            self._changed.notify_all()

    def status(self) -> SendStatus:
        """Return the progress so far."""
        problem = self._problem
        try:
            waiting = self._shipper.waiting()
        except (TrackingError, OSError) as error:
            waiting, problem = 1, str(error)
        return SendStatus(sent=self._shipper.sent, waiting=waiting, refused=self._shipper.refused, problem=problem)

    def flush(self, timeout: float) -> SendStatus:
        """Wait until MLflow has every record, three attempts have failed, or `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        with self._changed:
            enough = self._failures + _ATTEMPTS
            while True:
                self._wake = self._hurry = True
                self._changed.notify_all()
                left = deadline - time.monotonic()
                if left <= 0 or self._failures >= enough or not self._thread.is_alive():
                    break
                if self.status().waiting == 0:
                    break
                self._changed.wait(min(left, FIRST_RETRY_SECONDS))
        return self.status()

    def stop(self) -> None:
        """Stop the thread after its current request. Unsent records stay in the spool."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._shipper.close()

    def _run(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while not self._stopping:
            try:
                count = self._shipper.ship()
            except Exception as error:  # noqa: BLE001 - `status` reports it, and training continues
                if not self._problem:
                    log.warning("records cannot be sent to MLflow now and stay on the disk: %s", cause_of(error))
                self._note(cause_of(error), failures=self._failures + 1)
                self._pause(delay)
                delay = min(2 * delay, LAST_RETRY_SECONDS)
            else:
                delay = FIRST_RETRY_SECONDS
                self._note("", failures=self._failures)
                # Records of one second share their requests, which take the time of the driver.
                self._pause(None if count == 0 else _TOGETHER_SECONDS if count < RECORDS_A_CALL else 0.0)

    def _note(self, problem: str, *, failures: int) -> None:
        with self._changed:
            self._problem, self._failures = problem, failures
            self._changed.notify_all()
        self._told(self.status())

    def _pause(self, seconds: float | None) -> None:
        """Wait for `seconds`, or until the next new record if `seconds` is None. `flush` and `stop` end the wait."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._hurry or self._stopping or (self._wake and seconds is None), timeout=seconds
            )
            self._wake = self._hurry = False


def drain(folder: Path, *, uri: str | None = None, connect: Callable[[str], Any] = store.connect) -> SendStatus:
    """Send every unsent record in the foreground. See `Shipper` for the arguments.

    Raises:
        TrackingError: the server cannot be reached or fails. The unsent records stay on the disk.
    """
    shipper = Shipper(folder, uri=uri, connect=connect)
    try:
        while shipper.ship():
            pass
        return SendStatus(sent=shipper.sent, waiting=shipper.waiting(), refused=shipper.refused)
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(
            "tracking-unavailable",
            f"{folder}: MLflow did not accept the records of the sweep ({cause_of(error)}). {shipper.waiting()} "
            "unsent entries are on the disk. Start the tracking server, then run `tune sync` again.",
        ) from error
    finally:
        shipper.close()
