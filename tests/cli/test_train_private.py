"""`tune train` of what could never be exported is refused before anything is trained."""

from __future__ import annotations

from command_fakes import Tune


def test_a_file_without_privacy_is_refused_before_it_trains(tune: Tune) -> None:
    file = tune.write(search__trials=1, search__space={}, privacy__private=False)
    assert "[train-not-private]" in tune("train", file, "--local", code=2).text
    assert tune.sweeps == []
