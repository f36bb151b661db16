"""What people read of a budget: which number does not fit, whose share it is, and what holds without a cap."""

from __future__ import annotations

import os
import pwd

import pytest
from command_fakes import Tune

from tuner.errors import BudgetRefusedError
from tuner.privacy.accountant.filters import Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.ledger import Ledger

ME = pwd.getpwuid(os.geteuid()).pw_name
SET = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")
STEP = SampledGaussian(0.05, 2.0)
LAW = RunLaw(name="geometric", mean=4.0, shape=1.0)


@pytest.mark.parametrize(("name", "near"), [("diggits", "digits"), ("mnisst", "mnist"), ("CIFAR10", "cifar10")])
def test_a_name_that_looks_misspelt_needs_a_word_more(bare: Tune, name: str, near: str) -> None:
    """A cap is never taken back, so that a slip of the finger would stay in the ledger."""
    cap = ("budget", "set", name, "--epsilon", "3", "--delta", "1e-5")
    said = bare(*cap, code=2)
    assert f"Did you mean {near}?" in said.err
    assert "[dataset-unknown]" in said.err
    assert not (bare.folder / "runs").exists()
    assert f"{name}: " in bare(*cap, "--new").out
    assert bare.entries == ["cap"]
    bare(*cap)  # now it is known


def test_a_name_is_held_against_those_of_the_ledger_too(bare: Tune) -> None:
    bare("budget", "set", "patients", "--epsilon", "3", "--delta", "1e-5")
    assert (
        "Did you mean patients?" in bare("budget", "set", "pateints", "--epsilon", "3", "--delta", "1e-5", code=2).err
    )
    assert "Did you mean patients?" in bare("budget", "show", "pateints", code=2).err
    assert "Did you mean" not in bare("budget", "show", "iris", code=2).err


def test_when_the_last_share_is_gone_it_is_said_that_nobody_can_start(tune: Tune) -> None:
    tune(*SET[:4], "40", *SET[5:])
    nobody = "The cap stays divided, so nobody can start a search until a share is granted."
    for user in (ME, "bob"):
        tune("budget", "grant", "digits", user, "--epsilon", "9", "--delta", "1e-5")
    assert nobody not in tune("budget", "revoke", "digits", "bob").out
    said = tune("budget", "revoke", "digits", ME)
    assert f"The share of {ME} is revoked" in said.out
    assert nobody in said.out
    for text in (said.text, tune("budget", "show", "digits").text):
        assert f"{ME}: share revoked; committed ε = 0, δ = 0" in text
        assert "granted" not in text.replace("is granted", "")
    assert "(it was revoked)" in tune("run", tune.write(), "--local", code=3).err
    told = tune("plan", tune.write(), "--no-timing", code=3).text
    assert f"your share ({ME}) revoked: you can start no search until a share is granted" in told
    tune("budget", "report", "digits", "--out", "a.html")
    page = (tune.folder / "a.html").read_text()
    assert ">share revoked</td>" in page
    assert "Every share was revoked" in page


def test_a_plan_tells_the_share_of_who_asks(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    assert "your share" not in tune("plan", file, "--no-timing").out
    tune(*SET[:4], "40", *SET[5:])
    assert "your share" not in tune("plan", file, "--no-timing").out
    tune("budget", "grant", "digits", "somebody", "--epsilon", "9", "--delta", "1e-5")
    assert f"your share ({ME}) none: the cap is divided" in tune("plan", file, "--no-timing", code=3).text
    tune("budget", "grant", "digits", ME, "--epsilon", "10", "--delta", "3e-5")
    told = f"your share ({ME}) granted ε = 10, δ = 3e-05; left ε = "
    assert f"{told}10, δ = 3e-05" in tune("plan", file, "--no-timing").text
    tune("run", file, "--local", "--quiet")
    assert f"{told}1.5, δ = 2e-05" in tune("plan", file, "--no-timing", code=3).text


def test_a_refusal_names_the_number_that_does_not_fit(bare: Tune) -> None:
    bare(*SET)
    ledger = Ledger.open(bare.ledger_url)
    steps = TotalSteps(SampledGaussian(0.05, 2.0), 100)

    def refused(epsilon: float, delta: float) -> str:
        with pytest.raises(BudgetRefusedError) as error:
            ledger.open_search("digits", "one", filter=steps, epsilon=epsilon, delta=delta)
        return str(error.value)

    assert ". δ does not fit: 0.0002 > 0.0001 (ε would). Lower" in refused(5.0, 2e-4)
    assert ". ε does not fit: 11 > 10 (δ would). Lower" in refused(11.0, 1e-5)
    assert ". Neither fits: ε 11 > 10, δ 0.0002 > 0.0001. Lower" in refused(11.0, 2e-4)
    assert "10.0000001 > 10.0 (δ would)" in refused(10.0000001, 1e-5)
    granted = ("budget", "grant", "digits", ME, "--epsilon")
    assert "ε does not fit: 11 > 10 (δ would). Grant less" in bare(*granted, "11", "--delta", "1e-5", code=3).err
    bare(*granted, "5", "--delta", "1e-5")
    assert "δ does not fit: 2e-05 > 1e-05 (ε would)" in refused(5.0, 2e-5)
    bare("budget", "set", "ours", "--epsilon", "10", "--delta", "1e-4", "--order", "6")
    with pytest.raises(BudgetRefusedError, match=r"δ does not fit: 8e-05 > 5e-05 \(half of the cap's\) \(ε would\)"):
        ledger.open_search("ours", "two", filter=Sealed(LAW, 200, ((STEP, 10),)), epsilon=4.0, delta=8e-5)


def test_without_a_cap_nothing_is_said_of_one(bare: Tune) -> None:
    ledger = Ledger.open(bare.ledger_url)
    ledger.open_search("digits", "one", filter=TotalSteps(STEP, 100), epsilon=2.0, delta=1e-5)
    ledger.reserve("one", "a", 10)
    ledger.lease("one", "a", 4, STEP)
    shown = bare("budget", "show", "digits").text
    assert "(odometer, not a guarantee: no cap bounds all searches together)" in shown
    assert "at δ = 1e-05, that of all searches together" in shown
    assert "the guarantee is the cap" not in shown
    bare("budget", "report", "digits", "--out", "a.html")
    page = (bare.folder / "a.html").read_text()
    for said in (
        "guarantee (the cap)",
        "against the cap",
        "What the cap means",
        "The cap covers",
        "cap is not divided",
    ):
        assert said not in page
    for said in (
        "What holds without a cap",
        "each search has its own",
        "1 counts in what is committed",
        "The cap of a search covers the records",
        "no cap bounds all searches together",
    ):
        assert said in page
    bare(*SET)
    shown = bare("budget", "show", "digits").text
    assert "(odometer, not a guarantee: the guarantee is the cap)" in shown
    assert "at δ = 0.0001, the cap's" in shown
    bare("budget", "report", "digits", "--out", "a.html")
    assert "1 counts against the cap" in (bare.folder / "a.html").read_text()


def test_a_plan_says_how_a_cap_is_set_while_there_is_none(tune: Tune) -> None:
    file, other = tune.write(), tune.write("other.yaml", ledger=f"sqlite:///{tune.folder}/other.db")
    said = "no cap set: `tune budget set digits --epsilon E --delta D` bounds all searches together"
    assert said in tune("plan", file, "--no-timing").text
    assert f"--delta D --ledger sqlite:///{tune.folder}/other.db`" in tune("plan", other, "--no-timing").text
    tune(*SET)
    assert "no cap set" not in tune("plan", file, "--no-timing").text
    assert "no cap set" not in tune("plan", tune.write(privacy__private=False), "--no-timing").text
