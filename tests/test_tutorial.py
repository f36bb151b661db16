"""The pages for beginners run as they stand: files are written as shown, then every command is called in its order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tutorial.md", "own_data.md"])
def test_every_file_and_every_command_of_a_page(page: str, tmp_path: Path) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, module in (("tune", "-m tuner"), ("python", "")):
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (scripts / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_DATA_HOME": str(tmp_path),
    }
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text())
    for kind, text in blocks:
        if kind in ("python", "yaml"):
            name = re.match(r"# (\S+)\n", text)
            assert name is not None, "a file begins with its name"
            (tmp_path / name.group(1)).write_text(text)
    commands = [line[2:] for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert len(commands) > 3
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    shutil.rmtree(tmp_path / "runs")
