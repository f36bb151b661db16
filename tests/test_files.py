"""A write leaves the old file or the new one; locks end with their process and can be taken while others look."""

from __future__ import annotations

import fcntl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tuner import files
from tuner.files import file_lock, is_locked, replacing, take_lock, write_json, write_text

HOLDER = """
import sys
from pathlib import Path
from tuner.files import take_lock
lock = take_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("half")  # type: ignore[arg-type]
    assert path.read_text() == '{\n  "a": 1\n}'
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_its_mode(tmp_path: Path) -> None:
    write_text(tmp_path / "secret", "ε", mode=0o600)
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "ε"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert is_locked(path)
    assert take_lock(path) is None
    holder.kill()
    holder.communicate()
    assert not is_locked(path)
    lock = take_lock(path)
    assert lock is not None
    lock.release()


def test_a_lock_that_another_process_looks_at_can_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    looker = path.open()
    fcntl.flock(looker, fcntl.LOCK_SH)
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        try:
            real(file, operation)
        except BlockingIOError:
            looker.close()  # it has looked
            raise

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(files, "_PATIENCE", 60.0)
    lock = take_lock(path)
    assert lock is not None
    assert looker.closed, "the first attempt failed"
    lock.release()


def test_a_lock_is_never_a_file_that_outlives_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    with pytest.raises(OSError, match="not implemented"):
        file_lock(tmp_path / "lock").acquire()


def test_who_looks_neither_hides_a_lock_from_others_nor_needs_to_write(tmp_path: Path) -> None:
    path = tmp_path / "sweep.lock"
    with file_lock(path):
        pass
    path.chmod(0o444)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # as another process that looks at this moment
        assert not is_locked(path)
