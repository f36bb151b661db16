"""Other searched parameters beside the one with the peak: levels, contexts, and products that scale it."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, create_trial

from tuner.study.unimodal.inference.posterior import fit
from tuner.study.unimodal.inference.records import Context, Record
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

GRID = np.linspace(0.0, 1.0, 49)
SPACE: dict[str, BaseDistribution] = {
    "R": FloatDistribution(0.0, 100.0),
    "learning_rate": FloatDistribution(0.01, 1.0, log=True),
}


def curve(place: float) -> float:
    return -8.0 * (place - 0.6) ** 2


def test_a_level_is_learned_beside_the_curve_and_the_curve_is_shared() -> None:
    """Of the second context one place is known; its curve follows the first one's, at its own level."""
    near, far = Context((("z", 0.1),)), Context((("z", 0.9),))
    noise = np.random.default_rng(3).normal(0, 0.02, 6).tolist()
    known = [Record(n / 5, 1.0, curve(n / 5) + luck, n, near) for n, luck in enumerate(noise)]
    known.append(Record(0.2, 1.0, curve(0.2) + 3.0, 99, far))
    found = fit(known, 0.2).mean(GRID, [near, far])
    assert abs(GRID[found[0].argmax()] - 0.6) < 0.1
    assert abs(GRID[found[1].argmax()] - 0.6) < 0.2
    assert float((found[1] - found[0])[GRID < 0.5].mean()) == pytest.approx(3.0, abs=0.8)


def scaled_study() -> Study:
    """The best R is 3 at a learning rate of 1, and 30 at 0.1: what matters is their product."""
    study = optuna.create_study(direction="maximize", sampler=RandomSampler(seed=0))
    random = np.random.default_rng(4)
    for _ in range(16):
        rate = float(np.exp(random.uniform(np.log(0.03), 0.0)))
        radius = float(np.exp(random.uniform(0.0, np.log(100.0))))
        score = -2.0 * (np.log(radius * rate) - np.log(3.0)) ** 2 + float(random.normal(0, 0.05))
        study.add_trial(
            create_trial(
                value=score,
                params={"R": radius, "learning_rate": rate},
                distributions=SPACE,
                intermediate_values={3: score - 1.0, 9: score},
            )
        )
    return study


def asked(study: Study, **values: float) -> FrozenTrial:
    """A new trial with these values."""
    study.enqueue_trial(values)
    study.ask({name: SPACE[name] for name in values})
    return study.trials[-1]


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_radius_is_proposed_for_the_learning_rate_of_its_trial(rate: float) -> None:
    study, rules = scaled_study(), {"tolerance": 0.2, "last_step": 9}
    sampler = UnimodalSampler("R", scales=("learning_rate",), base=RandomSampler(seed=0), **rules)
    found = float(sampler.sample_independent(study, asked(study, learning_rate=rate), "R", SPACE["R"]))
    assert 1.5 < found * rate < 6.0


def test_a_trial_is_judged_by_the_product() -> None:
    pruner = UnimodalPruner("R", tolerance=0.2, last_step=9, scales=("learning_rate",))

    def excluded(radius: float, rate: float) -> bool:
        study = scaled_study()
        return pruner.prune(study, asked(study, learning_rate=rate, R=radius))

    assert not excluded(30.0, 0.1)
    assert excluded(30.0, 1.0), "the same radius at ten times the learning rate"
    assert excluded(1.0, 0.1)
