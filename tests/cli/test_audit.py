"""`tune audit`: a user's own training is tried on made-up records; no private one is read, nothing charged."""

from __future__ import annotations

import re

import pytest
from command_fakes import Tune, write_images

import trainables.engine.step
from trainables import data
from trainables.data import loading, user


@pytest.fixture
def sealed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a training record fails."""

    def refused(*_: object) -> None:
        raise AssertionError("a private record was read")

    for module, name in ((data, "load_records"), (loading, "read_arrays"), (user, "read_raw"), (user, "read_user")):
        monkeypatch.setattr(module, name, refused)


def write_own(tune: Tune, model: str = "own_models:linear", **changes: object) -> str:
    write_images(tune.folder / "own.npz", 300)
    own = {"name": "own", "path": "own.npz", "public_size": 300}
    return tune.write(dataset=own, trainable__model=model, trainable__batch_size=30, privacy__delta=1e-4, **changes)


@pytest.mark.usefixtures("sealed_records")
def test_a_users_own_training_is_audited_without_a_record_or_a_charge(bare: Tune) -> None:
    said = bare("audit", write_own(bare), "--json").json
    assert said["ok"] is True
    assert 0 <= said["canaries"]["epsilon_at_least"] < said["claim"]["epsilon"]
    assert 0.9 < said["sensitivity"]["largest_ratio"] <= 1
    text = bare("audit", "tiny.yaml", "--canaries", "64", "--steps", "5").text
    assert "no proof" in text
    assert "nothing was charged" in text
    assert not (bare.folder / "runs").exists(), "no ledger, no sweep"


def test_public_records_take_the_place_of_made_up_ones_if_the_ledger_admits_them(tune: Tune) -> None:
    file = write_own(tune, search__trials=1)
    write_images(tune.folder / "open.npz", 120)
    words = ("audit", file, "--steps", "2", "--public-data")
    for name in ("own.npz", "open.npz"):
        assert "[records-not-admitted]" in tune(*words, name, code=3).err, "the same answer for both"
    assert "[own-file-missing]" in tune(*words, "none.npz", code=2).err
    tune("budget", "public", "survey", "open.npz")
    before = tune.entries
    said = tune(*words, "open.npz")
    assert "on the public records of open.npz; nothing was charged" in said.text
    (bound,) = re.findall(r"lower bound of its true ε +(\S+)", said.text)
    assert ("The bound is 0 because" in said.text) == (bound == "0"), "the noise is secret, so the bound is random"
    assert tune.entries == before


@pytest.mark.usefixtures("sealed_records")
def test_a_training_with_too_little_noise_is_found(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainables.engine.step, "add_noise", lambda clipped, *, dtype, **_: clipped.to(dtype))
    # Which canaries are in is random, so one audit in about fifty finds too little.
    audits = [bare("audit", bare.write(), "--steps", "5", "--json", code=None) for _ in range(3)]
    said = next(audit.json for audit in audits if audit.code == 1)
    assert said["ok"] is False
    assert said["canaries"]["epsilon_at_least"] > said["claim"]["epsilon"]


@pytest.mark.usefixtures("sealed_records")
@pytest.mark.parametrize(("changes", "code"), [
    ({"privacy__private": False}, "audit-not-private"),
    ({"dataset": {"name": "iris"}, "privacy__delta": 1e-3, "trainable__batch_size": 20}, "audit-too-few-canaries"),
    ({"trainable__model": "own_models:batch_norm"}, "samples-mixed"),
])  # fmt: skip
def test_what_cannot_be_audited_is_one_error(bare: Tune, changes: dict[str, object], code: str) -> None:
    said = bare("audit", bare.write(**changes), code=2)
    assert said.err.count("[") == said.err.count(f"[{code}]") == 1
    assert not (bare.folder / "runs").exists()
    assert bare("audit", "tiny.yaml", "--canaries", "3", code=2).err.endswith("[usage]\n")
