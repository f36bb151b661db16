"""A sweep that was cut off goes on: after Ctrl-C, kill -9, or half a start; and one process drives it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from command_fakes import STEPS, Tune

from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read what the process says until a line holds `words`."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return
    assert process.stderr is not None
    raise AssertionError(f"it ended without {words!r}:\n{''.join(seen)}\n{process.stderr.read()}")


def cut_off(tune: Tune, how: signal.Signals, *words: str, after: str = "trial 0 step 5/10") -> tuple[int, str]:
    """Start a long sweep, send it a signal once it has said `after`; its exit code and last words."""
    process = tune.process("run", tune.write(search__trials=40, privacy__epsilon=20.0), *words)
    until(process, after)
    process.send_signal(how)
    _, err = process.communicate(timeout=100)
    return process.returncode, err


@pytest.mark.parametrize("again", ["run --resume", pytest.param("resume by name", marks=pytest.mark.slow)])
def test_ctrl_c_ends_in_130_and_the_sweep_goes_on(tune: Tune, again: str) -> None:
    code, err = cut_off(tune, signal.SIGINT, "--local")
    (folder,) = tune.sweeps
    assert code == 130
    assert "Traceback" not in err
    assert f"tune resume {folder.name}" in err
    before = tune("status", "tiny", "--json").json["sweeps"][0]
    assert before["state"] == "interrupted"
    leased = before["budget"]["spent_steps"]
    assert leased > 0
    assert "[sweep-not-finished]" in tune("export", "tiny", code=2).err

    begun = len(tune("show", "tiny", "--json").json["trials"])
    more = ("--set", f"search.trials={begun + 1}", "--local")
    words = (
        ("resume", "tiny")
        if again == "resume by name"
        else ("run", "tiny.yaml", "--set", "privacy.epsilon=20", "--resume")
    )
    said = tune(*words, *more)
    assert f"resuming {folder.name}" in said.text
    assert tune.sweeps == [folder]
    assert tune.entries.count("open_search") == 1
    after = tune("status", "tiny", "--json").json["sweeps"][0]
    assert after["state"] == "done"
    assert after["trials"] == {"planned": begun + 1, "complete": begun + 1}
    # At most the steps since the last report of the trial that was cut off are paid twice.
    extra = after["budget"]["spent_steps"] - (begun + 1) * STEPS
    assert 0 <= extra <= STEPS // 2
    assert {run.info.status for run in tune.mlflow_runs()} == {"FINISHED"}


def test_kill_9_loses_nothing_that_was_charged(tune: Tune) -> None:
    code, _ = cut_off(tune, signal.SIGKILL, "--local", after="trial 1 step 5/10")
    assert code == -signal.SIGKILL
    before = tune("status", "tiny", "--json").json["sweeps"][0]
    assert before["state"] == "crashed"
    assert before["trials"]["complete"] >= 1
    assert before["budget"]["spent_steps"] >= STEPS + STEPS // 2
    assert "[sweep-not-finished]" in tune("export", "tiny", code=2).err
    begun = len(tune("show", "tiny", "--json").json["trials"])
    said = tune("resume", "tiny", "--local", "--set", f"search.trials={begun}")
    assert "ended before" in said.text, "the trials of before stand in the view"
    after = tune("status", "tiny", "--json").json["sweeps"][0]
    assert after["trials"] == {"planned": begun, "complete": begun}
    assert 0 <= after["budget"]["spent_steps"] - begun * STEPS <= STEPS // 2
    assert after["budget"]["spent_steps"] >= before["budget"]["spent_steps"]
    assert after["budget"]["reserved_steps"] == 0
    tune("export", "tiny")


@pytest.mark.slow
def test_ctrl_c_on_ray_ends_in_130_and_the_sweep_goes_on(tune: Tune) -> None:
    code, err = cut_off(tune, signal.SIGINT)
    assert code == 130, err
    assert "Traceback" not in err
    assert f"tune resume {tune.sweeps[0].name}" in err
    begun = len(tune("show", "tiny", "--json").json["trials"])
    process = tune.process("resume", "tiny", "--set", f"search.trials={begun}")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    after = tune("status", "tiny", "--json").json["sweeps"][0]
    assert after["trials"] == {"planned": begun, "complete": begun}


@pytest.mark.slow
def test_one_process_drives_a_sweep_and_stop_reaches_it(tune: Tune) -> None:
    process = tune.process("run", tune.write(search__trials=200, privacy__epsilon=60.0), "--local")
    until(process, "trial 0 step 5/10")
    folder = SweepFolder(tune.sweeps[0])
    said = tune("resume", "tiny", "--local", "--set", "search.trials=300", code=1)
    assert f"process {process.pid}" in said.err
    assert "[sweep-running]" in said.err
    assert folder.read_status()["state"] == "running", "the second process changed nothing"
    assert "trials: 200" in folder.experiment.read_text()
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "running"
    assert "no new one starts" in tune("stop", "tiny").out
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert status["state"] == "stopped"
    assert status["trials"]["complete"] < 200
    assert "not running" in tune("stop", "tiny").out
    assert "stopped" in tune("watch", "tiny").out
    assert tune.search_state(folder.id).status == "closed"


def test_a_finished_sweep_takes_more_trials(tune: Tune) -> None:
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    said = tune("resume", "tiny", "--local", "--set", "search.trials=3", "--json").json
    assert [trial["number"] for trial in said["trials"]] == [0, 1, 2]
    assert tune.search_state(said["sweep"]).leased_steps == 3 * STEPS
    assert tune("run", "tiny.yaml", "--resume", "--local", "--set", "search.trials=3").code == 0
    assert tune.search_state(said["sweep"]).leased_steps == 3 * STEPS, "nothing was left to do"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("privacy.epsilon=9", "privacy.epsilon"),
        ("privacy.noise_multiplier=1.5", "privacy.noise_multiplier"),
        ("trainable.batch_size=64", "trainable.batch_size"),
        ("search.space.learning_rate={uniform: [0.1, 0.2]}", "search.space.learning_rate"),
        ("ledger=sqlite:///other.db", "ledger"),
        ("seed=3", "seed"),
    ],
)
def test_a_sweep_goes_on_as_it_was_started(look: Tune, change: str, key: str) -> None:
    before = look.entries
    for words in (("resume", "tiny"), ("run", "tiny.yaml", "--resume")):
        error = look(*words, "--local", "--set", change, code=2).err
        assert "[resume-changes-setting]" in error
        assert key in error
    assert look.entries == before


def test_a_sweep_goes_on_in_its_own_ledger_from_any_folder(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From elsewhere a relative address would name another ledger: a new one, with nothing spent."""
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    tune("resume", str(tune.sweeps[0]), "--local", "--set", "search.trials=2")
    assert not (elsewhere / "runs").exists()
    assert tune.search_state(tune.sweeps[0].name).leased_steps == 2 * STEPS


def test_a_sweep_whose_ledger_is_gone_does_not_start_another(tune: Tune) -> None:
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    ledger = tune.folder / "runs" / "ledger.db"
    ledger.rename(ledger.with_name("away.db"))
    error = tune("resume", "tiny", "--local", "--set", "search.trials=2", code=1).err
    assert "[ledger-not-found]" in error
    assert not ledger.exists()
    # Another ledger at its place does not know the sweep, and does not learn of it.
    tune("budget", "set", "digits", "--epsilon", "50", "--delta", "1e-4")
    error = tune("resume", "tiny", "--local", "--set", "search.trials=2", code=1).err
    assert "[search-not-in-ledger]" in error
    assert tune.entries == ["cap"]


class Died(BaseException):
    """Stands for the death of the process: nothing in the program catches it."""


@pytest.mark.parametrize("at", ["before the ledger", "after the ledger"])
def test_a_start_that_was_cut_off_goes_on_once(tune: Tune, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    import tuner.runner.start
    from tuner.runner.commands import RunOptions, run_file

    def dies(*_: object, **__: object) -> None:
        raise Died

    file = tune.write(search__trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(tuner.runner.start, "enter" if at == "before the ledger" else "_run", dies)
        with pytest.raises(Died):
            run_file(file, (), RunOptions(local=True, quiet=True))
    assert tune.entries == ([] if at == "before the ledger" else ["open_search"])
    (status,) = tune("status", "--json").json["sweeps"]
    assert (status["state"], status["trials"]) == ("crashed", {"planned": 1})
    assert list(tune.sweeps[0].glob("study*")) == [], "looking makes no study"
    tune("run", file, "--resume", "--local", "--quiet")
    assert tune.entries.count("open_search") == 1
    assert tune.search_state(tune.sweeps[0].name).leased_steps == STEPS


def test_a_folder_that_was_half_made_hides_no_sweep(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    error = tune("run", file, "--resume", "--local", code=2).err
    assert "[sweep-not-found]" in error
    tune("run", file, "--local", "--quiet")
    real = tune.sweeps[0]
    half = sweeps.create(tune.folder / "runs", "tiny")
    later = half.root.rename(half.root.with_name("tiny-20991231-235959-aaaaaa"))
    listed = tune("status", "--json").json["sweeps"]
    assert [each["state"] for each in listed] == ["done", "never started"]
    assert "never started" in tune("status").out
    assert tune("status", "tiny", "--json").json["sweeps"][0]["sweep"] == real.name
    for command in ("resume", "export", "show", "report", "watch"):
        assert "[sweep-incomplete]" in tune(command, later.name, code=2).err
    assert f"{real.name} is already finished" in tune("resume", "tiny", "--local").text


def test_a_start_that_fails_in_its_ledger_can_go_on(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage of the study breaks after the ledger was written: nothing was spent, so nothing stays committed."""
    import tuner.runner.composition
    from tuner.errors import TunerError

    def breaks(*_: object, **__: object) -> None:
        raise TunerError("study-unreadable", "the study cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(tuner.runner.composition, "open_sweep_study", breaks)
        tune("run", tune.write(search__trials=1), "--local", code=1)
    shown = tune("budget", "--json").json["datasets"][0]
    assert shown["committed"]["epsilon"] == 0
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "failed"
    tune("resume", "tiny", "--local", "--quiet")
    assert tune("budget", "--json").json["datasets"][0]["committed"]["epsilon"] == 8.5
