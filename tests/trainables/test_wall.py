"""The wall: what is printed, logged and warned of behind it reaches the operator's log alone; errors say nothing."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from errors_helper import raises_code

from trainables import wall
from trainables.data import DatasetRequest, budget_owner, load_records, records_fingerprint
from trainables.errors import DatasetError, GateError, InfrastructureError, WalledError
from trainables.wall import behind, logging_to, operator_log

SECRET = "record 17 says secret"

HOSTILE = """
import ctypes, logging, os, subprocess, sys, warnings
from pathlib import Path
from trainables.wall import behind
SECRET = "record 17 says secret"
logging.basicConfig()
warnings.simplefilter(sys.argv[2])
early = sys.stdout

def tell():
    print(SECRET), print(SECRET, file=sys.stderr), early.write(SECRET)
    os.write(1, SECRET.encode()), os.write(2, SECRET.encode())
    subprocess.run(["echo", SECRET], check=True)
    ctypes.CDLL(None).puts(SECRET.encode())
    logging.getLogger("some.package").warning(SECRET)
    warnings.warn(SECRET, RuntimeWarning)
    return 1

print("before")
answer = tell() if sys.argv[1] == "without" else behind(Path(sys.argv[1]), tell)
print("after", answer)
logging.getLogger().warning("shown again")
"""


def run(log: Path | str, filters: str = "default") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HOSTILE, str(log), filters]
    # Without this variable the C library buffers what it writes to a pipe, as it does for every user.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)


def test_all_output_goes_to_the_log_and_what_is_around_stays(tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    done = run(log, "error")  # a filter that would turn a record's warning into an error
    assert done.stdout == "before\nafter 1\n"
    assert done.stderr == "WARNING:root:shown again\n"
    assert log.read_text().count(SECRET) == 9
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    control = run("without")
    assert control.stdout.count(SECRET) == 5
    assert control.stderr.count(SECRET) == 4


def failing(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        try:
            {}[SECRET]
        except KeyError:
            raise error  # noqa: B904 - its history must not come out either

    return work


@pytest.mark.parametrize("error", [ValueError(SECRET), MemoryError(SECRET), SystemExit(SECRET), GateError("x", SECRET)])
def test_every_error_comes_out_with_the_same_words_and_no_history(tmp_path: Path, error: BaseException) -> None:
    log = tmp_path / "operator.log"
    with raises_code(WalledError, "records-failed") as caught:
        behind(log, failing(error))
    shown = caught.value
    assert str(shown) == str(_raised(lambda: behind(log, failing(ZeroDivisionError()))))
    assert shown.__cause__ is None
    assert shown.__context__ is None
    assert type(error).__name__ not in str(shown)
    trace = shown.__traceback__
    while trace is not None:
        assert trace.tb_frame.f_code.co_name not in ("work", "failing")
        trace = trace.tb_next
    assert SECRET in log.read_text()
    assert "Traceback" in log.read_text()


def _raised(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the test looks at any error that comes out
        return error
    raise AssertionError


def test_what_cannot_depend_on_a_record_comes_out_without_its_history(tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    for error in (InfrastructureError("x", "a disk"), OSError("a charge")):
        with pytest.raises(type(error)) as caught:
            behind(log, failing(error), lets_out=lambda found: isinstance(found, OSError))
        assert caught.value is error
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    with pytest.raises(KeyboardInterrupt):
        behind(log, failing(KeyboardInterrupt()))


def test_a_log_that_cannot_be_opened_is_the_infrastructures(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises_code(InfrastructureError, "operator-log-unwritable"):
        behind(tmp_path / "file" / "operator.log", lambda: None)


def test_a_full_disk_makes_no_record_that_prints_one_that_fails() -> None:
    def work() -> int:
        print(SECRET)
        sys.stderr.write(SECRET)
        return 1

    assert behind(Path("/dev/full"), work) == 1


def test_the_wall_leaves_the_process_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr, warnings.filters[:], logging.Logger.callHandlers, len(os.listdir("/proc/self/fd"))
    log = tmp_path / "operator.log"
    assert behind(log, lambda: behind(log, operator_log)) == log, "work within work uses the same log"
    after = sys.stdout, sys.stderr, warnings.filters[:], logging.Logger.callHandlers, len(os.listdir("/proc/self/fd"))
    assert after == before
    os.write(1, b"shown")
    assert capfd.readouterr().out == "shown"


def test_without_a_sweep_the_log_is_in_a_folder_of_this_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wall.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(wall.tempfile, "tempdir", str(tmp_path))
    wall._own_folder.cache_clear()
    try:
        log = operator_log()
        assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
        log.parent.chmod(0o755)  # another account may look at it now, so it is not used again
        wall._own_folder.cache_clear()
        assert operator_log().parent != log.parent
        assert stat.S_IMODE(operator_log().parent.stat().st_mode) == 0o700
        with logging_to(tmp_path / "other"):
            assert operator_log() == tmp_path / "other"
    finally:
        wall._own_folder.cache_clear()


def own(folder: Path, value: float) -> DatasetRequest:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 8)), rng.integers(0, 3, 50)
    x[17, 0] = value
    path = folder / f"{value:g}.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x[:5] * 0, y_test=np.arange(5) % 3)
    return DatasetRequest(name="mine", path=str(path), public_size=50)


READ = """
import sys
sys.path.insert(0, sys.argv[2])
from trainables.data import DatasetRequest, budget_owner, load_records, records_fingerprint
request = DatasetRequest(name="mine", path=sys.argv[1], public_size=50)
load_records(request), budget_owner(request), records_fingerprint(request)
"""


@pytest.mark.slow
def test_one_record_that_overflows_says_nothing(tmp_path: Path) -> None:
    with logging_to(tmp_path / "operator.log"):
        for value in (0.5, 1e300):
            done = [
                subprocess.run([sys.executable, "-W", how, "-c", READ, own(tmp_path, value).path, os.getcwd()],
                               capture_output=True, text=True, check=True, timeout=60)
                for how in ("default", "error")
            ]  # fmt: skip
            assert {(each.stdout, each.stderr) for each in done} == {("", "")}
    with pytest.warns(RuntimeWarning, match="overflow"):  # the control: what the wall and `errstate` keep in
        np.full(1, 1e300).astype(np.float32)


def test_errors_of_the_file_are_said_and_those_of_a_library_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = own(tmp_path, 0.5)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    with logging_to(tmp_path / "operator.log"):
        with raises_code(DatasetError, "own-file-missing") as caught:
            load_records(DatasetRequest(name="mine", path=str(tmp_path / "none.npz"), public_size=50))
        assert caught.value.__cause__ is None
        monkeypatch.setattr("trainables.data.user.read_raw", broken)
        for work in (records_fingerprint, budget_owner):
            with raises_code(WalledError, "records-failed") as hidden:
                work(request)
            assert SECRET not in str(hidden.value)
    assert SECRET in (tmp_path / "operator.log").read_text()
