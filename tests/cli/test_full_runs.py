"""A search that plans for fewer whole runs than trials, from the file to the card."""

from __future__ import annotations

from itertools import count

import pytest
from command_fakes import STEPS, Tune

from tuner.runner.run import _StopOnRequest

FEW: dict[str, object] = {
    "search__trials": 4,
    "search__full_runs": 2.5,
    "search__rungs": [0.2, 0.5, 1.0],
    "privacy__noise_multiplier": "auto",
    "dataset__validation": {"protected": True},
}


def test_an_interrupted_search_shows_its_pauses_and_a_resume_repeats_nothing(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupting(*_: object, reports: count[int] = count(1)) -> None:  # noqa: B008 - one for all calls
        if next(reports) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_StopOnRequest, "trial_reported", interrupting)
        said = tune("run", tune.write(**FEW), "--local", code=130)
    assert "a resume repeats no step" in said.text
    shown = tune("show", "tiny", "--json").json
    assert sorted(trial["state"] for trial in shown["trials"]).count("paused") >= 3
    assert "paused" in tune("show", "tiny").out
    tune("resume", "tiny", "--local")
    done = tune("show", "tiny", "--json").json
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    taken = [trial["step"] for trial in done["trials"]]
    assert sorted(taken)[-1] == STEPS
    assert status["budget"]["spent_steps"] == sum(taken) <= 2.5 * STEPS
    assert status["budget"]["reserved_steps"] == 0
    tune("export", "tiny", "--out", "out")
    assert "2.5 whole runs" in (tune.folder / "out" / "privacy_card.md").read_text()
    assert tune("verify", "out/privacy_card.json").out.rstrip().endswith("yes: the card follows from its ledger")


def test_too_few_whole_runs_charge_nothing(tune: Tune) -> None:
    said = tune("run", tune.write(**{**FEW, "search__full_runs": 1.5}), "--local", code=2)
    assert "[full-runs-too-small]" in said.err
    assert tune.sweeps == []
