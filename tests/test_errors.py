"""Error codes: every error has one, every one is explained and used, and `tune explain` shows them."""

from __future__ import annotations

import ast
import errno
import importlib
import inspect
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from errors_helper import raises_code

import search_spaces.errors
import trainables.errors
import tuner.errors
from tuner.cli.app import cli, without_socks_warning
from tuner.error_codes import EXIT_CODES, EXPLANATIONS, code_list, explain
from tuner.errors import (
    ExperimentError,
    InputError,
    LedgerCorruptError,
    Problem,
    SweepInterrupted,
    TrackingError,
    TunerError,
)
from tuner.experiment import shipped_files

ROOT = Path(__file__).parents[1]
SOURCES = {
    path: list(ast.walk(ast.parse(path.read_text())))
    for package in ("tuner", "trainables", "search_spaces")
    for path in sorted((ROOT / package).rglob("*.py"))
}
TABLES = {*(ROOT / "tuner/error_codes").iterdir(), ROOT / "trainables/errors.py", ROOT / "search_spaces/errors.py"}
ELSEWHERE = {"usage", "unknown-code"}
"""Codes of errors that click raises, and that the table itself raises."""
ERRORS = {
    name: kind
    for module in (tuner.errors, trainables.errors, search_spaces.errors)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and (issubclass(kind, Exception) or name.endswith("Problem"))
}
ERRORS |= {"contradiction": LedgerCorruptError, "_MissingArtifactError": TrackingError}
NO_CODE_OF_THEIR_OWN = {"ExperimentError", "SpaceError"}
"""Errors that are made of problems, each of which has a code."""


def constructed() -> Iterator[tuple[str, str, ast.expr | None]]:
    """Yield the place, the class and the code argument of every error of ours that the packages construct."""
    for path, nodes in SOURCES.items():
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS):
                continue
            if node.func.id in NO_CODE_OF_THEIR_OWN or any(isinstance(each, ast.Starred) for each in node.args):
                continue
            given = next((each.value for each in node.keywords if each.arg == "code"), None)
            code = given or (node.args[0] if len(node.args) > 1 else None)
            yield f"{path.relative_to(ROOT)}:{node.lineno}", node.func.id, code


def test_every_error_has_a_literal_code_that_is_explained() -> None:
    seen = 0
    for place, kind, code in constructed():
        seen += 1
        if isinstance(code, ast.Attribute | ast.Name):
            continue  # that of an error which is raised again with more context, or one chosen among several
        assert isinstance(code, ast.Constant), f"{place}: {kind} needs a literal code as its first argument"
        assert code.value in EXPLANATIONS, f"{place}: {code.value!r} is not explained in the table of its package"
    assert seen > 50


def test_every_exit_code_that_is_explained_is_that_of_the_errors() -> None:
    for place, kind, code in constructed():
        if isinstance(code, ast.Constant):
            real = getattr(ERRORS[kind], "exit_code", InputError.exit_code)
            assert EXIT_CODES.get(str(code.value), InputError.exit_code) == real, f"{place}: {code.value}"


def test_every_explained_code_is_used() -> None:
    nodes = (node for path, found in SOURCES.items() if path not in TABLES for node in found)
    used = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)} | ELSEWHERE
    assert not EXPLANATIONS.keys() - used
    assert not EXIT_CODES.keys() - used


@pytest.mark.parametrize(
    "error",
    [
        TunerError("internal-error", "what is wrong"),
        InputError("sweep-not-found", "what is wrong"),
        SweepInterrupted("interrupted", "interrupted"),
        ExperimentError([Problem(code="internal-error", where="a.yaml:1", key="seed", rule="must be one", value="2")]),
        trainables.errors.HyperparameterError("internal-error", "what is wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_another_process(error: TunerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.code, again.message, str(again)) == (error.code, error.message, str(error))


def test_explain_shows_one_code_with_its_exit_code() -> None:
    said = CliRunner().invoke(cli, ["explain", "[sweep-running]"])
    assert said.exit_code == 0
    assert "sweep-running (exit code 2" in said.stdout
    assert EXPLANATIONS["sweep-running"] in said.stdout
    assert CliRunner().invoke(cli, ["explain", "SWEEP-RUNNING"]).stdout == said.stdout
    assert "Did you mean" not in CliRunner().invoke(cli, ["explain", "nope"]).stderr
    as_json = json.loads(CliRunner().invoke(cli, ["explain", "interrupted", "--json"]).stdout)
    assert as_json == explain("interrupted")
    assert as_json["exit_code"] == 130


def test_explain_lists_all_codes() -> None:
    lines = CliRunner().invoke(cli, ["explain"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(EXPLANATIONS)
    assert json.loads(CliRunner().invoke(cli, ["explain", "--json"]).stdout) == code_list()


def test_explain_suggests_the_nearest_code() -> None:
    with raises_code(InputError, "unknown-code") as caught:
        explain("sweep-not-fuond")
    assert "'sweep-not-found'" in str(caught.value)


@pytest.mark.parametrize("words", [["pan"], ["plan"], ["plan", "x.yaml", "--tming"], ["ui", "--port", "x"]])
def test_errors_of_the_command_line_have_a_code(words: list[str]) -> None:
    said = CliRunner().invoke(cli, words)
    assert said.exit_code == 2
    command = "tune" if words == ["pan"] else f"tune {words[0]}"
    assert said.stderr.startswith("error: ")
    assert said.stderr.endswith(f" Options and arguments: {command} --help [usage]\n")
    assert said.stderr.count("\n") == 1


def test_a_warning_about_socks_is_hidden_also_without_the_filter_of_requests() -> None:
    """Without PySocks, the module warns when it is imported. Requests' own filter is taken away, as a thread may do."""
    if find_spec("socks") is not None:
        pytest.skip("PySocks is installed, so nothing warns")
    seen = []
    for hide in (lambda: None, without_socks_warning):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hide()
            sys.modules.pop("urllib3.contrib.socks", None)
            with pytest.raises(ImportError):
                importlib.import_module("urllib3.contrib.socks")
        seen.append(len(caught))
    assert seen == [1, 0]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EIO, f"{os.strerror(errno.EIO)} [system-error]"),
        (errno.ENOSPC, "[disk-full]"),
        (errno.EDQUOT, "[disk-full]"),
    ],
)
def test_errors_of_the_system_have_a_code(number: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "experiment.yaml")

    monkeypatch.setattr(shipped_files, "write_template", refuses)
    said = CliRunner().invoke(cli, ["init"])
    assert said.exit_code == 1
    assert said.stderr.startswith("error: experiment.yaml: ")
    assert said.stderr.endswith(f"{says}\n")


def test_a_terminal_that_lacks_a_character_gets_its_name(tmp_path: Path) -> None:
    """ε is in every answer, and some batch systems set an encoding that lacks it."""
    words = [sys.executable, "-m", "tuner", "plan", "digits_dplis.yaml"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"Claimed: epsilon = ")
