"""Spool, an append-only file of a sweep's records. Each record is on the disk before the sweep continues.

Each record is one line, ``{"crc":"89abcdef","record":{...}}``, with the checksum of the record's bytes. A crash can
leave only the LAST line incomplete, because ``fsync`` follows every append. Any other damaged line is an error.
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
from typing import Self

from tuner.errors import TrackingError, is_disk_full
from tuner.files import lock_open_file, write_text

__all__ = ["Acknowledgement", "Record", "Spool", "SpoolLine", "is_being_written", "read_spool"]

Record = Mapping[str, object]
_LINE = re.compile(rb'\{"crc":"([0-9a-f]{8})","record":(\{.*\})\}\n')


@dataclass(frozen=True, kw_only=True)
class SpoolLine:
    """A line of the spool: its record, its start and end in bytes, and the CRC-32 in hexadecimal digits."""

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
    """Return the record and the checksum of a line, or None if the line is incomplete or damaged."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    checksum = found[1].decode()
    return (json.loads(found[2]), checksum) if _checksum(found[2]) == checksum else None


def read_spool(path: Path, *, start: int = 0) -> Iterator[SpoolLine]:
    """Yield the complete lines of a spool, beginning at the byte offset `start`.

    An incomplete last line is skipped. A missing file has no lines.

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
                    f"{path}: the record at byte {damaged_at} is damaged. The records before it are intact. To discard "
                    "the damaged record, delete its line and run `tune sync` again.",
                )
            if not line.endswith(b"\n"):
                return  # incomplete, or still being written
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
    """Writer of a spool. A lock allows only one writer.

    When `append` returns, its records survive ``kill -9`` and a power cut. A missing file is created with its folder.
    An incomplete last line is cut off.

    Raises:
        TrackingError: another process writes this spool, the spool is damaged, or the disk refuses to write it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._refusal: TrackingError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failure(error) from error
        try:
            self._lock()
            self._end = self._cut_torn_line()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, *records: Record) -> None:
        """Write all records durably, or none of them.

        Raises:
            TrackingError: the disk refused the records. The file is unchanged.
            ValueError: JSON cannot represent a value.
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
                # After a failed fsync, the kernel may have discarded data. Later writes would not be safe either.
                self._cut_back()
                self._refusal = self._failure(error)
                raise self._refusal from error
            self._end += len(data)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                self._refusal = TrackingError("internal-error", f"{self.path}: the spool is closed. Report this bug.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        if not lock_open_file(self._descriptor):
            raise TrackingError(
                "spool-busy",
                f"{self.path}: another process writes the records of this sweep. Wait until it ends, or stop it with "
                "`tune stop`.",
            )

    def _cut_torn_line(self) -> int:
        """Cut off an incomplete last line and return the length of the file."""
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
        if is_disk_full(error):
            return TrackingError(
                "disk-full",
                f"{self.path}: the disk is full. All charges and all earlier records remain. Free some space, then "
                "continue with `tune resume`.",
            )
        return TrackingError(
            "spool-unwritable",
            f"{self.path}: the disk refused a record of the sweep ({error.strerror or error}). All earlier records are "
            "safe. Fix the disk, then continue with `tune resume`.",
        )


class Acknowledgement:
    """File that stores how many bytes of a spool were sent to the tracking address `target`.

    If the file is missing or damaged, or belongs to another address or spool, sending restarts at the first record.
    Sending a record again changes nothing in MLflow.
    """

    def __init__(self, path: Path, *, spool: Path, target: str) -> None:
        self._path = path
        self._spool = spool
        self._target = _checksum(target.encode())  # hashed, because an address may contain a password

    def load(self) -> int:
        """Return the offset in bytes before which every record was acknowledged."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            start, end = int(stored["start"]), int(stored["end"])
            checksum, target = str(stored["crc"]), str(stored["target"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0
        return end if target == self._target and self._fits_spool(start, end, checksum) else 0

    def store(self, line: SpoolLine) -> None:
        """Mark every record up to and including `line` as received by MLflow."""
        value = {"start": line.start, "end": line.end, "crc": line.checksum, "target": self._target}
        write_text(self._path, json.dumps(value), mode=0o600)

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
