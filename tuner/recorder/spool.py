"""The spool: an append-only file of records, each checksummed and on the disk before anyone goes on.

One line a record, ``{"crc":"89abcdef","record":{...}}``. The checksum is that of the record's canonical JSON, so a line
that a crash has torn is recognised. Only the LAST line can be torn: every append is followed by ``fsync``. A line that
is damaged anywhere else is an error and is never skipped in silence.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.errors import TrackingError
from tuner.files import lock_open_file, write_text

__all__ = ["Acknowledgement", "Entry", "Record", "Spool", "is_being_written", "read"]

Record = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One record of the spool and where it stands.

    Attributes:
        record: what was written.
        start: offset of its line in the file, in bytes.
        end: offset of the first byte after its line.
        checksum: CRC-32 of the record, eight hexadecimal digits.
    """

    record: dict[str, object]
    start: int
    end: int
    checksum: str


def _canonical(record: Record) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _checksum(canonical: str) -> str:
    return f"{zlib.crc32(canonical.encode()):08x}"


def _line(record: Record) -> bytes:
    canonical = _canonical(record)
    return f'{{"crc":"{_checksum(canonical)}","record":{canonical}}}\n'.encode()


def _parse(line: bytes) -> tuple[dict[str, object], str] | None:
    """Record and checksum of a whole line, or None where the line is torn or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        outer = json.loads(line)
    except ValueError:
        return None
    if not isinstance(outer, dict) or not isinstance(outer.get("record"), dict):
        return None
    record: dict[str, object] = outer["record"]
    checksum = _checksum(_canonical(record))
    return (record, checksum) if checksum == outer.get("crc") else None


def read(path: Path, *, start: int = 0) -> Iterator[Entry]:
    """Yields the whole records from ``start`` on, in the order in which they were written.

    A torn last line is left out: it was never acknowledged to whoever wrote it, or is being written now.

    Args:
        path: the spool; a file that is not there holds no records.
        start: offset of a line, in bytes.

    Raises:
        TrackingError: a line before the last one is damaged.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = file.seek(start)
        torn_at: int | None = None
        for line in file:
            if torn_at is not None:
                raise TrackingError(
                    f"{path}: every line of the spool must be whole, the one at byte {torn_at} is damaged. The records "
                    "before it are safe. To give up that one record, delete its line, then run `tune sync` again"
                )
            if not line.endswith(b"\n"):
                return  # torn, or still being written: what comes after it, if anything does, is the rest of this line
            parsed = _parse(line)
            if parsed is None:
                torn_at = offset
            else:
                yield Entry(record=parsed[0], start=offset, end=offset + len(line), checksum=parsed[1])
            offset += len(line)


def is_being_written(path: Path) -> bool:
    """Whether a living process holds the spool open for writing."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not lock_open_file(descriptor)
    finally:
        os.close(descriptor)


class Spool:
    """The one writer of a spool. What `append` has returned from survives ``kill -9`` and a power cut.

    Args:
        path: the file; made, with its folder, where it is not there. A torn last line is cut off.

    Raises:
        TrackingError: another process is writing this spool, it is damaged, or the disk refuses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._broken = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._failure(error) from error
        try:
            self._lock()
            self._end = self._heal()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, *records: Record) -> None:
        """Writes the records down, all in one write, and returns when they are on the disk.

        Raises:
            TrackingError: the disk did not take them. None of them counts as written; the file is as it was before.
            ValueError: a value that JSON cannot hold, which is a fault of the caller.
        """
        data = b"".join(_line(record) for record in records)
        with self._mutex:
            if self._broken:
                raise TrackingError(self._broken)
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
                # After a failed fsync the kernel may have dropped the pages: nothing written later could be trusted.
                self._cut_back()
                failure = self._failure(error)
                self._broken = str(failure)
                raise failure from error
            self._end += len(data)

    def close(self) -> None:
        """Gives the file back; a second call does nothing."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                self._broken = f"{self.path}: the spool is closed, nothing more can be recorded"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        if not lock_open_file(self._descriptor):
            raise TrackingError(
                f"{self.path}: a spool has one writer, another process is writing this one. "
                "Wait for that sweep to end, or stop it"
            )

    def _heal(self) -> int:
        """Cuts a torn last line off; returns the length of what is whole."""
        end = 0
        for entry in read(self.path):
            end = entry.end
        try:
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # a new file is only durable when its folder is
            finally:
                os.close(folder)
        except OSError as error:
            raise self._failure(error) from error
        return end

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            self._broken = str(self._failure(error))

    def _failure(self, error: OSError) -> TrackingError:
        return TrackingError(
            f"{self.path}: every record must be on the disk before the sweep goes on, and the disk refused: "
            f"{error.strerror or error}. Make room or fix the disk, then go on with `--resume`; "
            "nothing recorded is lost"
        )


class Acknowledgement:
    """How far a spool has been sent, in a small file beside it that is replaced atomically.

    It only saves work. Where it is missing, torn, meant for another tracking server or does not fit the spool, sending
    starts at the first record again, which changes nothing in MLflow.

    Args:
        path: the file.
        spool: the spool it speaks of.
        target: where the records went (the tracking address).
    """

    def __init__(self, path: Path, *, spool: Path, target: str) -> None:
        self._path = path
        self._spool = spool
        self._target = f"{zlib.crc32(target.encode()):08x}"  # not in clear: an address may hold a password

    def load(self) -> int:
        """Offset in the spool, in bytes, up to which everything was acknowledged."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            start, end = int(stored["start"]), int(stored["end"])
            checksum, target = str(stored["crc"]), str(stored["target"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0
        return end if target == self._target and self._stands(start, end, checksum) else 0

    def store(self, entry: Entry) -> None:
        """Remembers that everything up to and with ``entry`` has arrived."""
        value = {"start": entry.start, "end": entry.end, "crc": entry.checksum, "target": self._target}
        write_text(self._path, json.dumps(value))

    def _stands(self, start: int, end: int, checksum: str) -> bool:
        if not 0 <= start < end:
            return False
        try:
            with self._spool.open("rb") as file:
                file.seek(start)
                parsed = _parse(file.read(end - start))
        except OSError:
            return False
        return parsed is not None and parsed[1] == checksum
