"""Sums in blocks of float32: one record moves them by the clip and a slack, which the noise covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainables.engine.clip import CLIPPINGS, clip_factors, clipped_sum, stretch
from trainables.engine.layers.common import Explicit
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleGradients
from trainables.engine.sources import per_sample_source
from trainables.engine.sums import LARGE, SMALL, Blocks, add_weighted_outer, row_squares
from trainables.engine.task_losses import summed_loss
from trainables.tasks import REGRESSION


def large_in_front(records: int) -> tuple[Tensor, Tensor]:
    """(clipped gradients of one coordinate, the same with one record more in front).

    Casacuberta et al. 2022: behind the large ones a float32 sum rounds all the small ones away, if there is one more.
    """
    small = -records / 2**24
    neighbour = torch.cat([torch.ones(records, 1), torch.full((records, 1), small)])
    return neighbour, torch.cat([torch.ones(1, 1), neighbour])


def dense(rows: Tensor) -> PerSampleGradients:
    return PerSampleGradients(((Explicit({"": rows}), {"": ""}),), Layout(("",), (rows.shape[1:],)))


def summed(rows: Tensor, block: int | None) -> float:
    chunks = [dense(rows)]
    return float(clipped_sum(chunks, 1.0, like=torch.zeros(1), block=block, samples=len(rows)))


def test_one_record_more_moves_the_sum_by_at_most_c() -> None:
    neighbour, with_one_more = large_in_front(4096)
    assert abs(summed(with_one_more, None) - summed(neighbour, None)) <= 1 + 1e-9
    terms = neighbour.numpy()[:, 0]
    one_more = np.add.accumulate(np.concatenate([np.ones(1, np.float32), terms]))[-1]
    assert one_more - np.add.accumulate(terms)[-1] > 1.9  # the control: what a sum in float32 would have done


def worst_sum(rows: np.ndarray, block: int) -> float:
    """A sum in blocks of float32 in the worst order there is for these rows: one by one, as they come."""
    blocks = [np.add.accumulate(rows[start : start + block, 0])[-1] for start in range(0, len(rows), block)]
    return float(np.add.accumulate(np.array(blocks, dtype=np.float32))[-1])


@pytest.mark.parametrize(
    ("records", "kind"),
    [(64, SMALL), (128, SMALL), (190, SMALL), (64, LARGE), (128, LARGE), (200, LARGE), (300, LARGE), (350, LARGE)],
)
def test_blocks_of_float32_stay_within_their_slack(records: int, kind: Blocks) -> None:
    """Twice as many records are in the batch; the additions are made in sequence, which no library promises not to."""
    neighbour, with_one_more = (rows.numpy() for rows in large_in_front(records))
    blocks = [kind.rows(len(rows)) for rows in (neighbour, with_one_more)]
    assert None not in blocks
    moved = worst_sum(with_one_more, blocks[1]) - worst_sum(neighbour, blocks[0])
    assert abs(moved) <= 1 + kind.slack
    both = zip((neighbour, with_one_more), blocks, strict=True)
    sums = [summed(torch.from_numpy(rows), block) for rows, block in both]
    assert abs(sums[1] - sums[0]) <= 1 + kind.slack


@pytest.mark.parametrize("kind", [SMALL, LARGE])
def test_the_proven_bound_of_a_block_is_below_the_slack(kind: Blocks) -> None:
    """The formula of the module, at every size of batch that may be summed in blocks."""
    unit = 2.0**-24
    for size in range(1, 5000):
        errors = []
        for records in (size, size + 1):  # neighbours may have blocks of different sizes, or float64
            rows = kind.rows(records)
            roundings = 0 if rows is None else min(rows, records) - 1 + 3 + math.ceil(records / rows) + 5
            errors.append(records * ((1 + unit) ** roundings - 1))
        assert sum(errors) <= kind.slack
    assert kind.rows(2**20) is None


@pytest.mark.parametrize("width", [64, 127, 784, 5_000_000])
def test_norms_are_never_too_small(width: int) -> None:
    gradient = torch.full((1, width), 1e-3)
    gradient[0, :64] = 30.0
    found = dense(gradient).group_norms()[0]
    true = gradient.double().norm(dim=1)
    assert float(true) * (1 - 1e-12) <= float(found) <= float(true) * (1 + 1e-5)


def test_squares_that_float32_loses_are_made_up_for() -> None:
    rows = torch.full((2, 784), 1e-22)
    rows[1] = 1e-30
    assert bool((row_squares(rows) >= rows.double().square().sum(1)).all())
    assert float(torch.linalg.vector_norm(rows[1])) == 0.0, "the control: float32 alone loses them"


def test_a_denormal_factor_is_not_rounded_up_before_it_meets_a_large_entry() -> None:
    weight, left, right = 1.5 * 2.0**-79, 2.0**-70, 5e36  # the product of the first two is 1.5 times the least float32
    total = torch.zeros(1, 1)
    factors = torch.tensor([weight], dtype=torch.float64)
    add_weighted_outer(total, factors, torch.full((1, 1, 1), left), torch.full((1, 1, 1), right), block=64)
    assert float(total) <= weight * left * right * (1 + 1e-6)
    assert float(torch.tensor(weight * left) * right) > 1.3 * weight * left * right, "the control: float32 rounds it up"


def test_chunks_are_added_up_in_float64_and_a_whole_batch_in_blocks() -> None:
    """A chunk of few samples makes many additions, which the bound does not count."""
    parts = [dense(torch.full((2, 3), 0.1)) for _ in range(3)]
    assert clipped_sum(parts, 1.0, like=torch.zeros(3), samples=6, block=64).dtype == torch.float64
    whole = dense(torch.full((6, 3), 0.1))
    assert clipped_sum([whole], 1.0, like=torch.zeros(3), samples=6, block=64).dtype == torch.float32
    assert clipped_sum([whole], 1.0, like=torch.zeros(3), samples=6).dtype == torch.float64


def moved_with_decay(kind: Blocks, target: float, *, records: int, stretch: float, seed: int) -> float:
    """By how much one record more moves Σ (g_i + λθ), |g_i + λθ| ≤ 1 = C and λθ = -target, in the worst order."""
    short = np.random.Generator(np.random.PCG64(seed)).uniform(-1, 1, records)
    sums = []
    for clipped in (short, np.concatenate([np.ones(1), short])):
        block = kind.rows(len(clipped), stretch=stretch)
        terms = (clipped + target)[:, None]
        if block is None:
            sums.append(float(terms.sum()) - target * len(clipped))
        else:
            sums.append(
                float(np.float32(worst_sum(terms.astype(np.float32), block)) - np.float32(target * len(clipped)))
            )
    return abs(sums[1] - sums[0])


@pytest.mark.parametrize("kind", [SMALL, LARGE])
@pytest.mark.parametrize("target", [0.5, 3.0, 2e4])
def test_blocks_are_shortened_by_the_length_that_decay_adds(kind: Blocks, target: float) -> None:
    allowed = stretch(Points(centre=torch.tensor([target]), decay=1.0), 1.0, clipping="flat")
    moves = [moved_with_decay(kind, target, records=150, stretch=allowed, seed=seed) for seed in range(300)]
    assert max(moves) <= 1 + kind.slack
    if target == 2e4:  # the control: blocks that are chosen as if there were no decay
        ignored = [moved_with_decay(kind, target, records=150, stretch=1.0, seed=seed) for seed in range(300)]
        assert max(ignored) > 1 + kind.slack


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_with_decay_the_terms_of_the_sum_are_within_their_stretch(clipping: str) -> None:
    """The clip holds for g + λθ, and what is added up in float32 is g: it may be longer, near a decayed optimum."""
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(30, generator=generator, dtype=torch.float64)
    decay, limit = 0.7, 0.01
    rows = -decay * theta + torch.logspace(-6, 1, 200, dtype=torch.float64)[:, None] * torch.randn(200, 30).double()
    norms = (rows + decay * theta).norm(dim=1)[None]
    factors = clip_factors(norms, limit, clipping=clipping)[0]
    longest = float((factors * rows.norm(dim=1)).max())
    allowed = stretch(Points(centre=theta, decay=decay), limit, clipping=clipping)
    assert limit * 1.5 < longest <= allowed * limit
    assert stretch(Points(centre=theta), limit, clipping=clipping) == 1.0
    assert LARGE.rows(256, stretch=allowed) is None
    assert SMALL.rows(256, stretch=math.nan) is None


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_a_huge_label_with_a_tiny_input_does_not_overflow_the_sum(clipping: str) -> None:
    """The factor of automatic clipping is above 1 here, and the output gradient times the factor exceeds float32."""
    module = nn.Linear(3, 1, bias=False)
    layout = Layout.of(module)
    points = Points(centre=layout.flatten(module))
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 3, generator=generator), torch.randn(16, generator=generator)
    hostile_x, hostile_y = x.clone(), y.clone()
    hostile_x[3], hostile_y[3] = torch.tensor([1e-42, 0.0, 0.0]), 1.5e38
    source = per_sample_source(module, layout, example=x[:4], loss=summed_loss(REGRESSION))

    def total(inputs: Tensor, targets: Tensor) -> Tensor:
        chunks = source.chunks(points, inputs, targets)
        return clipped_sum(chunks, 1.0, like=points.centre, samples=16, clipping=clipping, block=16)

    moved = float((total(hostile_x, hostile_y) - total(x, y)).norm())
    assert moved <= 2 * (1 + SMALL.slack)  # one record replaced by another
