"""A public proxy of a charged search: the public records are searched first, at no cost, and guide the charged search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import STEPS, Tune, dies, raising_at, run_until_death

from tuner.runner import start
from tuner.sweep.folder import SweepFolder

SURROGATE = {"privacy__accounting": "composition", "search__sampler": "surrogate", "search__pruner": "none"}


@pytest.fixture
def proxy(public: dict[str, object]) -> dict[str, object]:
    """Changes of the tiny file that give its open search a proxy of two trials."""
    declared = {**dict(public["search__public"]), "trials": 2}  # type: ignore[call-overload]
    return {**public, **SURROGATE, "search__public": declared}


def test_the_public_records_are_searched_first_at_no_cost_and_the_card_names_them(
    tune: Tune, proxy: dict[str, object]
) -> None:
    tune("run", tune.write(**proxy), "--local", "--json")
    (root,) = tune.sweeps
    search = SweepFolder(root)
    state = tune.search_state(search.id)
    assert (state.leased_steps, state.filter.step_cap) == (3 * STEPS, 3 * STEPS)
    shown = tune("status", "--json").json["sweeps"]
    assert [each["sweep"] for each in shown] == [search.id, search.proxy.id]
    print(json.dumps(shown, indent=1), tune.entries)
    runs = [run.data for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-"]
    print([run.params.get("dataset.name") for run in runs])
    tune("export", "tiny", "--json")
    print(tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"])
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    print(card["claim"]["mode"], card["public_search"])
