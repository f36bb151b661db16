"""Files of checkpoints: a damaged one is refused, whatever byte was changed."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import torch
from errors_helper import raises_code

from trainables.checkpoint import is_intact, read_state, write_state
from trainables.errors import InfrastructureError

WEIGHTS = torch.arange(300.0)
STATE = {"step": 7, "leased": 9, "model": {"w": WEIGHTS}}


def test_a_state_is_read_as_it_was_written_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "step-00000007.pt"
    write_state(path, STATE)
    read = read_state(path)
    assert (read["step"], read["leased"]) == (7, 9)
    assert torch.equal(read["model"]["w"], WEIGHTS)
    assert is_intact(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_every_changed_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    path, damaged = tmp_path / "whole.pt", tmp_path / "damaged.pt"
    write_state(path, STATE)
    content, draw = path.read_bytes(), random.Random(0)
    for place in {0, len(content) - 1, *(draw.randrange(len(content)) for _ in range(60))}:
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not is_intact(damaged)
        with raises_code(InfrastructureError, "checkpoint-damaged"):
            read_state(damaged)
        os.truncate(damaged, place)
        assert not is_intact(damaged)
    assert not is_intact(tmp_path / "missing.pt")


def test_torch_alone_reads_a_changed_byte_without_a_word(tmp_path: Path) -> None:
    # The reason for the checksum. If torch finds this one day, the checksum may go.
    path = tmp_path / "torch.pt"
    torch.save(STATE, path)
    content = bytearray(path.read_bytes())
    content[content.find(WEIGHTS.numpy().tobytes()) + 9] ^= 1
    path.write_bytes(content)
    assert not torch.equal(torch.load(path, weights_only=True)["model"]["w"], WEIGHTS)
