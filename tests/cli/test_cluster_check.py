"""A search is refused on a cluster that would waste its budget: by the machine's name, before a line in the ledger."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from command_fakes import Tune, until, write_images
from two_nodes import ROOT, Cluster, can_unshare, job_said, said

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not can_unshare(), reason="this account may not give a process mounts of its own"),
]

MODEL = """
from torch import nn

def small(*, input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
CODE = [ROOT / name for name in ("tuner", "trainables", "search_spaces")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    nodes = Cluster()
    yield nodes
    nodes.stop()


@pytest.fixture
def search(tune: Tune) -> Tune:
    """A search on a file and with a model of one's own, in a folder that both machines have."""
    (tune.folder / "data").mkdir()
    write_images(tune.folder / "data" / "mine.npz", 300)
    (tune.folder / "own_code").mkdir()
    (tune.folder / "own_code" / "model.py").write_text(MODEL)
    tune.write(
        dataset={"name": "mine", "path": "data/mine.npz", "public_size": 300},
        trainable__model="own_code.model:small",
        trainable__batch_size=32,
        resources={"concurrent_trials": 2},
    )
    return tune


def environment(cluster: Cluster, search: Tune) -> dict[str, str]:
    return {**cluster.environment(), "XDG_DATA_HOME": str(search.folder), "OMP_NUM_THREADS": "1"}


def other_code(cluster: Cluster, search: Tune) -> contextlib.AbstractContextManager[None]:
    shutil.copytree(ROOT / "search_spaces", search.folder / "other")
    with (search.folder / "other" / "spaces.py").open("a") as file:
        file.write("# another version\n")
    return cluster.replace(ROOT / "search_spaces", search.folder / "other")


FAULTS: dict[str, Callable[[Cluster, Tune], contextlib.AbstractContextManager[None]]] = {
    "storage-not-shared": lambda cluster, search: cluster.hide(search.folder / "runs"),
    "node-code-missing": lambda cluster, _: cluster.hide(*CODE),
    "node-code-differs": other_code,
    "node-data": lambda cluster, search: cluster.hide(search.folder / "data"),
    "node-module": lambda cluster, search: cluster.hide(search.folder / "own_code"),
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_machine_that_cannot_run_the_trials_is_named_and_nothing_is_charged(
    cluster: Cluster, search: Tune, code: str
) -> None:
    with FAULTS[code](cluster, search):
        exit_code, text, _ = said(
            environment(cluster, search), search.folder, "run", "tiny.yaml", "--address", cluster.address
        )
    assert exit_code == 2, text
    problems = [line for line in text.splitlines() if line.endswith("]")]
    assert [(line.partition(":")[0], line.rpartition("[")[2]) for line in problems] == [("bad", f"{code}]")]
    untouched(search)


def untouched(search: Tune) -> None:
    assert not search.entries
    assert not search.sweeps
    assert sorted(path.name for path in (search.folder / "runs").iterdir()) == ["mlflow.db"]


def test_without_the_token_the_cause_is_said_at_once(cluster: Cluster, search: Tune) -> None:
    variables = environment(cluster, search)
    del variables["RAY_AUTH_TOKEN_PATH"]
    for mode in ("disabled", "token"):
        outside = {**variables, "RAY_AUTH_MODE": mode, "HOME": str(search.folder)}
        exit_code, text, _ = said(outside, search.folder, "run", "tiny.yaml", "--address", cluster.address)
        assert (exit_code, text.count("[cluster-token]")) == (2, 1), text
    untouched(search)


def test_a_cluster_that_anybody_may_enter_is_refused(search: Tune) -> None:
    nodes = Cluster(token=False)
    try:
        words = ("run", "tiny.yaml", "--address", nodes.address)
        exit_code, text, _ = said(environment(nodes, search), search.folder, *words)
    finally:
        nodes.stop()
    assert exit_code == 2, text
    assert text.count("[cluster-open]") in (1, 2), "one error for each machine that has answered by then"
    untouched(search)


def test_a_machine_that_loses_the_storage_later_stops_the_search_at_its_first_report(
    cluster: Cluster, search: Tune
) -> None:
    words = ("run", "tiny.yaml", "--quiet", "--set", "search.trials=12", "--address", cluster.address)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tuner", *words],
        cwd=search.folder,
        env=environment(cluster, search),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(process, "checked 2 machines")
        with cluster.hide(search.folder / "runs"):
            _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 1, errors
    assert errors.count("[checkpoint-unseen]") == 1
    (pool,) = search.search_state(search.sweeps[0].name).pools.values()
    planned = json.loads((search.sweeps[0] / "plan.json").read_text())
    assert 0 < pool.leased_steps < planned["trials"] * planned["steps_per_trial"] / 2


def test_a_cluster_that_is_right_trains_the_search(cluster: Cluster, search: Tune) -> None:
    variables = environment(cluster, search)
    exit_code, text, _ = said(variables, search.folder, "doctor", "tiny.yaml", "--address", cluster.address)
    assert exit_code == 0, text
    exit_code, text, _ = said(variables, search.folder, "run", "tiny.yaml", "--quiet", "--address", cluster.address)
    assert exit_code == 0, text
    assert "checked 2 machines" in text
    kept = search.sweeps[0].glob("trials/*/checkpoint/step-*.pt")
    assert {path.parents[1].name[:4] for path in kept} == {"0000", "0001"}


def test_a_job_of_ray_brings_its_code_and_keeps_its_results_outside_rays_copy(
    search: Tune, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The copy of the working directory is the only place in which the workers find the model."""
    nodes = Cluster(jobs=True)
    kept = tmp_path_factory.mktemp("kept")
    words = ["run", "tiny.yaml", "--quiet", "--address", "auto", "--set", f"dataset.path={search.folder}/data/mine.npz"]
    words += ["--set", "resources.concurrent_trials=1"]
    outside = ["--set", f"storage={kept}/runs", "--set", f"tracking.uri=sqlite:///{kept}/runs/mlflow.db"]
    try:
        variables = environment(nodes, search)
        refused = job_said(nodes, variables, search.folder, *words)
        untouched(search)
        done = job_said(nodes, variables, search.folder, *words, *outside)
    finally:
        nodes.stop()
    assert refused[0] != 0
    assert "[job-copy]" in refused[1], refused[1]
    assert done[0] == 0, done[1]
    assert {path.parents[1].name[:4] for path in kept.glob("runs/*/trials/*/checkpoint/*.pt")} == {"0000", "0001"}
    assert "open_search" in search.entries
