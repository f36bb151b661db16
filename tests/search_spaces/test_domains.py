"""Domains: what they hold, what they refuse, and that their file form comes back as themselves."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import (
    Categorical,
    Domain,
    DomainError,
    Fixed,
    Integer,
    LogUniform,
    Promoted,
    Uniform,
    parse_domain,
    promoted_levels,
)
from search_spaces.domains import sample_domain
from search_spaces.errors import EXPLANATIONS

FINITE = st.floats(-1e6, 1e6)
RANGES = st.tuples(FINITE, FINITE).filter(lambda pair: pair[0] < pair[1])
POSITIVE = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).filter(lambda pair: pair[0] < pair[1])
INTEGERS = st.tuples(st.integers(-999, 999), st.integers(-999, 999)).filter(lambda pair: pair[0] < pair[1])
SCALARS = st.one_of(st.text(), st.booleans(), FINITE, st.integers(-(2**53), 2**53))
DOMAINS: st.SearchStrategy[Domain] = st.one_of(
    RANGES.map(lambda pair: Uniform(*pair)),
    POSITIVE.map(lambda pair: LogUniform(*pair)),
    INTEGERS.map(lambda pair: Integer(*pair)),
    st.lists(SCALARS, min_size=1, unique_by=lambda value: (type(value), value)).map(lambda v: Categorical(tuple(v))),
    SCALARS.map(Fixed),
    st.lists(st.integers(1, 99), min_size=2, unique=True).map(lambda levels: Promoted(tuple(sorted(levels)))),
)


@given(DOMAINS)
def test_the_file_form_comes_back_as_the_same_domain(domain: Domain) -> None:
    assert parse_domain(domain.to_spec()) == domain


@given(DOMAINS, st.integers(1, 9))
def test_every_grid_point_lies_in_the_domain(domain: Domain, points: int) -> None:
    grid = domain.grid(points)
    assert grid
    assert all(domain.contains(value) for value in grid)
    assert len(set(map(repr, grid))) == len(grid)


def test_a_logarithmic_grid_is_geometric_and_a_plain_one_arithmetic() -> None:
    assert LogUniform(1, 100).grid(3) == [1, pytest.approx(10), 100]
    assert Uniform(0, 3).grid(4) == [0, pytest.approx(1), pytest.approx(2), 3]
    assert Integer(1, 100, log=True).grid(3) == [1, 10, 100]
    assert Integer(1, 2).grid(9) == [1, 2]
    assert LogUniform(1, 100).grid(1) == [pytest.approx(10)]


def test_bounds_are_closed_and_kinds_do_not_mix() -> None:
    assert Uniform(0, 1).contains(0)
    assert Uniform(0, 1).contains(1)
    assert not Uniform(0, 1).contains(math.nan)
    assert not Uniform(0, 1).contains(True)
    assert not Integer(0, 3).contains(1.0)
    assert not Categorical((1,)).contains(True)
    assert not Fixed(1).contains(1.0)


WRONG: list[tuple[Any, str]] = [
    ({"uniform": [0, math.nan]}, "domain-bounds"),
    ({"uniform": [0, 10**400]}, "domain-bounds"),
    ({"uniform": [1, 0]}, "domain-bounds"),
    ({"uniform": [True, 2]}, "domain-bounds"),
    ({"uniform": [0, 1, 2]}, "domain-bounds"),
    ({"log_uniform": [0, 1]}, "domain-bounds"),
    ({"integer": [0.5, 3]}, "domain-bounds"),
    ({"log_integer": [0, 3]}, "domain-bounds"),
    ({"choice": []}, "choice-invalid"),
    ({"choice": "ab"}, "choice-invalid"),
    ({"choice": [1, 1]}, "choice-invalid"),
    ({"choice": [[1]]}, "choice-invalid"),
    ({"promote": [3]}, "promotion-invalid"),
    ({"promote": [0, 3]}, "promotion-invalid"),
    ({"promote": [3, 3]}, "promotion-invalid"),
    ({"promote": [1, 2.5]}, "promotion-invalid"),
    ({"promot": [1, 3]}, "domain-unknown"),
    ({"choice": [{"promote": [1, 3]}, 10]}, "choice-invalid"),
    ({"uniform": [0, 1], "choice": [1]}, "domain-unknown"),
    ([1, 2], "domain-unknown"),
    (None, "value-not-plain"),
    (math.inf, "value-not-plain"),
]


@pytest.mark.parametrize(("raw", "code"), WRONG, ids=[str(raw)[:40] for raw, _ in WRONG])
def test_a_wrong_domain_is_refused_with_its_rule_and_value(raw: object, code: str) -> None:
    with raises_code(DomainError, code) as caught:
        parse_domain(raw)
    assert code in EXPLANATIONS
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_misspelt_domain_gets_the_nearest() -> None:
    for raw, nearest in (({"promot": [1, 3]}, "promote"), ({"choise": [1]}, "choice")):
        with pytest.raises(DomainError) as caught:
            parse_domain(raw)
        assert repr(nearest) in caught.value.fix


def test_a_promotion_asks_nobody_and_its_value_tells_its_levels() -> None:
    plan = Promoted((1, 3, 10))
    assert sample_domain(plan, "smoothing_samples", None) == plan.to_spec() == {"promote": [1, 3, 10]}  # type: ignore[arg-type]
    assert promoted_levels(plan.to_spec()) == (1, 3, 10)
    assert [promoted_levels(other) for other in (3, "promote", None, {}, {"choice": [1, 3]})] == [None] * 5


def test_a_grid_needs_a_point() -> None:
    with raises_code(DomainError, "grid-points-invalid"):
        Uniform(0, 1).grid(0)
