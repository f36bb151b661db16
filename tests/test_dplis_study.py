"""The DPLIS study: the identity behind its arms, its tables on planted results, and a killed study that goes on."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import dplis_arms, dplis_runs, dplis_study
from benchmarks.dplis_arms import Arm, Estimate, best_rate, points
from benchmarks.dplis_chart import chart
from benchmarks.dplis_report import section
from benchmarks.dplis_runs import Accuracies, Run, Study, append, read, training_of
from tuner.privacy.accountant.pld import epsilon

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


def planted(run: Run) -> Accuracies:
    """Late, `sum` gains 5 points, 4 of which are its clip and rate; a rate of 0.2 gains 6; `mean` is flat."""
    wobble = 0.1 * run.seed
    late = 80 + 6 * math.isclose(run.learning_rate, 0.2) + wobble + 0.01 * run.seed * run.smoothing_radius / 40
    if run.max_grad_norm < 1:
        late += 4
    elif run.smoothing_reduction == "sum":
        late += 5 if run.smoothing_radius == 40 else 4.5
    return (70 + wobble, late)[: len(run.scored)]


def results_of(study: Study, scores: Callable[[Run], Accuracies] = planted) -> dict[Run, Accuracies]:
    known: dict[Run, Accuracies] = {}
    for run in dplis_arms.selection_runs(study):
        known[run] = scores(run)
    for index in (0, 1):
        for radius in study.tuned_radii[index]:
            known |= {run: scores(run) for run in dplis_arms.tuned_selection_runs(study, known, index, radius)}
    known |= {run: scores(run) for run in dplis_study._comparison(study, known)}
    return known


def small(**changes: object) -> Run:
    run = STUDY.run(radius=0.0, reduction="mean", learning_rate=0.15, seed=3, scored=(4, 9))
    return replace(run, **changes)


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


def test_the_study_runs_an_unsmoothed_sum_as_that_identity() -> None:
    summed = STUDY.run(radius=0.0, reduction="sum", learning_rate=0.1, seed=0, scored=(5,))
    assert (summed.max_grad_norm, summed.smoothing_reduction) == (0.1, "mean")
    assert summed.learning_rate == pytest.approx(1.0)
    smoothed = STUDY.run(radius=3.0, reduction="sum", learning_rate=0.1, seed=0, scored=(5,))
    assert (smoothed.max_grad_norm, smoothed.smoothing_reduction, smoothed.learning_rate) == (1.0, "sum", 0.1)


def test_the_steps_are_the_most_that_fit_each_epsilon() -> None:
    for steps, budget in zip(STUDY.steps, STUDY.epsilons, strict=True):
        assert epsilon(STUDY.mechanism, steps, 1e-5) <= budget < epsilon(STUDY.mechanism, steps + 1, 1e-5)


def test_no_test_record_is_held() -> None:
    training = training_of(small(), data_dir=None)
    assert len(training._records["test"][0]) == 0
    assert len(training._records["validation"][0]) > 300


def test_a_run_is_repeatable_and_its_second_score_does_not_depend_on_the_first() -> None:
    run = small()
    both = dplis_runs.train(run, data_dir=None)
    assert dplis_runs.train(run, data_dir=None) == both
    assert dplis_runs.train(replace(run, scored=(9,)), data_dir=None) == both[1:]


def test_an_estimate() -> None:
    some = Estimate((1.0, 2.0, 3.0))
    assert some.mean == 2
    assert some.error == pytest.approx(1 / math.sqrt(3))
    assert some.sign == 0  # 2 is less than 4.303 · 0.577
    assert Estimate((2.0, 2.1, 2.2)).sign == 1
    assert Estimate((-2.0, -2.1, -2.2)).sign == -1
    assert Estimate((2.0,)).sign == 0
    assert Estimate((2.0,)).plain() == "2.00"
    diverged = some.minus(Estimate((1.0, math.nan, 1.0)))
    assert (diverged.sign, diverged.signed()) == (0, "diverged")
    assert some.minus(Estimate((1.0, 2.0, 2.9))).values == pytest.approx((0, 0, 0.1))


def test_the_rate_is_chosen_on_the_selection_seeds_and_a_diverged_one_never() -> None:
    known = results_of(STUDY)
    assert best_rate(STUDY, known, 1) == 0.2
    worse = {run: (math.nan,) * len(run.scored) if run.learning_rate == 0.2 else value for run, value in known.items()}
    assert best_rate(STUDY, worse, 1) != 0.2
    ignored = {run: (0.0,) * len(run.scored) if run.seed < 100 else value for run, value in known.items()}
    assert best_rate(STUDY, ignored, 1) == 0.2


def test_planted_results_come_out_as_they_were_planted() -> None:
    _, late = points(STUDY, results_of(STUDY))
    assert late.untuned.plain().startswith("80.10")
    assert late.tuned.minus(late.untuned).mean == pytest.approx(6)
    assert late.at(0.0, "sum").minus(late.untuned).mean == pytest.approx(4)
    assert late.best_radius("sum") == 40
    text = section(STUDY, results_of(STUDY))
    assert "`sum`: the best of R = 10 and 40 is 40; it is better than the untuned baseline" in text
    assert "is worse than tuned DP-SGD" in text
    assert "clipping at C/K with K times the rate gives +4.00 points" in text
    assert "So there is no gain here to be shared out." in text
    assert "0 better than DP-SGD at its own best rate" not in text.split("### Late")[0]
    assert "and 0 better than DP-SGD at its own best rate" in text


def test_every_arm_is_a_row_and_shows_the_rate_it_ran_at() -> None:
    known = results_of(STUDY)
    text = section(STUDY, known)
    for index in (0, 1):
        for arm in dplis_arms.arms(STUDY, known, index):
            assert f"| {arm.label} |" in text
    assert "| DP-SGD, C/K and K times the rate | 1.536 |" in text
    assert Arm(radius=10.0, reduction="mean", learning_rate=0.1, tuned=True).label.endswith("rate of its own")


def test_diverged_runs_and_a_single_seed_still_give_a_page_and_a_picture() -> None:
    def broken(run: Run) -> Accuracies:
        diverged = run.smoothing_reduction == "sum" and run.smoothing_radius == 40
        return (math.nan,) * len(run.scored) if diverged else planted(run)

    for study in (STUDY, replace(STUDY, seeds=(0,))):
        known = results_of(study, broken)
        assert "diverged" in section(study, known)
        ET.fromstring(chart(points(study, known)))


def test_a_result_survives_the_file_and_a_line_cut_short_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second, third = (small(seed=seed) for seed in range(3))
    append(path, first, (50.0, math.nan), 1.0)
    append(path, second, (51.0, 52.0), 1.0)
    path.write_bytes(path.read_bytes()[:-20])
    append(path, third, (53.0, 54.0), 1.0)
    found = read(path)
    assert set(found) == {first, third}
    assert found[third] == (53.0, 54.0)
    assert math.isnan(found[first][1])


def test_a_study_trains_only_what_is_missing_and_writes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[Run] = []

    def fake(run: Run, *, data_dir: str | None) -> Accuracies:
        assert data_dir is None
        trained.append(run)
        if len(trained) == 8:
            raise KeyboardInterrupt
        return planted(run)

    monkeypatch.setattr(dplis_runs, "train", fake)
    monkeypatch.setattr(dplis_study, "MLP", STUDY)
    out, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    command = ["--out", str(out), "--jobs", "1", "--write", str(page), "--json"]
    with pytest.raises(KeyboardInterrupt):
        dplis_study.main(command)
    assert len(read(out)) == 7
    assert dplis_study.main(command) == 2  # results are never overwritten, and never mixed in without being asked
    assert dplis_study.main([*command, "--resume"]) == 0
    killed = trained.pop(7)
    assert killed in trained
    assert len(set(trained)) == len(trained)
    capsys.readouterr()
    count = len(trained)
    assert dplis_study.main([*command, "--resume"]) == 0
    assert len(trained) == count
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["planted"][1]["steps"] == STUDY.steps[1]
    assert page.read_text().count("### ") == 2
    ET.parse(tmp_path / "page.svg")
