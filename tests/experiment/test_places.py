"""Locations of keys in messages: the line of the file, or the option, without its password."""

from __future__ import annotations

from pathlib import Path

import pytest
from errors_helper import raises_code

from tuner.errors import InputError
from tuner.experiment import load_experiment
from tuner.experiment.places import Places
from tuner.runner.file_check import check_file
from tuner.sweep.addresses import check_addresses

TEXT = """\
name: a
dataset: {name: digits}
trainable: {method: dp_sgd}
privacy: {epsilon: 1.0}
"""


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("tracking.uri=http://me:secret@host:5000", "tracking-uri-password"),
        ("ledger=postgresql://me:secret@host/db", "ledger-url-password"),
    ],
)
def test_an_option_is_named_without_its_password(tmp_path: Path, option: str, code: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT)
    with raises_code(InputError, code) as refused:
        check_addresses(load_experiment(path, [option]), Places(path, [option]))
    said = str(refused.value)
    assert said.startswith(f"--set {option.partition('=')[0]}=")
    for each in (said, check_file(str(path), [option]).text):
        assert "secret" not in each
        assert "***@host" in each
