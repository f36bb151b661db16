"""The manifests for Kubernetes pass the schemas of Kubernetes and KubeRay, and refer to each other by their names."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

FILE = Path(__file__).parents[2] / "deploy" / "kubernetes.yaml"
VERSION = "1.32"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def strict(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Refuse unknown keys, which Kubernetes would drop without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    return {**closed, **{key: strict(value) for key, value in schema.items()}}


def pods(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pod templates of a RayJob."""
    cluster = manifest["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]


def validate(manifest: dict[str, Any]) -> None:
    if manifest["kind"] != "RayJob":
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        return
    schema = json.loads((Path(__file__).parent / "rayjob_schema.json").read_text())["schema"]
    schema["properties"]["metadata"] = {}
    closed = strict(schema)
    closed["properties"]["metadata"] = {}
    jsonschema.validate(manifest, closed)
    for template in pods(manifest):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **template["metadata"]},
            "spec": template["spec"],
        }
        kubernetes_validate.validate(pod, VERSION, strict=True)


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_valid_and_a_misspelt_key_anywhere_is_found(manifest: dict[str, Any]) -> None:
    validate(manifest)
    for place in paths(manifest):
        broken = copy.deepcopy(manifest)
        inside = broken
        for key in place[:-1]:
            inside = inside[key]
        inside[f"{place[-1]}x"] = inside.pop(place[-1])
        with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
            validate(broken)


def paths(manifest: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return some keys to misspell: of the specification, and of the first container."""
    spec = [("spec", key) for key in manifest["spec"]]
    if manifest["kind"] == "RayJob":
        head = ("spec", "rayClusterSpec", "headGroupSpec")
        container = (*head, "template", "spec", "containers", 0)
        return [*spec, (*head, "rayStartParams"), (*container, "volumeMounts"), (*container, "env", 0, "value")]
    if "template" in manifest["spec"]:
        return [*spec, ("spec", "template", "spec", "containers", 0, "image")]
    return spec


def specs() -> Iterator[dict[str, Any]]:
    for manifest in manifests():
        if manifest["kind"] == "RayJob":
            yield from (pod["spec"] for pod in pods(manifest))
        elif "template" in manifest["spec"]:
            yield manifest["spec"]["template"]["spec"]


def test_volumes_claims_services_and_labels_are_those_of_the_file() -> None:
    every = manifests()
    claims = {each["metadata"]["name"] for each in every if each["kind"] == "PersistentVolumeClaim"}
    named = {"dp-tuner"}  # the secret that the comment at the top makes
    for spec in specs():
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for volume in volumes.values():
            assert volume.get("persistentVolumeClaim", {}).get("claimName", min(claims)) in claims
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            for variable in container.get("env", []):
                assert (
                    variable.get("valueFrom", {"secretKeyRef": {"name": "dp-tuner"}})["secretKeyRef"]["name"] in named
                )
    labels = {
        each["spec"]["template"]["metadata"]["labels"]["app"] for each in every if "template" in each.get("spec", {})
    }
    for service in (each for each in every if each["kind"] == "Service"):
        assert service["spec"]["selector"]["app"] in labels
        assert service["metadata"]["name"] in FILE.read_text().split("apiVersion")[0], "the comment has its address"


def test_the_cluster_asks_for_a_token_runs_no_trial_on_the_head_and_shares_its_storage() -> None:
    (job,) = (each for each in manifests() if each["kind"] == "RayJob")
    head, *workers = pods(job)
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for pod in (head, *workers):
        (container,) = pod["spec"]["containers"]
        variables = {variable["name"]: variable for variable in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert "secretKeyRef" in variables["RAY_AUTH_TOKEN"]["valueFrom"]
        assert {"name": "runs", "mountPath": "/srv/runs"} in container["volumeMounts"]
    for worker in workers:
        assert "PGPASSWORD" not in {each["name"] for each in worker["spec"]["containers"][0]["env"]}, (
            "only the driver charges"
        )
