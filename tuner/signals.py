"""Signals that end a command as Ctrl-C does: SIGTERM, which batch systems and containers send, and SIGHUP."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["ENDING", "end_as_ctrl_c", "exit_code", "note"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a sweep so that it can be resumed."""

_received: list[int] = []


def end_as_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt. A SIGHUP that `nohup` made this process ignore stays ignored."""
    for sign in ENDING[1:]:
        if signal.getsignal(sign) is not signal.SIG_IGN:
            signal.signal(sign, _interrupt)


def exit_code() -> int:
    """Return the exit code of an interrupted command: 128 plus the number of the first signal, 130 for Ctrl-C."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def note(number: int) -> None:
    """Remember a signal that ends the command, for `exit_code`."""
    _received.append(number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    note(number)
    raise KeyboardInterrupt
