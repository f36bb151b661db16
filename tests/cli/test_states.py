"""States of trials, as all commands and MLflow show them: a lost trial has a cause, a failed one tells no step."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from command_fakes import STEPS, Tune, with_mlflow

from trainables.engine.step import PrivateStep
from tuner.study.driver import RAISED

SECRET = "record 17 says secret"


def test_a_full_disk_is_shown_everywhere_as_what_it_is(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = torch.save, iter(range(99))

    def full(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - torch's own
        if next(calls) == 0:
            said = RuntimeError("unexpected pos 64 vs 0")  # as torch says it
            said.__context__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise said
        real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        assert "the disk is full" in tune("run", tune.write(), "--local", code=1).err
    assert "failed" in tune("status", "tiny").text
    tune("report", "tiny", "--out", "page.html")
    assert "the disk is full" in (tune.folder / "page.html").read_text()
    values = tune("resume", "tiny", "--local", "--json").json
    assert [trial["state"] for trial in values["trials"]] == ["complete", "complete"]
    state = tune.search_state(values["sweep"])
    assert (state.leased_steps, state.reserved_steps) == (2 * STEPS + STEPS // 2, 0), "what was lost is paid twice"


def shown(folder: Path, mlflow: Path, step: int) -> dict[str, Any]:
    """Return all that is shown of a sweep whose first trial raises at a step, without what is random."""
    tune = with_mlflow(folder, mlflow)
    real, taken = PrivateStep.take, iter(range(999))

    def take(self: PrivateStep, *arguments: Any, **options: Any) -> torch.Tensor:  # noqa: ANN401 - the method's own
        if next(taken) == step:
            raise ValueError(SECRET)
        return real(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder))
        patch.setattr(PrivateStep, "take", take)
        said = tune("run", tune.write(search__trials=3), "--local", code=0)
        assert SECRET not in said.out + said.err
        sweep = tune.sweeps[0]
        trial = tune("show", "tiny", "--json").json["trials"][0]
        assert (trial["state"], trial["step"], trial["reason"]) == ("failed", 0, RAISED)
        run = next(run for run in tune.mlflow_runs() if run.data.tags.get("state") == "failed")
        state = tune.search_state(sweep.name)
        tune("export", "tiny")
        return {
            "trial": {key: value for key, value in trial.items() if key != "id"},
            "status": tune("status", "--json").json["sweeps"][0]["budget"],
            "mlflow": (run.info.status, run.data.metrics, {k: v for k, v in run.data.tags.items() if k in trial}),
            "ledger": (tune.entries, state.leased_steps, state.trials[trial["id"]]),
            "verified": "yes" in tune("verify", "exports/tiny/privacy_card.json").text,
        }


def test_a_failed_trial_tells_no_step_to_anybody(tmp_path: Path, ready_mlflow: Path) -> None:
    for name in ("early", "late"):
        (tmp_path / name).mkdir()
    early = shown(tmp_path / "early", ready_mlflow, 0)
    late = shown(tmp_path / "late", ready_mlflow, STEPS // 2 - 1)
    assert early == late
    assert early["verified"]
    assert early["ledger"][1] == 3 * STEPS, "the whole trial is charged, and every accountant agrees"
