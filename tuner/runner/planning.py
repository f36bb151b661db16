"""The command `plan`. It reads no record: the wall time is estimated on random numbers."""

from __future__ import annotations

import math
import os
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from search_spaces import MINIMA
from tuner.errors import BudgetRefusedError
from tuner.plan.comparison import Comparison, compare
from tuner.report.facts import claim_headline
from tuner.report.plan_facts import minimum_facts, plan_text, plan_warnings, release_facts, search_facts
from tuner.report.text import console, plan_panel, sign_of_life
from tuner.runner.file_check import missing_data
from tuner.study.promotion import each_level
from tuner.sweep.addresses import check_addresses
from tuner.sweep.identity import naming_warnings
from tuner.sweep.own_machine import missing_gpus
from tuner.sweep.preflight import ReadySearch, check_model, prepare, running_own_model
from tuner.sweep.registration import preview, require_origin
from tuner.sweep.releases import release_to_use
from tuner.sweep.settings import split_of
from tuner.sweep.sweep_study import check_search
from tuner.sweep.trial_spec import training_spec

if TYPE_CHECKING:
    from tuner.privacy.ledger.state import DatasetState

__all__ = ["plan_command", "show_plan"]

_TIMED_STEPS = 3
_TIMED_SECONDS = 0.25


def plan_command(
    file: str, overrides: Sequence[str], *, data_dir: str | None, timing: bool, say: Callable[[str], None] | None
) -> tuple[dict[str, object], BudgetRefusedError | None]:
    """Plan a search, and print the plan unless `say` is None.

    The model is built and checked. With `timing`, one step or a few are also timed on random numbers.

    Returns:
        The values of `tune plan --json`, and an error or None. The error says that the search does not fit the data
        set's cap.
    """
    with sign_of_life("planning: comparing the ways to search" + (", then timing some steps" if timing else "")):
        prepared = prepare(file, overrides, data_dir=data_dir, need_data=False)
        check_addresses(prepared.experiment, prepared.places)
        with prepared.places.at("search"):
            check_search(prepared.experiment, prepared.plan.rungs)
        check_model(prepared)
        require_origin(prepared)
        seen = preview(prepared)
        datasets, refusal = seen.states, seen.refusal
        steps = not prepared.plan.mode.on_release
        steps = steps and prepared.plan.method not in MINIMA  # these take one step, and no other way to search has them
        compared = _comparison(prepared) if steps else None
        lacking = tuple(filter(None, [missing_gpus(prepared.experiment.resources, prepared.places)]))
        seconds = _guess_wall_time(prepared) if timing and steps and not lacking else None
    if say is not None:
        show_plan(
            prepared,
            datasets,
            lacking,
            wall_time=f"{_seconds_in_words(seconds)} for training alone (estimated from steps on random numbers)"
            if seconds
            else "",
            comparison=compared,
            user=seen.user,
        )
        if refusal is None and not missing_data(prepared.experiment, prepared.request):
            known = data_dir in (None, os.environ.get("DP_TUNER_DATA"))
            data = "" if known else f" --data-dir {shlex.quote(str(data_dir))}"
            options = "".join(f" --set {shlex.quote(each)}" for each in overrides)
            say(f"next: tune run {shlex.quote(file)}{options}{data}")
    values = {
        "claim": _headline(prepared, datasets),
        **prepared.plan.as_dict(),
        "comparison": [] if compared is None else [asdict(row) for row in compared.rows],
        "auto": None if compared is None else {"candidate": compared.best, "reason": compared.reason},
        "datasets": [_total(dataset) for dataset in datasets],
        "refused": None if refusal is None else str(refusal),
        "warnings": [*_warnings(prepared, datasets), *lacking],
        "wall_time_seconds": seconds,
    }
    return values, refusal


def _comparison(prepared: ReadySearch) -> Comparison | None:
    if prepared.compared is not None or not prepared.plan.private:
        return prepared.compared
    return compare(prepared.experiment, prepared.request, prepared.plan)


def show_plan(
    prepared: ReadySearch,
    datasets: Sequence[DatasetState],
    warnings: Sequence[str] = (),
    **more: Any,  # noqa: ANN401 - of `plan_text`
) -> None:
    """Print the plan and its warnings, followed by `warnings`.

    `more` contains further arguments of `tuner.report.plan_facts.plan_text`.
    """
    words = plan_text(
        prepared.plan,
        claim=_headline(prepared, datasets),
        source=prepared.source,
        datasets=datasets,
        warnings=(*_warnings(prepared, datasets), *warnings),
        search=(
            *_stored_release(prepared, datasets),
            *release_facts(prepared.experiment, prepared.plan),
            *minimum_facts(prepared.experiment, prepared.plan, classes=prepared.about.classes),
            *search_facts(prepared.experiment),
        ),
        **more,
    )
    console().print(plan_panel(words))


def _stored_release(prepared: ReadySearch, datasets: Sequence[DatasetState]) -> tuple[tuple[str, str], ...]:
    """Return whether the search would use a stored release at no cost. The records are not compared here."""
    from tuner.privacy.ledger.ledger import Ledger

    if not (prepared.plan.mode.on_release and prepared.plan.private):
        return ()
    found = None
    if datasets:
        found = release_to_use(prepared, datasets, Ledger.open(prepared.experiment.ledger, create=False))
    if found is None:
        return (("this search", "charges a new release, because no stored release fits"),)
    return (
        ("this search", f"charges nothing: it uses the stored release {found.search}, if the records are the same"),
    )


def _headline(prepared: ReadySearch, datasets: Sequence[DatasetState]) -> str:
    owners = prepared.owners if prepared.plan.private else ()
    return claim_headline(prepared.plan, datasets, ledger=prepared.experiment.ledger, owners=owners)


def _total(dataset: DatasetState) -> dict[str, object]:
    return {
        "dataset": dataset.dataset,
        "committed": {"epsilon": dataset.committed_epsilon, "delta": dataset.committed_delta},
        "cap": None if dataset.cap is None else vars(dataset.cap),
        "void": bool(dataset.voids),
    }


def _warnings(prepared: ReadySearch, datasets: Sequence[DatasetState]) -> tuple[str, ...]:
    """Return the warnings of a plan, one sentence each. They should be read before the budget is spent."""
    return (
        *prepared.experiment.warnings(),
        *missing_data(prepared.experiment, prepared.request),
        *plan_warnings(prepared.plan),
        *_split_warnings(prepared, datasets),
        *naming_warnings(prepared),
    )


def _split_warnings(prepared: ReadySearch, datasets: Sequence[DatasetState]) -> tuple[str, ...]:
    """Warn if an earlier search on these records used another validation split.

    With different splits, a training record of one search may be a validation record of the other. Without protected
    scores, no guarantee covers validation records. If both searches protect their scores, there is no warning, because
    each search is charged for training and for validation records.
    """
    here, protected = split_of(prepared.request), prepared.plan.validation is not None
    earlier = (each for dataset in datasets for each in dataset.searches if each.counts)
    unlike = (each for each in earlier if each.details.get("split") not in (None, here))
    other = next((each for each in unlike if not (protected and each.validation is not None)), None)
    if other is None:
        return ()
    return (
        f"{other.search} used another validation split, so a training record of one search may be a validation record "
        "of the other. Where scores have no noise, no guarantee covers validation records. Use the same "
        "`dataset.validation` as that search, so that the committed total covers all training records.",
    )


def _guess_wall_time(prepared: ReadySearch) -> float:
    """Estimate the seconds that the search takes on this machine, from steps on random numbers.

    The steps have the most expensive parameters of the search space. If the number of smoothing samples grows within a
    trial, steps with each number are timed, and each time is weighted by the share of such steps. The estimate
    ignores pruning, scoring, start-up (about ten seconds) and the slowdown by concurrent trials.
    """
    from trainables.timing import seconds_per_step

    experiment, plan = prepared.experiment, prepared.plan
    costly = experiment.space.sample(_MostExpensive())
    seconds = 0.0
    for share, parameters in each_level(costly, rungs=plan.rungs):
        spec = training_spec(experiment, prepared.request, plan, parameters=parameters, number=0)
        with running_own_model(prepared):
            seconds += share * statistics.median(seconds_per_step(spec, steps=_TIMED_STEPS, at_most=_TIMED_SECONDS))
    trials = plan.trials_at_most or plan.trials_that_fit
    rounds = math.ceil(trials / experiment.resources.concurrent_trials) + (1 if plan.mode.searches_public else 0)
    steps, final = plan.shape_of(costly).steps * rounds, plan.shape_of(costly, committed=True).steps
    if plan.public is not None and plan.public.proxy_trials is not None:
        steps += math.ceil(plan.public.proxy_trials / experiment.resources.concurrent_trials) * final
    return seconds * (steps if plan.commit is None else steps + final)


class _MostExpensive:
    """Suggester that always suggests the parameter values with which training steps are slowest."""

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return high if name.startswith("smoothing") or name == "epochs" else low

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return high

    def choice(self, name: str, options: tuple[str | int | float | bool, ...]) -> str | int | float | bool:
        numbers = [option for option in options if isinstance(option, int | float) and not isinstance(option, bool)]
        return max(numbers) if len(numbers) == len(options) else options[0]


def _seconds_in_words(seconds: float) -> str:
    """Return a duration as text: ``under a second``, ``about 40 s``, ``about 12 min``, ``about 3.5 h``."""
    if seconds < 1:
        return "under a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
