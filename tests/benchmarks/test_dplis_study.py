"""The DPLIS study: the identity behind its arms, and planted results that come out as they were planted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.dplis_study import __main__ as study_command
from benchmarks.dplis_study import arms
from benchmarks.dplis_study.runs import Outcome, Run, Study, training_of

STUDY = Study(
    name="planted",
    dataset="digits",
    records=1_000,
    batch_size=50,
    noise_multiplier=1.0,
    epsilons=(2.0, 4.0),
    radii=(10.0, 40.0),
    rates=(0.1, 0.2, 0.4),
    tuned_radii=((10.0, 40.0), (10.0,)),
    seeds=(0, 1, 2),
    selection_seeds=(100,),
)


def planted(run: Run) -> Outcome:
    """Late, `sum` gains 5 points, 4 of which are its clip and rate; a rate of 0.2 gains 6; `mean` is flat."""
    wobble = 0.1 * run.seed
    late = 80 + 6 * math.isclose(run.learning_rate, 0.2) + wobble + 0.01 * run.seed * run.smoothing_radius / 40
    if run.max_grad_norm < 1:
        late += 4
    elif run.smoothing_reduction == "sum":
        late += 5 if run.smoothing_radius == 40 else 4.5
    return Outcome(accuracies=(70 + wobble, late)[: len(run.scored)])


def planted_results() -> dict[Run, Outcome]:
    known: dict[Run, Outcome] = {}
    for runs_of in study_command.STAGES:
        known |= {run: planted(run) for run in runs_of(STUDY, known)}
    return known


def small(**changes: object) -> Run:
    run = STUDY.run(radius=0.0, reduction="mean", learning_rate=0.15, seed=3, scored=(4, 9))
    return replace(run, **changes)  # type: ignore[arg-type]


def trajectory(run: Run) -> list[list[float]]:
    training = training_of(run, data_dir=None)
    found = []
    for step in range(1, run.scored[-1] + 1):
        training.run_to(step)
        found.append(training._theta.tolist())
    return found


@pytest.mark.parametrize("radius", [0.0, 20.0])
def test_a_sum_is_the_mean_at_a_clip_of_c_over_k_and_k_times_the_rate(radius: float) -> None:
    # A clip at which many gradients are below C: where all are above, `sum` and `mean` are the same anyway.
    settings = {"smoothing_radius": radius, "smoothing_samples": 4, "noise_multiplier": 0.1}
    summed = trajectory(small(**settings, smoothing_reduction="sum", max_grad_norm=8.0))
    mean = trajectory(small(**settings, max_grad_norm=2.0, learning_rate=0.6))
    unscaled = trajectory(small(**settings, max_grad_norm=8.0))
    for left, right in zip(summed, mean, strict=True):
        assert left == pytest.approx(right, rel=1e-4, abs=1e-5)
    assert summed[-1] != pytest.approx(unscaled[-1], rel=1e-2, abs=1e-2)


def test_an_estimate_is_told_apart_from_zero_by_students_t_and_a_diverged_one_never() -> None:
    some = arms.Estimate((1.0, 2.0, 3.0))
    assert some.figure.error == pytest.approx(1 / math.sqrt(3))
    assert some.sign == 0  # 2 is less than 4.303 · 0.577
    assert [arms.Estimate(values).sign for values in ((2.0, 2.1, 2.2), (-2.0, -2.1, -2.2), (2.0,))] == [1, -1, 0]
    assert some.minus(arms.Estimate((1.0, math.nan, 1.0))).sign == 0


def test_planted_results_come_out_as_they_were_planted() -> None:
    _, late = arms.points(STUDY, planted_results())
    assert late.untuned.figure.value == pytest.approx(80.1)
    assert late.tuned.minus(late.untuned).figure.value == pytest.approx(6)
    assert late.at(0.0, "sum").minus(late.untuned).figure.value == pytest.approx(4)
