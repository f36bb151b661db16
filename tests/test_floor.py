"""The floor on the number of tests fails a suite that collects too little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "exit_code"), [(1, 0), (2, 1)])
def test_a_suite_below_its_floor_fails(tmp_path: Path, floor: int, exit_code: int) -> None:
    for name in ("conftest.py", "postgres_server.py"):
        (tmp_path / name).write_text((HERE / name).read_text())
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--floor", str(floor), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == exit_code, done.stdout
