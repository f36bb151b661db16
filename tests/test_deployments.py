"""The shipped deployments pass the schemas of Ray, Kubernetes and KubeRay, and our rules for who may enter them."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy"
START = ("head_start_ray_commands", "worker_start_ray_commands")
COMMANDS = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", *START)
RAYJOB = json.loads((Path(__file__).parent / "schemas" / "rayjob.json").read_text())
KUBERNETES = "1.37"


@pytest.fixture(params=["aws", "on_premises"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    path = shutil.copy(FOLDER / f"{request.param}.yaml", tmp_path)
    (tmp_path / "dist").mkdir()  # what `make dist` leaves; Ray looks whether it is there
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("7" * 64)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    return values


def validate_for_ray(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(copy.deepcopy(config)))


def test_ray_accepts_it_and_finds_a_misspelt_key(config: dict[str, Any]) -> None:
    validate_for_ray(config)
    config["setup_comands"] = config.pop("setup_commands")
    with pytest.raises(jsonschema.ValidationError, match="setup_comands"):
        validate_for_ray(config)


def test_no_trial_runs_on_the_head(config: dict[str, Any]) -> None:
    assert "--num-cpus=0" in next(command for command in config[START[0]] if "--head" in command)
    if "available_node_types" in config:
        assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0, "GPU": 0}


def test_every_machine_asks_for_a_token_that_no_other_account_reads(config: dict[str, Any]) -> None:
    assert any(target.endswith(".ray/auth_token") for target in config["file_mounts"])
    assert "chmod 600 ~/.ray/auth_token" in config["setup_commands"][0]
    starts = [command for name in START for command in config[name] if "ray start" in command]
    assert len(starts) == 2
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)


def test_ours_is_installed_last(config: dict[str, Any]) -> None:
    assert "--force-reinstall --no-deps" in config["setup_commands"][-1]


def bash_accepts(command: str) -> bool:
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False).returncode == 0


def test_bash_can_read_every_command(config: dict[str, Any]) -> None:
    commands = [command for name in COMMANDS for command in config.get(name, [])]
    assert [command for command in commands if not bash_accepts(command)] == []
    assert not bash_accepts(commands[0] + " && (")


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))


def validate_for_kubernetes(manifest: dict[str, Any]) -> None:
    """Check a manifest. The pods of a RayJob are checked as those of a Deployment, whose schema is stricter."""
    from kubernetes_validate import validate

    if manifest["kind"] != "RayJob":
        validate(manifest, KUBERNETES, strict=True)
        return
    jsonschema.validate(manifest, RAYJOB)
    for group in groups(manifest):
        labels = group["template"]["metadata"]["labels"]
        spec = {"selector": {"matchLabels": labels}, "template": group["template"]}
        validate(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pods"}, "spec": spec},
            KUBERNETES,
            strict=True,
        )


def groups(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def misspelt(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield copies of a manifest with one wrong key each."""
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["specc"] = 1
    yield wrong
    if manifest["kind"] == "RayJob":
        wrong = copy.deepcopy(manifest)
        wrong["spec"]["rayClusterSpec"]["authOption"] = wrong["spec"]["rayClusterSpec"].pop("authOptions")
        yield wrong
        for place in range(len(groups(manifest))):
            wrong = copy.deepcopy(manifest)
            container = groups(wrong)[place]["template"]["spec"]["containers"][0]
            container["volumeMount"] = container.pop("volumeMounts")
            yield wrong


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_kubernetes_accepts_it_and_finds_a_misspelt_key(manifest: dict[str, Any]) -> None:
    from kubernetes_validate import ValidationError

    validate_for_kubernetes(manifest)
    for wrong in misspelt(manifest):
        with pytest.raises((ValidationError, jsonschema.ValidationError)):
            validate_for_kubernetes(wrong)


def test_the_job_asks_for_a_token_of_a_secret_and_runs_no_trial_on_the_head() -> None:
    import ray

    (job,) = (each for each in manifests() if each["kind"] == "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token", "secretName": "dp-tuner"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["rayVersion"] == ray.__version__
    assert not any(each["kind"] == "Secret" for each in manifests()), "a secret is made on the command line"
    assert bash_accepts(job["spec"]["entrypoint"])
