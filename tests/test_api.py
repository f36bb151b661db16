"""The Python interface: the example of its page runs, and errors come before a charge."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from errors_helper import raises_code

from tuner.api import load, open_sweep
from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.ledger.ledger import Ledger

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.mark.slow
def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The guarantee of ONE search is its cap: ε = 4" in done.stdout
    ledger = Ledger.open(f"sqlite:///{tmp_path}/dp-tuner/ledger.db", create=False)
    assert ledger.dataset_state("digits").committed_epsilon == 4.0


def test_what_cannot_start_is_an_error_and_leaves_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with raises_code(InputError, "key-unknown"):
        load("digits_dplis.yaml", {"search.trails": 3}).plan()
    with pytest.raises(BudgetRefusedError):
        load("digits_dplis.yaml", {"privacy.noise_multiplier": 0.1}).run(local=True)
    with raises_code(InputError, "sweep-not-found"):
        open_sweep("nobody")
    circle: list[object] = []
    circle.append(circle)
    for value in (print, [np.zeros(2)], {np.int64(3): 1}, b"x", circle, float):
        with raises_code(InputError, "value-wrong-type"):
            load("digits_dplis.yaml", {"search.trials": value})
    assert list(tmp_path.rglob("ledger.db")) == []


def test_settings_may_be_paths_and_numbers_of_numpy(tmp_path: Path) -> None:
    found = load(
        "digits_dplis.yaml", {"search.trials": np.int64(3), "privacy.epsilon": np.longdouble(2), "storage": tmp_path}
    )
    assert found == load("digits_dplis.yaml", {"search.trials": 3, "privacy.epsilon": 2.0, "storage": str(tmp_path)})
