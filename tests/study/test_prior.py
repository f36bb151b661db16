"""Candidates from one prior: its law, the bounded ratio of the adaptive sampler, and that a secret has no seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import log, sqrt

import optuna
import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from sweep_fakes import FakeSpace

from tuner.errors import InputError
from tuner.study.samplers.bounded import BoundedSampler
from tuner.study.samplers.make import make_sampler
from tuner.study.samplers.prior import PriorSampler, draw
from tuner.study.samplers.ratio import Ratio, ratio_of
from tuner.study.suggest import OptunaSuggest

DRAWS = 6000
BINS = 6


def study_of(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.NopPruner())


def history(study: optuna.Study, score: Callable[[float], float], trials: int = 12) -> None:
    """Finished trials over [0, 1], evenly."""
    for place in range(trials):
        x = (place + 0.5) / trials
        study.add_trial(
            optuna.trial.create_trial(
                params={"x": x, "kind": "ab"[place % 2]},
                distributions={"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(("a", "b"))},
                value=score(x),
            )
        )


def candidates(study: optuna.Study, draws: int = DRAWS) -> list[tuple[float, str]]:
    """What the sampler proposes, again and again with the same history."""
    sampler, frozen = study.sampler, study.trials[0]
    found = []
    for _ in range(draws):
        space = sampler.infer_relative_search_space(study, frozen)
        values = sampler.sample_relative(study, frozen, space)
        for name, domain in (("x", FloatDistribution(0, 1)), ("kind", CategoricalDistribution(("a", "b")))):
            if name not in values:
                values[name] = sampler.sample_independent(study, frozen, name, domain)
        found.append((values["x"], values["kind"]))
    return found


def outside(found: list[tuple[float, str]], low: float, high: float) -> bool:
    """Whether some bin's share lies outside [low, high] times the prior's, by more than five standard errors."""
    counts = Counter((min(int(x * BINS), BINS - 1), kind) for x, kind in found)
    cell = 1 / (2 * BINS)
    for place in ((number, kind) for number in range(BINS) for kind in "ab"):
        share = counts[place] / len(found)
        slack = 5 * sqrt(high * cell / len(found))
        if share < low * cell - slack or share > high * cell + slack:
            return True
    return False


@pytest.mark.parametrize(
    ("shape", "explore", "draws"),
    [(lambda x: x, 0.9, 2), (lambda x: x, 0.2, 8), (lambda x: -abs(x - 0.4), 0.5, 3), (lambda _: 0.5, 0.5, 3)],
    ids=["rising", "rising, eager", "peak", "flat"],
)
def test_no_candidate_is_likelier_or_unlikelier_than_its_bounds_allow(
    shape: Callable[[float], float], explore: float, draws: int
) -> None:
    ratio = Ratio(explore, draws)
    study = study_of(BoundedSampler(ratio, random.Random(7)))
    history(study, shape)
    assert not outside(candidates(study), ratio.low, ratio.high)


def test_the_test_of_the_bounds_notices_one_draw_more_and_less_exploring() -> None:
    """The control: the same samplers, held to bounds that are not theirs."""
    claimed = Ratio(0.5, 2)
    for really in (Ratio(0.5, 6), Ratio(0.1, 2)):
        study = study_of(BoundedSampler(really, random.Random(7)))
        history(study, lambda x: x)
        assert outside(candidates(study), claimed.low, claimed.high)


def test_the_bounded_sampler_learns_and_the_prior_does_not() -> None:
    eager, plain = BoundedSampler(Ratio(0.1, 8), random.Random(1)), PriorSampler(random.Random(1))
    means = []
    for sampler in (eager, plain):
        study = study_of(sampler)
        history(study, lambda x: x)
        means.append(sum(x for x, _ in candidates(study, 800)) / 800)
    assert means[0] > 0.7
    assert means[1] == pytest.approx(0.5, abs=0.05)


def test_it_minimizes_where_less_is_better_and_ignores_what_has_no_score() -> None:
    study = optuna.create_study(direction="minimize", sampler=BoundedSampler(Ratio(0.1, 8), random.Random(1)))
    history(study, lambda x: x)
    study.add_trial(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.FAIL,
            params={"x": 0.9, "kind": "a"},
            distributions={"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(("a", "b"))},
        )
    )
    assert sum(x for x, _ in candidates(study, 800)) / 800 < 0.3


DOMAINS = st.one_of(
    st.tuples(st.integers(-50, 50), st.integers(1, 60)).map(lambda b: IntDistribution(b[0], b[0] + b[1])),
    st.tuples(st.integers(1, 50), st.integers(1, 60)).map(lambda b: IntDistribution(b[0], b[0] + b[1], log=True)),
    st.tuples(st.floats(-5, 5), st.floats(0.1, 9)).map(lambda b: FloatDistribution(b[0], b[0] + b[1])),
    st.tuples(st.floats(1e-4, 5), st.floats(0.1, 9)).map(lambda b: FloatDistribution(b[0], b[0] + b[1], log=True)),
    st.just(FloatDistribution(0.0, 1.0, step=0.25)),
    st.just(IntDistribution(2, 10, step=4)),
    st.just(CategoricalDistribution(("a", 1, 1.5, True))),
)


@given(domain=DOMAINS, seed=st.integers(0, 2**31))
def test_every_value_lies_in_its_domain(domain: optuna.distributions.BaseDistribution, seed: int) -> None:
    value = draw(domain, random.Random(seed))
    assert domain._contains(domain.to_internal_repr(value))


def test_the_prior_is_even_and_even_in_the_logarithm() -> None:
    generator = random.Random(5)
    whole = Counter(draw(IntDistribution(1, 4), generator) for _ in range(8000))
    assert all(abs(count - 2000) < 200 for count in whole.values())
    logs = Counter(int(log(draw(FloatDistribution(1, 16, log=True), generator), 2)) for _ in range(8000))
    assert all(abs(logs[octave] - 2000) < 200 for octave in range(4))


def test_a_secret_sampler_has_no_seed() -> None:
    def first(secret: bool) -> list[object]:
        study = study_of(make_sampler("random", seed=1, secret=secret))
        return [FakeSpace().sample(OptunaSuggest(study.ask())) for _ in range(3)]

    assert first(secret=False) == first(secret=False)
    assert first(secret=True) != first(secret=True)
    for name in ("random", "bounded"):
        assert isinstance(make_sampler(name, seed=1, secret=True)._generator, random.SystemRandom)


def test_a_sampler_that_counts_or_learns_cannot_be_secret() -> None:
    for name in ("tpe", "gp", "grid"):
        with raises_code(InputError, "sampler-not-secret"):
            make_sampler(name, seed=1, secret=True, space=FakeSpace())


@pytest.mark.parametrize(
    ("options", "ratio"),
    [({}, (0.9, 1.1)), ({"explore": 0.5, "ratio": 2.0}, (0.5, 2.0)), ({"explore": 0.5, "ratio": 2.3}, (0.5, 2.0))],
)
def test_the_options_of_the_bounded_sampler_are_its_bounds(
    options: dict[str, object], ratio: tuple[float, float]
) -> None:
    found = ratio_of(options)
    assert (found.low, found.high) == pytest.approx(ratio)
    assert found.high <= float(options.get("ratio", 1.1)) + 1e-9, "never more than was asked for"


NONE = ({"explore": 0}, {"explore": 1}, {"explore": float("nan")}, {"explore": "a"}, {"ratio": 1.05})
NONE += ({"ratio": float("inf")}, {"ratio": float("nan")}, {"explore": 0.5, "ratio": 1.49})


@pytest.mark.parametrize("options", NONE, ids=str)
def test_bounds_that_are_none_are_refused(options: dict[str, object]) -> None:
    with raises_code(InputError, "option-invalid"):
        ratio_of(options)
