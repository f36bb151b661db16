"""A machine with a GPU: one that lacks it, one whose GPU has failed, and a library that cannot do what is asked."""

# ruff: noqa: ANN401 - fakes take anything
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended_gpu import GPU, pretended_gpu, real
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec

from trainables.errors import InfrastructureError, TrainableError, WalledError
from trainables.landscape.loss import PublicLoss
from trainables.rungs import TrainingLoop
from trainables.training import PrivateTraining


def test_a_gpu_that_is_asked_for_must_be_there(make_spec: MakeSpec) -> None:
    with pytest.raises(TrainableError) as caught:
        PrivateTraining(make_spec(device="cuda"), CountingCharge())
    assert caught.value.code == "device-missing"


@pytest.mark.parametrize("broken", [True, False])
def test_a_worker_ends_after_an_error_that_lasts(broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.trial import FAILED, REQUEST, TrialTrainable

    def failing(*_: object) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", ended)
    loop = TrainingLoop(failing, None, None, folder=tmp_path, trial_id="a", rung_steps=(1,))
    trial = TrialTrainable.__new__(TrialTrainable)
    trial.setup({REQUEST: loop})
    with pretended_gpu():
        if not broken:
            with pytest.raises(WalledError):
                loop.advance()
            assert trial.step() == {FAILED: True}
            return
        monkeypatch.setattr(torch.cuda, "synchronize", failing)
        with pytest.raises(InfrastructureError) as caught:
            loop.advance()
        assert caught.value.code == "accelerator-failed"
        with pytest.raises(SystemExit):
            trial.step()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_the_landscape_of_a_recurrent_model_needs_no_cudnn(kind: type[nn.RNNBase]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = kind(5, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.last(self.first(x)[0][:, -1])
            return logits

    torch.manual_seed(0)
    model, x, y = Model(), torch.rand(6, 7, 5), torch.arange(6) % 3
    on_cpu = PublicLoss(model, x, y)
    expected = on_cpu.gradient(on_cpu.theta)
    with pretended_gpu():
        loss = PublicLoss(model.to(GPU), x, y)
        assert not any(
            isinstance(each, nn.RNNBase) and type(each).forward is each.forward for each in loss._module.modules()
        )
        torch.testing.assert_close(real(loss.gradient(loss.theta)), expected, rtol=1e-9, atol=1e-12)
