"""The doctor: who owns the command `tune`, which dependencies are missing, and where the data sets are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from errors_helper import raises_code

from trainables.data import DATASETS
from tuner import doctor
from tuner.errors import InputError

OURS = (
    "#!/usr/bin/python\nimport sys\nfrom tuner.cli.app import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)
RAYS = OURS.replace("tuner.cli.app", "ray.tune.cli.scripts").replace("import sys", "import re\nimport sys")


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of scripts of an environment on whose interpreter the tests run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def found() -> dict[str, doctor.Diagnosis]:
    return {each.subject: each for each in doctor.diagnose(data_dir="nowhere")}


def test_it_notices_missing_foreign_and_hidden_scripts(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found()["script tune"].found == "not installed"
    script(scripts, "tune", RAYS)
    script(scripts, "dp-tune", OURS)
    scripts_found = found()
    assert (scripts_found["script tune"].ok, scripts_found["script dp-tune"].ok) == (False, True)
    assert "ray.tune.cli.scripts" in scripts_found["script tune"].found
    first = tmp_path / "first"
    first.mkdir()
    for folder in (scripts, first):
        script(folder, "tune", OURS)
    monkeypatch.setenv("PATH", f"{first}{os.pathsep}{os.environ['PATH']}")
    hidden = found()["script tune"]
    assert not hidden.ok
    assert str(first) in hidden.found


def test_it_takes_the_names_back(scripts: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "rays-own-tune"
    elsewhere.write_text(RAYS)
    (scripts / "tune").symlink_to(elsewhere)
    doctor.fix_script()
    assert elsewhere.read_text() == RAYS, "the script of another is not written through a link"
    assert found()["script tune"].ok
    assert found()["script dp-tune"].ok
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([scripts / "tune", "--version"], capture_output=True, text=True, check=True, env=environment)
    assert "dp-tuner" in done.stdout


def test_it_cannot_write_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/proc/bin/python")
    with raises_code(InputError, "output-unwritable"):
        doctor.fix_script()


def test_every_dependency_and_data_set_is_listed_and_a_missing_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"python", "package tuner", *(f"data {name}" for name in DATASETS)} <= set(found())
    wanted = ["no-such-thing-at-all>=1", "click>=99", "rich>=1", "x; extra == 'dev'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: wanted)
    named = found()
    assert (named["no-such-thing-at-all"].ok, named["click"].ok, named["rich"].ok) == (False, False, True)


def test_a_gpu_is_named_with_what_was_never_tried_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gpu" not in found()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "made up")
    assert found()["gpu"].warning
    assert "never tested on a real GPU" in found()["gpu"].found
