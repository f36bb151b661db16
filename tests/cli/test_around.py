"""The commands around a sweep: help, templates, shipped files, the doctor, pages, and answers for programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_fakes import Tune

from tuner import doctor
from tuner.experiment import shipped
from tuner.recorder.ui import serve

HEAVY = ("torch", "ray", "mlflow", "optuna", "sklearn", "dp_accounting", "numpy")
SHIPPED = {
    "digits_dplis.yaml",
    "fashion_dplis_unimodal.yaml",
    "mnist_dplssgd.yaml",
    "mnist_dplis.yaml",
    "cifar10_dplis.yaml",
    "cifar10_composed.yaml",
    "adult_weight_decay.yaml",
    "mnist_public.yaml",
    "mnist_selection.yaml",
    "state_union_users.yaml",
}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["budget", "set", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    code = (
        "import sys, json\n"
        "from tuner.cli.app import main\n"
        f"sys.argv = ['tune', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    status = end.code\n"
        f"print(json.dumps([status, [name for name in {HEAVY!r} if name in sys.modules]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]


def test_a_process_ends_with_the_code_of_its_error(bare: Tune) -> None:
    process = bare.process("run", bare.write(privacy__epsilon=-1), "--local")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("error: tiny.yaml:")
    assert "Traceback" not in err


def test_a_word_that_is_no_command_is_a_usage_error(bare: Tune) -> None:
    assert "Did you mean 'run'?" in bare("rum", code=2).err
    assert "Did you mean 'list-trials'?" in bare("list-trial", code=2).err
    assert "--no-such" in bare("run", "--no-such", "x.yaml", code=2).err
    assert "[usage]" in bare("run", code=2).err


def test_ctrl_c_outside_a_sweep_is_130(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import tuner.experiment.shipped_files

    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner.experiment.shipped_files, "shipped_text", interrupted)
    assert "[interrupted]" in bare("ls", code=130).err


def test_rays_own_commands_are_here(bare: Tune, tmp_path: Path) -> None:
    words = bare("--help").text
    for command in ("list-trials", "list-experiments", "add-note"):
        assert command in words
        assert "Usage" in bare(command, "--help").out
    assert "ls" in words


def test_the_template_loads_plans_and_is_not_overwritten(bare: Tune, tmp_path: Path) -> None:
    bare("init")
    text = (tmp_path / "experiment.yaml").read_text()
    assert bare("validate", "experiment.yaml").out == "experiment.yaml: valid\n"
    plan = bare("plan", "experiment.yaml", "--json", "--no-timing").json
    assert (plan["name"], plan["trials"]) == ("my-search", 8)
    assert "[file-exists]" in bare("init", code=2).err
    bare("init", "--force")
    assert (tmp_path / "experiment.yaml").read_text() == text
    assert "[file-not-writable]" in bare("init", "no/such/folder.yaml", code=2).err


def test_shipped_files_are_listed_copied_and_valid(bare: Tune, tmp_path: Path) -> None:
    assert {path.name for path in shipped().values()} == SHIPPED
    listed = bare("ls", "--shipped").out
    assert all(name in listed for name in SHIPPED)
    assert "none yet" in bare("ls").out
    bare("validate", *sorted(SHIPPED))
    bare("cp", "digits_dplis")
    assert (tmp_path / "digits_dplis.yaml").read_text() == shipped()["digits_dplis"].read_text()
    assert "[file-exists]" in bare("cp", "digits_dplis", code=2).err
    assert "digits_dplis.yaml" in bare("cp", "digit", code=2).err
    assert "local file" in bare("plan", "digits_dplis.yaml", "--no-timing").text


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_shipped_file_plans_within_its_cap(bare: Tune, name: str) -> None:
    plan = bare("plan", name, "--json", "--no-timing").json
    assert plan["epsilon_planned"] <= plan["epsilon_at_cap"] <= plan["epsilon"]
    assert plan["trials_that_fit"] == plan["trials"]
    assert plan["wall_time_seconds"] is None
    assert not (bare.folder / "runs").exists(), "a plan makes nothing"


def test_a_plan_guesses_its_time_and_reads_no_record(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import trainables.data.loading
    from trainables import data

    def private(*_: object, **__: object) -> None:
        raise AssertionError("a plan may not touch a record")

    monkeypatch.setattr(data, "load_records", private)
    for name in ("load_splits", "load", "arrays"):
        if hasattr(trainables.data.loading, name):
            monkeypatch.setattr(trainables.data.loading, name, private)
    plan = bare("plan", bare.write(), "--json").json
    assert plan["wall_time_seconds"] > 0
    assert re.search(r"training alone (about \d|under a second)", bare("plan", bare.write()).text)


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "tiny.yaml", "--no-timing"],
        ["status"],
        ["status", "tiny"],
        ["show", "tiny"],
        ["show", "tiny", "1"],
        ["verify", "exports/tiny/privacy_card.json"],
        ["run", "tiny.yaml", "--dry-run"],
    ],
)
def test_answers_for_programs_are_one_json_object(look: Tune, words: list[str]) -> None:
    said = look(*words, "--json")
    assert isinstance(said.json, dict)
    assert "NaN" not in said.out
    assert look(*words).out.strip(), "and there are words for people"


def test_the_budget_is_shown_in_words_and_values(look: Tune) -> None:
    shown = look("budget", "--json").json["datasets"][0]
    assert shown == look("budget", "--json", "show", "digits").json["datasets"][0]
    (search,) = shown["searches"]
    assert (search["status"], search["steps_spent"], search["trials"]) == ("closed", 20, 2)
    words = look("budget").text
    assert "cap ε = 8.5" in words
    assert "not a guarantee" in words
    assert "digits" in look("budget", "show", "digit", code=2).err


def test_show_and_report_tell_of_one_trial_and_of_all(look: Tune, tmp_path: Path) -> None:
    assert "trial 1" in look("show", "tiny", "1").out
    assert "0.5" not in look("show", "tiny", "7", code=2).err
    page = tmp_path / "page.html"
    look("report", "tiny", "--out", str(page))
    html = page.read_text()
    assert 'src="data:image/svg+xml,' in html
    assert "http://" not in html, "self-contained"
    assert look("report", "tiny", "--out", str(tmp_path / "no" / "page.html"), code=1).err.startswith("error: ")


def test_a_sweep_that_ends_says_what_comes_next(tune: Tune) -> None:
    said = tune("run", tune.write(search__trials=1), "--local").text
    for command in ("tune export tiny", "tune verify exports/tiny/privacy_card.json", "tune report tiny"):
        assert command in said
    assert "trial 0 complete" in said
    quiet = tune("run", "tiny.yaml", "--local", "--quiet", "--set", "search.trials=1").text
    assert "trial 0 step" not in quiet


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of scripts of an environment whose interpreter we run on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


OURS = (
    "#!/usr/bin/python\nimport sys\nfrom tuner.cli.app import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)
RAYS = OURS.replace("tuner.cli.app", "ray.tune.cli.scripts").replace("import sys", "import re\nimport sys")


def script_findings() -> dict[str, doctor.Finding]:
    return {each.subject: each for each in doctor.diagnose() if each.subject.startswith("script")}


def test_the_doctor_knows_who_owns_tune(scripts: Path) -> None:
    for name, text in (("tune", RAYS), ("dp-tune", OURS)):
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    found = script_findings()
    assert (found["script tune"].ok, found["script dp-tune"].ok) == (False, True)
    assert "ray.tune.cli.scripts" in found["script tune"].found
    assert "--fix" in found["script tune"].fix


def test_the_doctor_notices_missing_and_hidden_scripts(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script_findings()["script tune"].found == "not installed"
    first = tmp_path / "first"
    first.mkdir()
    for folder in (scripts, first):
        (folder / "tune").write_text(OURS)
        (folder / "tune").chmod(0o755)
    monkeypatch.setenv("PATH", f"{first}{os.pathsep}{os.environ['PATH']}")
    hidden = script_findings()["script tune"]
    assert not hidden.ok
    assert str(first) in hidden.found


def test_the_doctor_takes_the_names_back(bare: Tune, scripts: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "rays-own-tune"
    elsewhere.write_text(RAYS)
    (scripts / "tune").symlink_to(elsewhere)
    bare("doctor", "--fix", code=None)
    assert elsewhere.read_text() == RAYS, "the script of another is not written through a link"
    found = script_findings()
    assert found["script tune"].ok
    assert found["script dp-tune"].ok
    done = subprocess.run([scripts / "tune", "--version"], capture_output=True, text=True, check=True)
    assert "dp-tuner" in done.stdout


def test_the_doctor_cannot_write_everywhere(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/proc/bin/python")
    assert "[output-unwritable]" in bare("doctor", "--fix", code=2).err


def test_the_doctor_lists_every_dependency_and_data_set(bare: Tune) -> None:
    from trainables.data import DATASETS

    said = bare("doctor", "--json", "--data-dir", "nowhere", code=None)
    found = {each["subject"]: each for each in said.json["findings"]}
    assert {"python", "package tuner", "script tune", "data digits"} <= set(found)
    assert {f"data {name}" for name in DATASETS} <= set(found)
    assert "checksum" in found["data digits"]["found"]
    assert "not in nowhere" in found["data mnist"]["found"]
    assert said.code == (0 if all(each["ok"] for each in found.values()) else 1)


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda _: ["no-such-thing-at-all>=1", "click>=99", "rich>=1", "x; extra == 'dev'"]
    )
    found = {each.subject: each for each in doctor.diagnose()}
    assert (found["no-such-thing-at-all"].ok, found["click"].ok, found["rich"].ok) == (False, False, True)
    assert "constraints.txt" in found["click"].fix


def test_ls_answers_a_program_and_ui_makes_no_store(bare: Tune) -> None:
    assert "digits_dplis.yaml" in bare("ls", "--json").json["shipped"]
    assert bare("ls", "--json").json["sweeps"] == []
    assert "sweeps" not in bare("ls", "--json", "--shipped").json
    assert "[tracking-store-not-found]" in bare("ui", "--uri", "sqlite:///none.db", code=2).err
    assert not (bare.folder / "none.db").exists()


@pytest.mark.data
def test_the_commands_that_follow_a_run_need_no_data_dir(
    tune: Tune, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DP_TUNER_DATA", raising=False)
    file = tune.write(dataset__name="breast_cancer_wisconsin", privacy__epsilon=20.0, search__trials=1)
    tune("run", file, "--local", "--quiet", "--data-dir", str(data_dir))
    assert tune("export", "tiny", "--json").json["scores"]["test_accuracy"] > 0
    tune("resume", "tiny", "--local", "--quiet")


SERVER = """
import subprocess, sys, time
child = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"]
print(subprocess.Popen(child).pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_with_all_that_it_started(sign: signal.Signals) -> None:
    code = f"import sys; from tuner.recorder.ui import serve; sys.exit(serve([sys.executable, '-c', {SERVER!r}]))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(child, 0)
        process.send_signal(sign)
        assert process.wait(timeout=30) == 0
    for _ in range(100):
        try:
            state = Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # its new parent has not asked for it yet
            return
        time.sleep(0.05)
    pytest.fail("what the server started outlived it")


def test_a_server_that_ends_by_itself_has_its_exit_code() -> None:
    assert serve([sys.executable, "-c", "raise SystemExit(3)"]) == 3
