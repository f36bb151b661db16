"""Search spaces: every parameter's contract, sampling order and conditions, and all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from covering import pairs
from space_fakes import Recorder

from search_spaces import (
    METHODS,
    MINIMA,
    PARAMETERS,
    Categorical,
    Fixed,
    Limits,
    Parameter,
    SpaceError,
    default_space,
    method_parameters,
    parse_space,
)
from search_spaces.errors import EXPLANATIONS
from search_spaces.schedules import CONDITIONAL, GEN, KINDS
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings, rate_factor
from trainables.hyperparameters import PRICED
from trainables.methods import METHODS as TRAINED
from trainables.methods import from_parameters


@pytest.mark.parametrize("parameter", PARAMETERS.values(), ids=PARAMETERS)
def test_every_parameter_keeps_its_own_contract(parameter: Parameter) -> None:
    parameter.check(parameter.default)
    assert parameter.source
    assert all(parameter.default.contains(value) for value in parameter.default.grid(3))


def test_no_two_parameters_of_a_method_share_a_key() -> None:
    for method in METHODS:
        keys = [key for entry in method_parameters(method).values() for key in (entry.name, *entry.aliases)]
        assert len(keys) == len(set(keys)), method


def test_methods_and_free_parameters_are_those_that_the_trainables_take() -> None:
    assert set(METHODS) == set(TRAINED)
    elsewhere = {"schedule"}
    for method, trained in TRAINED.items():
        taken = {field.name for field in fields(trained)} - set(PRICED) - elsewhere
        offered = {name for name, entry in method_parameters(method).items() if not entry.priced}
        if method in MINIMA:  # one step without a rate, an optimizer or a clip of gradients
            taken = {entry.name for entry in METHODS[method]} & taken
        assert {name for name in offered if not name.startswith("schedule")} - {"activation"} == taken, method


def test_schedules_are_those_that_the_trainables_take() -> None:
    assert all(rate_factor(ScheduleSettings(kind=kind), 0, 10, steps_per_epoch=5) == 1 for kind in KINDS)
    assert {name for name in PARAMETERS if name.startswith("schedule.")} == set(SCHEDULE_KEYS)
    assert {entry.name for entry in CONDITIONAL} == {key for key, (kind, _) in SCHEDULE_KEYS.items() if kind}


@pytest.mark.parametrize(("method", "kind", "place"), pairs(sorted(set(METHODS) - MINIMA), list(KINDS), (0, -1)))
def test_both_ends_of_every_default_domain_make_hyperparameters(method: str, kind: str, place: int) -> None:
    names = [name for name, entry in method_parameters(method).items() if not entry.priced]
    own = {entry.name.rpartition(".")[2]: "default" for entry in CONDITIONAL if entry.name.split(".")[1] == kind}
    raw: dict[str, Any] = {name: "default" for name in names if not name.startswith("schedule.")}
    raw |= {"schedule": {kind: own} if own else kind, "warmup": "default"}
    raw |= {"learning_rate": 0.5} if kind == GEN else {}
    raw |= {"optimizer": {"choice": ["sgd", "adam_corrected"]}}
    chosen = parse_space(raw, method=method).sample(Recorder(place))
    assert ("momentum" in chosen, "adam_noise_floor" in chosen) == ((True, False) if place == 0 else (False, True))
    chosen.pop("activation")  # of the model
    made = from_parameters(method, chosen, batch_size=8, steps=10, noise_multiplier=1.0)
    assert made.learning_rate == chosen["learning_rate"]
    assert isinstance(made.schedule, ScheduleSettings)
    assert made.schedule.kind == kind


@pytest.mark.parametrize("name", [name for name, entry in PARAMETERS.items() if isinstance(entry.legal, Limits)])
def test_the_legal_limits_are_those_that_the_trainables_check(name: str) -> None:
    entry = PARAMETERS[name]
    if entry.priced:
        return
    limits = entry.legal
    assert isinstance(limits, Limits)
    method = next(method for method in METHODS if name in method_parameters(method))
    base: dict[str, object] = {}
    parts = name.split(".")
    if len(parts) == 3:
        base["schedule"] = parts[1]
    if entry.needs and entry.needs[0] == "optimizer":
        base["optimizer"] = entry.needs[1][-1]
    if name == "augmentation_multiplicity":
        base["augmentation"] = "flip"
    tries: list[float] = [limits.low, limits.low - 0.5, limits.low + 0.5, -1, 0, 1, 2, float("nan"), float("inf")]
    if limits.high < float("inf"):
        tries += [limits.high, limits.high + 0.5]
    for value in [int(value) if limits.integer and value == value // 1 else value for value in tries]:
        try:
            from_parameters(method, {**base, name: value}, batch_size=8, steps=10, noise_multiplier=1.0)
            taken = True
        except ValueError:
            taken = False
        assert limits.allows(value) == taken, (name, value)


COMPOSED: Mapping[str, Any] = {
    "lambda": {"log_uniform": [1e-5, 1]},
    "R": "default",
    "K": 5,
    "schedule": {"choice": ["constant", {"step": {"factor": 0.1, "every": {"uniform": [0.2, 0.8]}}}, "cosine"]},
    "warmup": {"uniform": [0, 0.2]},
}


def test_it_asks_in_file_order_and_only_what_the_chosen_schedule_has() -> None:
    space = parse_space(COMPOSED, method="composed")
    for kind, own in (("step", ["schedule.step.every"]), ("cosine", [])):
        asked = Recorder(kind=kind)
        chosen = space.sample(asked)
        assert asked.asked == ["weight_decay", "smoothing_radius", "schedule", *own, "schedule.warmup"]
        assert (chosen["smoothing_samples"], chosen.get("schedule.step.factor")) == (5, 0.1 if own else None)


def test_parameters_of_an_optimizer_are_asked_for_with_it_alone() -> None:
    raw = {"momentum": "default", "beta1": "default", "optimizer": {"choice": ["sgd", "adam"]}, "R": "default"}
    space = parse_space(raw, method="dplis")
    for place, own in ((0, ["momentum"]), (-1, ["adam_beta1"])):
        asked = Recorder(place)
        space.sample(asked)
        assert asked.asked == ["optimizer", *own, "smoothing_radius"], "after their optimizer"
    assert parse_space(space.to_spec(), method="dplis") == space
    given = parse_space({"beta1": "default"}, method="dplis", optimizer="adam")
    assert given.searched == ("adam_beta1",)


def test_only_the_rate_scales_a_radius_under_adam() -> None:
    raw = {"R": "default", "learning_rate": "default", "C": "default"}
    assert parse_space(raw, method="dplis").scales("smoothing_radius") == ("learning_rate", "max_grad_norm")
    for space in (
        parse_space(raw, method="dplis", optimizer="adam"),
        parse_space({**raw, "optimizer": "adam"}, method="dplis"),
    ):
        assert space.scales("smoothing_radius") == ("learning_rate",)


def test_free_and_priced_names_leave_out_what_is_fixed() -> None:
    space = parse_space({"K": 3, "R": "default", "batch_size": {"choice": [64, 128]}}, method="dplis")
    assert space.free == ("smoothing_radius",)
    assert space.priced == ("batch_size",)
    assert space.searched == ("smoothing_radius", "batch_size")


def test_what_rises_within_a_trial_is_one_plan_and_nothing_to_search() -> None:
    space = parse_space({"K": {"promote": [1, 3]}, "R": "default"}, method="dplis")
    assert space.promoted == {"smoothing_samples": (1, 3)}
    assert space.searched == space.free == ("smoothing_radius",)
    assert set(space.grid(2)) == {"smoothing_radius"}
    asked = Recorder()
    assert space.sample(asked) == {"smoothing_samples": {"promote": [1, 3]}, "smoothing_radius": 0.0}
    assert asked.asked == ["smoothing_radius"]
    assert parse_space(space.to_spec(), method="dplis") == space
    assert parse_space({"K": 3}, method="dplis").promoted == {}


def test_the_file_form_comes_back_as_the_same_space() -> None:
    space = parse_space(COMPOSED, method="composed")
    assert parse_space(space.to_spec(), method="composed") == space
    assert list(space.to_spec()) == ["weight_decay", "smoothing_radius", "smoothing_samples", "schedule", "warmup"]


def test_parameters_of_schedules_have_one_order_wherever_they_were_written() -> None:
    flat = {"schedule.cosine.final": 0.1, "schedule.step.every": 0.5, "schedule": {"choice": ["step", "cosine"]}}
    space = parse_space({**flat, "schedule.step.factor": "default"}, method="dp_sgd")
    ordered = ["schedule", "schedule.step.every", "schedule.step.factor", "schedule.cosine.final"]
    assert [name for name, _ in space.parameters] == ordered
    assert parse_space(space.to_spec(), method="dp_sgd") == space


def test_flat_keys_of_one_trial_are_a_space_too() -> None:
    flat = {"learning_rate": 0.1, "schedule.inverse_time.decay": 1.5, "schedule": "inverse_time"}
    space = parse_space(flat, method="dp_sgd")
    assert space.searched == ()
    assert space.sample(Recorder()) == flat
    assert parse_space(space.to_spec(), method="dp_sgd") == space


def test_a_grid_holds_every_searched_parameter_and_nothing_fixed() -> None:
    grid = parse_space(COMPOSED, method="composed").grid(3)
    assert set(grid) == {"weight_decay", "smoothing_radius", "schedule", "schedule.step.every", "schedule.warmup"}
    assert grid["schedule"] == ["constant", "step", "cosine"]
    assert len(grid["weight_decay"]) == 3


def test_a_schedule_may_stand_alone() -> None:
    assert dict(parse_space({"schedule": "cosine"}, method="dp_sgd").parameters) == {"schedule": Fixed("cosine")}
    nested = parse_space({"schedule": {"exponential": {"final": 0.2}}}, method="dp_sgd")
    assert dict(nested.parameters)["schedule.exponential.final"] == Fixed(0.2)
    choice = parse_space({"schedule": {"choice": ["step", "cosine"]}}, method="dp_sgd")
    assert dict(choice.parameters) == {"schedule": Categorical(("step", "cosine"))}


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("dp_sgd", {"smoothing_radius": 3}, "parameter-unknown", "smoothing_radius"),
    ("dp_sgd", {"K": {"promote": [1, 3]}}, "parameter-unknown", "smoothing_samples (K)"),
    ("dplis", {"R": {"promote": [1, 3]}}, "promotion-unsupported", "smoothing_radius"),
    ("dplis", {"K": {"promote": [1, 3], "unimodal": True}}, "unimodal-invalid", ""),
    ("dplis", {"laplacian_sigma": 3}, "parameter-unknown", "composed or dp_lssgd"),
    ("dplis", {"learning_rat": 3}, "parameter-unknown", "'learning_rate'"),
    ("dplis", {"xyzzy": 3}, "parameter-unknown", ""),
    ("dplis", {"model": "mlp_64"}, "parameter-not-searchable", "trainable.model"),
    ("dp_sgd", {"optimizer": "adam", "momentum": 0.9}, "optimizer-missing", "sgd"),
    ("dp_sgd", {"beta1": "default"}, "optimizer-missing", "adam or adam_corrected"),
    ("dp_sgd", {"optimizer": {"choice": ["sgd", "adam"]}, "adam_noise_floor": 1}, "optimizer-missing", ""),
    ("dp_sgd", {"optimizer": "adamw"}, "value-illegal", "sgd, adam, adam_corrected"),
    ("dp_sgd", {"schedule": {"inverse_time": {"decay": "per_minute"}}}, "value-illegal", "per_step, per_epoch"),
    ("dplis", {"steps": 3}, "parameter-not-searchable", "trainable.epochs"),
    ("dp_sgd", {"clipping": "global"}, "value-illegal", "flat, automatic, per_layer"),
    ("dp_sgd", {"augmentation": "cutout"}, "value-illegal", "none, flip, crop, crop_flip"),
    ("dp_sgd", {"ema_decay": {"uniform": [0.5, 1.0]}}, "value-illegal", "ema_decay"),
    ("dp_sgd", {"M": 0}, "value-illegal", "1"),
    ("dp_sgd", {"M": 2}, "copies-without-augmentation", ""),
    (
        "dp_sgd",
        {"augmentation_multiplicity": {"integer": [1, 4]}, "augmentation": {"choice": ["none", "flip"]}},
        "copies-without-augmentation",
        "",
    ),
    ("dplis", {"R": -1}, "value-illegal", "0"),
    ("dplis", {"K": {"uniform": [1, 3]}}, "value-illegal", "{integer: [low, high]}"),
    ("dplis", {"learning_rate": "fast"}, "value-illegal", "0"),
    ("dplis", {"smoothing_reduction": "max"}, "value-illegal", "mean, sum"),
    ("dplis", {"smoothing_reduction": {"uniform": [0, 1]}}, "value-illegal", "mean, sum"),
    ("dplis", {"R": 1, "smoothing_radius": 2}, "parameter-repeated", "R and smoothing_radius"),
    ("dp_sgd", {"schedule": "cosin"}, "schedule-invalid", "'cosine'"),
    ("dp_sgd", {"schedule": {"choice": []}}, "choice-invalid", ""),
    ("dp_sgd", {"schedule": {"choice": ["step", "step"]}}, "choice-invalid", ""),
    ("dp_sgd", {"schedule": {"choice": ["warmup"]}}, "schedule-invalid", "warmup:"),
    ("dp_sgd", {"schedule": {"step": {"factr": 0.1}}}, "parameter-unknown", "'factor'"),
    ("dp_sgd", {"schedule": {"step": {"factor": 2}}}, "value-illegal", "factor"),
    ("dp_sgd", {"schedule": {"step": 3}}, "schedule-invalid", "factor, every"),
    ("dp_sgd", {"schedule": {"step": {}, "cosine": {}}}, "schedule-invalid", ""),
    ("dp_sgd", {"warmup": 1.0}, "value-illegal", "warmup"),
    ("dp_sgd", {"schedule.cosine.final": 0.1}, "schedule-missing", "cosine"),
]


@pytest.mark.parametrize(("method", "raw", "code", "names"), WRONG, ids=[str(raw)[:50] for _, raw, _, _ in WRONG])
def test_a_wrong_space_is_refused_once_with_its_fix(method: str, raw: dict[str, Any], code: str, names: str) -> None:
    with pytest.raises(SpaceError) as caught:
        parse_space(raw, method=method)
    (problem,) = caught.value.problems
    assert problem.code == caught.value.code == code
    assert code in EXPLANATIONS
    assert names in str(problem)


RIGHT = ({"M": 1}, {"M": 8, "augmentation": "flip"}, {"M": "default", "augmentation": "default"})
RIGHT += ({"augmentation": {"choice": ["none", "flip"]}, "M": {"choice": [1]}},)


@pytest.mark.parametrize("raw", RIGHT, ids=str)
def test_every_trial_of_a_right_space_has_views_to_copy(raw: dict[str, Any]) -> None:
    space = parse_space(raw, method="dp_sgd")
    for place in (0, -1):
        from_parameters("dp_sgd", space.sample(Recorder(place)), batch_size=8, steps=10, noise_multiplier=1.0)


def test_without_a_method_every_parameter_may_stand_and_domains_are_checked() -> None:
    everything: dict[str, Any] = {name: "default" for name in PARAMETERS if not name.startswith("schedule.")}
    everything["optimizer"] = {"choice": ["sgd", "adam_corrected"]}
    names = [name for name, _ in parse_space(everything, method=None).parameters]
    assert sorted(names) == sorted(everything)
    with pytest.raises(SpaceError) as caught:
        parse_space({"sigma": -1, "R": {"uniform": [3, 1]}, "learning_rat": 1}, method=None)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("method", METHODS)
def test_the_default_space_is_a_space_of_its_method(method: str) -> None:
    space = parse_space(default_space(method), method=method)
    shared = () if method in MINIMA else ("learning_rate",)
    own = space.free[len(shared) :]
    assert space.free == space.searched == (*shared, *own)
    assert set(own) <= {entry.name for entry in METHODS[method]}
    assert own or not METHODS[method]


def test_all_problems_are_reported_in_file_order() -> None:
    raw = {"R": -1, "learning_rat": 3, "K": 0.5, "schedule": {"choice": ["cosin", {"step": {"factor": 7}}]}}
    with pytest.raises(SpaceError) as caught:
        parse_space(raw, method="dplis")
    paths = [".".join(map(str, problem.path)) for problem in caught.value.problems]
    assert paths == ["R", "learning_rat", "K", "schedule.choice.0", "schedule.choice.1.step.factor"]


@pytest.mark.parametrize("value", ["batch_mean", "mean", {"choice": ["flat", "batch"]}])
def test_a_clip_of_a_batch_mean_is_refused_with_the_reason(value: object) -> None:
    with pytest.raises(SpaceError) as caught:
        parse_space({"clipping": value}, method="dp_sgd")
    (problem,) = caught.value.problems
    assert problem.code == "clipping-of-batch-mean"
    assert parse_space({"clipping": "automatic"}, method="dp_sgd").parameters
