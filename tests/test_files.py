"""A write leaves the old file or the new one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tuner.files import replacing, write_json, write_text


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("half")  # type: ignore[arg-type]
    assert path.read_text() == '{\n  "a": 1\n}'
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_its_mode(tmp_path: Path) -> None:
    write_text(tmp_path / "secret", "ε", mode=0o600)
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "ε"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
