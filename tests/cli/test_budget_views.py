"""What every view of a budget says: of a search, of a data set, and of all searches on it."""

from __future__ import annotations

import html
import os
import pwd
import re
import sqlite3
from pathlib import Path

import pytest
from command_fakes import Tune
from ledgers import head_of

from tuner.privacy.accountant.filters import Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.ledger import Ledger

ME = pwd.getpwuid(os.geteuid()).pw_name
STEP = SampledGaussian(0.05, 2.0)
SET = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")


def opened(tune: Tune, epsilon: float) -> Ledger:
    """A ledger with one search of a hundred steps."""
    ledger = Ledger.open(tune.ledger_url)
    ledger.open_search("digits", "one", filter=TotalSteps(STEP, 100), epsilon=epsilon, delta=1e-5)
    return ledger


def test_what_is_shown_names_user_unit_mode_and_cap(bare: Tune) -> None:
    ledger = opened(bare, 6.0)
    assert "cap" in bare("budget", "grant", "digits", "alice", "--epsilon", "1", "--delta", "1e-5", code=3).err
    bare(*SET)
    ledger.reserve("one", "a", 10)
    ledger.lease("one", "a", 4, STEP)
    assert "for information, not a guarantee: the guarantee is the cap" in bare("budget", "show", "digits").text
    (dataset,) = bare("budget", "--json").json["datasets"]
    wanted = {"user": ME, "unit": "record", "mode": "composition", "cap_kind": "total_steps", "step_cap": 100}
    (search,) = dataset["searches"]
    assert search.items() >= {**wanted, "steps_spent": 4, "steps_reserved": 6, "status": "open"}.items()
    assert dataset["guarantee"] == {"epsilon": 10.0, "delta": 1e-4}
    bare(*SET[:4], "2", *SET[5:], "--yes")
    (lowered,) = bare("budget", "--json").json["datasets"]
    assert (lowered["over"], lowered["guarantee"]) == (True, {"epsilon": 6.0, "delta": 1e-4})


def test_a_sealed_search_shows_its_day_and_its_claim_and_nothing_else(bare: Tune) -> None:
    bare(*SET)
    ledger = Ledger.open(bare.ledger_url)
    law = RunLaw(name="geometric", mean=4.0, shape=1.0)
    ledger.open_search("digits", "secret", filter=Sealed(law, 200, ((STEP, 10),)), epsilon=4.0, delta=1e-5)

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

    ledger.begin_sealed("secret", "0" * 64)
    running = shown()
    ledger.close_search("secret")
    ledger.record_card("secret", "ab" * 32, "release")
    assert shown() == running
    (search,) = running[0]["searches"]  # type: ignore[misc]
    assert (search["status"], search["epsilon"], len(search["opened"])) == ("sealed", 4.0, len("2026-03-02"))
    assert running[0]["entries"] is None
    assert "200" not in bare("budget").text, "nor how its runs are counted"


def test_the_report_says_what_the_ledger_says_and_a_broken_chain_has_none(bare: Tune) -> None:
    bare(*SET)
    bare("budget", "grant", "digits", "<b>eve</b>", "--epsilon", "1", "--delta", "1e-5")
    said = bare("budget", "report", "digits", "--out", "budget.html", "--json").json
    page = (bare.folder / "budget.html").read_text()
    head = head_of(Ledger.open(bare.ledger_url))[1]
    assert head == said["head"]
    assert f"<td>{head}</td>" in page
    assert "&lt;b&gt;eve&lt;/b&gt; was granted a share of ε = 1" in page
    assert [line["what"] for line in said["history"]] == ["cap", "share"]
    with sqlite3.connect(bare.folder / "dp-tuner" / "ledger.db") as raw:
        raw.execute("DROP TRIGGER entries_are_final")
        raw.execute("UPDATE entries SET time = '2020-01-01T00:00:00+00:00'")
    assert "entry 1" in bare("budget", "report", "digits", "--out", "broken.html", code=1).err
    assert not (bare.folder / "broken.html").exists()


# What is claimed of one search and of all, as every view says it first.


def first_lines(tune: Tune) -> dict[str, str]:
    """The first line of every view of the newest sweep, which is exported."""
    name = tune.sweeps[-1].name
    exported = tune("export", name, "--out", f"shown-{name}").text
    tune("report", name, "--out", "page.html")
    page = " ".join(re.sub("<[^>]+>", " ", Path("page.html").read_text().partition("<body>")[2]).split())
    views = {
        "export": exported,
        "plan": tune("plan", "tiny.yaml", "--no-timing").text,
        "watch": tune("watch", name).text,
        "status": tune("status", name, "--json").json["sweeps"][0]["claim"],
        "report": html.unescape(page),
        "card": Path(f"shown-{name}/privacy_card.md").read_text().split("\n\n")[2].replace("\\", ""),
        "show": tune("show", name).text,
        "show a trial": tune("show", name, "0").text,
        "verify": tune("verify", f"shown-{name}/privacy_card.json").text,
        "budget": tune("budget", "show", "digits").text,
    }
    return {view: text.replace(str(tune.folder), "") for view, text in views.items()}  # however long its path is


@pytest.mark.slow
def test_every_view_says_first_of_how_many_searches_it_claims(charged: Tune) -> None:
    said = first_lines(charged)
    for name, text in said.items():
        shown = text[:400]
        assert "ONE" in shown, name
        assert "digits has no cap: 1 search so far, ε = 8.5, δ = 1e-05 in total" in shown, name
        assert "tune budget set digits --epsilon E --delta D" in text[:500], name
    charged("budget", "set", "digits", "--epsilon", "30", "--delta", "1e-4")
    run = charged("run", "tiny.yaml", "--local", "--quiet").text
    total = "(2 searches so far, ε = 17, δ = 2e-05)"
    capped = f"ALL searches on digits together: at most ε = 30, δ = 0.0001, which is the cap {total}."
    assert run.count(capped) == 2, "the live view and the summary"
    for name, text in first_lines(charged).items():
        assert capped in text[:400], name
        assert "has no cap" not in text, name


def test_a_search_that_claims_nothing_says_so_first(tune: Tune) -> None:
    said = tune("plan", tune.write(), "--no-timing", "--set", "privacy.private=false").text
    assert said.startswith("NOT PRIVATE: nothing is claimed")


def test_a_damaged_data_set_is_named_by_every_view_and_the_others_go_on(charged: Tune) -> None:
    charged("export", "tiny")
    url = f"sqlite:///{charged.folder / 'dp-tuner' / 'ledger.db'}"
    Ledger.open(url).set_cap("mnist", 1.0, 1e-5)
    with sqlite3.connect(charged.folder / "dp-tuner" / "ledger.db") as raw:
        raw.execute("DROP TRIGGER entries_are_final")
        raw.execute("UPDATE entries SET body = replace(body, '1.0', '2.0') WHERE dataset = 'mnist'")
    shown = charged("budget", "show")
    assert "mnist: DAMAGED" in shown.out
    assert "digits: " in shown.out
    assert list(charged("budget", "show", "--json").json["damaged"]) == ["mnist"]
    assert "[ledger-chain-broken]" in charged("budget", "show", "mnist", code=1).err
    assert "[ledger-chain-broken]" in charged("budget", "set", "mnist", "--epsilon", "2", "--delta", "1e-5", code=1).err
    said = charged("verify", "exports/tiny/privacy_card.json")
    assert "DAMAGED in the same ledger" in said.text
    charged("budget", "report", "digits", "--out", "page.html")
    assert "The data set mnist in the same ledger is damaged" in (charged.folder / "page.html").read_text()
    charged("budget", "report", "mnist", "--out", "none.html", code=1)
    assert not (charged.folder / "none.html").exists()
    charged("resume", "tiny", "--local", "--set", "search.trials=3")
