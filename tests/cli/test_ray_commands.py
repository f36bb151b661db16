"""Ray Tune's own commands: relative paths, folders that are none of Ray's, and what is no experiment."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from command_fakes import Tune

SWEEP = "tiny-20260101-000000-abcdef"


class Analysis:
    """In the place of Ray's, which reads the pickles of a search that Ray ran."""

    def __init__(self, path: str) -> None:
        if not Path(path).is_absolute():
            raise AssertionError(path)
        self.path = path

    def dataframe(self) -> pd.DataFrame:
        return pd.DataFrame({"trial_id": ["seven"], "logdir": [self.path]})


@pytest.fixture
def rays(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as Ray leaves it, with the reading of it replaced."""
    import ray.tune.cli.commands

    monkeypatch.setattr(ray.tune.cli.commands, "ExperimentAnalysis", Analysis)
    folder = bare.folder / "runs" / "theirs"
    (folder / "trial").mkdir(parents=True)
    (folder / "experiment_state-2026.json").write_text("{}")
    (folder / "trial" / "result.json").write_text("")
    return folder


def test_a_relative_path_will_do_and_what_ray_cannot_read_is_a_message(
    bare: Tune, rays: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("list-trials", "ls"):
        assert "seven" in bare(command, "runs/theirs").out

    def broken(self: Analysis) -> pd.DataFrame:
        raise ValueError("no such pickle")

    monkeypatch.setattr(Analysis, "dataframe", broken)
    assert "[no-ray-experiment]" in bare("list-trials", "runs/theirs", code=2).err


def test_what_is_none_of_rays_folders_is_refused(bare: Tune) -> None:
    for command in ("list-trials", "list-experiments", "lsx", "add-note"):
        assert "[folder-not-found]" in bare(command, "nowhere", code=2).err
    (bare.folder / "runs" / SWEEP).mkdir(parents=True)
    for command in ("list-trials", "ls"):
        assert f"tune show {SWEEP}" in bare(command, f"runs/{SWEEP}", code=2).err


def test_only_experiments_are_listed_and_no_sealed_runs_are_counted(bare: Tune, rays: Path) -> None:
    runs = bare.folder / "runs"
    (runs / "mlartifacts" / "0").mkdir(parents=True)
    (runs / SWEEP / "ray" / "trial").mkdir(parents=True)
    (runs / SWEEP / "ray" / "trial" / "result.json").write_text("")
    hidden = SWEEP.replace("tiny", "hidden")
    for trial in "ab":
        (runs / hidden / "sealed" / "ray" / trial).mkdir(parents=True)
        (runs / hidden / "sealed" / "ray" / trial / "result.json").write_text("")
    for command in ("list-experiments", "lsx"):
        answer = bare(command, "runs")
        counted = {words[1]: words[3] for line in answer.out.splitlines() if len(words := line.split()) > 3}
        assert counted == {"name": "total_trials", "theirs": "1", SWEEP: "1", hidden: "0"}
        assert "tune ls" in answer.err
