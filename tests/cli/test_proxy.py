"""A public proxy of a charged search: its records are searched first, at no cost, and guide the charged search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import STEPS, Died, Tune, dies, raising_at, run_until_death

from trainables.training import PrivateTraining, TrainingSpec
from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.runner import proxy as proxies
from tuner.runner import start
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.sweep_study import search_setting

ENTRIES = ["open_search", *["reserve", "lease", "lease", "settle"] * 3, "close_search"]


@pytest.fixture
def proxy(public: dict[str, object]) -> dict[str, object]:
    """Changes of the tiny file that give its open search a proxy of two trials."""
    declared: Any = public["search__public"]
    return {
        **public,
        "privacy__accounting": "composition",
        "search__sampler": "surrogate",
        "search__pruner": "none",
        "search__public": {**declared, "trials": 2},
    }


def only(tune: Tune) -> SweepFolder:
    (root,) = tune.sweeps
    return SweepFolder(root)


def noted(patch: pytest.MonkeyPatch) -> list[TrainingSpec]:
    """Return a list to which every training that starts adds its specification."""
    specs: list[TrainingSpec] = []
    real = PrivateTraining.__init__

    def init(training: PrivateTraining, spec: TrainingSpec, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        specs.append(spec)
        real(training, spec, *arguments, **more)

    patch.setattr(PrivateTraining, "__init__", init)
    return specs


def test_the_public_records_are_searched_first_at_no_cost_and_guide_the_committed_run(
    tune: Tune, proxy: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = noted(monkeypatch)
    tune("run", tune.write(**proxy, search__commit=0.2), "--local", "--quiet")
    search = only(tune)
    on = [spec.dataset.name for spec in specs]
    assert on == ["open", "open", "digits", "digits", "digits", "digits"]
    committed = specs[-1]
    for spec in specs[:2]:
        assert (spec.steps, spec.batch_size, spec.noise_multiplier) == (
            committed.steps, committed.batch_size, committed.noise_multiplier
        )  # fmt: skip
    state = tune.search_state(search.id)
    plan = json.loads(search.plan.read_text())["commit"]
    assert state.leased_steps == plan["search_steps"] + plan["steps"], "no step on public records is charged"
    assert tune.entries.count("open_search") == 1
    assert (state.details["proxy_search"]["sweep"], state.details["proxy_search"]["trials"]) == (search.proxy.id, 2)

    experiment = load_experiment(search.experiment)
    setting = search_setting(experiment, (5, 10), plan_from(sweeps.read_json(search.plan), trials=3), search)
    assert {(each.source, each.fraction) for each in setting.public} == {("public", 1.0)}
    assert [each.noise for each in setting.public] == pytest.approx([setting.final({})] * 2)

    shown = tune("status", "--json").json["sweeps"]
    assert [(each["sweep"], each["budget"] is None) for each in shown] == [(search.id, False), (search.proxy.id, True)]
    assert "nothing is claimed" in shown[1]["claim"]
    runs = [run.data for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-"]
    assert {run.tags["dp_tuner.sweep"]: run.params["dataset.name"] for run in runs} == {
        search.id: "digits", search.proxy.id: "open",
    }  # fmt: skip
    told = tune("export", "tiny-public", "--out", "exports/tiny", "--json").json
    assert told["sweep"] == search.id, "the proxy has no guarantee, so its charged search is exported"
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    assert (card["claim"]["mode"], card["public_search"]["dataset"]) == ("composition", "open")
    assert card["public_search"]["label"].startswith("ASSUMED")


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before the first public trial", "in the second public trial", "before the ledger"])
def test_a_search_that_died_before_its_first_charge_resumes_its_public_part_once(
    tune: Tune, proxy: dict[str, object], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with monkeypatch.context() as patch:
        if at == "in the second public trial":
            raising_at(patch, 3, Died)
        elif at == "before the ledger":
            patch.setattr(start, "enter", dies)
        else:
            patch.setattr(proxies, "run_open", dies)
        run_until_death(tune.write(**proxy))
    assert "open_search" not in tune.entries, "nothing is charged"
    assert only(tune).proxy_search.exists() == (at == "before the ledger")
    specs = noted(monkeypatch)
    # A proxy is resumed with the search that it belongs to.
    tune("resume", "tiny-public" if at == "in the second public trial" else "tiny", "--local", "--quiet")
    assert [spec.dataset.name for spec in specs].count("digits") == 3
    assert len(tune("show", "tiny-public", "--json").json["trials"]) == 2
    assert tune.entries == ENTRIES
    assert tune.search_state(only(tune).id).leased_steps == 3 * STEPS
    assert "nothing to do" in tune("resume", "tiny-public", "--local").out


def test_a_proxy_that_is_stopped_charges_nothing_and_the_search_shows_its_state(
    tune: Tune, proxy: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PrivateTraining.run_to

    def stopping(training: PrivateTraining, step: int) -> None:
        tune("stop", "tiny")
        real(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", stopping)
        said = tune("run", tune.write(**proxy), "--local")
    assert "The charged search has not started" in said.out
    assert "open_search" not in tune.entries
    assert [each["state"] for each in tune("status", "--json").json["sweeps"]] == ["stopped", "stopped"]
    tune("resume", "tiny", "--local", "--quiet")
    assert tune.entries == ENTRIES


def test_what_cannot_be_a_proxy_is_refused_before_anything_is_charged(tune: Tune, proxy: dict[str, object]) -> None:
    def refused(code: int = 2, **changes: object) -> str:
        said = tune("run", tune.write(**{**proxy, **changes}), "--local", code=code).err
        assert (tune.sweeps, tune.entries) == ([], [])
        return said

    assert "[public-data-unused]" in refused(search__sampler="tpe")
    assert "[public-data-unused]" in refused(privacy__accounting="selection")
    assert "[public-trials-given-twice]" in refused(privacy__accounting="public")
    assert "[priced-with-public]" in refused(search__space={"learning_rate": 1.0, "batch_size": {"choice": [64, 128]}})
    assert "[public-data-shape]" in refused(search__public={"name": "mnist"})
    assert "[public-data-private]" in refused(search__public={"name": "digits"})
    flat, labels = np.zeros((100, 8, 8), dtype=np.uint8), np.arange(100) % 10
    np.savez(tune.folder / "flat.npz", x_train=flat, y_train=labels, x_test=flat[:10], y_test=labels[:10])
    assert "[public-records-shape]" in refused(search__public={"name": "open", "path": "flat.npz", "public_size": 200})
    tune("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-4")
    tune("run", tune.write(**proxy), "--local", code=3)
    assert tune.sweeps == [], "a search that has no room does not search the public records either"


def test_a_proxy_search_is_kept_when_the_charged_search_is_refused(
    tune: Tune, proxy: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-3")
    real = start.enter

    def after_another(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        tune("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-4")
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(start, "enter", after_another)
        said = tune("run", tune.write(**proxy), "--local", code=3)
    search = only(tune)
    assert search.proxy.whole
    assert f"The public search is kept. To charge the search later, use: tune resume {search.id} --local" in said.text
    tune("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-3")
    specs = noted(monkeypatch)
    tune("resume", "tiny", "--local", "--quiet")
    assert {spec.dataset.name for spec in specs} == {"digits"}
    assert tune.search_state(search.id).status == "closed"
