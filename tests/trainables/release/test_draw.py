"""The draw of a release: the exact law of the response, the noise, the clip, the number of rows, hostile records."""

from __future__ import annotations

from math import exp, inf, nan

import numpy as np
import pytest
import torch
from scipy import stats
from training_fakes import keyed

from trainables.errors import TrainableError
from trainables.release.draw import Randomiser, Release, clipped_rows, noisy_rows, packed, unpacked

RANDOMISER = Randomiser(clip=1.5, noise=0.7, label_epsilon=1.1, classes=3)


def rows_of(label: int, rows: int, key: int = 1, **more: float | None) -> Release:
    randomiser = Randomiser(**{**vars(RANDOMISER), **more})  # type: ignore[arg-type]
    x, y = torch.zeros(rows, 1), torch.full((rows,), label)
    return noisy_rows(x, y, randomiser, rows=rows, generator=keyed(key))


def test_the_response_has_the_exact_likelihood_ratio() -> None:
    k, rows = RANDOMISER.classes, 200_000
    assert RANDOMISER.kept / ((1 - RANDOMISER.kept) / (k - 1)) == pytest.approx(exp(1.1), rel=1e-14)
    for label in range(k):
        counts = np.bincount(rows_of(label, rows, key=label + 1).y, minlength=k)
        law = np.full(k, (1 - RANDOMISER.kept) / (k - 1))
        law[label] = RANDOMISER.kept
        assert stats.chisquare(counts, rows * law).pvalue > 1e-4
        wrong = np.full(k, (1 - law[label]) / k)  # control: the other labels drawn among all k
        wrong[label] += law[label]
        assert stats.chisquare(counts, rows * wrong).pvalue < 1e-6


def test_the_noise_is_gaussian_with_its_standard_deviation() -> None:
    x = torch.tensor([[3.0, 4.0]]).repeat(30_000, 1)  # norm 5, clipped to 1.5
    found = noisy_rows(x, torch.zeros(30_000).long(), RANDOMISER, rows=30_000, generator=keyed(5))
    for column, centre in ((0, 0.9), (1, 1.2)):
        values = found.x[:, column].double().numpy()
        assert stats.kstest(values, "norm", args=(centre, 0.7)).pvalue > 1e-4
        assert stats.kstest(values, "norm", args=(centre, 0.7 * 0.9)).pvalue < 1e-4


@pytest.mark.parametrize("records", [0, 1, 7, 40])
def test_the_number_of_rows_and_their_law_tell_nothing_of_the_number_of_records(records: int) -> None:
    """Empty rows are zeros with a uniform label; a release of no record has them alone."""
    x, y = torch.full((records, 2), 9.0), torch.zeros(records).long()
    found = noisy_rows(x, y, RANDOMISER, rows=10, generator=keyed(3))
    assert found.x.shape == (10, 2)
    assert found.y.shape == (10,)
    exact = Randomiser(clip=1.5, noise=1e-9, label_epsilon=None, classes=3)
    plain = noisy_rows(x, y, exact, rows=10, generator=keyed(3))
    there = int((plain.x.norm(dim=1) > 1).sum())
    assert there == min(records, 10)
    empty = noisy_rows(x[:0], y[:0], RANDOMISER, rows=30_000, generator=keyed(4))
    assert stats.chisquare(np.bincount(empty.y, minlength=3)).pvalue > 1e-4


def test_rows_are_in_a_random_order_and_a_choice_is_uniform() -> None:
    exact = Randomiser(clip=100.0, noise=1e-9, label_epsilon=None, classes=2)
    x, y = torch.arange(6.0).reshape(6, 1) + 1, torch.zeros(6).long()
    first = [round(float(noisy_rows(x, y, exact, rows=2, generator=keyed(key)).x[0, 0])) for key in range(1, 250)]
    assert stats.chisquare(np.bincount(first, minlength=7)[1:]).pvalue > 1e-4


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1e38])
def test_no_record_is_longer_than_the_clip_and_none_moves_another(bad: float) -> None:
    x = torch.tensor([[bad, 1.0, 0.0], [1e-30, 0.0, 0.0], [3.0, 4.0, 0.0], [0.1, 0.2, 0.0]])
    clipped = clipped_rows(x, 1.5)
    assert bool(clipped.isfinite().all())
    assert bool((clipped.norm(dim=1) <= 1.5).all())
    other = clipped_rows(torch.cat([x[:0], torch.zeros(1, 3), x[1:]]), 1.5)
    assert torch.equal(clipped[1:], other[1:])
    assert torch.allclose(clipped[3], x[3].double(), rtol=1e-11)
    assert torch.allclose(clipped[2], torch.tensor([0.9, 1.2, 0.0], dtype=torch.float64), rtol=1e-11)


def test_norms_that_round_up_are_clipped_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2_000, 57, generator=generator) * 3
    norms = np.array([np.sqrt(np.sum(np.longdouble(row) ** 2)) for row in clipped_rows(x, 1.0).numpy()])
    assert norms.max() <= 1.0


def test_a_stored_release_is_the_same_and_a_damaged_one_is_refused() -> None:
    found = noisy_rows(torch.ones(5, 2), torch.zeros(5).long(), RANDOMISER, rows=5, generator=keyed(2))
    again = unpacked(packed(found))
    assert torch.equal(again.x, found.x)
    assert torch.equal(again.y, found.y)
    with pytest.raises(TrainableError, match="release-damaged"):
        unpacked(b"no archive")
