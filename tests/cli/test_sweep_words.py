"""What is said of a sweep, before it ended, after it, and when there is another one of its name."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from command_fakes import STEPS, Tune
from errors_helper import raises_code

from trainables.training import PrivateTraining
from tuner.errors import InputError
from tuner.export.package import export_text
from tuner.recorder.ui import serve_ui

TWO_FIT = {
    "search__rungs": 2,
    "search__trials": 2,
    "privacy__noise_multiplier": "auto",
    "search__sampler": "random",
}


def interrupt(tune: Tune, monkeypatch: pytest.MonkeyPatch, at: int, *, steps: int = 0, **changes: object) -> str:
    """Ctrl-C in a rung, counted over all trials, after so many of its steps; what was said."""
    real, calls = PrivateTraining.run_to, iter(range(10_000))

    def stops(training: PrivateTraining, step: int) -> None:
        if next(calls) == at:
            if steps:
                real(training, training.step + steps)
            raise KeyboardInterrupt
        real(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", stops)
        return tune("run", tune.write(**changes), "--local", code=130).text


def test_an_interruption_says_what_going_on_costs(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    said = interrupt(tune, monkeypatch, 3, steps=3, **TWO_FIT)
    assert "nothing is lost" not in said
    assert "3 charged steps are in no checkpoint, and resuming trains and charges them again" in said
    assert "needs 3 steps more than is reserved; 0 steps are left: not enough to finish every interrupted trial" in said
    assert tune.search_state(tune.sweeps[0].name).leased_steps == STEPS + STEPS // 2 + 3


def test_an_interruption_at_a_checkpoint_repeats_nothing(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    said = interrupt(tune, monkeypatch, 3, **TWO_FIT)
    assert "Every charged step is in a checkpoint: resuming repeats none." in said


def test_a_trial_of_an_interrupted_sweep_is_cut_off_and_resume_comes_first(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(tune, monkeypatch, 3, **TWO_FIT)
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["trials"] == {"planned": 2, "complete": 1, "cut off": 1}
    assert "cut off" in tune("show", "tiny").text
    page = Path(tune("report", "tiny").out.split()[-1]).read_text()
    assert "1 of 2" in page
    commands = page.split("<pre>")[1].split("</pre>")[0].splitlines()
    assert commands[0] == f"tune resume {tune.sweeps[0].name}"
    tune("resume", "tiny", "--local", "--quiet")
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert "cut off" not in status["trials"]


def test_a_finished_sweep_is_left_as_it_is(tune: Tune) -> None:
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    before = tune.entries
    said = tune("resume", "tiny", "--local")
    assert "is already finished (done); nothing to do" in said.out
    assert "resuming" not in said.text
    assert tune.entries == before
    assert tune("resume", "tiny", "--local", "--json").json["finished_before"] is True
    tune("resume", "tiny", "--local", "--quiet", "--set", "search.trials=2")
    assert tune.search_state(tune.sweeps[0].name).leased_steps == 2 * STEPS
    # With more trials in its file than it ended with it has not finished: it died when it was to go on.
    file = tune.sweeps[0] / "experiment.yaml"
    file.write_text(re.sub(r"trials: 2\b", "trials: 3", file.read_text()))
    assert "resuming" in tune("resume", "tiny", "--local").text


def test_one_that_died_before_its_ledger_was_closed_is_not_finished(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tuner.runner.composition

    with monkeypatch.context() as patch:
        patch.setattr(tuner.runner.composition, "leave", lambda *_, **__: None)
        tune("run", tune.write(search__trials=1), "--local", "--quiet")
    assert tune.search_state(tune.sweeps[0].name).status == "open"
    tune("resume", "tiny", "--local", "--quiet")
    assert tune.search_state(tune.sweeps[0].name).status == "closed"


def test_the_next_commands_name_this_sweep_and_no_newer_one(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import tuner.sweep.folder

    tune("run", tune.write(search__trials=1, privacy__epsilon=5.0), "--local", "--quiet")
    old = tune.sweeps[0].name
    page = Path(tune("report", "tiny").out.split()[-1]).read_text()
    assert "tune export tiny\n" in page
    real = tuner.sweep.folder.new_sweep_id
    monkeypatch.setattr(tuner.sweep.folder, "new_sweep_id", lambda name, **more: real(name, **{**more, "after": old}))
    tune("run", "tiny.yaml", "--local", "--quiet")
    new = tune.sweeps[-1].name
    page = Path(tune("report", old).out.split()[-1]).read_text()
    assert f"tune export {old} --out exports/{old}\n" in page
    assert f"tune verify exports/{old}/privacy_card.json" in page
    assert "tune export tiny\n" in Path(tune("report", new).out.split()[-1]).read_text()


def test_all_files_are_checked_and_the_bad_ones_named(bare: Tune) -> None:
    good, worse = bare.write("good.yaml"), bare.write("worse.yaml", trainable__model="no_such_model")
    bad = bare.write("bad.yaml", search__trials=-1)
    said = bare("validate", bad, good, worse, code=2)
    assert said.out == f"{Path(good)}: valid\n"
    assert said.err.count("error: ") == 2
    assert "bad.yaml" in said.err
    assert "worse.yaml" in said.err
    bare("validate", good)


def test_the_pages_are_served_at_a_free_port_and_one_in_use_is_refused(
    bare: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tuner.recorder.mlflow_store
    import tuner.recorder.ui

    monkeypatch.setattr(tuner.recorder.mlflow_store, "connect", lambda _uri: None)
    commands: list[list[str]] = []
    monkeypatch.setattr(tuner.recorder.ui, "serve", lambda command: commands.append(list(command)) or 0)
    (tmp_path / "mlflow.db").touch()
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with raises_code(InputError, "port-in-use"):
            serve_ui(uri, port=port)
    assert commands == []
    said = bare("ui", "--uri", uri, "--port", str(port))
    assert said.out.startswith(f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning ")
    (command,) = commands
    assert command[1:4] == ["-m", "mlflow", "ui"]
    assert uri in command
    assert str(port) in command


def test_a_tracking_server_shows_its_own_pages(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import tuner.recorder.ui

    monkeypatch.setattr(tuner.recorder.ui, "serve", lambda _command: pytest.fail("a server was started"))
    said = bare("ui", "--uri", "http://127.0.0.1:9/")
    assert said.out.startswith("http://127.0.0.1:9/#/experiments?workflowType=machine_learning ")


def test_a_score_says_whether_it_is_inside_the_guarantee() -> None:
    values: dict[str, Any] = {
        "sweep": "tiny",
        "folder": "exports/tiny",
        "trial": {"number": 1},
        "files": [],
        "scores": {"validation_accuracy": 0.87, "test_accuracy": 0.86},
        "protected": {"epsilon": 1.0, "delta": 1e-5},
        "claim": {"epsilon": 4.0, "delta": 1e-5},
        "tracking": "nothing left to send",
    }
    said = export_text(values)
    assert "validation_accuracy 0.8700  (noised, inside the guarantee (ε = 1, δ = 1e-05))" in said
    assert "test_accuracy 0.8600  (outside the guarantee; the test set is scored once a sweep, here)" in said
    assert "validation_accuracy 0.8700  (outside the guarantee)" in export_text({**values, "protected": None})


def test_a_protected_score_has_its_error_beside_it(tune: Tune) -> None:
    validation = {"fraction": 0.2, "protected": True, "epsilon": 4.0, "delta": 1e-5}
    said = tune("run", tune.write(dataset__validation=validation), "--local").text
    assert re.search(r"score noise ± [\d.]+ points \(standard error\)", said)
    assert re.search(r"best trial \d, validation_accuracy \S+ ± \S+", said)
    assert "add or remove one record, whether it trains or validates" in said
    page = Path(tune("report", "tiny").out.split()[-1]).read_text()
    assert "score noise" in page
    assert " ± " in page
    assert "noised, inside the guarantee (ε = 4, δ = 1e-05)" in tune("export", "tiny").text


def test_it_is_told_that_ray_is_started(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    import tuner.runner.composition
    from tuner.errors import TunerError

    def fails(*_: object, **__: object) -> None:
        raise TunerError("internal-error", "no")

    monkeypatch.setattr(tuner.runner.composition, "run_trials", fails)
    assert "starting Ray …" in tune("run", tune.write(), code=1).out
    assert "starting Ray" not in tune("run", "tiny.yaml", "--local", code=1).out


def test_the_lists_of_commands_and_of_files_are_whole_sentences(bare: Tune) -> None:
    commands = bare("--help").out.partition("Commands:")[2]
    assert "landscape" in commands
    assert "..." not in commands
    lines = bare("ls", "--shipped").out.splitlines()[1:]
    assert len(lines) > 5
    for line in lines:
        assert line.endswith((".", "…")), line
        assert line.count(". ") == 0, line


def test_train_exports_and_does_not_say_so_before(tune: Tune) -> None:
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    tune("export", "tiny")
    said = tune("train", "exports/tiny/experiment.yaml", "--local").text
    assert "tune export" not in said
    assert "next: tune verify" in said
