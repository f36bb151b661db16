"""The checks for a real GPU hold on a pretended one, and fail where passes have any shape or words another order."""

from __future__ import annotations

from itertools import count

import pytest
from pretended_gpu import GPU, pretended_gpu

from benchmarks import gpu_check
from trainables.engine import per_sample
from trainables.engine.gaussian import _CHUNK as CHUNK
from trainables.spec import TrainingSpec


def test_without_a_gpu_nothing_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([]) == 2
    assert "need a GPU" in capsys.readouterr().out


def test_rows_hold_unless_a_pass_has_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended_gpu(rounds_by_shape=True):
        assert gpu_check.rows(GPU, "mlp_64", batches=(1, 17, 40), batch=16).holds
        monkeypatch.setattr(per_sample, "filled", lambda inputs, targets, **_: (inputs, targets))
        assert not gpu_check.rows(GPU, "mlp_64", batches=(1, 17, 40), batch=16).holds


def test_noise_holds_unless_the_words_have_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended_gpu():
        assert gpu_check.noise(GPU, sizes=(1001, CHUNK + 2)).holds
        assert gpu_check.angles(GPU).holds
        assert gpu_check.block_sums(GPU, sizes=(16, 64)).holds
        monkeypatch.setattr("trainables.engine.random.from_words", lambda words, size, _: words.double()[:size])
        assert not gpu_check.noise(GPU, sizes=(1001,)).holds


def test_trainings_hold_unless_a_key_is_not_what_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended_gpu():
        assert gpu_check.replays("mlp_64", times=2).holds
        assert gpu_check.steps("dplis", "mlp_64").holds
        keys = count()
        spec = gpu_check._spec

        def without_a_key(method: str, model: str, *, device: str, key: int) -> TrainingSpec:
            del key
            return spec(method, model, device=device, key=next(keys))

        monkeypatch.setattr(gpu_check, "_spec", without_a_key)
        assert not gpu_check.replays("mlp_64", times=3).holds
