"""What a space declares unimodal: read, refused, kept, asked for last."""

from __future__ import annotations

from typing import Any

import pytest
from errors_helper import raises_code
from space_fakes import Recorder

from search_spaces import SearchSpace, SpaceError, parse_space

RADIUS = {"uniform": [0, 100], "unimodal": True}


def space_of(method: str = "dplis", **raw: Any) -> SearchSpace:  # noqa: ANN401
    return parse_space(raw, method=method)


@pytest.mark.parametrize(
    ("name", "method", "domain"),
    [
        ("smoothing_radius", "dplis", {"uniform": [0, 100]}),
        ("smoothing_samples", "dplis", {"log_integer": [1, 20]}),
        ("warmup", "dp_sgd", {"uniform": [0, 0.2]}),
        ("batch_size", "dp_sgd", {"integer": [32, 64]}),
    ],
)
def test_any_searched_number_may_be_declared(name: str, method: str, domain: dict[str, list[float]]) -> None:
    space = parse_space({name: {**domain, "unimodal": True}}, method=method)
    (flat,) = space.unimodal
    assert flat.rpartition(".")[2] == name
    assert space.to_spec()[name] == {**domain, "unimodal": True}
    assert parse_space(space.to_spec(), method=method) == space
    assert parse_space({name: {**domain, "unimodal": False}}, method=method) == parse_space(
        {name: domain}, method=method
    ), "false says nothing"


def test_an_alias_and_a_conditional_parameter_keep_their_declaration() -> None:
    decay = {"log_uniform": [0.5, 3], "unimodal": True}
    space = space_of(R=RADIUS, schedule={"choice": ["constant", {"inverse_time": {"decay": decay}}]})
    assert space.unimodal == ("smoothing_radius", "schedule.inverse_time.decay")
    assert space.to_spec()["schedule"] == {"choice": ["constant", {"inverse_time": {"decay": decay}}]}
    assert parse_space(space.to_spec(), method="dplis") == space


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ({"choice": [1, 2], "unimodal": True}, "unimodal-invalid"),
        ({"value": 10, "unimodal": True}, "unimodal-invalid"),
        ({"unimodal": True}, "unimodal-invalid"),
        ({"uniform": [0, 100], "unimodal": 1}, "unimodal-invalid"),
        ({"uniform": [0, 100], "unimodel": True}, "domain-unknown"),
    ],
)
def test_only_a_range_is_declared_and_anything_else_is_one_problem(raw: dict[str, object], code: str) -> None:
    with raises_code(SpaceError, code) as caught:
        space_of(smoothing_radius=raw)
    (problem,) = caught.value.problems  # type: ignore[attr-defined]
    assert problem.path == ("smoothing_radius",)


def test_what_is_unimodal_is_asked_for_last_and_stands_where_it_stood() -> None:
    raw = {
        "smoothing_radius": RADIUS,
        "learning_rate": {"log_uniform": [0.1, 1], "unimodal": True},
        "schedule": {"choice": ["inverse_time"]},
        "smoothing_samples": 3,
        "max_grad_norm": {"log_uniform": [0.1, 1]},
    }
    space, recorder = space_of(**raw), Recorder()
    chosen = space.sample(recorder)
    assert recorder.asked == ["schedule", "max_grad_norm", "learning_rate", "smoothing_radius"]
    assert list(chosen) == list(raw)
    plain = {**raw, "smoothing_radius": {"uniform": [0, 100]}, "learning_rate": {"log_uniform": [0.1, 1]}}
    recorder = Recorder()
    assert space_of(**plain).sample(recorder) == chosen
    assert recorder.asked == ["smoothing_radius", "learning_rate", "schedule", "max_grad_norm"], "the order of the file"


def test_a_radius_is_scaled_by_what_is_searched_of_the_three() -> None:
    space = space_of(R=RADIUS, learning_rate={"log_uniform": [0.1, 1]}, max_grad_norm=1.0)
    assert space.scales("smoothing_radius") == ("learning_rate",)
    assert space.scales("learning_rate") == ()
    every = space_of(R=RADIUS, lr="default", C="default", noise_multiplier="default")
    assert every.scales("smoothing_radius") == ("learning_rate", "noise_multiplier", "max_grad_norm")
