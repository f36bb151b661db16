"""Every example runs as it stands, with what it says it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = {path.name: path for path in sorted((ROOT / "examples").glob("*_in_optuna.py"))}
WITHOUT_RAY = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
assert not {"ray", "torch", "mlflow"} & set(sys.modules), "a plain study needs none of these"
"""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if "unimodal" in name else ()) for name in EXAMPLES],
)
def test_an_example_runs_and_needs_neither_ray_nor_torch(name: str, tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, str(EXAMPLES[name])],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "best: trial" in done.stdout
