"""Every error of the two packages has a code, and every code an explanation."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from types import ModuleType

import pytest

import search_spaces.errors
import trainables.errors
from trainables.errors import HyperparameterError

ERRORS = {"DomainError", "TrainableError", "HyperparameterError", "DatasetError", "GateError", "_problem"}
PACKAGES = [trainables.errors, search_spaces.errors]
EXPLAINED = {**trainables.errors.EXPLANATIONS, **search_spaces.errors.EXPLANATIONS}


def trees(package: str) -> list[ast.Module]:
    folder = Path(package).parent
    return [ast.parse(path.read_text()) for path in folder.rglob("*.py") if path.name != "errors.py"]


@pytest.mark.parametrize("errors", PACKAGES, ids=lambda errors: errors.__name__)
def test_every_raised_code_is_explained(errors: ModuleType) -> None:
    calls = [node for tree in trees(str(errors.__file__)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", "")) in ERRORS]
    codes = {call.args[0].value for call in named if call.args and isinstance(call.args[0], ast.Constant)}
    assert codes
    assert codes <= set(EXPLAINED)


@pytest.mark.parametrize("errors", PACKAGES, ids=lambda errors: errors.__name__)
def test_every_explained_code_is_used(errors: ModuleType) -> None:
    nodes = [node for tree in trees(str(errors.__file__)) for node in ast.walk(tree)]
    used = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert set(errors.EXPLANATIONS) <= used


def test_several_problems_are_lines_with_codes_of_their_own() -> None:
    error = HyperparameterError.of([("a-code", "One."), ("another-code", "Two.")])
    assert str(error).splitlines() == ["One. [a-code]", "Two. [another-code]"]
    assert error.code == "another-code"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
