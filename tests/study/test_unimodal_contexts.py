"""Other searched parameters beside the one with the peak: levels, contexts, and products that scale it."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.study.unimodal.inference.gaussian_process import fit
from tuner.study.unimodal.inference.records import ALONE, Context, Record, Seen
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler
from tuner.study.unimodal.view import View

GRID = np.linspace(0.0, 1.0, 49)
SPACE: dict[str, BaseDistribution] = {
    "R": FloatDistribution(0.0, 100.0),
    "learning_rate": FloatDistribution(0.01, 1.0, log=True),
    "schedule": CategoricalDistribution(("constant", "cosine")),
}


def curve(place: float) -> float:
    return -8.0 * (place - 0.6) ** 2


def records(level: dict[Context, float], places: tuple[float, ...]) -> list[Record]:
    noise = np.random.default_rng(3).normal(0, 0.02, 1_000)
    number = 0
    made = []
    for context, height in level.items():
        for place in places:
            made.append(Record(place, 1.0, curve(place) + height + float(noise[number]), number, context))
            number += 1
    return made


def test_a_level_is_learned_beside_the_curve_and_the_curve_is_shared() -> None:
    """Of the second context one place is known; its curve follows the first one's, at its own level."""
    near, far = Context((("z", 0.1),)), Context((("z", 0.9),))
    known = records({near: 0.0}, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    known.append(Record(0.2, 1.0, curve(0.2) + 3.0, 99, far))
    found = fit(Seen.of(known, ()), tolerance=0.2).mean(GRID, [near, far])
    assert abs(GRID[found[0].argmax()] - 0.6) < 0.1
    assert abs(GRID[found[1].argmax()] - 0.6) < 0.2
    assert float((found[1] - found[0])[GRID < 0.5].mean()) == pytest.approx(3.0, abs=0.8)


def test_without_other_parameters_there_is_one_context() -> None:
    found = fit(Seen.of(records({ALONE: 0.0}, (0.0, 0.3, 0.6, 0.9)), ()), tolerance=0.2)
    one = found.draws(GRID, [ALONE], 50, np.random.default_rng(0))
    two = found.draws(GRID, [ALONE, ALONE], 50, np.random.default_rng(0))
    assert one.values.shape == (50, 1, 49)
    assert np.abs(two.values[:, 0] - two.values[:, 1]).max() < 0.05  # the same curve, but for a jitter of the root


@pytest.mark.parametrize("word", ["cosine", "constant"])
def test_words_and_missing_parameters_are_as_far_apart_as_the_ends_of_a_range(word: str) -> None:
    from tuner.study.unimodal.inference.gaussian_process import _distances

    end, other = Context((("a", 1.0), ("s", "constant"))), Context((("a", 0.0), ("s", word)))
    lacking = Context((("s", word),))
    expected = 1.0 + (word != "constant")
    assert _distances([end], [other])[0, 0] == pytest.approx(expected)
    assert _distances([end], [lacking])[0, 0] == pytest.approx(expected)
    assert _distances([other, end], [end, other])[1, 0] == 0.0


def trial(parameters: dict[str, object], score: float, number: int) -> FrozenTrial:
    return create_trial(
        state=TrialState.COMPLETE,
        value=score,
        params=dict(parameters),
        distributions={name: SPACE[name] for name in parameters},
        intermediate_values={3: score - 1.0, 9: score},
    )


def scaled_study() -> Study:
    """The best R is 3 at a learning rate of 1, and 30 at 0.1: what matters is their product."""
    made = optuna.create_study(direction="maximize", sampler=RandomSampler(seed=0))
    random = np.random.default_rng(4)
    for number in range(16):
        rate = float(np.exp(random.uniform(np.log(0.03), 0.0)))
        radius = float(np.exp(random.uniform(0.0, np.log(100.0))))
        score = -2.0 * (np.log(radius * rate) - np.log(3.0)) ** 2 + float(random.normal(0, 0.05))
        made.add_trial(trial({"R": radius, "learning_rate": rate}, score, number))
    return made


def proposal(made: Study, sampler: UnimodalSampler, rate: float) -> float:
    asked = made.ask()
    made._storage.set_trial_param(
        asked._trial_id, "learning_rate", SPACE["learning_rate"].to_internal_repr(rate), SPACE["learning_rate"]
    )
    frozen = made._storage.get_trial(asked._trial_id)
    value = float(sampler.sample_independent(made, frozen, "R", SPACE["R"]))
    made.tell(asked, state=TrialState.FAIL)
    return value


def test_a_radius_is_proposed_for_the_learning_rate_of_its_trial() -> None:
    made = scaled_study()
    sampler = UnimodalSampler(
        "R", tolerance=0.2, last_step=9, scales=("learning_rate",), base=RandomSampler(seed=0), audits=0
    )
    for rate in (0.1, 1.0):
        found = proposal(made, sampler, rate)
        assert 1.5 < found * rate < 6.0, (rate, found)


def test_a_trial_is_judged_by_the_product() -> None:
    made = scaled_study()
    pruner = UnimodalPruner("R", tolerance=0.2, last_step=9, scales=("learning_rate",))

    def excluded(radius: float, rate: float) -> bool:
        asked = made.ask()
        for name, value in (("learning_rate", rate), ("R", radius)):
            made._storage.set_trial_param(asked._trial_id, name, SPACE[name].to_internal_repr(value), SPACE[name])
        found = pruner.prune(made, made._storage.get_trial(asked._trial_id))
        made.tell(asked, state=TrialState.FAIL)
        return found

    assert not excluded(30.0, 0.1)
    assert excluded(30.0, 1.0), "the same radius at ten times the learning rate"
    assert excluded(1.0, 0.1)


def test_a_scale_without_a_range_is_none_and_places_stay_on_the_axis() -> None:
    view = View.of("R", SPACE["R"], SPACE, ("learning_rate", "schedule", "batch_size"))
    assert view is not None
    assert list(view.scales) == ["learning_rate"]
    for radius in (0.0, 1.0, 100.0):
        for rate in (0.01, 0.1, 1.0):
            made = trial({"R": radius, "learning_rate": rate, "schedule": "cosine"}, 0.0, 0)
            context = view.context(made)
            assert -1e-9 <= context.low <= view.place(made) + 1e-9
            assert view.place(made) <= context.high + 1e-9 <= 1.0 + 2e-9
            assert context.values[1] == ("schedule", "cosine")
