"""Searches on a release by the commands: one charge for any number of searches, and what is charged again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import Tune
from held_fakes import edit_yaml, refused
from sealed_fakes import SEALED
from test_own_records import write_own, write_records

RELEASE: dict[str, object] = {
    "trainable__method": "input_perturbation",
    "privacy__noise_multiplier": "auto",
    "privacy__accounting": "release",
    "privacy__release": {"clip": 2.0, "label_share": 0.4},
}
ON_OWN = {**RELEASE, "search__trials": 1}
CHARGED = ["open_search", "release", "stored"]


def run(tune: Tune, *more: str, code: int = 0, **changes: object) -> Any:  # noqa: ANN401 - the printed JSON
    said = tune("run", tune.write(**{**RELEASE, **changes}), "--local", "--json", *more, code=code)
    return json.loads(said.out) if code == 0 else said


def releases(tune: Tune) -> list[Path]:
    return sorted((tune.folder / "dp-tuner" / "ledger.db.releases").glob("*.npz"))


@pytest.mark.slow
def test_fifty_trials_and_a_later_search_add_nothing(tune: Tune) -> None:
    first = run(tune, search__trials=50, search__rungs=1)
    assert len([trial for trial in first["trials"] if trial["state"] == "complete"]) == 50
    assert first["claim"] == {"epsilon": 8.5, "delta": 1e-5}
    assert tune.entries == CHARGED
    (stored,) = releases(tune)
    assert stored.stat().st_mode & 0o777 == 0o600
    assert stored.parent.stat().st_mode & 0o777 == 0o700
    said = tune("plan", "tiny.yaml", "--no-timing")
    assert "charges nothing: it uses the stored release" in said.text
    tune("budget", "set", "digits", "--epsilon", "8.5", "--delta", "1e-5")  # used up
    run(tune, name="later", trainable__epochs=2, trainable__model="mlp_64")
    assert tune.entries == [*CHARGED, "cap"], "the second search is charged nothing"
    assert releases(tune) == [stored]
    # Another release does not fit the cap.
    assert "dataset-cap-exceeded" in run(tune, code=3, privacy__release={"clip": 1.0, "label_share": 0.4}).text
    assert tune.entries == [*CHARGED, "cap"]


@pytest.mark.parametrize("fault", ["deleted", "changed"])
def test_a_release_that_is_gone_is_charged_again_and_drawn_anew(tune: Tune, fault: str) -> None:
    run(tune)
    (stored,) = releases(tune)
    before = stored.read_bytes()
    stored.unlink() if fault == "deleted" else stored.write_bytes(before[:-1] + b"?")
    assert "release-missing" in tune("export", "tiny", code=1).text
    assert "charges a new release" in tune("plan", "tiny.yaml", "--no-timing").text
    run(tune)
    assert tune.entries == CHARGED * 2
    new = releases(tune)[-1] if fault == "deleted" else next(path for path in releases(tune) if path != stored)
    assert new.read_bytes() != before


def other_records(tune: Tune, _root: Path) -> tuple[str, ...]:
    return ("--set", f"dataset.path={write_records(tune.folder / 'others.npz', key=1)}")


def other_split(_tune: Tune, root: Path) -> tuple[str, ...]:
    edit_yaml(root, {"dataset.validation.split_seed": 7})
    return ()


def other_release(tune: Tune, root: Path) -> tuple[str, ...]:
    tune("run", write_own(tune, **{**ON_OWN, "privacy__epsilon": 20.0}), "--local", "--quiet")
    (less,) = (each for each in tune.sweeps if each != root)
    shutil.copy(less / "release.json", root)
    return ()


@pytest.mark.parametrize(
    ("change", "what"),
    [(other_records, "The records of"), (other_split, "The split of"), (other_release, "The plan of")],
)
def test_a_resume_uses_the_records_the_split_and_the_release_that_were_charged(
    tune: Tune, scored: list[str], change: Callable[[Tune, Path], tuple[str, ...]], what: str
) -> None:
    write_records(tune.folder / "own.npz")
    tune("run", write_own(tune, **ON_OWN), "--local", "--quiet")
    (root,) = (tune.folder / "runs").glob("own-*")
    go_on = ("resume", root.name, "--local", "--set")
    tune(*go_on, "search.trials=2")
    words = change(tune, root)
    said = refused(tune, scored, *go_on, "search.trials=3", *words)
    assert "[ledger-mismatch]" in said.err
    assert what in said.err


@pytest.mark.parametrize("place", ["draw", "write", "entry"])
def test_a_crash_between_the_charge_and_the_checksum_charges_again(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    import tuner.sweep.releases as module
    from tuner.privacy.ledger.ledger import Ledger

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        match place:
            case "draw":
                patch.setattr("trainables.release.draw.draw_release", crash)
            case "write":
                patch.setattr(module, "replacing", crash)
            case _:
                patch.setattr(Ledger, "store_release", crash)
        tune("run", tune.write(**RELEASE), "--local", code=None)
    assert tune.entries == CHARGED[:2], "charged, and nothing that may be used"
    for words in (("resume", "tiny", "--local"), ("export", "tiny")):
        assert "ended before it had its release" in tune(*words, code=1).err
    run(tune)
    assert tune.entries == [*CHARGED[:2], *CHARGED]


def test_the_model_of_another_release_is_not_exported_under_this_ones_claim(tune: Tune) -> None:
    run(tune)
    tune("run", "tiny.yaml", "--local", "--quiet", "--set", "name=other", "--set", "privacy.epsilon=50")
    of = {sweep.name.partition("-")[0]: sweep for sweep in tune.sweeps}
    for own, foreign in zip(*(sorted((of[name] / "trials").iterdir()) for name in ("tiny", "other")), strict=True):
        shutil.rmtree(own / "checkpoint")
        shutil.copytree(foreign / "checkpoint", own / "checkpoint")
    assert "[checkpoint-foreign]" in tune("export", "tiny", code=2).err
    tune("export", "other")  # the control


@pytest.mark.slow
def test_two_processes_get_one_release(tune: Tune) -> None:
    tune.write(**RELEASE)
    both = [tune.process("run", "tiny.yaml", "--local", "--quiet") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, out + err
    assert tune.entries == CHARGED
    assert len(releases(tune)) == 1
    assert len({json.loads((sweep / "release.json").read_text())["sha256"] for sweep in tune.sweeps}) == 1


@pytest.mark.slow
def test_the_card_is_that_of_the_release_and_is_verified(tune: Tune) -> None:
    run(tune)
    out = json.loads(tune("export", "tiny", "--json").out)
    assert out["claim"] == {"epsilon": 8.5, "delta": 1e-5}
    card = json.loads((tune.folder / "exports" / "tiny" / "privacy_card.json").read_text())
    sha = json.loads((tune.sweeps[0] / "release.json").read_text())["sha256"]
    assert card["release"]["sha256"] == sha
    assert card["claim"]["mode"] == "release"
    assert card["configuration"]["model"] == "logistic_regression"
    assert "own code" not in str(card["assumptions"])
    assert card["configuration"]["starting_weights"] == "random, from the public seed"
    said = tune("verify", "exports/tiny/privacy_card.json")
    assert "release was charged and stored once" in said.text
    run(tune, name="own", trainable__model="own_models:linear")
    tune("export", "own")
    own = json.loads((tune.folder / "exports" / "own" / "privacy_card.json").read_text())
    (row,) = [row for row in own["assumptions"] if "own code" in row["assumption"]]
    assert (row["status"], "model own_models:linear" in row["why"]) == ("assumed", True)
    assert "own_models:linear returns" in own["configuration"]["starting_weights"]
    tune("verify", "exports/own/privacy_card.json")
    # A second sweep of the release has a card of its own, with the same claim.
    run(tune, name="later")
    tune("export", "later")
    tune("verify", "exports/later/privacy_card.json")
    tune("verify", "exports/tiny/privacy_card.json")
    # What was exported trains on the release again, at no cost.
    charges = tune.entries
    tune("run", "exports/later/experiment.yaml", "--local", "--quiet")
    assert tune.entries == charges
    for command in (("show", "tiny"), ("status",), ("report", "tiny"), ("budget", "show", "digits"), ("ls",)):
        tune(*command)
    said = tune("resume", "tiny", "--set", "search.trials=3", "--local")
    assert tune.entries == charges


@pytest.mark.slow
@pytest.mark.parametrize("forged", ["sha256", "rows", "epsilon"])
def test_a_forged_card_is_found(tune: Tune, forged: str) -> None:
    from tuner.privacy.card.card import card_text

    run(tune)
    tune("export", "tiny")
    path = tune.folder / "exports" / "tiny" / "privacy_card.json"
    card = json.loads(path.read_text())
    match forged:
        case "sha256":
            card["release"]["sha256"] = "0" * 64
        case "rows":
            card["release"]["rows"] += 1
        case _:
            card["claim"]["epsilon"] = 1.0
    path.write_text(card_text(card))
    assert tune("verify", str(path), code=None).code != 0


def test_the_published_noise_is_a_study_without_card(tune: Tune) -> None:
    published = {"guarantee": "published", "clip": 1.0}
    assert "release-published" in run(tune, code=2, privacy__release=published).text
    assert tune.entries == []
    run(tune, privacy__release=published, privacy__private=False)
    assert tune.entries == []
    assert "sweep-not-private" in tune("export", "tiny", code=2).text
    assert not (tune.folder / "exports").exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"privacy__release": {"clip": [1.0, 2.0]}}, "release-searched"),
        ({"privacy__release": {"label_share": {"uniform": [0.1, 0.5]}}}, "release-searched"),
        ({"privacy__accounting": "composition"}, "release-method"),
        ({"trainable__method": "dp_sgd"}, "release-method"),
        ({"trainable__method": "own_methods:halved"}, "release-method"),
        ({"trainable__freeze": ["1"]}, "start-with-release"),
        ({"trainable__start": {"path": "public.safetensors", "public": True}}, "start-with-release"),
        ({"privacy__noise_multiplier": 2.0}, "release-noise"),
        ({"privacy__private": False}, "mode-needs-private"),
        ({"dataset__validation": {"protected": True}}, "release-scores"),
        ({"search__full_runs": 1}, "release-steps"),
        ({"search__space": {"learning_rate": "default", "max_grad_norm": "default"}}, "release-steps"),
        ({"search__space": {"batch_size": {"choice": [64, 128]}, "learning_rate": 0.1}}, "release-steps"),
        ({"privacy__release": {"clip": 0.0}}, "value-out-of-range"),
    ],
)
def test_bad_input_is_one_clear_error_and_charges_nothing(tune: Tune, changes: dict[str, object], code: str) -> None:
    said = run(tune, code=2, **changes)
    assert code in said.text
    assert tune.entries == []
    assert tune.sweeps == []
    assert tune.mlflow_runs() == []


def test_an_audit_reads_no_record_and_finds_no_fault(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables import data

    def refused(*_: object) -> None:
        raise AssertionError("a private record was read")

    monkeypatch.setattr(data, "load_records", refused)
    said = tune("audit", tune.write(**RELEASE), "--json").json
    assert said["ok"] is True
    assert 1 < said["canaries"]["epsilon_at_least"] < said["claim"]["epsilon"]
    assert "no proof" in tune("audit", "tiny.yaml").text
    assert tune.entries == []


@pytest.mark.slow
def test_a_claim_that_uses_the_secret_order_is_verified(tune: Tune) -> None:
    central = {"trust": "central", "clip": 2.0, "label_share": 0.4}
    run(tune, privacy__release=central, privacy__epsilon=1.0, privacy__delta=1e-4)
    tune("export", "tiny")
    card = json.loads((tune.folder / "exports" / "tiny" / "privacy_card.json").read_text())
    assert card["training_cap"]["filter"]["clone_epsilon"] > 1
    assert card["release"]["local"]["epsilon"] > card["claim"]["epsilon"] == 1.0
    tune("verify", "exports/tiny/privacy_card.json")


@pytest.mark.parametrize("mode", [SEALED, RELEASE], ids=["sealed", "release"])
def test_a_search_that_is_charged_as_a_whole_is_refused_if_it_could_score_no_trial(
    tune: Tune, mode: dict[str, object]
) -> None:
    write_records(tune.folder / "own.npz", y_train=np.full(200, 7))
    said = tune("run", write_own(tune, **mode), "--local", "--quiet", code=2)
    assert "[split-empty]" in said.err
    assert "own.yaml:" in said.err
    assert tune.entries == []
    assert tune.sweeps == []
