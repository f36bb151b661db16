"""The shipped cluster template passes Ray's own schema and our rules for where trials may run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
START = ("head_start_ray_commands", "worker_start_ray_commands")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    (tmp_path / "dist").mkdir()  # what `make dist` leaves; Ray looks whether it is there
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("7" * 64)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    return values


def validated(config: dict[str, Any]) -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(config)
    validate_config(prepared)
    return prepared


def test_ray_accepts_it(config: dict[str, Any]) -> None:
    assert set(validated(config)["available_node_types"]) == {"head", "gpu"}


def test_no_trial_runs_on_the_head(config: dict[str, Any]) -> None:
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"] == {"CPU": 0, "GPU": 0}
    assert "--num-cpus=0" in next(command for command in config[START[0]] if "--head" in command)


def test_every_machine_asks_for_a_token(config: dict[str, Any]) -> None:
    assert any(target.endswith(".ray/auth_token") for target in config["file_mounts"])
    starts = [command for name in START for command in config[name] if "ray start" in command]
    assert len(starts) == 2
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)


def test_ours_is_installed_last(config: dict[str, Any]) -> None:
    assert "--force-reinstall --no-deps" in config["setup_commands"][-1]
