"""K that rises while a trial lasts: the same training as one number until the first rise, whatever cuts it off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from training_fakes import CountingCharge, MakeSpec, raw

from trainables.errors import HyperparameterError
from trainables.methods import from_parameters
from trainables.methods.dp_sgd import DPSGD
from trainables.promotion import Promotion
from trainables.spec import spec_fingerprint
from trainables.training import PrivateTraining, TrainingSpec

STEPS, RISES = 12, {"promote": [1, 3, 4], "from_step": [0, 4, 8]}


def spec_of(make_spec: MakeSpec, samples: object, **changes: object) -> TrainingSpec:
    """A study, whose noise is seeded."""
    parameters = {"smoothing_radius": 5.0, "learning_rate": 0.5, "smoothing_samples": samples}
    seeded: dict[str, Any] = {"method": "dplis", "private": False, "noise_seed": 1, "steps": STEPS, **changes}
    return make_spec(parameters=parameters, **seeded)


def weights_at(spec: TrainingSpec, *steps: int) -> list[torch.Tensor]:
    training, found = PrivateTraining(spec, CountingCharge()), []
    for step in steps:
        training.run_to(step)
        found.append(raw(training).clone())
    return found


pytestmark = pytest.mark.usefixtures("fake_data")


def test_before_the_first_rise_it_is_one_sample_to_the_bit(make_spec: MakeSpec) -> None:
    rising = weights_at(spec_of(make_spec, RISES), 1, 4, 5, STEPS)
    single = weights_at(spec_of(make_spec, 1), 1, 4, 5, STEPS)
    assert [torch.equal(*pair) for pair in zip(rising, single, strict=True)] == [True, True, False, False]
    again = weights_at(spec_of(make_spec, RISES), 1, 4, 5, STEPS)
    assert all(torch.equal(*pair) for pair in zip(rising, again, strict=True))


@pytest.mark.parametrize("cut", [1, 4, 8, 11])
def test_a_training_that_was_cut_off_has_the_k_of_each_step(make_spec: MakeSpec, tmp_path: Path, cut: int) -> None:
    spec, charge = spec_of(make_spec, RISES), CountingCharge()
    first = PrivateTraining(spec, charge)
    first.run_to(cut)
    first.save(tmp_path / "state.pt")
    second = PrivateTraining(spec, charge)
    second.load(tmp_path / "state.pt")
    second.run_to(STEPS)
    assert torch.equal(raw(second), weights_at(spec, STEPS)[0])


def test_a_rise_at_another_step_is_another_training(make_spec: MakeSpec) -> None:
    """Its checkpoints must not go on with the stored stream of noise."""
    later = {**RISES, "from_step": [0, 4, 9]}
    prints = {spec_fingerprint(spec_of(make_spec, samples)) for samples in (RISES, later, 1, 4)}
    assert len(prints) == 4
    assert spec_fingerprint(spec_of(make_spec, dict(RISES))) in prints


@pytest.mark.parametrize(
    "value",
    [
        {"promote": [1, 3]},
        {"promote": [3], "from_step": [0]},
        {"promote": [0, 3], "from_step": [0, 4]},
        {"promote": [3, 3], "from_step": [0, 4]},
        {"promote": [1, 2.5], "from_step": [0, 4]},
        {"promote": 3, "from_step": [0, 4]},
        {"promote": [1, 3], "from_step": [1, 4]},
        {"promote": [1, 3], "from_step": [0, 4, 8]},
        {"promote": [1, 3], "from_step": [0, float("nan")]},
        {"promote": [1, 3], "from_step": [0, 12]},
    ],
)
def test_what_does_not_rise_is_refused(value: dict[str, Any]) -> None:
    priced: dict[str, Any] = {"batch_size": 4, "steps": STEPS, "noise_multiplier": 1.0}
    with raises_code(HyperparameterError, "promotion-malformed"):
        from_parameters("dplis", {"smoothing_samples": value}, **priced)
    made = from_parameters("dplis", {"smoothing_samples": {"promote": [1, 3], "from_step": [0, 11]}}, **priced)
    assert made.smoothing_samples == Promotion(levels=(1, 3), from_step=(0, 11))  # type: ignore[attr-defined]


def test_nothing_else_rises() -> None:
    rises = Promotion(levels=(1, 3), from_step=(0, 4))
    with raises_code(HyperparameterError, "value-illegal"):
        DPSGD(batch_size=4, steps=STEPS, noise_multiplier=1.0, learning_rate=rises)  # type: ignore[arg-type]
    with raises_code(HyperparameterError, "value-illegal"):
        DPSGD(batch_size=4, steps=STEPS, noise_multiplier=1.0, augmentation_multiplicity=rises)  # type: ignore[arg-type]
