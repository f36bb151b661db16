"""What others may read: the modes of files, and what a planted record leaves behind."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from command_fakes import Tune
from own_canary import CANARY, PLANTED
from two_nodes import said

from trainables.rungs import OPERATOR_LOG


def test_what_a_sweep_keeps_is_for_its_account_alone(look: Tune) -> None:
    sweep = look.sweeps[0]
    ledger = look.folder / "dp-tuner" / "ledger.db"
    files = [ledger, ledger.with_name("ledger.db.key"), look.folder / "runs" / "mlflow.db"]
    files += [sweep / "study.journal", sweep / "spool.jsonl", *sweep.glob("trials/*/checkpoint/step-*.pt")]
    assert len(files) == 9
    folders = [ledger.parent, sweep / "operator", sweep / "trials", *sweep.glob("trials/**/")]
    for path in (*files, *folders):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_planted_record_is_found_in_the_operators_log_alone(tune: Tune, executor: str) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(240, 6)).astype(np.float32), draw.integers(0, 2, 240)
    x[:200:2, :2] = PLANTED
    np.savez(tune.folder / "own.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    file = tune.write(
        dataset={"name": "own", "path": "own.npz", "public_size": 200},
        trainable__model="own_canary:Telling",
        trainable__batch_size=45,
    )
    rays = Path(tempfile.mkdtemp(prefix="ry"))  # short: a socket's path has 107 characters at most
    variables = {**os.environ, "XDG_DATA_HOME": str(tune.folder), "RAY_TMPDIR": str(rays)}
    words = ("run", file, "--quiet", *(("--local",) if executor == "local" else ()))
    code, text, _ = said(variables, tune.folder, *words)
    assert code == 1, text
    log = tune.sweeps[0] / OPERATOR_LOG
    assert log.read_text().count(CANARY) >= 5, "the control: it was met, and heard"
    assert CANARY not in text
    others = [path for root in (tune.folder, rays) for path in root.rglob("*") if path.is_file() and path != log]
    assert {"mlflow.db", "ledger.db", "spool.jsonl", "study.journal"} <= {path.name for path in others}
    assert executor == "local" or any(rays in path.parents for path in others), "Ray's own logs are looked at too"
    pair = np.array([PLANTED, PLANTED], dtype=np.float32).tobytes()
    held = [path.name for path in others if CANARY.encode() in path.read_bytes() or pair in path.read_bytes()]
    assert held == ["own.npz"], "and in the data themselves, as numbers"
    shutil.rmtree(rays)
