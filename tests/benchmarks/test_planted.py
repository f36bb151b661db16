"""The catalogue of planted faults: each can be planted, and its test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.planted.catalogue import FAULTS
from benchmarks.planted.fault import Fault, NotPlantableError, planted_text

ROOT = Path(__file__).resolve().parents[2]


def test_every_fault_can_be_planted_and_has_its_test() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        planted_text(fault, ROOT)
        file, function = fault.test.split("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), fault.test


@pytest.mark.parametrize(
    ("old", "new"), [("absent", "x = 2"), ("x", "y"), ("x = 1\n", "x = \n"), ("x = 1\n", "x = 1\n")]
)
def test_a_text_that_is_not_found_once_or_breaks_the_file_is_refused(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "module.py").write_text("x = 1\nprint(x)\n", encoding="utf-8")
    fault = Fault(name="n", breaks="b", file="module.py", old=old, new=new, test="t.py::test")
    with pytest.raises(NotPlantableError):
        planted_text(fault, tmp_path)
