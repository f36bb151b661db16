"""The journal survives what a killed process leaves behind, and is never begun afresh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from errors_helper import raises_code

from tuner.errors import InputError, TunerError
from tuner.study.storage import JOURNAL, exclusive, open_storage, open_study


def study_in(folder: Path, mode: str = "max") -> optuna.Study:
    return open_study(
        open_storage(folder),
        "sweep",
        mode=mode,
        sampler=lambda before: optuna.samplers.RandomSampler(seed=before),
        pruner=optuna.pruners.NopPruner(),
    )


def add_trial(study: optuna.Study, value: float = 0.5) -> None:
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    study.tell(trial, value)


def test_the_sampler_is_told_how_many_trials_there_are(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        study = open_study(
            open_storage(tmp_path),
            "sweep",
            mode="max",
            sampler=lambda before: (seen.append(before), optuna.samplers.RandomSampler())[1],
            pruner=optuna.pruners.NopPruner(),
        )
        add_trial(study)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_half_written_last_line_is_removed_and_work_goes_on(tmp_path: Path, cut: int) -> None:
    study = study_in(tmp_path)
    add_trial(study)
    whole = (tmp_path / JOURNAL).read_bytes()
    add_trial(study)
    last = (tmp_path / JOURNAL).read_bytes()[len(whole) :].splitlines(keepends=True)[0]
    (tmp_path / JOURNAL).write_bytes(whole + last[:-cut])
    again = study_in(tmp_path)
    before = len(again.trials)
    assert before == (2 if cut == 1 else 1), "only a line that lost nothing but its end is kept"
    add_trial(again)
    assert len(study_in(tmp_path).trials) == before + 1


def test_a_journal_with_a_broken_line_in_the_middle_is_refused_and_kept(tmp_path: Path) -> None:
    add_trial(study_in(tmp_path))
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"op_code": \n'
    journal.write_bytes(b"".join(lines))
    with raises_code(TunerError, "study-unreadable"):
        study_in(tmp_path)
    assert journal.read_bytes() == b"".join(lines)


def test_a_journal_that_cannot_be_written_is_read_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path)
    add_trial(study)
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code":')  # a torn line, which a writer would cut off
    before = journal.read_bytes()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != journal)
    again = study_in(tmp_path)
    assert [trial.value for trial in again.trials] == [0.5]
    add_trial(again)
    assert journal.read_bytes() == before


def test_a_study_keeps_its_direction(tmp_path: Path) -> None:
    study_in(tmp_path, "max")
    with raises_code(InputError, "study-direction"):
        study_in(tmp_path, "min")
    with raises_code(InputError, "study-settings-invalid"):
        study_in(tmp_path, "best")


def test_the_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tuner.study.storage import exclusive\n"
        "with exclusive(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with raises_code(TunerError, "sweep-running"), exclusive(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with exclusive(tmp_path):
        pass
