"""The commands around a sweep: help, exit codes, templates, plans, and answers for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_fakes import Tune

from trainables.errors import TrainableError
from tuner.cli.app import SHORT, cli
from tuner.experiment import shipped
from tuner.sweep import preflight

HEAVY = ("torch", "ray", "mlflow", "optuna", "sklearn", "dp_accounting", "numpy", "scipy", "sqlalchemy")


def imported(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Return the exit code of a command in a new process, and which heavy libraries it imported."""
    code = (
        "import sys, json\n"
        "from tuner.cli.app import main\n"
        f"sys.argv = ['tune', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    status = end.code\n"
        f"print(json.dumps([status, [name for name in {HEAVY!r} if name in sys.modules]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    status, found = json.loads(done.stdout.splitlines()[-1])
    return status, found


@pytest.mark.parametrize("words", [["--help"], ["budget", "set", "--help"]])
def test_help_imports_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    assert imported(tmp_path, *words) == (0, [])


@pytest.mark.parametrize("name", ["mnist_dplis", "cifar100_transfer"])  # the samplers unimodal and surrogate
def test_checking_a_file_imports_only_optuna(tmp_path: Path, name: str) -> None:
    assert imported(tmp_path, "validate", name) == (0, ["optuna", "numpy"])


def test_a_driver_of_perceptrons_never_loads_torch(bare: Tune, tmp_path: Path) -> None:
    """Workers load torch. If the driver loaded it too, every sweep would start 2 s later."""
    file = bare.write(search__trials=1)
    assert "torch" not in imported(tmp_path, "run", str(file), "--quiet")[1]
    assert "torch" in imported(tmp_path, "run", str(file), "--quiet", "--local")[1]


def test_what_an_own_model_prints_is_no_part_of_an_answer(bare: Tune) -> None:
    file = bare.write(trainable__model="own_models:printing")
    said = bare("plan", file, "--no-timing", "--json")
    assert said.json["trials"] > 0
    assert "a line of the user's own" in said.err


def test_commands_without_garbage_collection_are_commands_of_ours() -> None:
    assert set(SHORT) <= set(cli.commands)


def test_looking_at_sweeps_imports_no_library_of_training(bare: Tune, tmp_path: Path) -> None:
    bare("run", bare.write(search__trials=1), "--local", "--quiet")
    read = (0, ["optuna", "numpy", "sqlalchemy"])
    assert imported(tmp_path, "status") == imported(tmp_path, "ls") == read


def test_a_process_ends_with_the_code_of_its_error(bare: Tune) -> None:
    process = bare.process("run", bare.write(privacy__epsilon=-1), "--local")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err.startswith("error: tiny.yaml:")
    assert "Traceback" not in err


def test_a_misspelt_command_gets_the_nearest_of_ours_and_of_rays(bare: Tune) -> None:
    assert "'run'" in bare("runn", code=2).err
    assert "'list-trials'" in bare("list-trial", code=2).err


def test_ctrl_c_outside_a_sweep_is_130(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import tuner.experiment.shipped_files

    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner.experiment.shipped_files, "shipped_text", interrupted)
    assert "[interrupted]" in bare("ls", code=130).err


def test_the_template_and_shipped_files_are_copied_and_never_overwritten(bare: Tune, tmp_path: Path) -> None:
    bare("init")
    text = (tmp_path / "experiment.yaml").read_text()
    assert bare("validate", "experiment.yaml").out == "experiment.yaml: valid\n"
    assert "[file-exists]" in bare("init", code=2).err
    bare("init", "--force")
    assert (tmp_path / "experiment.yaml").read_text() == text
    assert "[file-not-writable]" in bare("init", "no/such/folder.yaml", code=2).err
    listed = bare("ls", "--json").json
    assert (set(listed["shipped"]), listed["sweeps"]) == ({path.name for path in shipped().values()}, [])
    bare("cp", "digits_dplis")
    assert (tmp_path / "digits_dplis.yaml").read_text() == shipped()["digits_dplis"].read_text()
    assert "[file-exists]" in bare("cp", "digits_dplis", code=2).err
    assert "digits_dplis.yaml" in bare("cp", "digit", code=2).err


def test_all_files_are_validated_and_the_bad_ones_named(bare: Tune) -> None:
    good, worse = bare.write("good.yaml"), bare.write("worse.yaml", trainable__model="no_such_model")
    bad = bare.write("bad.yaml", search__trials=-1)
    said = bare("validate", bad, good, worse, code=2)
    assert said.out == f"{Path(good)}: valid\n"
    assert [line.split(":")[1].strip() for line in said.err.splitlines() if "error: " in line] == [bad, worse]


def test_validating_finds_code_that_cannot_be_imported_and_warns_of_missing_data(
    bare: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "[model-not-importable]" in bare("validate", bare.write(trainable__model="nowhere.mine:build"), code=2).err
    monkeypatch.setenv("DP_TUNER_DATA", str(bare.folder))
    file = bare.write("mnist.yaml", dataset__name="mnist")
    assert "[dataset-not-found]" in bare("validate", file).err
    assert "[dataset-not-found]" in str(bare("plan", file, "--json", "--no-timing").json["warnings"])


def test_a_plan_guesses_its_time_makes_nothing_and_reads_no_record(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables import data

    def private(*_: object, **__: object) -> None:
        raise AssertionError("a plan may not touch a record")

    monkeypatch.setattr(data, "load_records", private)
    assert bare("plan", bare.write(), "--json").json["wall_time_seconds"] > 0
    assert bare("plan", bare.write(), "--json", "--no-timing").json["wall_time_seconds"] is None
    assert not (bare.folder / "runs").exists()


def test_answers_for_programs_are_one_json_object(look: Tune) -> None:
    for words in (
        ("plan", "tiny.yaml", "--no-timing"),
        ("status",),
        ("show", "tiny"),
        ("show", "tiny", "1"),
        ("budget",),
        ("verify", "exports/tiny/privacy_card.json"),
        ("run", "tiny.yaml", "--dry-run"),
    ):
        said = look(*words, "--json")
        assert isinstance(said.json, dict)
        assert "NaN" not in said.out
    (search,) = look("budget", "--json").json["datasets"][0]["searches"]
    assert (search["status"], search["steps_spent"], search["trials"]) == ("closed", 20, 2)
    assert "7" in look("show", "tiny", "7", code=2).err


def test_a_report_is_a_page_and_a_folder_that_is_not_there_an_error(look: Tune, tmp_path: Path) -> None:
    look("report", "tiny", "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "<h2>ε spent</h2>" in page
    assert "Curve of" not in page
    assert look("show", "tiny", "--json").json["curves"] == []
    assert "[output-path-invalid]" in look("report", "tiny", "--out", str(tmp_path / "no" / "page.html"), code=2).err


def test_a_tracking_server_that_is_down_stops_nothing_and_gets_everything_later(tune: Tune) -> None:
    said = tune("run", tune.write(tracking__uri="http://127.0.0.1:9"), "--local")
    assert "tune sync tiny" in said.text
    assert tune.mlflow_runs() == []
    assert "tune sync" in tune("sync", "tiny", code=1).err
    assert "[tracking-uri-invalid]" in tune("sync", "tiny", "--uri", "nowhere", code=2).err
    exported = tune("export", "tiny", "--json").json
    assert "tune sync" in exported["tracking"]
    here = ("--uri", "sqlite:///runs/mlflow.db")
    assert "entries sent" in tune("sync", "tiny", *here).out
    runs = {run.data.tags["dp_tuner.trial"]: run for run in tune.mlflow_runs()}
    assert len(runs) == 3
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert "test_accuracy" in runs["-"].data.metrics
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert runs["-"].data.metrics["epsilon_spent"] == status["budget"]["epsilon_spent"]
    tune("sync", "tiny", *here)
    assert len(tune.mlflow_runs()) == 3, "sending twice makes no run twice"


@pytest.mark.data
def test_the_commands_that_follow_a_run_need_no_data_dir(
    tune: Tune, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DP_TUNER_DATA", raising=False)
    file = tune.write(dataset__name="breast_cancer_wisconsin", privacy__epsilon=20.0, search__trials=1)
    tune("run", file, "--local", "--quiet", "--data-dir", str(data_dir))
    assert tune("export", "tiny", "--json").json["scores"]["test_accuracy"] > 0
    tune("resume", "tiny", "--local", "--quiet")


@pytest.mark.parametrize(("small", "code"), [(10**7, 0), (1, 2)])
def test_a_perceptron_that_is_not_small_is_built_before_the_charge(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, small: int, code: int
) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise TrainableError("model-shape-mismatch", "It does not fit the memory.")

    monkeypatch.setattr(preflight, "_SMALL", small)
    monkeypatch.setattr(preflight, "build_model", too_large)
    tune("run", tune.write(), "--dry-run", code=code)
