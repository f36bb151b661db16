"""The templates for `ray up` pass Ray's own schema, their commands are shell, and no trial runs on the head."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = ("aws.yaml", "on_premises.yaml")
START = ("head_start_ray_commands", "worker_start_ray_commands")
COMMANDS = ("initialization_commands", "setup_commands", "head_setup_commands", *START)


@pytest.fixture(params=FILES)
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "dist").mkdir()  # what `make dist` leaves; Ray looks whether it is there
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("7" * 64)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = yaml.safe_load((tmp_path / "deploy" / request.param).read_text())
    return values


def validate(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_ray_accepts_it_and_refuses_a_misspelt_key(config: dict[str, Any]) -> None:
    validate(dict(config))
    config["setup_comands"] = config.pop("setup_commands")
    with pytest.raises(jsonschema.ValidationError):
        validate(config)


def test_every_command_is_shell(config: dict[str, Any]) -> None:
    commands = [command for name in COMMANDS for command in config.get(name, [])]
    assert len(commands) > 6
    for command in [*commands, (ROOT / "deploy" / "head_services.sh").read_text()]:
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command


def test_no_trial_runs_on_the_head_and_every_machine_asks_for_a_token(config: dict[str, Any]) -> None:
    starts = [command for name in START for command in config[name] if "ray start" in command]
    assert len(starts) == 2
    assert "--num-cpus=0" in next(command for command in starts if "--head" in command)
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)
    assert any(target.endswith(".ray/auth_token") for target in config["file_mounts"])
    if "available_node_types" in config:
        assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0, "GPU": 0}


def test_ours_is_installed_last_with_what_a_cluster_needs(config: dict[str, Any]) -> None:
    assert "--force-reinstall --no-deps" in config["setup_commands"][-1]
    assert any("[cluster]" in command for command in config["setup_commands"])


def test_the_image_has_our_python_and_ray() -> None:
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line[:1].isalnum() and "==" in line
    )
    image = f"rayproject/ray:{pinned['ray']}-py311-gpu"
    assert yaml.safe_load((ROOT / "deploy" / "aws.yaml").read_text())["docker"]["image"] == image
    assert f"FROM {image}\n" in (ROOT / "deploy" / "Dockerfile").read_text()
    (job,) = (
        each
        for each in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
        if each["kind"] == "RayJob"
    )
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned["ray"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL refuses root, so the services run as another account")
def test_the_services_of_the_head_start_once_and_take_a_ledger(tmp_path: Path) -> None:
    """As the account `postgres`, which the package of the server makes."""
    if (
        shutil.which("runuser") is None
        or subprocess.run(["id", "postgres"], check=False, capture_output=True).returncode
    ):
        pytest.skip("there is no account postgres")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-1]:
        parent.chmod(parent.stat().st_mode | 0o055)
    home = tmp_path / "home"
    home.mkdir()
    shutil.chown(home, "postgres")
    shutil.copy(ROOT / "deploy" / "head_services.sh", tmp_path)
    # MLflow is not started here: something listens on its port already.
    script = (
        f"cd {home}; export USER=postgres POSTGRES_DATA={home}/data RUNS={home}/runs; mkdir -p {home}/runs; "
        "(python3 -m http.server 5000 --bind 127.0.0.1 >/dev/null 2>&1 & echo $! > server); sleep 1; "
        f"bash {tmp_path}/head_services.sh && bash {tmp_path}/head_services.sh; result=$?; "
        f"psql --host {home}/data --dbname ledger --tuples-only --command 'SHOW server_encoding'; "
        f"$(ls -d /usr/lib/postgresql/*/bin | tail -1)/pg_ctl --pgdata {home}/data stop --mode fast >/dev/null; "
        "kill $(cat server); exit $result"
    )
    done = subprocess.run(
        ["runuser", "--user", "postgres", "--", "bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"ledger:   postgresql://postgres@/ledger?host={home}/data") == 2
    assert "UTF8" in done.stdout
