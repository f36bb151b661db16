"""The command `plan`: the plan in words or values, with a guess of the wall time that touches no record."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError
from tuner.experiment import find_file, load_experiment
from tuner.plan.comparison import comparison
from tuner.plan.plan import rung_steps
from tuner.report.plan_facts import plan_text, plan_warnings, search_facts
from tuner.report.text import console
from tuner.report.text import plan as plan_panel
from tuner.study.promotion import each_level
from tuner.sweep.ready import Prepared, check_model, prepare, training_spec, users_code
from tuner.sweep.registration import split_of
from tuner.sweep.sweep_study import check_search

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.privacy.ledger.state import DatasetState

__all__ = ["all_warnings", "guess_wall_time", "plan_command", "seconds_in_words", "validate_file"]

_MANY_STEPS = 1000  # a trial's length where only the order of its reports matters
_LEDGER = "sqlite:///runs/ledger.db"  # where the commands look by themselves
_TIMED_STEPS = 3
_TIMED_SECONDS = 10.0


def plan_command(
    file: str, overrides: Sequence[str], *, data_dir: str | None, timing: bool, say: Callable[[str], None] | None
) -> dict[str, object]:
    """Plan, and show the plan unless a program is reading.

    Args:
        file: a path, else the name of a shipped file.
        overrides: ``key=value`` each.
        data_dir: folder with the data sets; a plan does not need them.
        timing: whether to time a few steps on random numbers; that takes a few seconds. The model is tried in any case.
        say: None when a program is reading.

    Returns:
        The plan's values, with what the same budget buys in each mode (``comparison``), what the data set has
        committed, its cap, why that cap would refuse the search (``refused``, or None), the warnings, and
        ``wall_time_seconds`` (None when not guessed).
    """
    prepared = prepare(file, overrides, data_dir=data_dir, need_data=False)
    check_search(prepared.experiment, prepared.plan.rungs)
    check_model(prepared)
    dataset = ledger_state(prepared)
    refusal = dataset_refusal(prepared, dataset)
    warnings = all_warnings(prepared, dataset)
    modes = comparison(prepared.plan) if prepared.plan.private else ()
    seconds = guess_wall_time(prepared) if timing else None
    if say is not None:
        words = f"training alone {seconds_in_words(seconds)}, by a few steps on random numbers" if seconds else ""
        console().print(
            plan_panel(
                plan_text(
                    prepared.plan,
                    source=prepared.source,
                    dataset=dataset,
                    warnings=warnings,
                    wall_time=words,
                    comparison=modes,
                    user=_user(prepared) if dataset is not None else "",
                    set_cap=_set_cap(prepared),
                    search=search_facts(prepared.experiment),
                )
            )
        )
        if refusal is None:
            say(f"next: tune run {file}{''.join(f' --set {shlex.quote(each)}' for each in overrides)}")
    committed = None if dataset is None else {"epsilon": dataset.committed_epsilon, "delta": dataset.committed_delta}
    cap = None if dataset is None or dataset.cap is None else vars(dataset.cap)
    return {
        **prepared.plan.as_dict(),
        "comparison": [row.as_dict() for row in modes],
        "dataset_committed": committed,
        "dataset_cap": cap,
        "refused": refusal,
        "warnings": list(warnings),
        "wall_time_seconds": seconds,
    }


def validate_file(name: str, overrides: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """Read one experiment file and check all of it; where it was found, and its warnings.

    Raises:
        InputError: something is wrong with it.
    """
    path, _ = find_file(name)
    experiment = load_experiment(path, overrides)
    check_search(experiment, rung_steps(experiment.search.rungs, _MANY_STEPS))
    return path, experiment.warnings()


def ledger_state(prepared: Prepared) -> DatasetState | None:
    """What the data set's ledger holds; None when the search is not private, or nothing was ever charged."""
    from tuner.privacy.ledger.ledger import Ledger

    url = prepared.experiment.ledger
    if not prepared.plan.private or not Ledger.exists(url):
        return None
    return Ledger.open(url, create=False).dataset_state(prepared.owner)


def dataset_refusal(prepared: Prepared, dataset: DatasetState | None) -> str | None:
    """Why the data set's cap would refuse this search now, or None. The ledger itself decides, when it is opened."""
    from tuner.privacy.ledger.admission import admit_search, units_at

    if dataset is None:
        return None
    plan = prepared.plan
    order = None if dataset.cap is None else dataset.cap.order
    try:
        admit_search(
            dataset,
            epsilon=plan.epsilon,
            delta=plan.delta,
            units=units_at(order, plan.training_allowance, plan.validation_allowance),
            unit=plan.unit,
            user=_user(prepared),
            what="this search",
        )
    except BudgetRefusedError as error:
        return str(error)
    return None


def _user(prepared: Prepared) -> str:
    """Who would open the search, as the ledger knows them."""
    from tuner.privacy.ledger.ledger import Ledger

    return Ledger.open(prepared.experiment.ledger, create=False).user()


def _set_cap(prepared: Prepared) -> str:
    """The command that gives the records their cap, in the ledger that the file names."""
    url = prepared.experiment.ledger
    where = "" if url == _LEDGER else f" --ledger {shlex.quote(url)}"
    return f"tune budget set {shlex.quote(prepared.owner)} --epsilon E --delta D{where}"


def all_warnings(prepared: Prepared, dataset: DatasetState | None) -> tuple[str, ...]:
    """What is allowed and yet worth knowing before the budget is spent, one sentence each."""
    return (
        *prepared.experiment.warnings(),
        *plan_warnings(prepared.plan),
        *split_warnings(prepared, dataset),
    )


def split_warnings(prepared: Prepared, dataset: DatasetState | None) -> tuple[str, ...]:
    """Whether an earlier search on these records set others aside: then no one statement covers all of them.

    Where both protected their scores every record is charged in both, whichever part it was in.
    """
    here, protected = split_of(prepared.experiment), prepared.plan.validation is not None
    earlier = () if dataset is None else (each for each in dataset.searches if each.counts)
    unlike = (each for each in earlier if each.details.get("split") not in (None, here))
    other = next((each for each in unlike if not (protected and each.validation is not None)), None)
    if other is None:
        return ()
    return (
        f"{other.search} used another validation split: what validated there, outside any guarantee, may train here. "
        "Keep dataset.validation as it was, so that the committed total covers all that trains.",
    )


def guess_wall_time(prepared: Prepared) -> float:
    """Seconds that the search may take on this machine: the plan's steps, at the speed of a few on random numbers.

    The parameters timed are the dearest of the space (most smoothing samples and views; where the samples rise within a
    trial, each level for its share of the steps), but pruning, scoring,
    start-up (about ten seconds) and what concurrent trials take from each other are left out.
    """
    from trainables.timing import seconds_per_step

    experiment, plan = prepared.experiment, prepared.plan
    dearest = experiment.space.sample(_Dearest())
    seconds = 0.0
    for share, parameters in each_level(dearest, rungs=plan.rungs):
        spec = training_spec(experiment, prepared.request, plan, parameters=parameters, number=0)
        with users_code(prepared):
            taken = statistics.median(seconds_per_step(spec, steps=_TIMED_STEPS, at_most=_TIMED_SECONDS))
        seconds += share * taken
    trials = plan.trials_at_most or plan.trials_that_fit
    rounds = math.ceil(trials / experiment.resources.concurrent_trials) + (1 if plan.public is not None else 0)
    return seconds * plan.shape_of(dearest).steps * rounds


class _Dearest:
    """Chooses the largest number everywhere, and the first option."""

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return high if name.startswith("smoothing") or name == "epochs" else low

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return high

    def choice(self, name: str, options: tuple[str | int | float | bool, ...]) -> str | int | float | bool:
        numbers = [option for option in options if isinstance(option, int | float) and not isinstance(option, bool)]
        return max(numbers) if len(numbers) == len(options) else options[0]


def seconds_in_words(seconds: float) -> str:
    """``under a second``, ``about 40 s``, ``about 12 min``, ``about 3.5 h``."""
    if seconds < 1:
        return "under a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
