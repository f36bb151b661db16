"""Commands that show, compare and remove sweeps, and what is told before a search starts."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from command_fakes import Died, Tune, dies

from tuner.errors import InputError
from tuner.sweep.folder import SweepFolder, hold
from tuner.sweep.removal import remove


def test_trials_as_comma_separated_values_are_those_of_json(look: Tune) -> None:
    table = list(csv.DictReader(io.StringIO(look("show", "tiny", "--csv").out)))
    trials = look("show", "tiny", "--json").json["trials"]
    assert [(row["number"], row["state"], float(row["score"])) for row in table] == [
        (str(trial["number"]), trial["state"], trial["score"]) for trial in trials
    ]
    assert [float(row["learning_rate"]) for row in table] == [trial["parameters"]["learning_rate"] for trial in trials]
    look("show", "tiny", "--csv", "--json", code=2)


def test_a_comparison_names_both_sweeps_and_an_unknown_one_is_an_error(charged: Tune) -> None:
    charged("run", charged.write("other.yaml", name="other"), "--local", "--quiet")
    charged("compare", "tiny", "other", "--out", "both.html")
    page = (charged.folder / "both.html").read_text()
    for sweep in charged.sweeps:
        assert sweep.name in page
    assert "sweep-not-found" in charged("compare", "tiny", "nobody", code=2).text


def test_the_next_commands_can_be_pasted_whatever_the_folder_is_called(charged: Tune) -> None:
    shown = charged("run", "tiny.yaml", "--local", "--set", "storage=my runs").text
    (line,) = [line for line in shown.splitlines() if "tune report" in line]
    _, *words = shlex.split(line[line.index("tune report") :])
    charged(*words[:4])
    assert list((charged.folder / "my runs").glob("tiny-*/report.html"))


def test_the_next_commands_work_where_a_variable_names_another_folder(
    charged: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = charged.sweeps
    assert SweepFolder(path).command("show") == f"tune show {path.name}"
    monkeypatch.setenv("DP_TUNER_STORAGE", "elsewhere")
    _, *words = shlex.split(SweepFolder(path).command("show"))
    charged(*words)


def test_a_ledger_that_is_not_there_contradicts_no_card(charged: Tune) -> None:
    charged("export", "tiny")
    card = str(next((charged.folder / "exports").rglob("privacy_card.json")))
    said = charged("verify", card, "--ledger", f"sqlite:///{charged.folder}/none.db", "--json", code=1).json
    assert said["answer"] == "not confirmed"


def test_a_page_replaces_only_a_page(charged: Tune) -> None:
    before = (charged.folder / "tiny.yaml").read_bytes()
    for words in (("report", "tiny"), ("compare", "tiny"), ("budget", "report", "digits")):
        assert "[output-path-invalid]" in charged(*words, "--out", "tiny.yaml", code=2).err
        charged(*words, "--out", "page.html")
    assert (charged.folder / "tiny.yaml").read_bytes() == before


def test_a_sweep_whose_folder_cannot_be_removed_stays_whole(charged: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _target: Path) -> Path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (folder,) = charged.sweeps
    before = sorted(folder.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        assert f"{folder}: Permission denied" in charged("rm", "tiny", "--yes", code=1).err
    assert sorted(folder.rglob("*")) == before
    charged("rm", "tiny", "--yes")
    assert list((charged.folder / "runs").glob("tiny*")) == []


def test_a_sweep_with_a_result_is_removed_only_on_request_and_its_charge_stays(charged: Tune) -> None:
    (sweep,) = charged.sweeps
    before = charged.entries
    assert "sweep-has-result" in charged("rm", "tiny", code=2).text
    assert sweep.exists()
    charged("rm", "tiny", "--yes")
    assert not sweep.exists()
    assert charged.entries == before


def test_a_failed_sweep_with_a_checkpoint_is_removed_only_on_request(charged: Tune) -> None:
    (sweep,) = charged.sweeps
    SweepFolder(sweep).write_status(state="failed")
    assert "sweep-has-result" in charged("rm", "tiny", code=2).text
    shutil.rmtree(sweep / "trials")
    (sweep / "study.journal").unlink()
    charged("rm", "tiny")
    assert charged.sweeps == []


def test_a_removal_that_was_cut_off_is_ended_by_the_next_one(charged: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    (sweep,) = charged.sweeps
    older = sweep.with_name("tiny-20000101-000000-aaaaaa")
    shutil.copytree(sweep, older)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", dies)
        with pytest.raises(Died):
            remove(SweepFolder(sweep), yes=True)
    others = charged.folder / "runs" / "tiny.removed" / "mine"  # no sweep had this name
    others.mkdir(parents=True)
    assert f"removed {sweep};" in charged("rm", "tiny", "--yes").out
    assert others.exists()
    others.parent.rename(charged.folder / "mine")
    assert list((charged.folder / "runs").glob("tiny*")) == [older]
    charged("rm", "tiny", "--yes")
    assert charged.sweeps == []


def test_a_sweep_that_is_removed_meanwhile_is_not_made_again(charged: Tune) -> None:
    (path,) = charged.sweeps
    shutil.rmtree(path)
    with pytest.raises(InputError, match="was removed"), hold(SweepFolder(path)):
        pass
    assert not path.exists()


def test_only_the_folder_of_a_sweep_is_taken_for_one(charged: Tune) -> None:
    (sweep,) = charged.sweeps
    project = charged.folder / "project"
    project.mkdir()
    (project / "experiment.yaml").write_text("name: mine\n")
    shadow = charged.folder / "tiny"  # a folder with the name of a sweep
    shutil.copytree(project, shadow)
    charged("export", "tiny", "--out", "model")
    for folder in ("project", str(project), "model"):
        for command in (("rm",), ("rm", "--yes"), ("export",), ("show",)):
            assert "[sweep-not-found]" in charged(*command, folder, code=2).err
    charged("rm", "tiny", "--yes")
    assert not sweep.exists()
    assert project.exists()
    assert shadow.exists()


def test_a_folder_of_sweeps_that_does_not_exist_is_said(tune: Tune) -> None:
    assert "this folder does not exist" in tune("status", "--storage", "nowhere").out


def test_a_second_sweep_of_a_name_does_not_replace_the_export_of_the_first(charged: Tune) -> None:
    charged("export", "tiny")
    first = Path("exports/tiny/privacy_card.json").read_bytes()
    charged("run", "tiny.yaml", "--local", "--quiet")
    new = charged.sweeps[-1].name
    assert f"exports/{new}" in charged("export", "tiny").out
    assert Path("exports/tiny/privacy_card.json").read_bytes() == first
    charged("export", charged.sweeps[0].name)  # its card lists the newer search now
    charged("report", new, "--out", "page.html")
    model = json.loads(Path("exports", new, "privacy_card.json").read_text())["exported_files"]["model.safetensors"]
    assert model in Path("page.html").read_text()
    assert sorted(path.name for path in Path("exports").iterdir()) == sorted(["tiny", new])


def test_a_cap_below_what_is_committed_is_set_only_on_request(charged: Tune) -> None:
    assert "cap-below-committed" in charged("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-5", code=2).text
    charged("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-5", "--yes")
    assert "cap ε = 1" in charged("budget", "show", "digits").text
    charged("budget", "set", "digits", "--epsilon", "20", "--delta", "1e-4")


COPY = "runtime_resources/working_dir_files/_ray_pkg_1"  # where Ray puts the working directory of a job


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ledger": "sqlite:///nowhere/ledger.db"}, "ledger-folder-missing"),
        ({"ledger": "ledger.db"}, "ledger-url"),
        ({"tracking": {"uri": "runs"}}, "tracking-uri-invalid"),
        ({"tracking": {"uri": f"sqlite:///{COPY}/mlflow.db"}}, "job-copy"),
        ({"ledger": f"sqlite:///{COPY}/ledger.db", "storage": COPY}, "job-copy"),
        ({"ledger": f"sqlite+pysqlite:///{COPY}/ledger.db"}, "job-copy"),
        ({"storage": f"{COPY}/runs"}, "job-copy"),
        ({"trainable__start": {"path": "w.safetensors", "public": True}}, "start-unreadable"),
    ],
)
def test_an_address_or_a_file_that_cannot_be_used_is_found_by_validate_plan_and_run(
    tune: Tune, changes: dict[str, object], code: str
) -> None:
    file = tune.write(**changes)
    for command in (("validate",), ("plan", "--no-timing"), ("run", "--local")):
        assert code in tune(*command, file, code=2).text
    assert tune.sweeps == []
    assert not (tune.folder / "nowhere").exists()


@pytest.mark.parametrize("module", ["trainables/__init__.py", "tuner.py"])
def test_code_that_only_rays_workers_would_import_is_refused(tune: Tune, module: str) -> None:
    """Ray puts the current folder first into the path of its workers. With --local, no worker is started."""
    file = tune.write()
    path = tune.folder / module
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert "[code-hidden]" in tune("run", file, code=2).err
    assert (tune.sweeps, tune.entries) == ([], [])
    tune("run", file, "--dry-run", "--local")


def test_resources_that_this_machine_lacks_are_told_before_a_sweep_is_made(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    file = tune.write(resources={"gpus_per_trial": 1})
    for extra in ((), ("--local",)):
        assert "resources-too-large" in tune("run", file, *extra, code=2).text
    assert (tune.sweeps, tune.entries) == ([], [])
    file = tune.write(resources={"concurrent_trials": 64})
    assert "trials run 2 at a time, not 64" in tune("run", file, "--dry-run").text
    assert "one trial runs at a time" in tune("run", file, "--dry-run", "--local").text


def test_a_trial_that_ran_to_its_end_is_complete_whatever_its_last_score(tune: Tune) -> None:
    file = tune.write(search__pruner="median", search__trials=6, search__rungs=2)
    tune("run", file, "--local", "--quiet")
    for trial in tune("show", "tiny", "--json").json["trials"]:
        assert (trial["state"] == "complete") == (trial["step"] == trial["steps_planned"])


@pytest.mark.parametrize(("words", "code"), [(("--dry-run",), 0), (("--set", "privacy.epsilon=-1"), 2)])
def test_a_command_is_run_when_a_sweep_ends_however_it_ends(tune: Tune, words: tuple[str, ...], code: int) -> None:
    tune("run", tune.write(), "--local", *words, "--notify", "echo ended with $DP_TUNER_EXIT_CODE > said", code=code)
    assert (tune.folder / "said").read_text() == f"ended with {code}\n"
