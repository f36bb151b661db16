"""What a file leaves out of its space: what is then searched, what is fixed where, and the examples of the docs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

import tuner
from search_spaces import METHODS, MINIMA, PARAMETERS, Domain, Fixed, Scalar, method_parameters
from search_spaces.common import AVERAGED, CHOSEN
from search_spaces.optimizers import NOISE_FLOOR
from search_spaces.schedules import GEN, KINDS
from trainables.hyperparameters import Hyperparameters
from trainables.methods import STEP_METHODS, from_parameters
from tuner.experiment import Experiment, parse_experiment, yamlfile
from tuner.experiment.prior import ONE_RUN, recommended
from tuner.experiment.shipped_files import write_template

SHOWN = {"ema_decay": AVERAGED, "extrapolation": CHOSEN}
"""What an experiment file shows and exports, if it does not say otherwise."""

USUAL: dict[str, set[str]] = {
    "dp_sgd": set(),
    "dp_lssgd": {"laplacian_sigma"},
    "dplis": {"smoothing_radius"},
    "dp_weight_decay": {"weight_decay"},
    "input_perturbation": {"weight_decay", "feature_gain"},
    "pate": {"smoothing_sigma", "weight_decay"},
    "composed": {"laplacian_sigma", "smoothing_radius", "weight_decay"},
    "objective_perturbation": {"weight_decay"},
    "output_perturbation": {"weight_decay"},
}
DOCUMENT = Path(tuner.__file__).parent.parent / "docs" / "experiment.md"


def experiment_of(method: str, *overrides: str) -> Experiment:
    text = f"name: my-search\ndataset: {{name: digits}}\ntrainable: {{method: {method}}}\nprivacy: {{epsilon: 4.0}}\n"
    needed = [] if method in STEP_METHODS else ["privacy.accounting=release"]
    if method == "pate":
        needed = ["privacy.accounting=votes", "dataset.name=mnist_votes"]
    if method in MINIMA:
        needed = ["trainable.batch_size=1261", "trainable.epochs=1"]  # one step on all records of the digits
    return parse_experiment(text, [*needed, *overrides])


class First:
    """Takes the lower end, the first option, and one kind of schedule."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return low

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return low

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        return self._kind if name == "schedule" else options[0]


def made(method: str, parameters: Mapping[str, object]) -> Hyperparameters:
    return from_parameters(method, parameters, batch_size=8, steps=10, noise_multiplier=1.0)


@pytest.mark.parametrize("empty", [[], ["search.space={}"]])
@pytest.mark.parametrize("method", METHODS)
def test_a_space_left_out_searches_what_the_method_is_about(method: str, empty: list[str]) -> None:
    experiment = experiment_of(method, *empty)
    assert set(experiment.space.free) == USUAL[method] | (set() if method in MINIMA else {"learning_rate"})
    domains = dict(experiment.space.parameters)
    prior = recommended(experiment.search.space, experiment)
    assert (
        set(prior) == set()
        if method not in STEP_METHODS
        else domains["learning_rate"].contains(prior["learning_rate"].value)
    )
    for name in USUAL[method]:
        assert domains[name] == PARAMETERS[name].default
    assert isinstance(domains["feature_clip" if method in MINIMA else "max_grad_norm"], Fixed)
    assert parse_experiment(experiment.to_yaml()) == experiment


@pytest.mark.parametrize("method", STEP_METHODS)
def test_one_trial_of_a_space_left_out_is_the_shipped_prior_and_the_defaults(method: str) -> None:
    experiment = experiment_of(method, "search.trials=1")
    assert experiment.space.searched == ()
    chosen = experiment.space.sample(First("constant"))
    found = recommended(ONE_RUN, experiment)
    own = {name: float(f"{found[name].value:.3g}") for name in ONE_RUN}
    assert made(method, chosen) == made(method, {**own, **SHOWN})
    assert parse_experiment(experiment.to_yaml()) == experiment


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (method, kind)
        for method in METHODS
        for kind in KINDS
        if method not in MINIMA and (method in STEP_METHODS or kind != GEN)
    ],
)
def test_writing_the_defaults_out_changes_no_trial(method: str, kind: str) -> None:
    kinds = [each for each in KINDS if method in STEP_METHODS or each != GEN]
    experiment = experiment_of(method, f"search.space={{schedule: {{choice: [{', '.join(kinds)}]}}}}")
    chosen = experiment.space.sample(First(kind))
    averaged = SHOWN if method in STEP_METHODS else {}
    assert made(method, chosen) == made(method, {"schedule": kind, **averaged})
    free = {name: each.needs for name, each in method_parameters(method).items() if not each.priced}
    elsewhere = {name for name in free if PARAMETERS[name].of_trainable}
    own = {name for name, needs in free.items() if needs is None or kind in needs[1]}
    assert set(chosen) == own - elsewhere, "every value is recorded"


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("cosine", "{cosine: {final: 0.0}}"),
        ("constant", "constant"),
        ("{step: {every: 0.3}}", "{step: {every: 0.3, factor: 0.1}}"),
        (
            "{choice: [cosine, {inverse_time: {decay: default}}]}",
            "{choice: [{cosine: {final: 0.0}}, {inverse_time: {decay: {log_uniform: [0.5, 100.0]}}}]}",
        ),
    ],
)
def test_a_schedule_gets_the_parameters_of_its_own_kinds(schedule: str, wanted: str) -> None:
    space = experiment_of("dp_sgd", f"search.space={{schedule: {schedule}, lr: default}}").search.space
    assert space["schedule"] == yaml.safe_load(wanted)
    assert list(space)[:3] == ["schedule", "learning_rate", "max_grad_norm"], "named ones first, in file order"
    assert list(space)[3:] == [
        "clipping",
        "augmentation",
        "augmentation_multiplicity",
        "ema_decay",
        "extrapolation",
        "warmup",
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adam_corrected"])
def test_an_optimizer_gets_its_own_parameters_and_no_others(optimizer: str) -> None:
    adam = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_floor": 1e-8}
    wanted = {"sgd": {}, "adam": adam, "adam_corrected": {**adam, "adam_noise_floor": NOISE_FLOOR}}[optimizer]
    for file in (f"trainable.optimizer={optimizer}", f"search.space={{lr: default, optimizer: {optimizer}}}"):
        experiment = experiment_of("dp_sgd", file)
        space = experiment.search.space
        assert {name: value for name, value in space.items() if "adam_" in name} == wanted
        assert "momentum" not in space, "it is that of trainable"
        assert parse_experiment(experiment.to_yaml()) == experiment


def test_a_range_for_several_optimizers_contains_that_of_each() -> None:
    def rates(optimizer: str) -> Domain:
        file = f"search.space={{lr: default, optimizer: {optimizer}}}"
        return dict(experiment_of("dp_sgd", file).space.parameters)["learning_rate"]

    several = rates("{choice: [sgd, adam, adam_corrected]}")
    for each in map(rates, ("sgd", "adam", "adam_corrected")):
        assert all(several.contains(end) for end in each.grid(2))
    assert rates("adam").grid(2)[1] < rates("sgd").grid(2)[1]


BLOCKS = DOCUMENT.read_text().split("```yaml\n")[1:]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_documented_example_is_one(number: int) -> None:
    base = yaml.safe_load("name: x\ndataset: {name: mnist}\ntrainable: {method: dp_sgd}\nprivacy: {epsilon: 1.0}\n")
    shown = yamlfile.parse(BLOCKS[number].partition("```")[0], source="docs/experiment.md")
    assert not shown.problems
    for section, values in (shown.values or {}).items():
        base[section] = {**base[section], **values} if isinstance(base.get(section), dict) else values
    loaded = parse_experiment(yamlfile.dump(base))
    assert parse_experiment(loaded.to_yaml()) == loaded


def test_the_template_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_template(path, force=False)
    assert parse_experiment(path.read_text()).space.free
