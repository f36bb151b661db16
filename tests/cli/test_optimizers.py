"""An optimizer and an activation that the search chooses reach the training, the exported file and its model."""

from __future__ import annotations

import pytest
import yaml
from command_fakes import Tune

from tuner.experiment import parse_experiment
from tuner.plan.plan import make_plan
from tuner.sweep.trial_spec import training_spec


def test_what_a_trial_chose_goes_before_the_file_and_momentum_is_of_sgd_alone(bare: Tune) -> None:
    space = {"learning_rate": "default", "optimizer": {"choice": ["sgd", "adam_corrected"]}, "activation": "default"}
    file = bare.write(search__space=space, trainable__momentum=0.9)
    experiment = parse_experiment((bare.folder / file).read_text())
    request = experiment.dataset_request()
    plan = make_plan(experiment, request)
    specs = [
        training_spec(
            experiment,
            request,
            plan,
            number=0,
            parameters={"learning_rate": 0.1, "optimizer": each, "activation": "tanh"},
        )
        for each in ("sgd", "adam_corrected")
    ]
    assert [(each.optimizer, each.momentum) for each in specs] == [("sgd", 0.9), ("adam_corrected", 0.0)]
    assert all(each.activation == "tanh" and "activation" not in each.parameters for each in specs)
    assert experiment.activations == ("relu", "tanh")


@pytest.mark.slow
def test_a_chosen_activation_is_that_of_the_exported_model(bare: Tune) -> None:
    space = {"learning_rate": "default", "activation": {"choice": ["tanh"]}, "optimizer": "adam_corrected"}
    bare("run", bare.write(trainable__model="mlp_64", search__trials=2, search__space=space), "--local")
    bare("export", "tiny", "--out", "exported")
    written = yaml.safe_load((bare.folder / "exported" / "experiment.yaml").read_text())
    assert written["search"]["space"]["activation"] == "tanh"
    assert written["search"]["space"]["optimizer"] == "adam_corrected"
    bare("verify", "exported/privacy_card.json")
