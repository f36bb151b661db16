"""Sweeps that are resumed after Ctrl-C, kill -9 or an incomplete start, by one process at a time."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest
from command_fakes import STEPS, Tune, dies, interrupted, raising_at, run_until_death, until

from tuner.errors import TunerError
from tuner.privacy.modes import COMPOSITION
from tuner.runner import composition, start
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder

LONG: dict[str, object] = {"search__trials": 200, "privacy__epsilon": 60.0}
"""A sweep that lasts until a signal reaches it, however slow the machine is."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("how", "code", "state"),
    [
        pytest.param(signal.SIGINT, 130, "interrupted", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "interrupted", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, "interrupted", marks=pytest.mark.slow),
        (signal.SIGKILL, -signal.SIGKILL, "crashed"),
    ],
    ids=["ctrl-c", "terminated", "hung up", "kill -9"],
)
def test_a_sweep_that_was_cut_off_loses_nothing_that_was_charged_and_goes_on(
    tune: Tune, how: signal.Signals, code: int, state: str
) -> None:
    process = tune.process("run", tune.write(**LONG), "--local")
    until(process, "trial 1 step 5/10")
    process.send_signal(how)
    _, err = process.communicate()
    (folder,) = tune.sweeps
    assert process.returncode == code
    assert "Traceback" not in err
    assert (f"tune resume {folder.name}" in err) == (how is not signal.SIGKILL)
    before = tune("status", "tiny", "--json").json["sweeps"][0]
    assert before["state"] == state
    assert f"to continue: tune resume {folder.name} --local" in tune("status", "tiny").out
    assert before["trials"]["complete"] >= 1
    assert before["budget"]["spent_steps"] >= STEPS + STEPS // 2
    assert "[sweep-not-finished]" in tune("export", "tiny", code=2).err
    begun = len(tune("show", "tiny", "--json").json["trials"])
    more = ("--set", f"search.trials={begun}", "--local")
    assert f"resuming {folder.name}" in tune("run", "tiny.yaml", "--resume", *more).text
    assert tune.sweeps == [folder]
    assert tune.entries.count("open_search") == 1
    after = tune("status", "tiny", "--json").json["sweeps"][0]
    assert (after["state"], after["trials"]) == ("done", {"planned": begun, "complete": begun})
    # At most the steps since the last report of the trial that was cut off are paid twice.
    assert 0 <= after["budget"]["spent_steps"] - begun * STEPS <= STEPS // 2
    assert after["budget"]["spent_steps"] >= before["budget"]["spent_steps"]
    assert after["budget"]["reserved_steps"] == 0
    assert {run.info.status for run in tune.mlflow_runs()} == {"FINISHED"}
    tune("export", "tiny")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["timeout", "terminal"])
def test_a_signal_to_the_whole_process_group_does_not_end_ray_before_the_trials(
    tune: Tune, how: signal.Signals, code: int
) -> None:
    """As `timeout` and a terminal that is closed send it."""
    process = tune.process("run", tune.write(**LONG))
    until(process, "trial 0 complete")
    os.killpg(process.pid, how)
    _, err = process.communicate()
    assert process.returncode == code, err
    assert f"tune resume {tune.sweeps[0].name}" in err
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "interrupted"


def test_a_sweep_whose_output_nobody_reads_any_more_is_interrupted(tune: Tune) -> None:
    """As in `tune run FILE | head`."""
    process = tune.process("run", tune.write(**LONG), "--local", "--quiet")
    until(process, "trial 0 complete")
    process.stdout.close()
    with process.stderr:
        err = process.stderr.read()
    assert process.wait() == 129
    assert f"tune resume {tune.sweeps[0].name} --local" in err
    assert "Traceback" not in err
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "interrupted"


@pytest.mark.slow
def test_one_process_drives_a_sweep_and_stop_reaches_it(tune: Tune) -> None:
    process = tune.process("run", tune.write(**LONG), "--local")
    until(process, "trial 0 step 5/10")
    folder = SweepFolder(tune.sweeps[0])
    said = tune("resume", "tiny", "--local", "--set", "search.trials=300", code=2)
    assert f"Process {process.pid}" in said.err
    assert "[sweep-running]" in said.err
    assert folder.read_status()["state"] == "running", "the second process changed nothing"
    assert "trials: 200" in folder.experiment.read_text()
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "running"
    assert "no new trial starts" in tune("stop", "tiny").out
    assert "running (stop requested)" in tune("status", "tiny").out
    _, err = process.communicate()
    assert process.returncode == 0, err
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert status["state"] == "stopped"
    assert status["trials"]["complete"] < 200
    assert "not running" in tune("stop", "tiny").out
    assert "stopped" in tune("watch", "tiny").out
    assert tune.search_state(folder.id).status == "closed"


def test_a_finished_sweep_is_left_as_it_is_or_takes_more_trials_from_any_folder(charged: Tune, tmp_path: Path) -> None:
    before = charged.entries
    assert charged("resume", "tiny", "--local", "--json").json["finished_before"] is True
    assert charged.entries == before
    # From elsewhere a relative address would name another ledger: a new one, with nothing spent.
    (tmp_path / "elsewhere").mkdir()
    with contextlib.chdir(tmp_path / "elsewhere"):
        said = charged("resume", str(charged.sweeps[0]), "--local", "--set", "search.trials=3", "--json").json
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert [trial["number"] for trial in said["trials"]] == [0, 1, 2]
    assert charged.search_state(said["sweep"]).leased_steps == 3 * STEPS
    again = charged("run", "tiny.yaml", "--resume", "--local", "--set", "search.trials=3").text
    assert "is already finished (done); nothing to do" in again
    assert charged.search_state(said["sweep"]).leased_steps == 3 * STEPS
    # With more trials in its file than it ended with it has not finished: it died when it was to go on.
    file = charged.sweeps[0] / "experiment.yaml"
    file.write_text(re.sub(r"trials: 3\b", "trials: 4", file.read_text()))
    assert "finished_before" not in charged("resume", "tiny", "--local", "--json").json
    assert charged.search_state(said["sweep"]).leased_steps == 4 * STEPS


def test_a_sweep_goes_on_as_it_was_started(look: Tune) -> None:
    before = look.entries
    for words in (("resume", "tiny"), ("run", "tiny.yaml", "--resume")):
        for change, key in (("privacy.epsilon=9", "privacy.epsilon"), ("ledger=sqlite:///other.db", "ledger")):
            error = look(*words, "--local", "--set", change, code=2).err
            assert "[resume-changes-setting]" in error
            assert key in error
    assert look.entries == before


def test_a_sweep_whose_ledger_is_gone_does_not_start_another(charged: Tune) -> None:
    ledger = charged.folder / "dp-tuner" / "ledger.db"
    ledger.rename(ledger.with_name("away.db"))
    more = ("resume", "tiny", "--local", "--set", "search.trials=3")
    assert "[ledger-not-found]" in charged(*more, code=1).err
    assert not ledger.exists()
    # Another ledger at its place does not know the sweep, and does not learn of it.
    charged("budget", "set", "digits", "--epsilon", "50", "--delta", "1e-4")
    assert "[search-not-in-ledger]" in charged(*more, code=1).err
    assert charged.entries == ["cap"]


@pytest.mark.parametrize("at", ["before the ledger", "after the ledger"])
def test_a_start_that_was_cut_off_goes_on_once(tune: Tune, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    file = tune.write(search__trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(start, "enter" if at == "before the ledger" else "_run", dies)
        run_until_death(file)
    assert tune.entries == ([] if at == "before the ledger" else ["open_search"])
    (status,) = tune("status", "--json").json["sweeps"]
    assert (status["state"], status["trials"]) == ("crashed", {"planned": 1})
    assert list(tune.sweeps[0].glob("study*")) == [], "looking makes no study"
    tune("run", file, "--resume", "--local", "--quiet")
    assert tune.entries.count("open_search") == 1
    assert tune.search_state(tune.sweeps[0].name).leased_steps == STEPS


def test_a_folder_that_was_half_made_hides_no_sweep(charged: Tune) -> None:
    (real,) = charged.sweeps
    half = sweeps.create(charged.folder / "runs", "tiny", mode=COMPOSITION)
    later = half.root.rename(half.root.with_name("tiny-20991231-235959-aaaaaa"))
    listed = charged("status", "--json").json["sweeps"]
    assert [each["state"] for each in listed] == ["done", "never started"]
    assert charged("status", "tiny", "--json").json["sweeps"][0]["sweep"] == real.name
    for command in ("resume", "export", "show", "report", "watch"):
        assert "[sweep-incomplete]" in charged(command, later.name, code=2).err
    assert f"{real.name} is already finished" in charged("resume", "tiny", "--local").text


@pytest.mark.parametrize("command", ["run", "train"])
def test_an_interruption_while_a_sweep_closes_says_how_to_go_on(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    file = tune.write(search={"trials": 1, "space": {"learning_rate": 0.5}})
    with monkeypatch.context() as patch:
        patch.setattr(composition, "leave", interrupted)
        said = tune(command, file, "--local", *(["--out", "my model"] if command == "train" else []), code=130).err
    (sweep,) = tune.sweeps
    assert f"interrupted; all charges remain. Resume with: tune resume {sweep.name}" in said
    assert ("then export with: tune export tiny --out 'my model'" in said) == (command == "train")
    tune("resume", sweep.name, "--local", "--quiet")
    assert tune.search_state(sweep.name).leased_steps == STEPS


@pytest.mark.parametrize("name", ["experiment.yaml", "plan.json", "study.journal"])
def test_a_folder_that_lost_a_file_was_charged(charged: Tune, name: str) -> None:
    (real,) = charged.sweeps
    (real / name).unlink()
    said = " ".join(charged("resume", real.name, "--set", "search.trials=3", "--local", code=None).text.split())
    assert "[sweep-file-unreadable]" in said
    assert f"/{name}" in said
    assert "is missing. All charges" in said
    charged("rm", real.name, code=2 if name == "study.journal" else 1)
    assert charged("status", "--json").json["sweeps"][0]["state"] != "never started"
    charged("rm", real.name, "--yes")


def test_a_start_that_fails_in_its_ledger_can_go_on(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage of the study breaks after the ledger was written: nothing was spent, so nothing stays committed."""

    def breaks(*_: object, **__: object) -> None:
        raise TunerError("study-unreadable", "the study cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(composition, "open_sweep_study", breaks)
        tune("run", tune.write(search__trials=1), "--local", code=1)
    shown = tune("budget", "--json").json["datasets"][0]
    assert shown["committed"]["epsilon"] == 0
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "failed"
    tune("resume", "tiny", "--local", "--quiet")
    assert tune("budget", "--json").json["datasets"][0]["committed"]["epsilon"] == 8.5


def test_one_that_died_before_its_ledger_was_closed_is_not_finished(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(composition, "leave", lambda *_, **__: None)
        tune("run", tune.write(search__trials=1), "--local", "--quiet")
    assert tune.search_state(tune.sweeps[0].name).status == "open"
    tune("resume", "tiny", "--local", "--quiet")
    assert tune.search_state(tune.sweeps[0].name).status == "closed"


@pytest.mark.parametrize("more", [(), ("--set", "search.trials=2")])
def test_an_interruption_costs_the_only_trial_no_more_than_the_steps_it_repeats(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """The budget has no step beside it. A resume that ended it as LOST would leave no model for the whole ε."""
    file = tune.write(search__trials=1, search__rungs=2, privacy__noise_multiplier="auto", trainable__epochs=60)
    with monkeypatch.context() as patch:
        raising_at(patch, 3, after=1)
        said = tune("run", file, "--local", code=130).text
    assert "earlier than planned" in said
    tune("resume", "tiny", "--local", "--quiet", *more)
    state = tune.search_state(tune.sweeps[0].name)
    assert state.leased_steps == state.filter.step_cap, "all of the budget was used, and no more"
    run = tune("show", "tiny", "--json").json["trials"][0]
    assert (run["state"], run["step"]) == ("complete", run["steps_planned"])
    assert 0 < state.filter.step_cap - run["step"] <= state.filter.step_cap // 10
    exported = tune("export", "tiny", "--json").json
    assert "Interruptions ended" in Path(exported["files"][0]).read_text()
    tune("verify", "exports/tiny/privacy_card.json")


@pytest.mark.parametrize("rung_wise", [False, True])
def test_a_second_interruption_says_what_it_lost_itself(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, *, rung_wise: bool
) -> None:
    changes = {"search__trials": 3, "search__rungs": 2, "privacy__noise_multiplier": "auto"}
    if rung_wise:
        changes |= {"search__full_runs": 2, "search__pruner": "asha"}
    words = ("run", tune.write(**changes))
    for rung, lost in ((1, 4), (0, 3)):  # both in the second rung of the first trial
        with monkeypatch.context() as patch:
            raising_at(patch, rung, after=lost)
            said = tune(*words, "--local", code=130).text
        assert f" {lost} charged steps are in no checkpoint" in said
        words = ("resume", "tiny")
    assert tune.search_state(tune.sweeps[0].name).leased_steps == STEPS // 2 + 4 + 3


def test_a_checkpoint_of_another_trial_stops_the_sweep_until_it_is_restored(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"search__trials": 2, "search__rungs": 2, "privacy__noise_multiplier": "auto"}
    with monkeypatch.context() as patch:
        raising_at(patch, 3, after=0)
        tune("run", tune.write(**changes), "--local", code=130)
    first, second = sorted((tune.sweeps[0] / "trials").iterdir())
    (own,) = (second / "checkpoint").iterdir()
    content = own.read_bytes()
    own.write_bytes((first / "checkpoint" / own.name).read_bytes())
    assert "[checkpoint-foreign]" in tune("resume", "tiny", "--local", "--quiet", code=1).err
    own.write_bytes(content)
    tune("resume", "tiny", "--local", "--quiet")
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["trials"] == {"planned": 2, "complete": 2}


@pytest.mark.parametrize("beyond", [0, 3])
def test_an_interruption_says_what_resuming_repeats(tune: Tune, monkeypatch: pytest.MonkeyPatch, beyond: int) -> None:
    """Ctrl-C in the second rung of the second of two trials that fit, so many steps after its checkpoint."""
    changes = {"search__trials": 2, "search__rungs": 2, "privacy__noise_multiplier": "auto"}
    with monkeypatch.context() as patch:
        raising_at(patch, 3, after=beyond)
        said = tune("run", tune.write(**changes), "--local", code=130).text
    assert tune.search_state(tune.sweeps[0].name).leased_steps == STEPS + STEPS // 2 + beyond
    assert (f"{beyond} charged steps are in no checkpoint" in said) == (beyond > 0)
    assert (f"takes {beyond} steps of the 0 steps left for other trials" in said) == (beyond > 0)
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["trials"] == {"planned": 2, "complete": 1, "cut off": 1}
    page = Path(tune("report", "tiny").out.split()[-1]).read_text()
    commands = page.split("<pre>")[1].split("</pre>")[0].splitlines()
    assert commands[0] == f"tune resume {tune.sweeps[0].name} --local", "what comes first"
    tune("resume", "tiny", "--local", "--quiet", code=None)
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["trials"] == {"planned": 2, "complete": 1, **({"lost": 1} if beyond else {"complete": 2})}
