"""The experiment file: what a right one means, how it is found, and that its resolved form is the same experiment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from errors_helper import raises_code
from experiment_files import GOOD
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainables.data import DATASETS, public_train_size
from tuner.errors import InputError
from tuner.experiment import Experiment, find_file, load_experiment, parse_experiment, shipped, yamlfile
from tuner.export.package import _preprocessing
from tuner.plan.comparison import choose
from tuner.plan.plan import make_plan
from tuner.privacy.ledger.stores import default_url


def assert_resolved_file_is_equal(experiment: Experiment) -> None:
    """Assert that the resolved file is the same experiment, with its space in the same order."""
    again = parse_experiment(experiment.to_yaml())
    assert again == experiment
    assert again.space == experiment.space
    assert again.to_yaml() == experiment.to_yaml()


def test_a_right_file_is_what_it_says_and_defaults_fill_the_rest() -> None:
    experiment = parse_experiment(GOOD)
    assert experiment.seed == 3
    assert experiment.privacy.epsilon == 8
    assert experiment.privacy.delta == 1e-5
    assert experiment.privacy.noise_multiplier == "auto"
    assert experiment.search.pruner.name == "median"
    assert experiment.search.pruner.options == {"n_startup_trials": 3}
    assert experiment.search.rungs == (0.5, 1.0)
    assert experiment.space.free == ("smoothing_radius", "learning_rate")
    assert experiment.search.space["max_grad_norm"] == 1.0, "what the space does not name is written out"
    assert experiment.tracking.experiment == "a-search"
    assert experiment.ledger == default_url()


def test_a_loaded_experiment_and_its_copies_hold_the_space_that_was_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tuner.experiment.gates.finding as gates
    import tuner.experiment.model as model

    calls: list[object] = []
    parse = gates.parse_space

    for module in (gates, model):
        monkeypatch.setattr(module, "parse_space", lambda raw, **rest: calls.append(raw) or parse(raw, **rest))
    experiment = parse_experiment(GOOD)
    assert experiment.with_noise(2.0).space is experiment.space
    assert experiment.priced == {}
    assert len(calls) == 1
    assert parse(experiment.search.space, method="dplis") == experiment.space


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_loads_opens_with_its_command_and_says_why_it_is_warned_of(name: str) -> None:
    path = shipped()[name]
    text = path.read_text()
    assert text.startswith(f"# tune run experiments/{path.name}")
    experiment = load_experiment(path)
    assert experiment.name == name.replace("_", "-")
    assert experiment.space.free or experiment.search.trials == 1
    assert experiment.trainable.batch_size <= public_train_size(experiment.dataset_request())
    assert any("n^-1.1" in warning for warning in experiment.warnings()) == ("n^-1.1" in text)
    assert_resolved_file_is_equal(experiment)


def test_a_claim_for_each_window_of_a_text_is_not_taken_for_one_of_its_sentences() -> None:
    """The file, and so plan and run, and the card say what a record is."""
    warned = {
        unit: [each for each in parse_experiment(GOOD, [f"dataset.name={name}", *more]).warnings() if "window" in each]
        for unit, name, more in (
            ("record", "state_union", []),
            ("user", "state_union", ["privacy.unit=user", "trainable.batch_size=4", "privacy.delta=0.01"]),
            ("other", "digits", []),
        )
    }
    assert {unit: len(found) for unit, found in warned.items()} == {"record": 1, "user": 0, "other": 0}
    about = DATASETS["state_union"]
    assert about.record
    assert about.record in warned["record"][0]
    assert about.record in _preprocessing(about, "next_word_lstm")


def test_the_parameters_of_a_schedule_are_in_the_order_of_its_kinds() -> None:
    space = "search.space={schedule.cosine.final: 0.1, schedule.step.every: 0.3, schedule: {choice: [step, cosine]}}"
    experiment = parse_experiment(GOOD, [space])
    names = [name for name, _ in experiment.space.parameters]
    assert names[:4] == ["schedule", "schedule.step.every", "schedule.step.factor", "schedule.cosine.final"]
    assert_resolved_file_is_equal(experiment)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_plans_within_its_cap(name: str) -> None:
    experiment = load_experiment(shipped()[name])
    request = experiment.dataset_request()
    plan = choose(experiment, request)[1] if experiment.is_auto else make_plan(experiment, request)
    assert plan.epsilon_planned <= plan.epsilon_at_cap <= plan.epsilon
    whole = plan.trials if plan.full_runs is None else int(plan.full_runs)
    assert plan.trials_that_fit == whole


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["privacy.noise_multiplier=1.5", "search.rungs=3", "search.sampler={name: tpe, n_startup_trials: 2}"],
        ["trainable.method=composed"],
        ["search.space={schedule: {choice: [constant, {step: {factor: 0.5, every: default}}]}, warmup: 0.1}"],
        ["name='1e5'"],
        ["name='0x1f'", "tracking.experiment='12:30'"],
        ["tracking.experiment='*odd: {name} #1'", "storage=' '"],
        ["dataset={name: mine, path: mine.npz, public_size: 5000}"],
    ],
)
def test_the_resolved_file_is_itself_valid_and_equal(options: list[str]) -> None:
    assert_resolved_file_is_equal(parse_experiment(GOOD, options))


@settings(max_examples=30)
@example("\x85", 0.25, 1)
@given(st.text(max_size=30), st.floats(1e-6, 0.3), st.integers(1, 10**6))
def test_any_words_and_numbers_survive_the_resolved_file(word: str, momentum: float, trials: int) -> None:
    if not word or "://" in word:  # a URL is refused as a folder
        word = "x"
    search = {"trials": trials}
    # Our own `dump`: PyYAML leaves words such as 0E0 bare, which are numbers in YAML 1.2.
    text = yamlfile.dump({**yaml.safe_load(GOOD.replace("1e-5", "0.00001")), "storage": word, "search": search})
    experiment = parse_experiment(text, [f"trainable.momentum={momentum!r}"])
    assert experiment.storage == word
    assert experiment.trainable.momentum == momentum
    assert parse_experiment(experiment.to_yaml()) == experiment


def test_noise_is_put_in_by_a_copy() -> None:
    experiment = parse_experiment(GOOD)
    noisy = experiment.with_noise(1.25)
    assert (noisy.privacy.noise_multiplier, experiment.privacy.noise_multiplier) == (1.25, "auto")
    assert parse_experiment(noisy.to_yaml()) == noisy
    with pytest.raises(ValueError, match="finite number"):
        experiment.with_noise(float("nan"))


def test_the_request_for_data_has_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_TUNER_DATA", str(tmp_path))
    experiment = parse_experiment(GOOD, ["dataset={name: mine, path: mine.npz, public_size: 5000}"])
    request = experiment.dataset_request()
    assert request.data_dir == str(tmp_path)
    assert request.path == str(Path("mine.npz").absolute())
    assert experiment.dataset_request("elsewhere").data_dir == str(Path("elsewhere").absolute())


def test_overrides_apply_in_order_and_make_sections_that_were_not_there() -> None:
    options = ["privacy.epsilon=1", "privacy.epsilon=2e-1", "tracking.uri=sqlite:///x.db", "search.space.K=3"]
    experiment = parse_experiment(GOOD, options)
    assert experiment.privacy.epsilon == 0.2
    assert experiment.tracking.uri == "sqlite:///x.db"
    assert dict(experiment.search.space)["smoothing_samples"] == 3


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_experiment(path) == parse_experiment(GOOD)


def test_a_local_path_goes_before_the_shipped_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_file("digits_dplis.yaml") == (shipped()["digits_dplis"], "shipped")
    assert find_file("digits_dplis") == (shipped()["digits_dplis"], "shipped")
    assert find_file("experiments/digits_dplis.yaml")[1] == "shipped"
    (tmp_path / "digits_dplis.yaml").write_text(GOOD)
    assert find_file("digits_dplis.yaml") == (Path("digits_dplis.yaml"), "local")
    with raises_code(InputError, "experiment-not-found") as caught:
        find_file("digit_dplis.yaml")
    assert "digits_dplis.yaml" in str(caught.value)
    with raises_code(InputError, "experiment-not-found"):
        find_file("/nowhere/digits_dplis.yaml")


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ["torch", "ray", "mlflow", "optuna", "sklearn", "dp_accounting", "scipy", "PIL"]
    code = f"import sys, tuner.experiment; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
