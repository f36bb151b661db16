"""How far tracking is, in words."""

from __future__ import annotations

import pytest

from tuner.recorder.sender import SendStatus


@pytest.mark.parametrize(
    ("sent", "waiting", "words"),
    [
        (1, 0, "1 record sent"),
        (6, 0, "6 records sent"),
        (0, 0, "nothing left to send"),
        (6, 2, "6 records sent, 2 safe on disk, waiting"),
    ],
)
def test_how_much_was_sent(sent: int, waiting: int, words: str) -> None:
    assert str(SendStatus(sent=sent, waiting=waiting, refused=0, problem="")) == words
