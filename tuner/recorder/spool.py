"""Spool: an append-only file of checksummed records, each on the disk before the sweep continues.

Each record is one line, ``{"crc":"89abcdef","record":{...}}``, with the checksum of the record's bytes. Only the LAST
line can be torn by a crash, because ``fsync`` follows every append. Any other damaged line is an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.errors import TrackingError
from tuner.files import lock_open_file, write_text

__all__ = ["Acknowledgement", "Record", "Spool", "SpoolLine", "is_being_written", "read_spool"]

Record = Mapping[str, object]
_LINE = re.compile(rb'\{"crc":"([0-9a-f]{8})","record":(\{.*\})\}\n')


@dataclass(frozen=True, kw_only=True)
class SpoolLine:
    """One line of the spool: a record, its offsets in bytes and its CRC-32 in hexadecimal digits."""

    record: dict[str, object]
    start: int
    end: int
    checksum: str


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _format_line(record: Record) -> bytes:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return b'{"crc":"%s","record":%s}\n' % (_checksum(text).encode(), text)


def _parse_line(line: bytes) -> tuple[dict[str, object], str] | None:
    """Return the record and the checksum of a line, or None if the line is torn or damaged."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    checksum = found[1].decode()
    return (json.loads(found[2]), checksum) if _checksum(found[2]) == checksum else None


def read_spool(path: Path, *, start: int = 0) -> Iterator[SpoolLine]:
    """Yield the whole lines of a spool from the byte offset `start`. A torn last line and a missing file are no errors.

    Raises:
        TrackingError: a line before the last one is damaged.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = file.seek(start)
        damaged_at: int | None = None
        for line in file:
            if damaged_at is not None:
                raise TrackingError(
                    "spool-damaged",
                    f"{path}: the record at byte {damaged_at} is damaged. The records before it are safe. To drop the "
                    "damaged record, delete its line and run `tune sync` again.",
                )
            if not line.endswith(b"\n"):
                return  # torn or still being written
            parsed = _parse_line(line)
            if parsed is None:
                damaged_at = offset
            else:
                yield SpoolLine(record=parsed[0], start=offset, end=offset + len(line), checksum=parsed[1])
            offset += len(line)


def is_being_written(path: Path) -> bool:
    """Return whether a process has the spool open for writing."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not lock_open_file(descriptor)
    finally:
        os.close(descriptor)


class Spool:
    """The only writer of a spool. When `append` returns, its records survive ``kill -9`` and a power cut.

    A missing file is created with its folder. A torn last line is cut off.

    Raises:
        TrackingError: another process writes this spool, it is damaged, or the disk refuses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._refusal: TrackingError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._failure(error) from error
        try:
            self._lock()
            self._end = self._cut_torn_line()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, *records: Record) -> None:
        """Write records durably, all or none.

        Raises:
            TrackingError: the disk refused them. The file is unchanged.
            ValueError: JSON cannot hold a value.
        """
        data = b"".join(_format_line(record) for record in records)
        with self._mutex:
            if self._refusal is not None:
                raise self._refusal
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(self._descriptor, data[written:], self._end + written)
            except OSError as error:
                self._cut_back()
                raise self._failure(error) from error
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                # After a failed fsync the kernel may have dropped pages, so later writes would not be safe either.
                self._cut_back()
                self._refusal = self._failure(error)
                raise self._refusal from error
            self._end += len(data)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                self._refusal = TrackingError("internal-error", f"{self.path}: the spool is closed. Report this bug.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        if not lock_open_file(self._descriptor):
            raise TrackingError(
                "spool-busy",
                f"{self.path}: another process writes the records of this sweep. Wait until it ends, or stop it with "
                "`tune stop`.",
            )

    def _cut_torn_line(self) -> int:
        """Cut off a torn last line and return the length of the file."""
        end = 0
        for line in read_spool(self.path):
            end = line.end
        try:
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # a new file is durable only when its folder is
            finally:
                os.close(folder)
        except OSError as error:
            raise self._failure(error) from error
        return end

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            self._refusal = self._failure(error)

    def _failure(self, error: OSError) -> TrackingError:
        return TrackingError(
            "spool-unwritable",
            f"{self.path}: the disk refused a record of the sweep ({error.strerror or error}). All earlier records are "
            "safe. Free space or fix the disk, then continue with `tune resume`.",
        )


class Acknowledgement:
    """File with the offset of the first record of a spool that was not sent to the tracking address `target`.

    If the file is missing, torn, or of another address or spool, sending restarts at the first record. This changes
    nothing in MLflow.
    """

    def __init__(self, path: Path, *, spool: Path, target: str) -> None:
        self._path = path
        self._spool = spool
        self._target = _checksum(target.encode())  # hashed, because an address may hold a password

    def load(self) -> int:
        """Return the offset in bytes up to which every record was acknowledged."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            start, end = int(stored["start"]), int(stored["end"])
            checksum, target = str(stored["crc"]), str(stored["target"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0
        return end if target == self._target and self._fits_spool(start, end, checksum) else 0

    def store(self, line: SpoolLine) -> None:
        """Store that every record up to and including `line` has arrived."""
        value = {"start": line.start, "end": line.end, "crc": line.checksum, "target": self._target}
        write_text(self._path, json.dumps(value))

    def _fits_spool(self, start: int, end: int, checksum: str) -> bool:
        if not 0 <= start < end:
            return False
        try:
            with self._spool.open("rb") as file:
                file.seek(start)
                parsed = _parse_line(file.read(end - start))
        except OSError:
            return False
        return parsed is not None and parsed[1] == checksum
