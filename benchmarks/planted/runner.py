"""Plant one fault at a time in a copy of the repository, and run the test that must notice it."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.planted.fault import Fault, NotPlantableError, planted_text

__all__ = ["Outcome", "clean_failures", "copied_tree", "plant"]

TIMEOUT_SECONDS: Final = 120
"""A test that runs longer with a fault in place is killed."""

_TESTS_FAILED: Final = 1  # pytest's exit code; 2 to 5 say that no test could be run
_BROKEN: Final = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "UnboundLocalError")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a test with a fault planted.

    Attributes:
        fault: the fault.
        caught: whether the test failed because of the fault.
        found: result of the test, in a few words.
        seconds: duration.
    """

    fault: Fault
    caught: bool
    found: str
    seconds: float


@contextmanager
def copied_tree(root: Path) -> Iterator[Path]:
    """Yield a temporary copy of the tracked files of a repository.

    Python's compiled files are checked by hash, so that no test runs an old one without the fault.

    Args:
        root: root of the repository.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "copy"
        for name in filter(None, listed.stdout.split("\0")):
            source, target = root / name, copy / name
            if not (source.exists() or source.is_symlink()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
        compileall.compile_dir(copy, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        yield copy


def clean_failures(faults: Sequence[Fault], copy: Path) -> dict[str, str]:
    """Run every named test on the copy without a fault.

    Args:
        faults: the faults whose tests are run.
        copy: the copied repository.

    Returns:
        Node of a test that cannot be used → reason; empty if all pass.
    """
    nodes = sorted({fault.test for fault in faults})
    code, results, output = _pytest(copy, nodes, seconds=None)
    problems = {}
    for node in nodes:
        found = [result for name, result in results if name == _place(node)]
        if "passed" not in found:
            problems[node] = "it was not run" if not found else f"it was {found[0]}"
        elif set(found) - {"passed", "skipped"}:
            problems[node] = "it fails without the fault"
    if code not in (0, _TESTS_FAILED):
        last = output.strip().splitlines()[-1:] or ["no output"]
        return dict.fromkeys(nodes, f"pytest ended with code {code}: {last[0]}")
    return problems


def plant(fault: Fault, copy: Path) -> Outcome:
    """Plant a fault in the copy, run its test, and put the file back.

    Args:
        fault: the fault.
        copy: the copied repository.
    """
    begin = time.monotonic()
    try:
        changed = planted_text(fault, copy)
    except NotPlantableError as error:
        return Outcome(fault=fault, caught=False, found=f"not plantable: {error}", seconds=0.0)
    path = copy / fault.file
    original = path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    try:
        code, results, output = _pytest(copy, [fault.test], seconds=TIMEOUT_SECONDS, first_only=True)
    finally:
        path.write_text(original, encoding="utf-8")
    caught, found = _judged(fault, code, results, output)
    return Outcome(fault=fault, caught=caught, found=found, seconds=time.monotonic() - begin)


def _judged(fault: Fault, code: int | None, results: list[tuple[str, str]], output: str) -> tuple[bool, str]:
    if code is None:
        return fault.may_hang, f"it ran longer than {TIMEOUT_SECONDS} s"
    states = [result for _, result in results]
    if code == _TESTS_FAILED and "failed" in states:
        return True, "failed"
    broken = next((state for state in states if state.startswith("broken")), "")
    if broken:
        return False, broken
    if code == 0:
        return False, "the test passed" if "passed" in states else "the test was skipped"
    last = output.strip().splitlines()[-1:] or ["no output"]
    return False, f"pytest ended with code {code}: {last[0]}"


def _pytest(
    copy: Path, nodes: Sequence[str], *, seconds: float | None, first_only: bool = False
) -> tuple[int | None, list[tuple[str, str]], str]:
    """Run pytest; return its exit code (None if it was killed), the place and result of each test, and its output."""
    report = copy.parent / "report.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HYPOTHESIS_PROFILE": "ci",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
    if first_only:
        command.append("-x")
    process = subprocess.Popen(
        [*command, *nodes],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a killed test takes the processes with it that it started
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, [], ""
    return process.returncode, _results(report), output


def _results(report: Path) -> list[tuple[str, str]]:
    """Return the place and result of every test of a report."""
    if not report.exists():
        return []
    return [
        (f"{case.get('classname')}.{_function(case.get('name', ''))}", _result(case))
        for case in ElementTree.parse(report).iter("testcase")
    ]


def _result(case: ElementTree.Element) -> str:
    failure = case.find("failure")
    if failure is not None:
        message = failure.get("message", "")
        return f"broken: {message.splitlines()[0]}" if message.startswith(_BROKEN) else "failed"
    error = case.find("error")
    if error is not None:
        return f"broken before the test: {error.get('message', '').splitlines()[:1]}"
    return "skipped" if case.find("skipped") is not None else "passed"


def _place(node: str) -> str:
    """Return the name of a node in the report."""
    file, *inside = node.split("::")
    return ".".join([file.removesuffix(".py").replace("/", "."), *inside[:-1], _function(inside[-1])])


def _function(name: str) -> str:
    return name.partition("[")[0]
