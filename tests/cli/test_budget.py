"""The caps of a search and of a data set, their shares, and refusals that change nothing."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from command_fakes import STEPS, Tune, write_images
from postgres_server import PostgresServer

from tuner.privacy.accountant.filters import FixedOrder
from tuner.privacy.ledger.ledger import Ledger

ME = pwd.getpwuid(os.geteuid()).pw_name
SET = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")


def test_a_tenth_of_the_epsilon_starts_fewer_trials_and_passes_no_cap(tune: Tune) -> None:
    tenth = tune("run", tune.write(search__trials=4, privacy__epsilon=0.85), "--local", "--json").json
    assert (tenth["state"], len(tenth["trials"])) == ("budget reached", 1)
    state = tune.search_state(tenth["sweep"])
    assert tenth["budget"]["epsilon_cap"] == state.epsilon == 0.85
    assert tenth["budget"]["epsilon_spent"] <= 0.85
    assert STEPS == state.leased_steps <= state.filter.step_cap
    assert state.status == "closed"


def test_an_epsilon_that_no_trial_fits_is_refused_and_leaves_nothing(bare: Tune) -> None:
    said = bare("run", bare.write(privacy__epsilon=0.05), "--local", code=3)
    assert "[budget-too-small]" in said.err
    assert (bare.entries, bare.sweeps, bare.mlflow_runs()) == ([], [], [])


def test_the_cap_of_the_data_holds_over_searches(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune("run", file, "--local", "--quiet")
    tune(*SET)
    folders, entries, runs = tune.sweeps, tune.entries, len(tune.mlflow_runs())
    assert "[dataset-cap-exceeded]" in tune("run", file, "--local", code=3).err
    assert (tune.sweeps, tune.entries, len(tune.mlflow_runs())) == (folders, entries, runs)
    planned = tune("plan", file, "--no-timing", "--json", code=3).json
    assert planned["datasets"][0]["cap"].items() >= {"epsilon": 10.0, "delta": 1e-4}.items()
    assert "[dataset-cap-exceeded]" in planned["refused"]
    shown = tune("budget", "--json").json["datasets"][0]
    assert shown["committed"]["epsilon"] == 8.5
    assert shown["cap"] == {"epsilon": 10.0, "delta": 1e-4}
    assert len(shown["searches"]) == 1
    tune(*SET[:4], "20", *SET[5:])
    assert tune("plan", file, "--no-timing", "--json").json["refused"] is None
    tune("run", file, "--local", "--quiet")


def test_a_cap_is_set_for_the_owner_of_the_records_and_a_misspelt_name_needs_a_word_more(bare: Tune) -> None:
    """A cap is never removed, so a misspelt name would stay in the ledger."""
    cap = ("--epsilon", "3", "--delta", "1e-5")
    for name, near in (("diggits", "digits"), ("CIFAR10", "cifar10")):
        error = bare("budget", "set", name, *cap, code=2).err
        assert "[dataset-unknown]" in error
        assert near in error
    assert not (bare.folder / "runs").exists()
    bare("budget", "set", "cifar10_10k2k", *cap)
    bare("budget", "set", "patients", *cap)
    assert "patients" in bare("budget", "set", "pateints", *cap, code=2).err
    bare("budget", "set", "pateints", *cap, "--new")
    bare("budget", "set", "pateints", *cap)  # now it is known
    assert {each["dataset"] for each in bare("budget", "--json").json["datasets"]} == {
        "cifar10",
        "patients",
        "pateints",
    }


# An order beside the sum.


def test_an_order_is_fixed_said_and_kept(bare: Tune) -> None:
    assert bare(*SET, "--order", "6", "--json").json["order"] == 6.0
    raised = bare("budget", "--json", *SET[1:4], "12", *SET[5:]).json
    assert (raised["cap"]["epsilon"], raised["order"]) == (12.0, 6.0)
    assert bare(*SET, "--order", "none", "--json").json["order"] is None


def test_the_automatic_order_is_where_gaussian_spending_lasts_longest(bare: Tune) -> None:
    said = bare(*SET, "--order", "auto", "--json").json

    def steps(order: float) -> float:
        """How much of ρ fits: a Gaussian mechanism of zero-concentrated ρ has divergence ρ·a at order a."""
        found = FixedOrder.of(order=order, epsilon=10.0, delta=0.5e-4)
        return found.budget / order if found else 0.0

    best = max(steps(1.05 + i / 1000) for i in range(60_000))
    assert 0.999 * best <= steps(said["order"]) <= best
    assert steps(said["order"] * 2) < 0.999 * best, "another order would have been noticed"


def test_an_order_at_which_nothing_is_bounded_or_admitted_is_refused(bare: Tune) -> None:
    for order in ("1", "first", ""):
        assert "order" in bare(*SET, "--order", order, code=2).err
    tiny = ("budget", "set", "digits", "--epsilon", "0.001", "--delta", "1e-9")
    assert "order" in bare(*tiny, "--order", "auto", code=2).err
    assert bare.entries == []


# Shares.


def test_a_share_lets_its_user_in_up_to_it_and_nobody_else(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    share = ("--epsilon", "9", "--delta", "1e-5")
    tune(*SET[:4], "40", *SET[5:])
    assert "no account 'somebody'" in tune("budget", "grant", "digits", "somebody", *share).out
    assert "[no-share]" in tune("run", file, "--local", code=3).err
    assert "[no-share]" in tune("plan", file, "--no-timing", "--json", code=3).json["refused"]
    assert tune.sweeps == []
    assert "no account" not in tune("budget", "grant", "digits", ME, *share).out
    tune("run", file, "--local", "--quiet")
    assert "[share-exceeded]" in tune("run", file, "--local", code=3).err
    (shown,) = tune("budget", "show", "digits", "--json").json["datasets"]
    mine = next(share for share in shown["shares"] if share["user"] == ME)
    assert mine == {
        "user": ME,
        "granted": {"epsilon": 9.0, "delta": 1e-5},
        "committed": {"epsilon": 8.5, "delta": 1e-5},
        "left": {"epsilon": 0.5, "delta": 0.0},
    }
    for user in ("somebody", ME):
        tune("budget", "revoke", "digits", user)
    assert "[share-exceeded]" in tune("run", file, "--local", code=3).err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("grant", "digits", "alice", "--epsilon", "11", "--delta", "1e-5"), 3, "11"),
        (("grant", "digits", "alice", "--epsilon", "nan", "--delta", "1e-5"), 2, "epsilon"),
        (("grant", "digits", "a\nb", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("grant", "digit", "alice", "--epsilon", "1", "--delta", "1e-5"), 2, "digits?"),
        (("revoke", "digits", "alice"), 2, "alice"),
        (("show", "digit"), 2, "digits?"),
        (("report", "digits", "--out", "no/such/folder/a.html"), 2, "[output-path-invalid]"),
        (("report", "digits", "--out", "."), 2, "[output-path-invalid]"),
        (("set", "a\udcff", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("set", "a/b/c", "--epsilon", "1", "--delta", "1e-5"), 2, "TABLE/BLOCK"),
        (("set", "digits/b", "--epsilon", "1", "--delta", "1e-5"), 2, "no blocks"),
        (("set", "digits", "--epsilon", "inf", "--delta", "1e-5"), 2, "epsilon"),
    ],
)
def test_wrong_words_get_one_clear_error_and_change_nothing(
    bare: Tune, words: tuple[str, ...], code: int, said: str
) -> None:
    bare(*SET)
    before = bare.entries
    refused = bare("budget", *words, code=code)
    assert said in refused.err
    assert refused.out == ""
    assert bare.entries == before
    assert sorted(path.name for path in bare.folder.iterdir()) == ["dp-tuner"]


def test_only_a_valid_set_makes_a_ledger(bare: Tune) -> None:
    budget = ("--epsilon", "1", "--delta", "1e-5")
    for words in (("grant", "digits", "a", *budget), ("revoke", "digits", "a"), ("show",), ("report", "digits")):
        more = ("--out", "a.html") if words[0] == "report" else ()
        assert "[no-ledger]" in bare("budget", *words, *more, code=2).err
    for epsilon in ("nan", "0"):
        bare("budget", "set", "digits", "--epsilon", epsilon, "--delta", "1e-5", code=2)
    assert list(bare.folder.iterdir()) == []


# Which ledger.


def test_the_ledger_may_be_named_before_or_after_the_command(bare: Tune) -> None:
    url = f"sqlite:///{bare.folder}/elsewhere.db"
    bare(*SET, "--ledger", url)
    shown = [bare("budget", "--ledger", url, "show", "--json"), bare("budget", "show", "--ledger", url, "--json")]
    assert shown[0].json == shown[1].json
    assert shown[0].json["ledger"] == url
    write_images(bare.folder / "open.npz", 20)
    bare("budget", "public", "open", "open.npz", "--ledger", url)
    (uncapped,) = bare("budget", "show", "open", "--ledger", url, "--json").json["datasets"]
    assert f"--delta D --ledger {url}" in uncapped["claim"]


def test_a_ledger_of_the_environment_binds_every_command(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caps hold for plan, run and train, and a sweep never leaves its ledger."""
    variable, shared = "DP_TUNER_LEDGER", f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.setenv(variable, shared)
    tune("budget", "set", "digits", "--epsilon", "0.1", "--delta", "1e-5")
    file, other = tune.write(search__trials=1, search__space={"learning_rate": 0.5}), "other.yaml"
    tune.write(other, ledger="sqlite:///runs/ledger.db")
    for command in (("plan", "--no-timing"), ("run", "--local"), ("train", "--local")):
        assert "[dataset-cap-exceeded]" in tune(command[0], file, *command[1:], code=3).text
        assert "[ledger-not-shared]" in tune(command[0], other, *command[1:], code=2).text
    assert tune.sweeps == []
    tune("budget", "set", "digits", "--epsilon", "30", "--delta", "1e-4")
    sweep = tune("run", tune.write(search__trials=1), "--local", "--json").json["sweep"]
    more = ("resume", "tiny", "--set", "search.trials=2", "--local", "--quiet")
    monkeypatch.setenv(variable, f"sqlite:///{tune.folder}/another.db")
    for command in (more, ("run", "tiny.yaml", "--resume", "--local", "--set", "search.trials=2")):
        assert "[ledger-not-shared]" in tune(*command, code=2).text
    assert not (tune.folder / "another.db").exists()
    monkeypatch.delenv(variable)
    tune(*more)
    assert Ledger.open(shared, create=False).search_state(sweep).leased_steps == 2 * STEPS
    assert not (tune.folder / "dp-tuner" / "ledger.db").exists()


# PostgreSQL.


def test_every_command_works_on_a_ledger_in_postgresql(bare: Tune, postgres: PostgresServer) -> None:
    url = postgres.emptied()
    where = ("--ledger", url)
    assert "[no-ledger]" in bare("budget", "show", *where, code=2).err
    bare(*SET, *where)
    bare("budget", "grant", "digits", postgres.admin, "--epsilon", "2", "--delta", "1e-5", *where)
    assert Ledger.open(url).user() == postgres.admin
    shown = bare("budget", "show", *where, "--json").json
    assert (shown["ledger"], shown["datasets"][0]["cap"]["epsilon"]) == (url, 10.0)
    bare("budget", "report", "digits", "--out", "a.html", *where)
    assert postgres.admin in Path("a.html").read_text()
    bare("budget", "revoke", "digits", postgres.admin, *where)
    refused = bare("budget", "--ledger", "postgresql://me:secret@h/db", code=2)
    assert "[ledger-url-password]" in refused.err
    assert "secret" not in refused.err
    assert "Check that the server runs" in bare("budget", "--ledger", "postgresql://me@127.0.0.1:9/db", code=1).err


def test_a_sweep_with_its_ledger_in_postgresql_runs_and_its_card_holds(tune: Tune, postgres: PostgresServer) -> None:
    url = postgres.emptied()
    report = tune("run", tune.write(search__trials=2, ledger=url), "--local", "--json").json
    assert report["state"] == "done"
    state = Ledger.open(url, create=False).search_state(report["sweep"])
    assert (state.user, state.leased_steps, state.status) == (postgres.admin, 2 * STEPS, "closed")
    tune("export", "tiny")
    tune("verify", "exports/tiny/privacy_card.json")
    assert url in (tune.sweeps[0] / "experiment.yaml").read_text()
    assert not (tune.folder / "dp-tuner" / "ledger.db").exists()


# `tune run --dataset-cap`


def test_a_run_sets_the_cap_of_its_data_set_before_it_is_opened(tune: Tune) -> None:
    run = ("run", tune.write(), "--local", "--quiet")
    assert "at most ε = 9, δ = 1e-05, which is the cap" in tune(*run, "--dataset-cap", "9").text
    assert tune.entries[:2] == ["cap", "open_search"]
    for other in ("9.5", "9,1e-4"):
        assert "[dataset-cap-differs]" in tune(*run, "--dataset-cap", other, code=2).err
    assert "[dataset-cap-exceeded]" in tune(*run, "--dataset-cap", "9,1e-5", code=3).err
    assert tune.entries.count("open_search") == tune.entries.count("cap") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--dataset-cap", "8"), "dataset-cap-invalid"),
        (("--dataset-cap", "nine"), "dataset-cap-invalid"),
        (("--dataset-cap", "1,2,3"), "dataset-cap-invalid"),
        (("--dataset-cap", "nan"), "dataset-cap-invalid"),
        (("--dataset-cap", "9,2"), "dataset-cap-invalid"),
        (("--dataset-cap", "9", "--dry-run"), "options-conflict"),
        (("--dataset-cap", "9", "--set", "privacy.private=false"), "dataset-cap-not-private"),
    ],
)
def test_a_cap_that_cannot_be_set_makes_no_ledger(bare: Tune, words: tuple[str, ...], code: str) -> None:
    assert f"[{code}]" in bare("run", bare.write(), "--local", *words, code=2).err
    assert not (bare.folder / "dp-tuner" / "ledger.db").exists()


def test_a_cap_below_what_is_committed_is_not_set(charged: Tune) -> None:
    assert "[dataset-cap-exceeded]" in charged("run", "tiny.yaml", "--local", "--dataset-cap", "16", code=3).err
    assert "cap" not in charged.entries


def test_two_first_runs_set_one_cap(tmp_path: Path) -> None:
    ledgers = [Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") for _ in range(2)]
    assert ledgers[0].set_first_cap("d", 3.0, 1e-5) is None
    earlier = ledgers[1].set_first_cap("d", 4.0, 1e-5)
    assert earlier is not None
    assert (earlier.epsilon, ledgers[1].cap("d").epsilon) == (3.0, 3.0)
