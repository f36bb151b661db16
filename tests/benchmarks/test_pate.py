"""PATE's benchmark: planted students come out as they were planted, and Table 13 is within the printed digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pate.__main__ import gains
from benchmarks.pate.student import CHECKPOINTS, Outcome, Run
from benchmarks.pate.table import cells
from trainables.data.votes import read_votes


def planted(run: Run) -> Outcome:
    """Smoothing of 0.04 gains 2 points at the end. The best checkpoint of plain training is 1 point above its end."""
    base = 80.0 + 0.1 * run.seed + 2 * (run.sigma == 0.04) - 3 * (run.sigma == 0.1)
    curve = tuple(
        base + (part == 5 and run.sigma == 0) - 0.01 * (part != CHECKPOINTS - 1) for part in range(CHECKPOINTS)
    )
    return Outcome(labels=100, right=60.0, validation=curve, test=tuple(each - 1 for each in curve))


def test_planted_gains_are_told_at_the_last_step_and_at_the_chosen_checkpoint() -> None:
    runs = [Run(noise=100.0, sigma=sigma, seed=seed) for sigma in (0.0, 0.04, 0.1) for seed in range(3)]
    last, stopped = gains(runs, {run: planted(run) for run in runs})
    assert last[3:5] == ("last step", "0.04")
    assert last[5:] == ("79.10", "81.10", "+2.00 (+2.00 to +2.00)")
    assert stopped[5:] == ("80.09", "81.10", "+1.01 (+1.01 to +1.01)")


@pytest.mark.data
@pytest.mark.slow
def test_table_13_is_within_the_printed_digits_and_the_claim_is_not_that_of_the_votes(data_dir: Path) -> None:
    found = cells(read_votes(data_dir / "pate_votes.npz", "svhn"))
    assert len(found) == 12
    for cell in found:
        assert abs(cell.mean - cell.printed) < 0.01
        assert cell.given < cell.mean
        assert cell.claim < cell.printed
    # Where the teachers' answers stand out of the noise, the bound given the votes is far below.
    assert all(cell.given < 0.5 * cell.claim for cell in found if cell.noise == 40)
