"""The wall: all work on records runs behind it, and only fixed words and the work's own result come out.

Behind the wall, Python warnings, logging, and everything that is written to standard output and standard error (by
Python, by C code, by child processes) go to the operator's log. An error comes out as one `WalledError`, with the same
words for every cause, and without the name, the message or the traceback of the original error. The place of an
error decides whether it comes out unchanged: an `InfrastructureError`, and what the caller names, cannot depend on a
record.

The log has mode 0600. A sweep's log is ``operator.log`` in its folder. Work outside a sweep uses ``operator.log`` in a
folder of mode 0700 among the temporary files of this account.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import io
import logging
import os
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, ParamSpec, TextIO, TypeVar

from trainables.errors import InfrastructureError, TrainableError, WalledError

__all__ = ["behind", "log_traceback", "logging_to", "operator_log", "output_to", "walled"]

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

_LOG: ContextVar[Path | None] = ContextVar("operator_log", default=None)
_ONE_AT_A_TIME = threading.RLock()  # standard output belongs to the whole process, not to a thread
_C_LIBRARY: Final = ctypes.CDLL(None)


def behind(
    log: Path, work: Callable[[], Answer], *, lets_out: Callable[[Exception], bool] = lambda _error: False
) -> Answer:
    """Do work that touches records, behind the wall, and return its result.

    Args:
        log: the operator's log, created with mode 0600 if it does not exist.
        work: function without arguments.
        lets_out: whether an error cannot depend on a record. It may then come out, without its history (the errors that
            led to it, and its traceback). An `InfrastructureError` always may.

    Raises:
        WalledError: the work raised any other error. Its words are the same for every cause.
        InfrastructureError: the log cannot be opened, or the infrastructure failed behind the wall.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    with output_to(log):
        try:
            return work()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a record must not end the process by SystemExit either
            infrastructure = isinstance(error, InfrastructureError)
            told = infrastructure or (isinstance(error, Exception) and lets_out(error))
            shown = error if told else None
            if infrastructure or not (told and isinstance(error, TrainableError)):  # a refusal says all of its cause
                log_traceback(log, "behind the wall", error)
    # These lines are outside of `except`. Otherwise the original error would be the context of the one raised here.
    if shown is None:
        raise WalledError(
            "records-failed",
            f"The work on the records failed. The cause is in the operator's log {log}. Only the operator may read "
            "this log, because it may show data.",
        )
    shown.__cause__ = shown.__context__ = None
    raise shown.with_traceback(None)


def walled(work: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Return the function with a wall around each call. Of its errors, only those of this package come out.

    So the function may raise a `TrainableError` only for what no training record decides, such as the shape of an array
    or a missing file.
    """

    @functools.wraps(work)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        def refused(error: Exception) -> bool:
            return isinstance(error, TrainableError) and not isinstance(error, WalledError)

        return behind(operator_log(), functools.partial(work, *args, **kwargs), lets_out=refused)

    return run


def operator_log() -> Path:
    """Return the operator's log for work that starts now: that of `logging_to`, or else that of this account."""
    return _LOG.get() or _own_folder() / "operator.log"


@contextlib.contextmanager
def logging_to(log: Path) -> Iterator[None]:
    """Use this operator's log for all work on records in the ``with`` block."""
    before = _LOG.set(log)
    try:
        yield
    finally:
        _LOG.reset(before)


def log_traceback(log: Path, what: str, error: BaseException) -> None:
    """Append a traceback to the operator's log. Only the operator may see it, because it may contain data.

    A log that cannot be written loses the traceback and raises nothing, so that a full disk hides no other error.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - a foreign error may fail to describe itself
        text = "An error that cannot be printed.\n"
    head = f"=== {datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')} {what}\n"
    with contextlib.suppress(OSError):
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One write to a file opened for appending does not mix the entries of several workers.
        number = _opened(log)
        try:
            os.write(number, (head + text + "\n").encode(errors="backslashreplace"))
        finally:
            os.close(number)


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Send all output of this process and its new children to a log: warnings, logging, both standard streams.

    Raises:
        InfrastructureError: the log cannot be opened.
    """
    with _ONE_AT_A_TIME, logging_to(log), contextlib.ExitStack() as stack:
        stream = stack.enter_context(_log_stream(log))
        _flush()  # what was written before the wall is shown
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(stream.fileno(), number)
            with (
                contextlib.redirect_stdout(stream),
                contextlib.redirect_stderr(stream),
                _warnings_to(stream),
                _logging_to_stream(stream),
            ):
                yield
        finally:
            _flush()  # what a library has buffered belongs to the log, and may not be shown later
            for number, original in zip((1, 2), kept, strict=True):
                os.dup2(original, number)
                os.close(original)


@contextlib.contextmanager
def _warnings_to(stream: TextIO) -> Iterator[None]:
    """Write warnings to the stream, whatever the filters say. A filter "error" would let a record raise.

    Leaving the block also forgets which warnings were shown in it, so that none of them is missed outside.
    """

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        with contextlib.suppress(ValueError):  # another thread may call this when the stream is closed
            stream.write(warnings.formatwarning(message, category, filename, lineno, line))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _logging_to_stream(stream: TextIO) -> Iterator[None]:
    """Send every log record to the stream instead of the handlers of its logger."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    before = logging.Logger.callHandlers

    def call_handlers(_logger: logging.Logger, record: logging.LogRecord) -> None:
        handler.handle(record)

    logging.Logger.callHandlers = call_handlers  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        logging.Logger.callHandlers = before  # type: ignore[method-assign]
        handler.close()


class _Sink(io.FileIO):
    """File that drops what the disk does not take. If it raised an error instead, a record that prints would fail."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer, whose type is private to typeshed
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


@contextlib.contextmanager
def _log_stream(log: Path) -> Iterator[TextIO]:
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = _opened(log)
    except OSError as error:
        raise InfrastructureError(
            "operator-log-unwritable",
            f"The operator's log {log} cannot be written ({error.strerror}). Free disk space, or change the "
            "permissions of the log.",
        ) from None
    with io.TextIOWrapper(
        io.BufferedWriter(_Sink(number, "w")), encoding="utf-8", errors="backslashreplace", line_buffering=True
    ) as stream:
        yield stream


def _opened(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    _C_LIBRARY.fflush(None)


@functools.cache
def _own_folder() -> Path:
    """Return a folder that only this account may enter. The size of a log in it can then tell others nothing."""
    folder = Path(tempfile.gettempdir()) / f"dp-tuner-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="dp-tuner-"))  # another account holds the name
