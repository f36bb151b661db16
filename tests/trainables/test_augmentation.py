"""Augmentation: every view is a legal one, all are equally likely, and no record's draws depend on another's pixels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.engine.augmentation import PADDING, RandomViews
from trainables.engine.random import SeededGenerator

KINDS = pytest.mark.parametrize(("crop", "flip"), [(False, True), (True, False), (True, True)])


def numbered(count: int, *shape: int) -> Tensor:
    """Images in which no two pixels are the same, so that a view tells where it was taken."""
    return torch.arange(count * int(np.prod(shape)), dtype=torch.float32).view(count, *shape)


def legal(image: Tensor, *, crop: bool, flip: bool) -> list[bytes]:
    """Every view of one image, made one at a time by numpy."""
    pixels = image.numpy()
    height, width = pixels.shape[1:]
    top, left = (min(PADDING, size - 1) if crop else 0 for size in (height, width))
    padded = np.pad(pixels, ((0, 0), (top, top), (left, left)), mode="reflect")
    views = [
        padded[:, row : row + height, column : column + width]
        for row in range(2 * top + 1)
        for column in range(2 * left + 1)
    ]
    views += [view[:, :, ::-1] for view in views] if flip else []
    return [view.tobytes() for view in views]


def chi_square(counts: list[int]) -> float:
    """Of the hypothesis that all are equally likely."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


@KINDS
@pytest.mark.parametrize("shape", [(3, 6, 9), (2, 5, 3), (1, 1, 4)])
def test_every_view_is_a_legal_one_of_its_own_sample(shape: tuple[int, ...], crop: bool, flip: bool) -> None:
    inputs = numbered(4, *shape)
    assert RandomViews(crop=crop, flip=flip, copies=5)(inputs[:0], SeededGenerator(1)).shape == (0, *shape)
    views = RandomViews(crop=crop, flip=flip, copies=5)(inputs, SeededGenerator(1))
    assert views.shape == (20, *shape)
    assert views.dtype == inputs.dtype
    assert views.is_contiguous()
    for place, view in enumerate(views):
        assert view.numpy().tobytes() in legal(inputs[place // 5], crop=crop, flip=flip), "sample-major"


@KINDS
def test_all_legal_views_are_equally_likely(crop: bool, flip: bool) -> None:
    image = numbered(1, 1, 9, 12)  # wide enough for no crop to be the mirror of another
    every = legal(image[0], crop=crop, flip=flip)
    assert len(set(every)) == len(every) == (81 if crop else 1) * (2 if flip else 1)
    views = RandomViews(crop=crop, flip=flip, copies=200 * len(every))(image, SeededGenerator(3))
    found = Counter(view.numpy().tobytes() for view in views)
    assert set(found) == set(every)
    # Five standard deviations above the mean of chi-square.
    freedom = len(every) - 1
    limit = freedom + 5 * (2 * freedom) ** 0.5
    assert chi_square(list(found.values())) < limit
    # Negative control: the same numbers of draws with one view twice as likely as the others.
    uneven = [*found.values()]
    uneven[0] += 200
    assert chi_square(uneven) > limit


@given(st.floats(0.0, 1.0, exclude_max=True), st.integers(1, 9))
def test_the_draws_choose_the_view(draw: float, size: int) -> None:
    class Constant(SeededGenerator):
        def uniform(self, size: int) -> Tensor:
            return torch.full((size,), draw, dtype=torch.float64)

    image = numbered(1, 1, size, size)
    (view,) = RandomViews(crop=True, flip=True)(image, Constant(0))
    assert view.numpy().tobytes() in legal(image[0], crop=True, flip=True)


def test_samples_and_copies_are_drawn_independently() -> None:
    images = numbered(1, 1, 1, 2).expand(2000, -1, -1, -1)
    views = RandomViews(crop=False, flip=True, copies=2)(images, SeededGenerator(5))
    flipped = (views[:, 0, 0, 0] > views[:, 0, 0, 1]).view(2000, 2).double()
    along, across = flipped[:, 0], flipped[:, 1]
    bound = 5 / 2000**0.5
    assert abs(float(flipped.mean()) - 0.5) < bound
    for one, other in ((along, across), (along[:-1], along[1:])):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < bound
    assert abs(float(torch.corrcoef(torch.stack([along, along]))[0, 1])) > bound, "one draw for both would be seen"


def test_a_record_changes_no_view_of_another() -> None:
    """The same places are taken whatever the pixels are, NaN and all: one draw per view, none by what is seen."""
    first = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    second = first.clone()
    second[2] = torch.nan
    views = RandomViews(crop=True, flip=True, copies=3)
    generators = SeededGenerator(7), SeededGenerator(7)
    before, after = (views(*each).view(6, 3, 3, 8, 8) for each in zip((first, second), generators, strict=True))
    others = [0, 1, 3, 4, 5]
    assert torch.equal(before[others], after[others])
    assert after[2].isnan().all()
    assert torch.equal(*(generator.uniform(5) for generator in generators)), "as many draws, too"
