"""A ledger that went back in time is refused at resume and at export, before a step; one that is ahead is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_fakes import (
    STEPS,
    Died,
    Tune,
    dies,
    dying_of_interrupts,
    interrupted,
    raising_at,
    run_until_death,
)
from held_fakes import refused
from sealed_fakes import SEALED, draw

from trainables.training import PrivateTraining
from tuner.sweep import ledger_head
from tuner.sweep.folder import SweepFolder

HEAD = "ledger_head.jsonl"
MORE = ("--local", "--set", "search.trials=3")
THREE = ("--local", "--set", "search.trials=4")


def ledger_of(tune: Tune) -> Path:
    return tune.folder / "dp-tuner" / "ledger.db"


def copy_of(tune: Tune) -> Path:
    return Path(shutil.copy(ledger_of(tune), tune.folder / f"older{len(list(tune.folder.glob('older*')))}.db"))


def put_back(tune: Tune, older: Path) -> Path:
    """Put an older copy into the ledger's place, and return the newer one."""
    newer = Path(shutil.move(ledger_of(tune), tune.folder / "newer.db"))
    shutil.copy(older, ledger_of(tune))
    return newer


def test_a_restored_ledger_is_refused_and_the_newer_one_goes_on(charged: Tune, scored: list[str]) -> None:
    older = copy_of(charged)
    charged("resume", "tiny", *MORE)
    newer = put_back(charged, older)
    for words in (("resume", "tiny", *THREE), ("export", "tiny")):
        assert "[ledger-behind]" in refused(charged, scored, *words).err
    shutil.copy(newer, ledger_of(charged))
    charged("budget", "set", "digits", "--epsilon", "90", "--delta", "1e-4")  # ahead of what the sweep saw
    charged("resume", "tiny", *THREE)
    charged("export", "tiny")
    assert charged.search_state(charged.sweeps[0].name).leased_steps == 4 * STEPS


def test_a_ledger_without_the_sweep_is_older_or_missing_and_never_called_something_else(
    tune: Tune, scored: list[str]
) -> None:
    tune("budget", "set", "digits", "--epsilon", "90", "--delta", "1e-4")
    before = copy_of(tune)
    tune("run", tune.write(search__trials=1), "--local", "--quiet")
    newer = put_back(tune, before)
    for words in (("export", "tiny"), ("show", "tiny"), ("status", "tiny")):
        assert "[ledger-behind]" in tune(*words, code=1).err
    (listed,) = tune("status", "--json").json["sweeps"]
    assert listed["state"] == "ledger lacks entries of this sweep"
    ledger_of(tune).unlink()
    (listed,) = tune("status", "--json").json["sweeps"]
    assert (listed["state"], str(ledger_of(tune)) in listed["problem"]) == ("ledger missing", True)
    shutil.copy(newer, ledger_of(tune))
    (listed,) = tune("status", "--json").json["sweeps"]
    assert (listed["state"], "problem" in listed) == ("done", False), "the control"


def test_another_sweeps_charges_cannot_be_forgotten_either(charged: Tune, scored: list[str]) -> None:
    """The restored ledger has all steps of this sweep, but not those of another that this one saw."""
    older = copy_of(charged)
    charged("run", charged.write("other.yaml", name="other"), "--local", "--quiet")
    charged("resume", "tiny", *MORE)
    put_back(charged, older)
    assert "[ledger-behind]" in refused(charged, scored, "resume", "tiny", *THREE).err
    assert "[ledger-behind]" in refused(charged, scored, "export", "tiny").err


@pytest.mark.parametrize("left", ["report", "checkpoint"])
def test_what_was_shown_after_the_head_was_kept_is_known_by_what_was_leased_for_it(
    tune: Tune, scored: list[str], monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """It dies between the charge and the note of the head; then the ledger of before the charge is put back."""
    copies: list[Path] = []
    real = PrivateTraining.run_to

    def copied(training: PrivateTraining, step: int) -> None:
        if not copies:
            copies.append(copy_of(tune))
        real(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", copied)
        if left == "report":
            patch.setattr(ledger_head.HeadWatch, "trial_reported", dies)
        else:
            dying_of_interrupts(patch, Died)
            patch.setattr(PrivateTraining, "evaluate", interrupted)
        run_until_death(tune.write())
    assert tune.entries.count("lease") == 1
    newer = put_back(tune, copies[0])
    assert tune.entries.count("lease") == 0
    if left == "report":
        shutil.rmtree(tune.sweeps[0] / "trials")  # the study alone
    assert "[search-not-charged]" in refused(tune, scored, "resume", "tiny", "--local").err
    shutil.copy(newer, ledger_of(tune))
    tune("resume", "tiny", "--local")  # the control


@pytest.mark.parametrize("what", ["removed", "torn", "empty"])
def test_the_note_of_the_head_cannot_be_taken_away(charged: Tune, scored: list[str], what: str) -> None:
    path = charged.sweeps[0] / HEAD
    assert path.stat().st_mode & 0o077 == 0
    whole = path.read_text()
    if what == "removed":
        path.unlink()
    else:
        path.write_text(whole[:40] if what == "torn" else "")
    for words in (("resume", "tiny", *MORE), ("export", "tiny")):
        assert "[sweep-file-unreadable]" in refused(charged, scored, *words).err
    path.write_text(whole + whole[:40])  # a loss of power tears the line that was being added
    charged("resume", "tiny", *MORE)


def test_a_sealed_search_too(tune: Tune, scored: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tune("run", tune.write("before.yaml", name="before"), "--local", "--quiet")
    older = copy_of(tune)
    with monkeypatch.context() as patch:
        draw(patch, 2)
        raising_at(patch, 1, Died)
        run_until_death_of(tune)
    (sweep,) = (SweepFolder(path) for path in tune.sweeps if "before" not in path.name)
    assert {path.name for path in sweep.sealed.iterdir()} >= {HEAD}
    begun = copy_of(tune)
    put_back(tune, older)
    assert "[search-not-in-ledger]" in refused(tune, scored, "resume", "tiny", "--local").err
    shutil.copy(begun, ledger_of(tune))
    head = json.loads((sweep.sealed / HEAD).read_text())
    head["entries"][0][1] += 90
    (sweep.sealed / HEAD).write_text(json.dumps(head))
    assert "[ledger-behind]" in refused(tune, scored, "resume", "tiny", "--local").err


def run_until_death_of(tune: Tune) -> None:
    from tuner.runner.commands import RunOptions, run_file

    with pytest.raises((Died, Exception)):
        run_file(tune.write(**SEALED), (), RunOptions(local=True))


def test_the_charged_run_of_a_public_search_too(
    tune: Tune, public: dict[str, object], scored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    real = ledger_head.HeadWatch.trial_reported

    def copied(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        if copies:
            raise Died
        copies.append(copy_of(tune))

    with monkeypatch.context() as patch:
        patch.setattr(ledger_head.HeadWatch, "trial_reported", copied)
        run_until_death(tune.write(**public))
    newer = put_back(tune, copies[0])
    name = next(path.name for path in tune.sweeps if "charged" not in path.name)
    assert "[ledger-behind]" in refused(tune, scored, "resume", name, "--local").err
    shutil.copy(newer, ledger_of(tune))
    tune("resume", name, "--local")
