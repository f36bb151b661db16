"""A method of one's own by the commands: each refusal is one clear error, and nothing is charged."""

from __future__ import annotations

from typing import Any

import pytest
from command_fakes import Tune


@pytest.mark.parametrize(
    ("method", "own", "code"),
    [
        ("own_methods:absent", {}, "method-not-importable"),
        ("own_methods:halved", {"factor": 2.0}, "method-parameters"),
        ("own_methods:halved", {"by": {"uniform": [0.0, 1.0]}}, "method-output-invalid"),
        ("own_methods:halved", {"by": "default"}, "own-parameters-invalid"),
        ("own_methods:halved", [2.0], "own-parameters-invalid"),
        ("own_methods:halved", {"by": {"uniform": [2.0, 1.0]}}, "domain-bounds"),
        ("own_methods:deciding", {}, "method-code-failed"),
        ("own_methods:without_noise", {}, "method-stages-invalid"),
        ("own_methods:growing", {}, "method-depends-on-more"),
        ("own_methods", {}, "method-unknown"),
        ("dp_sgd", {"by": 2.0}, "parameter-unknown"),
    ],
)
def test_a_method_that_is_none_is_refused(tune: Tune, method: str, own: Any, code: str) -> None:  # noqa: ANN401
    space = {"learning_rate": {"log_uniform": [0.1, 2.0]}, **({"own": own} if own else {})}
    said = tune("run", tune.write(trainable__method=method, search__space=space), "--local", "--quiet", code=2)
    assert f"[{code}]" in said.err
    assert "method" in said.err or "own" in said.err
    assert not tune.entries
    assert not tune.sweeps
    assert not tune.mlflow_runs()


@pytest.mark.slow
def test_own_parameters_are_in_every_mode(tune: Tune) -> None:
    space = {"learning_rate": {"log_uniform": [0.1, 2.0]}, "own": {"by": {"uniform": [1.0, 2.0]}}}
    file = tune.write(
        trainable__method="own_methods:halved",
        search__space=space,
        privacy__noise_multiplier="auto",
        search__sampler="tpe",
    )
    for options in (
        ["privacy.accounting=auto"],
        ["privacy.accounting=selection", "search.sampler=random"],
        ["search.commit=0.2", "search.sampler=surrogate"],
        ["search.sampler=unimodal", "search.space.own.by={uniform: [1, 2], unimodal: true}"],
    ):
        tune("plan", file, "--no-timing", *(word for option in options for word in ("--set", option)))


def test_the_audit_is_of_the_method(tune: Tune) -> None:
    space = {"learning_rate": 0.5, "own": {"by": {"uniform": [1.0, 2.0]}}}
    file = tune.write(trainable__method="own_methods:halved", search__space=space)
    found = tune("audit", file, "--json").json
    assert found["method"] == "own_methods:halved"
    assert found["sensitivity"]["largest_ratio"] <= 1
    assert found["ok"]
