"""The comparison of searches on real data: what its sweeps share, one of them, and that it goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import pruning_real, pruning_real_runs
from benchmarks.budget_common import Results
from benchmarks.pruning_real_runs import FASHION, METHODS, QUICK, SEARCHES, Outcome, Run, append, file_of, read, runs_of
from trainables.data import DatasetRequest, load
from tuner.experiment import load as load_experiment

TINY = replace(QUICK, epochs=1, rungs=2, noise_multiplier=4.0, epsilon=0.7)


def planted(run: Run) -> Outcome:
    score = 70.0 + run.seed
    return Outcome(
        validation=score,
        test=score - 1,
        highest=score,
        chosen="score",
        parameters=dict.fromkeys(SEARCHES[run.search][1], 7.0),
        spent=3.5,
        spent_until_winner=2.0,
        cap=4.0,
        steps=200,
        step_cap=210,
        steps_per_trial=20,
        started=12,
        pruned=4,
        failed=0,
        excluded=0,
        state="budget reached",
        seconds=1.0,
        trials=[],
    )


@pytest.mark.parametrize("workload", [FASHION, QUICK], ids=lambda workload: workload.dataset)
def test_the_sweeps_of_a_search_differ_in_how_they_search_alone(tmp_path: Path, workload: object) -> None:
    assert isinstance(workload, type(FASHION))
    for search in SEARCHES:
        rest = []
        for run in runs_of(workload, [search]):
            file = file_of(run, workload, {"name": "digits"}, tmp_path)
            path = tmp_path / "sweep.yaml"
            path.write_text(json.dumps(file))
            assert load_experiment(path).privacy.private
            for name in {"sampler", "pruner", "when_sure"} & set(file["search"]):
                del file["search"][name]
            rest.append({**file, "seed": 0})
        assert len(rest) == len(METHODS) * len(workload.seeds)
        assert all(each == rest[0] for each in rest)


@pytest.mark.slow
def test_a_sweep_goes_on_until_its_cap_and_is_exported(tmp_path: Path) -> None:
    run = next(runs_of(TINY))
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "of a run that was killed").touch()
    outcome = pruning_real_runs.sweep(run, TINY, {"name": "digits"}, folder=folder, data_dir=None)
    assert (run.method, outcome.state, outcome.failed) == ("ours", "budget reached", 0)
    assert outcome.step_cap - outcome.steps < outcome.steps_per_trial
    assert outcome.steps == sum(int(str(trial["steps"])) for trial in outcome.trials)
    assert len(outcome.trials) == outcome.started >= 3
    assert 0 < outcome.spent_until_winner <= outcome.spent <= outcome.cap == TINY.epsilon
    assert outcome.validation <= outcome.highest
    assert 0 <= outcome.test <= 100
    assert set(outcome.parameters) == {"smoothing_radius"}
    assert not list(folder.glob("of a run*"))
    path = tmp_path / "sweeps.jsonl"
    append(path, run, outcome)
    assert read(path) == {run: outcome}


def test_a_part_of_a_set_is_its_first_records_and_is_written_once(tmp_path: Path) -> None:
    workload = replace(TINY, records=100)
    named = pruning_real_runs._dataset(workload, tmp_path, None)
    (path,) = tmp_path.iterdir()
    assert named == {"name": "digits_100", "path": str(path), "public_size": 100}
    whole = load(DatasetRequest(name="digits", validation_fraction=0.0))
    with np.load(path) as part:
        assert np.array_equal(part["x_train"], whole.x_train[:100].numpy())
        assert np.array_equal(part["y_train"], whole.y_train[:100].numpy())
        assert len(part["x_test"]) == len(whole.x_test)
    before = path.stat().st_mtime_ns
    pruning_real_runs._dataset(workload, tmp_path, None)
    assert path.stat().st_mtime_ns == before


def test_a_run_that_was_cut_off_makes_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Run] = []

    def fake(run: Run, workload: object, dataset: object, *, folder: Path, data_dir: str | None) -> Outcome:
        made.append(run)
        if len(made) == 3:
            raise KeyboardInterrupt
        return planted(run)

    monkeypatch.setattr(pruning_real_runs, "sweep", fake)
    monkeypatch.setattr(pruning_real, "FASHION", replace(FASHION, records=None))
    command = ["--only", "radius", "--json", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        pruning_real.main(command)
    path = tmp_path / "sweeps.jsonl"
    assert set(read(path)) == set(made[:2])
    path.write_bytes(path.read_bytes()[:-20])  # and the machine died while it wrote
    assert pruning_real.main(command) == 0
    assert made[3] == made[1]
    # One was kept whole, one's record was cut, and the third was interrupted: all but the first are made once more.
    every = len(METHODS) * len(FASHION.seeds)
    assert len(made) == 3 + every - 1
    text, line = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "| ours | 3 | 72.00 ± 0.58 | 71.00 ± 0.58 |" in text
    told = json.loads(line)
    assert told["falls_short"] == []
    assert told["figures"]["real.missing"]["median"] == 0
    assert told["figures"]["real.radius.random.test"]["median"] == pytest.approx(71)
    assert pruning_real.main(command) == 0
    assert len(made) == 3 + every - 1


def test_a_table_of_what_is_known_shows_what_is_missing() -> None:
    runs = [run for run in runs_of(FASHION, ["composed"]) if run.method == "ours" and run.seed < 3]
    results = Results()
    pruning_real.note_tables({run: planted(run) for run in runs}, FASHION, list(SEARCHES), results)
    assert results.figures["real.missing"].median == len(SEARCHES) * len(METHODS) * len(FASHION.seeds) - 2
    means, single = results.tables.values()
    assert [row[:2] for row in means.rows] == [(method, 2 * (method == "ours")) for method in METHODS]
    assert means.rows[1][2:] == ("–",) * (len(means.columns) - 2)
    assert single.columns[-3:] == ("smoothing_radius", "laplacian_sigma", "weight_decay")
    assert [len(row) for row in single.rows] == [len(single.columns)] * 2
