"""A user's own data file: the rules that it must keep, found before anything starts, and its check for the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import Tune

from tuner.runner import composition

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)).clip(-2, 2), np.arange(60) % 2
GOOD: dict[str, Any] = {"x_train": X[:50], "y_train": Y[:50], "x_test": X[50:], "y_test": Y[50:], "classes": 2}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "labels are text": ({"y_train": Y[:50].astype(str)}, "y_train"),
    "labels are floats": ({"y_train": Y[:50] * 1.0}, ".astype(int)"),
    "a label is missing": ({"y_train": Y[:49]}, "same length"),
    "other columns in the test": ({"x_test": X[50:, :2]}, "(3,) and (2,)"),
    "an infinite test input": ({"x_test": np.full((10, 3), np.inf)}, "got 30 other values"),
    "a test label out of range": ({"y_test": Y[50:] + 5}, "got 6"),
    "no test record": ({"x_test": X[:0], "y_test": Y[:0]}, "at least one record"),
    "classes of a wrong type": ({"classes": 2.0}, "`classes`"),
    "huge labels": ({"classes": 10**9}, "100000"),
    "complex inputs": ({"x_train": X[:50] * 1j}, "x_train"),
}
USERS = {"privacy__unit": "user", "dataset__records_per_user": 4, "dataset__public_users": 25}


def own(tune: Tune, **arrays: Any) -> str:  # noqa: ANN401
    np.savez(tune.folder / "own.npz", **{**GOOD, **arrays})
    more = USERS if "user_train" in arrays else {"dataset__public_size": 50}
    section = {"dataset__name": "own", "dataset__path": "own.npz", "privacy__delta": 1e-3}
    return tune.write(**section, trainable__batch_size=8, **more)


def check(tune: Tune, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = tune("data", "check", "own.npz", "--json", code=code).json
    return found


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_no_trial_could_train_on_is_refused_by_every_command(bare: Tune, case: str) -> None:
    arrays, names = WRONG[case]
    file = own(bare, **arrays)
    for words in (("validate", file), ("plan", file), ("run", file, "--local")):
        said = bare(*words, code=2).err
        assert "[own-file-arrays]" in said
        assert names in said
        assert said.count("error:") == 1
        assert "(49," not in said, "the number of training records is private"
    assert (bare.entries, bare.sweeps) == ([], [])
    found = check(bare, code=2)
    assert not found["usable"]
    assert any(names in each["text"] for each in found["findings"] if each["level"] == "refused")


def test_a_file_that_is_elsewhere_or_damaged(bare: Tune) -> None:
    file = own(bare)
    (bare.folder / "own.npz").rename(bare.folder / "whole.npz")
    bare("validate", file)
    assert "[own-file-missing]" in bare("plan", file, code=2).err
    content = (bare.folder / "whole.npz").read_bytes()
    (bare.folder / "own.npz").write_bytes(content[: len(content) // 2])
    for words in (("validate", file), ("data", "check", "own.npz")):
        assert "[own-file-format]" in bare(*words, code=2).err


def test_what_one_training_record_holds_refuses_nothing(bare: Tune) -> None:
    x, y = X[:50].copy(), Y[:50].copy()
    x[3, 1], x[4], y[5], y[6] = np.nan, 1e300, -1, 10**12
    file = own(bare, x_train=x, y_train=y)
    bare("validate", file)
    bare("plan", file, "--no-timing")
    found = check(bare)
    assert found["not_finite"]["train"] == {"numbers": 4, "records": 2}
    assert found["labels"]["train"]["outside"] == 2
    texts = [each["text"] for each in found["findings"]]
    assert any("4 numbers in 2 training records" in text for text in texts)
    assert any("2 training records have a label outside" in text for text in texts)


def test_the_check_counts_what_is_in_the_file(bare: Tune) -> None:
    x, y = X[:50].copy() * (1, 1, 1000), Y[:50].copy()
    x[:, 1] = 7.0
    x[1], x[2] = x[0], x[0]  # one copy has the other label
    tested = X[50:] * (1, 1, 1000)
    tested[0] = x[0]
    users, others = np.arange(50) // 5, np.arange(10) + 9
    own(bare, x_train=x, y_train=y, x_test=tested, user_train=users, user_test=others)
    found = check(bare)
    assert found["unit"] == "user"
    assert found["duplicates"] == {"copies_in_train": 2, "same_inputs_other_label": 1, "test_records_in_train": 1}
    assert found["constant_columns"] == [1]
    assert found["users"]["in_both"] == 1
    assert found["users"]["records_per_user"] == {"fewest": 5, "median": 5.0, "most": 5}
    assert found["labels"]["train"]["counts"] == [25, 25]
    column = found["inputs"]["columns"][0]
    assert column["mean"] == pytest.approx(x[:, 0].mean(), abs=1e-6)
    assert column["std"] == pytest.approx(x[:, 0].std(), abs=1e-6)
    assert "PUBLIC constants" in bare("data", "check", "own.npz").out


def test_users_and_blocks_that_the_file_lacks_or_names_wrongly(bare: Tune) -> None:
    own(bare)
    assert "has no user_train" in bare("data", "check", "own.npz", "--unit", "user", code=2).err
    own(bare, block_train=np.arange(49))
    assert any("block_train" in each["text"] for each in check(bare, code=2)["findings"] if each["level"] == "refused")
    own(bare, block_train=np.arange(50) % 2)
    assert check(bare)["blocks"] == {"0": 25, "1": 25}
    assert "records by block 0: 25, 1: 25" in bare("data", "check", "own.npz").out


def test_good_data_have_no_warning(bare: Tune) -> None:
    own(bare)
    assert {each["level"] for each in check(bare)["findings"]} == {"note"}, "the control"


def test_the_check_writes_nothing_and_says_first_for_whom_it_is(bare: Tune) -> None:
    own(bare)
    before = sorted(bare.folder.rglob("*"))
    said = bare("data", "check", "own.npz")
    assert said.out.splitlines()[0].startswith("FOR THE OPERATOR ONLY")
    assert next(iter(check(bare))) == "warning"
    assert sorted(bare.folder.rglob("*")) == before
    assert not Path(bare.folder, "runs").exists()


def swapping(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other records take the place of the file when the search has entered the ledger, before any trial starts."""
    run = composition.run_trials

    def swap(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        (tune.folder / "own.npz").rename(tune.folder / "charged.npz")
        own(tune, x_train=-X[:50])
        return run(*arguments, **named)

    monkeypatch.setattr(composition, "run_trials", swap)


@pytest.mark.parametrize("executor", [("--local",), pytest.param((), marks=pytest.mark.slow, id="ray")])
def test_no_trial_uses_other_records_than_those_that_were_charged(
    bare: Tune, monkeypatch: pytest.MonkeyPatch, executor: tuple[str, ...]
) -> None:
    for words in (("run", own(bare, search__trials=1)), ("resume", "tiny")):
        with monkeypatch.context() as patch:
            swapping(bare, patch)
            assert "[own-file-changed]" in bare(*words, *executor, code=1).err
        (sweep,) = bare.sweeps
        assert all(pool.leased_steps == 0 for pool in bare.search_state(sweep.name).pools.values())
        (bare.folder / "charged.npz").replace(bare.folder / "own.npz")
    bare("resume", sweep.name, *executor)
    assert sum(pool.leased_steps for pool in bare.search_state(sweep.name).pools.values()) > 0


def test_the_records_of_a_file_that_was_replaced_are_not_measured(bare: Tune) -> None:
    """Otherwise the exact losses of another data set's training records could be read, with an export's split."""
    file = own(bare, search__trials=1)
    bare("run", file, "--local")
    (sweep,) = bare.sweeps
    bare("export", sweep.name, "--out", "out")
    look = ("landscape", "out", "--public-data", "--points", "3", "--iterations", "1", "--restarts", "1")
    bare(*look)
    for split, code in (("validation", 3), ("test", 0)):
        own(bare, x_train=-X[:50])
        said = bare(*look, "--split", split, code=code)
        assert ("[records-not-admitted]" in said.err) == (code == 3)


def test_records_that_users_have_exchanged_are_not_measured(bare: Tune) -> None:
    """The split is by users, so their records would change sides."""
    users = np.arange(50) % 25
    bare("run", own(bare, search__trials=1, user_train=users), "--local")
    bare("export", "tiny", "--out", "out")
    look = ("landscape", "out", "--public-data", "--points", "3", "--iterations", "1", "--restarts", "1")
    bare(*look)
    own(bare, search__trials=1, user_train=np.arange(50) // 2)
    assert "[records-not-admitted]" in bare(*look, code=3).err


@pytest.mark.parametrize("code", ["own-file-missing", "own-file-format"])
def test_a_file_that_is_gone_or_half_written_stops_the_search(
    bare: Tune, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    run = composition.run_trials

    def damage(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        path = bare.folder / "own.npz"
        (bare.folder / "whole.npz").write_bytes(path.read_bytes())
        path.unlink() if code == "own-file-missing" else path.write_bytes(path.read_bytes()[:300])
        return run(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(composition, "run_trials", damage)
        assert f"[{code}]" in bare("run", own(bare, search__trials=3), "--local", code=1).err
    (bare.folder / "whole.npz").replace(bare.folder / "own.npz")
    bare("resume", "tiny", "--local")
    assert bare("status", "tiny", "--json").json["sweeps"][0]["state"] == "done"
