"""Every example runs as it stands, with what it says it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.privacy.ledger.ledger import Ledger

ROOT = Path(__file__).parent.parent
IN_RAY = sorted((ROOT / "examples").glob("ray_*.py"))
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


@pytest.mark.slow
@pytest.mark.parametrize("example", IN_RAY, ids=lambda path: path.stem)
def test_an_example_in_ray_charges_a_ledger_in_the_folder_that_it_is_given(example: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, str(example), str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "best: trial" in done.stdout
    ledger = Ledger.open(f"sqlite:///{tmp_path}/ledger.db", create=False)
    (search,) = ledger.dataset_state("digits").searches
    assert (search.status, search.epsilon) == ("closed", 3.0)
    assert 0 < search.leased_steps <= search.filter.most_steps
    assert not home.exists()  # the user's own ledger is another one
