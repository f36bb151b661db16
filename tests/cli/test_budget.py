"""The caps hold: of the search, of the data set, and what is refused leaves nothing behind."""

from __future__ import annotations

import os
import pwd
import re
import sqlite3
from pathlib import Path

import pytest
from command_fakes import STEPS, Tune
from ledgers import head_of
from postgres_server import PostgresServer

from tuner.privacy.accountant.filters import FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.ledger import Ledger

ME = pwd.getpwuid(os.geteuid()).pw_name
SET = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")


def test_a_tenth_of_the_epsilon_starts_fewer_trials_and_passes_no_cap(tune: Tune) -> None:
    whole = tune("run", tune.write(search__trials=4), "--local", "--json").json
    tenth = tune("run", tune.write(search__trials=4, privacy__epsilon=0.85), "--local", "--json").json
    assert (whole["state"], len(whole["trials"])) == ("done", 4)
    assert (tenth["state"], len(tenth["trials"])) == ("budget reached", 1)
    for report, cap in ((whole, 8.5), (tenth, 0.85)):
        state = tune.search_state(report["sweep"])
        assert report["budget"]["epsilon_cap"] == state.epsilon == cap
        assert report["budget"]["epsilon_spent"] <= cap
        assert state.leased_steps <= state.filter.step_cap
        assert state.status == "closed"
    assert tune.search_state(tenth["sweep"]).leased_steps == STEPS


def test_an_epsilon_that_no_trial_fits_is_refused_and_leaves_nothing(bare: Tune) -> None:
    said = bare("run", bare.write(privacy__epsilon=0.05), "--local", code=3)
    assert "[budget-too-small]" in said.err
    assert bare.entries == []
    assert bare.sweeps == []
    assert bare.mlflow_runs() == []


@pytest.mark.parametrize("first_use", [True, False], ids=["set before any search", "set after the first"])
def test_the_cap_of_the_data_holds_over_searches(tune: Tune, first_use: bool) -> None:
    file = tune.write(search__trials=1)
    set_cap = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")
    if first_use:
        tune(*set_cap)
    tune("run", file, "--local", "--quiet")
    if not first_use:
        tune(*set_cap)
    folders, entries, runs = tune.sweeps, tune.entries, len(tune.mlflow_runs())
    refused = tune("run", file, "--local", code=3)
    assert "digits" in refused.err
    assert "10" in refused.err
    assert (tune.sweeps, tune.entries, len(tune.mlflow_runs())) == (folders, entries, runs)
    shown = tune("budget", "--json").json["datasets"][0]
    assert shown["committed"]["epsilon"] == 8.5
    assert shown["cap"] == {"epsilon": 10.0, "delta": 1e-4}
    assert len(shown["searches"]) == 1
    tune(*set_cap[:4], "20", *set_cap[5:])
    tune("run", file, "--local", "--quiet")


def test_the_second_search_sees_the_first_in_the_total_of_the_data(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune("run", file, "--local", "--quiet")
    assert "1 search, committed ε = 8.5" in tune("plan", file, "--no-timing").text
    assert "2 searches, committed ε = 17" in tune("run", file, "--local").text


def test_a_cap_is_set_for_the_owner_of_the_records(bare: Tune) -> None:
    said = bare("budget", "set", "cifar10_10k2k", "--epsilon", "3", "--delta", "1e-5")
    assert "cifar10: " in said.out
    assert [each["dataset"] for each in bare("budget", "--json").json["datasets"]] == ["cifar10"]
    assert "no search has used it" in bare("budget", "set", "ours", "--epsilon", "3", "--delta", "1e-5").out


@pytest.mark.parametrize("epsilon", ["nan", "inf", "-1", "0"])
def test_a_cap_that_is_no_budget_is_refused_before_there_is_a_ledger(bare: Tune, epsilon: str) -> None:
    said = bare("budget", "set", "digits", "--epsilon", epsilon, "--delta", "1e-5", code=2)
    assert "epsilon" in said.err
    assert not (bare.folder / "runs").exists()


def test_the_budget_of_no_ledger_is_no_empty_budget(bare: Tune) -> None:
    assert "[no-ledger]" in bare("budget", code=2).err
    assert not (bare.folder / "runs").exists(), "looking makes nothing"


def test_a_plan_says_that_the_cap_of_the_data_would_refuse_it(tune: Tune) -> None:
    file = tune.write()
    tune("budget", "set", "digits", "--epsilon", "8", "--delta", "1e-4")
    said = tune("plan", file, "--no-timing", code=3)
    assert "[dataset-cap-exceeded]" in said.err
    assert "next: tune run" not in said.out
    values = tune("plan", file, "--no-timing", "--json", code=3).json
    assert values["dataset_cap"].items() >= {"epsilon": 8.0, "delta": 1e-4}.items()
    assert "[dataset-cap-exceeded]" in values["refused"]
    tune("budget", "set", "digits", "--epsilon", "9", "--delta", "1e-4")
    assert tune("plan", file, "--no-timing", "--json").json["refused"] is None


# An order beside the sum.


def test_an_order_is_fixed_said_and_kept(bare: Tune) -> None:
    said = bare(*SET, "--order", "6")
    assert "order 6" in said.out
    assert "δ is split between two rules" in said.out
    assert "5e-05" in said.out
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
    assert f"The order is {said['order']:g}" in said["notes"][0]


def test_an_order_stays_while_a_search_counts(bare: Tune) -> None:
    bare(*SET, "--order", "6")
    ledger = Ledger.open(bare.ledger_url)
    steps = TotalSteps(SampledGaussian(0.05, 2.0), 100)
    ledger.open_search("digits", "one", filter=steps, epsilon=2.0, delta=1e-5)
    for order in ("7", "none", "auto"):
        before = head_of(ledger)
        assert "order" in bare(*SET, "--order", order, code=3).err
        assert head_of(ledger) == before
    bare(*SET)
    ledger.close_search("one")
    assert "order 7" in bare(*SET, "--order", "7").out


@pytest.mark.parametrize("order", ["1", "0.5", "-3", "nan", "inf", "1e9", "first", "", "1.05"])
def test_an_order_at_which_nothing_is_bounded_or_admitted_is_refused(bare: Tune, order: str) -> None:
    assert "order" in bare(*SET, "--order", order, code=2).err
    assert bare.entries == []


def test_a_cap_under_which_no_order_admits_anything(bare: Tune) -> None:
    tiny = ("budget", "set", "digits", "--epsilon", "0.001", "--delta", "1e-9")
    assert "admits nothing" in bare(*tiny, "--order", "auto", code=2).err
    assert bare.entries == []


# Shares.


def test_a_share_lets_its_user_in_up_to_it_and_nobody_else(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune(*SET[:4], "40", *SET[5:])
    said = tune("budget", "grant", "digits", "somebody", "--epsilon", "9", "--delta", "1e-5")
    assert "only users with a share" in said.out
    refused = tune("run", file, "--local", code=3)
    assert "[no-share]" in refused.err
    assert "tune budget grant digits" in refused.err
    assert tune.sweeps == []

    assert (
        "only users with a share" not in tune("budget", "grant", "digits", ME, "--epsilon", "9", "--delta", "1e-5").out
    )
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
    text = tune("budget", "show", "digits").out
    assert f"{ME}: granted ε = 9, δ = 1e-05; committed ε = 8.5, δ = 1e-05; left ε = 0.5, δ = 0" in text

    assert "can start nothing more" in tune("budget", "revoke", "digits", ME).out
    tune("budget", "grant", "digits", "somebody", "--epsilon", "30", "--delta", "2e-5")
    assert "have committed more" in tune("budget", "grant", "digits", ME, "--epsilon", "1", "--delta", "1e-5").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("grant", "digits", "alice", "--epsilon", "11", "--delta", "1e-5"), 3, "11"),
        (("grant", "digits", "alice", "--epsilon", "1", "--delta", "1e-3"), 3, "0.001"),
        (("grant", "digits", "alice", "--epsilon", "nan", "--delta", "1e-5"), 2, "epsilon"),
        (("grant", "digits", "alice", "--epsilon", "inf", "--delta", "1e-5"), 2, "epsilon"),
        (("grant", "digits", "alice", "--epsilon", "0", "--delta", "1e-5"), 2, "epsilon"),
        (("grant", "digits", "alice", "--epsilon", "1", "--delta", "0"), 2, "delta"),
        (("grant", "digits", "", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("grant", "digits", "a\nb", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("grant", "digits", "a\udcff", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("grant", "digit", "alice", "--epsilon", "1", "--delta", "1e-5"), 2, "Did you mean digits?"),
        (("grant", "digits", "--epsilon", "1", "--delta", "1e-5"), 2, "USER"),
        (("revoke", "digits", "alice"), 1, "alice"),
        (("revoke", "digit", "alice"), 2, "Did you mean digits?"),
        (("show", "digit"), 2, "Did you mean digits?"),
        (("report", "digit", "--out", "a.html"), 2, "Did you mean digits?"),
        (("report", "digits", "--out", "no/such/folder/a.html"), 2, "[output-path-invalid]"),
        (("report", "digits", "--out", "."), 2, "[output-path-invalid]"),
        (("report", "digits"), 2, "--out"),
        (("set", "", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("set", "a\udcff", "--epsilon", "1", "--delta", "1e-5"), 2, "[ledger-name-invalid]"),
        (("set", "digits", "--epsilon", "1", "--delta", "1"), 2, "delta"),
        (("set", "digits", "--epsilon", "much", "--delta", "1e-5"), 2, "much"),
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
    assert sorted(path.name for path in bare.folder.iterdir()) == ["runs"]


@pytest.mark.parametrize(
    "words",
    [
        ("grant", "digits", "a", "--epsilon", "1", "--delta", "1e-5"),
        ("revoke", "digits", "a"),
        ("show",),
        ("report", "digits", "--out", "a.html"),
    ],
)
def test_only_set_makes_a_ledger(bare: Tune, words: tuple[str, ...]) -> None:
    assert "[no-ledger]" in bare("budget", *words, code=2).err
    assert list(bare.folder.iterdir()) == []


def test_a_share_needs_a_cap(bare: Tune) -> None:
    ledger = Ledger.open(bare.ledger_url)
    ledger.open_search("digits", "one", filter=TotalSteps(SampledGaussian(0.05, 2.0), 100), epsilon=2.0, delta=1e-5)
    assert "cap" in bare("budget", "grant", "digits", "alice", "--epsilon", "1", "--delta", "1e-5", code=3).err


# What people read.


def test_what_is_shown_names_user_unit_mode_and_cap(bare: Tune) -> None:
    bare(*SET)
    ledger = Ledger.open(bare.ledger_url)
    ledger.open_search("digits", "one", filter=TotalSteps(SampledGaussian(0.05, 2.0), 100), epsilon=2.0, delta=1e-5)
    ledger.reserve("one", "a", 10)
    ledger.lease("one", "a", 4, SampledGaussian(0.05, 2.0))
    text = bare("budget", "show", "digits").text
    assert "left: ε = 8, δ = 9e-05" in text
    assert f"one open {ME} per record, composition cap ε = 2, δ = 1e-05 1 trial, 4 of 100 steps" in text
    assert "odometer, not a guarantee: the guarantee is the cap" in text
    (search,) = bare("budget", "--json").json["datasets"][0]["searches"]
    wanted = {"user": ME, "unit": "record", "mode": "composition", "cap_kind": "total_steps", "step_cap": 100}
    assert search.items() >= {**wanted, "steps_spent": 4, "steps_reserved": 6, "status": "open"}.items()


def test_a_lowered_cap_is_not_shown_as_what_holds(bare: Tune) -> None:
    bare(*SET)
    ledger = Ledger.open(bare.ledger_url)
    ledger.open_search("digits", "one", filter=TotalSteps(SampledGaussian(0.05, 2.0), 100), epsilon=6.0, delta=1e-5)
    assert bare("budget", "--json").json["datasets"][0]["guarantee"] == {"epsilon": 10.0, "delta": 1e-4}
    assert "No new search can start" in bare(*SET[:4], "2", *SET[5:]).out
    (shown,) = bare("budget", "--json").json["datasets"]
    assert (shown["over"], shown["guarantee"]) == (True, {"epsilon": 6.0, "delta": 1e-4})
    assert "what holds is not the cap but ε = 6, δ = 0.0001" in bare("budget").text


def test_a_sealed_search_shows_its_day_and_its_claim_and_nothing_else(bare: Tune) -> None:
    bare(*SET)
    ledger = Ledger.open(bare.ledger_url)
    step = SampledGaussian(0.05, 2.0)
    law = RunLaw(name="geometric", mean=4.0, shape=1.0)
    ledger.open_search("digits", "secret", filter=Sealed(law, 200, ((step, 10),)), epsilon=4.0, delta=1e-5)

    def shown() -> tuple[dict[str, object], str]:
        (values,) = bare("budget", "show", "--json").json["datasets"]
        bare("budget", "report", "digits", "--out", "a.html")
        page = (bare.folder / "a.html").read_text()
        changing = [
            values.pop("head"),
            *re.findall(r"as of [^,]*,|unbroken, on [^<]*|src=\"[^\"]*\"", page),
        ]
        for each in map(str, changing):
            page = page.replace(each, "")
        return values, page

    ledger.begin_sealed("secret")
    running = shown()
    ledger.close_search("secret")
    ledger.record_card("secret", "ab" * 32, "release")
    assert shown() == running
    (search,) = running[0]["searches"]  # type: ignore[misc]
    assert (search["status"], search["epsilon"], len(search["opened"])) == ("sealed", 4.0, len("2026-03-02"))
    assert running[0]["entries"] is None
    assert "200" not in bare("budget").text, "nor how its runs are counted"


def test_the_report_is_a_page_that_says_what_the_ledger_says(bare: Tune) -> None:
    bare(*SET)
    bare("budget", "grant", "digits", "<b>eve</b>", "--epsilon", "1", "--delta", "1e-5")
    said = bare("budget", "report", "digits", "--out", "budget.html", "--json").json
    page = (bare.folder / "budget.html").read_text()
    head = head_of(Ledger.open(bare.ledger_url))[1]
    assert head == said["head"]
    assert f"<td>{head}</td>" in page
    assert "&lt;b&gt;eve&lt;/b&gt; was granted a share of ε = 1" in page
    assert "<b>eve" not in page
    assert [line["what"] for line in said["history"]] == ["cap", "share"]
    assert "unbroken" in bare("budget", "report", "digits", "--out", "budget.html").out


def test_a_broken_chain_has_no_report(bare: Tune) -> None:
    bare(*SET)
    with sqlite3.connect(bare.folder / "runs" / "ledger.db") as raw:
        raw.execute("DROP TRIGGER entries_are_final")
        raw.execute("UPDATE entries SET time = '2020-01-01T00:00:00+00:00'")
    assert "entry 1" in bare("budget", "report", "digits", "--out", "budget.html", code=1).err
    assert not (bare.folder / "budget.html").exists()


def test_the_ledger_may_be_named_before_or_after_the_command(bare: Tune) -> None:
    url = f"sqlite:///{bare.folder}/elsewhere.db"
    bare(*SET, "--ledger", url)
    shown = [bare("budget", "--ledger", url, "show", "--json"), bare("budget", "show", "--ledger", url, "--json")]
    assert shown[0].json == shown[1].json
    assert shown[0].json["ledger"] == url


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
    assert not (tune.folder / "runs" / "ledger.db").exists()
