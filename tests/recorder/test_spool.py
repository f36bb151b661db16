"""The spool keeps what it acknowledged, through torn lines, flipped bytes, a full disk and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import TrackingError
from tuner.recorder.spool import Acknowledgement, Spool, is_being_written, read_spool

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
RECORDS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=8)


def records(path: Path, start: int = 0) -> list[dict[str, object]]:
    return [entry.record for entry in read_spool(path, start=start)]


def three(path: Path) -> list[dict[str, object]]:
    written: list[dict[str, object]] = [{"n": number, "text": "ε\n€"} for number in range(3)]
    with Spool(path) as spool:
        spool.append(*written)
    return written


@settings(max_examples=25)
@given(written=RECORDS, at_once=st.booleans())
def test_what_was_appended_is_read_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, written: list[dict[str, object]], at_once: bool
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool.jsonl"
    with Spool(path) as spool:
        if at_once:
            spool.append(*written)
        else:
            for record in written:
                spool.append(record)
    assert records(path) == written


def test_reading_can_start_at_any_entry(tmp_path: Path) -> None:
    written = three(tmp_path / "s")
    entries = list(read_spool(tmp_path / "s"))
    for number, entry in enumerate(entries):
        assert records(tmp_path / "s", entry.start) == written[number:]
        assert records(tmp_path / "s", entry.end) == written[number + 1 :]


def test_a_last_line_torn_at_any_byte_is_cut_off_and_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = three(path)
    whole = path.read_bytes()
    last = list(read_spool(path))[-1].start
    for length in range(last, len(whole)):
        path.write_bytes(whole[:length])
        assert records(path) == written[:2]
        with Spool(path) as spool:
            spool.append({"n": "new"})
        assert records(path) == [*written[:2], {"n": "new"}]


@settings(max_examples=40)
@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_changed_byte_is_never_taken_for_a_record(
    tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "s"
    written = three(path)
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= flip
    path.write_bytes(data)
    got: list[dict[str, object]] = []
    try:
        for entry in read_spool(path):
            got.append(entry.record)
    except TrackingError:
        pass
    assert got == written[: len(got)]
    assert len(got) < len(written)


def test_a_damaged_line_in_the_middle_is_an_error_that_says_where(tmp_path: Path) -> None:
    path = tmp_path / "s"
    three(path)
    second = list(read_spool(path))[1]
    data = bytearray(path.read_bytes())
    data[second.start + 30] ^= 1
    path.write_bytes(data)
    with raises_code(TrackingError, "spool-damaged") as caught:
        records(path)
    assert f"byte {second.start}" in str(caught.value)
    with raises_code(TrackingError, "spool-damaged"):
        Spool(path)
    assert path.read_bytes() == bytes(data), "nothing may be cut off when more than the last line is damaged"


def test_a_spool_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert not is_being_written(path)
    with Spool(path):
        assert is_being_written(path)
        with raises_code(TrackingError, "spool-busy"):
            Spool(path)
    assert not is_being_written(path)
    Spool(path).close()


def test_a_value_that_is_not_json_is_the_callers_fault_and_writes_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path / "s") as spool, pytest.raises(ValueError, match="JSON"):
        spool.append({"n": 1}, {"n": float("nan")})
    assert records(tmp_path / "s") == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from tuner.errors import TrackingError
from tuner.recorder.spool import Spool, read_spool

spool = Spool(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
taken = 0
try:
    while True:
        spool.append({"n": taken, "fill": "x" * 100})
        taken += 1
except TrackingError as error:
    whole = list(read_spool(spool.path))[-1].end
    print(taken, spool.path.stat().st_size - whole, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
spool.append({"n": taken})
"""


def test_a_full_disk_raises_and_leaves_whole_records_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    taken, too_much, message = done.stdout.split(" ", 2)
    assert int(taken) > 5
    assert int(too_much) == 0, "the file is as it was before the record that did not fit"
    assert "[spool-unwritable]" in message
    assert [record["n"] for record in records(tmp_path / "s")] == list(range(int(taken) + 1))


def test_a_folder_that_cannot_be_made_is_a_tracking_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises_code(TrackingError, "spool-unwritable"):
        Spool(tmp_path / "file" / "s")


def test_after_a_failed_fsync_nothing_more_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "s")
    spool.append({"n": 0})

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with raises_code(TrackingError, "spool-unwritable"):
            spool.append({"n": 1})
    with raises_code(TrackingError, "spool-unwritable"):
        spool.append({"n": 2})
    spool.close()
    assert records(tmp_path / "s") == [{"n": 0}]


WRITER = """
import sys
from pathlib import Path
from tuner.recorder.spool import Spool

spool = Spool(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    spool.append({"n": number, "fill": "x" * 5000}, {"n": number + 1})
    number += 2
    print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledgements", [1, 20])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, acknowledgements: int) -> None:
    path = tmp_path / "s"
    first = 0
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            acknowledged = 0
            for _ in range(acknowledgements):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        Spool(path).close()  # heals, as a resume does
        numbers = [record["n"] for record in records(path)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        first = len(numbers)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"start": 0}', '{"start":"x","end":1,"crc":"","target":""}']
)
def test_an_acknowledgement_that_makes_no_sense_starts_at_the_first_record(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s"
    three(path)
    (tmp_path / "ack").write_text(content)
    assert Acknowledgement(tmp_path / "ack", spool=path, target="http://one").load() == 0


def test_another_server_or_another_spool_starts_at_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "s"
    three(path)
    second = list(read_spool(path))[1]
    mine = Acknowledgement(tmp_path / "ack", spool=path, target="http://one:secret@host")
    assert mine.load() == 0
    mine.store(second)
    assert mine.load() == second.end, "where sending goes on"
    assert "secret" not in (tmp_path / "ack").read_text()
    assert Acknowledgement(tmp_path / "ack", spool=path, target="http://two").load() == 0
    path.unlink()
    with Spool(path) as spool:
        spool.append({"n": "another"}, {"n": "sweep"}, {"n": "altogether"})
    assert Acknowledgement(tmp_path / "ack", spool=path, target="http://one:secret@host").load() == 0
