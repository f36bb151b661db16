"""Ways to search under one budget, each as an experiment of its own that starts from the user's file.

A candidate is an ordinary experiment file. Its rules are those of the gates, and its noise is that of the planner.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from search_spaces import PARAMETERS, Categorical, Domain, Fixed, Promoted, SearchSpace, default_space, parse_space
from search_spaces.domains import is_number
from search_spaces.schedules import GEN
from search_spaces.spaces import can_be, owner_of
from tuner.errors import InputError
from tuner.experiment.loading import parse_experiment
from tuner.experiment.model import Experiment
from tuner.experiment.prior import ONE_RUN, recommended
from tuner.experiment.privacy_sections import RunsSection
from tuner.experiment.resolving import hyperparameter_defaults
from tuner.experiment.sections import AUTO, ChosenSection
from tuner.experiment.yamlfile import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CANDIDATES",
    "NO_SEARCH",
    "CandidateRefused",
    "as_candidate",
    "as_stored",
    "kind_of_search",
    "written_space",
]

NO_SEARCH = "prior"
"""The candidate that every other must beat: one run at the values of the shipped prior."""

_OFF = ("smoothing_radius", "laplacian_sigma", "weight_decay")
"""Parameters whose least value is taken without a search, because the prior measured no mean gain of any other."""
_SET_BY_PRIOR = ("learning_rate", "max_grad_norm")
_OF_TRAINABLE = ("batch_size", "epochs", "optimizer", "momentum", "activation")
_HALVING: Mapping[str, Any] = {
    "pruner": {"name": "asha", "reduction_factor": 2},
    "rungs": [0.125, 0.25, 0.5, 1.0],
}
_COMMIT_SHARE = 0.05


class CandidateRefused(Exception):  # noqa: N818 - a row of a table, not an error
    """The file says something that this candidate cannot do. The text says what."""


def as_candidate(experiment: Experiment, candidate: str) -> Experiment:
    """Return the experiment that searches as `candidate` does. `search.trials` and the space are upper bounds.

    Raises:
        CandidateRefused: the file says something that the candidate cannot do.
        ExperimentError: a gate refuses the candidate.
    """
    values = copy.deepcopy(experiment.model_dump(mode="json", by_alias=True))
    values["privacy"] |= {"accounting": "composition", "cap": "auto", "order": "auto"}
    values["privacy"]["runs"] = RunsSection().model_dump(mode="json")
    if is_number(values["privacy"]["noise_multiplier"]):
        values["privacy"]["noise_multiplier"] = "auto"
    values["search"] |= {"commit": None, "full_runs": None, "public": None}
    CANDIDATES[candidate](experiment, values)
    return parse_experiment(dump(values), source=candidate)


def as_stored(wanted: Experiment, stored: Experiment) -> Experiment:
    """Return the experiment of a file with `accounting: auto` after the choice that a stored sweep of it made.

    The choice is not made again, so it does not change with a later version of the prices. The file of a sweep that was
    not chosen is returned as it is.
    """
    chosen = stored.chosen_by_auto
    if not wanted.is_auto or chosen is None:
        return wanted
    try:
        return mark_chosen(as_candidate(wanted, chosen.candidate), chosen)
    except CandidateRefused as refused:
        raise InputError(
            "resume-changes-setting",
            f"`accounting: auto` chose {chosen.candidate} for the stored sweep, but the file now rules this out: "
            f"{refused}. Restore the file, or start a new sweep, which is charged in addition.",
        ) from refused


def mark_chosen(experiment: Experiment, chosen: ChosenSection) -> Experiment:
    """Return the experiment with a note of what `accounting: auto` chose, and why."""
    return experiment.model_copy(update={"chosen_by_auto": chosen})


def kind_of_search(experiment: Experiment) -> str:
    """Return the candidate that the file is like, by name."""
    search = experiment.search
    if experiment.mode.runs_hidden:
        return "selection"
    if experiment.mode.searches_public:
        return "proxy"
    if search.commit is not None:
        return "commit"
    if search.full_runs is not None:
        return "full_runs"
    if search.trials > 1:
        return "composition"
    return "gen" if dict(experiment.space.parameters).get("schedule") == Fixed(GEN) else NO_SEARCH


def written_space(experiment: Experiment) -> SearchSpace:
    """Return the domains of all parameters that the file names. The word ``default`` has the domain of the table."""
    return _parsed(_raw(experiment), experiment)


def _parsed(raw: Mapping[str, object], experiment: Experiment) -> SearchSpace:
    trainable = experiment.trainable
    return parse_space(raw, method=trainable.method, optimizer=trainable.optimizer)


def _raw(experiment: Experiment, *, one_run: bool = False) -> dict[str, Any]:
    """Return the space as written, with the names of the table, and with a domain of the noise.

    A file without a space has that of its method, and one run has the clip of the prior as well.
    """
    names = {alias: name for name, parameter in PARAMETERS.items() for alias in parameter.aliases}
    raw = experiment.search.space
    if not raw:
        raw = default_space(experiment.trainable.method) | (dict(ONE_RUN) if one_run else {})
    noise = experiment.privacy.noise_multiplier
    moved = {"noise_multiplier": noise} if isinstance(noise, Mapping) else {}
    return {names.get(key, key): value for key, value in (raw | moved).items()}


def _prior(experiment: Experiment, values: dict[str, Any]) -> None:
    _one_run(values, dict(_single_values(experiment)))


def _gen(experiment: Experiment, values: dict[str, Any]) -> None:
    raw = _raw(experiment)
    rate = raw.get("learning_rate", "default")
    schedule = dict(written_space(experiment).parameters).get("schedule")
    if schedule != Fixed(GEN):
        if rate != "default":
            what = "searches" if isinstance(rate, Mapping) else "fixes"
            raise CandidateRefused(f"the file {what} learning_rate, but the schedule gen sets the rate by itself")
        if schedule is not None:
            raise CandidateRefused("the file has another schedule than gen")
    if raw.get("clipping", "automatic") != "automatic":
        raise CandidateRefused("the file has another clipping than automatic")
    chosen = {name: value for name, value in _single_values(experiment) if name not in _SET_BY_PRIOR}
    kept = {"learning_rate": rate} if is_number(rate) else {}
    _one_run(values, {**chosen, **kept, "schedule": GEN, "clipping": "automatic"})


def _commit(experiment: Experiment, values: dict[str, Any]) -> None:
    _search(experiment)
    values["search"] |= {"commit": _COMMIT_SHARE, "sampler": "surrogate", "pruner": "none", "when_sure": "go_on"}


def _full_runs(experiment: Experiment, values: dict[str, Any]) -> None:
    _search(experiment)
    given = experiment.search.model_fields_set
    values["search"]["full_runs"] = "auto"
    if experiment.search.pruner.name == "none":
        values["search"] |= {key: value for key, value in _HALVING.items() if key == "pruner" or key not in given}


def _composition(experiment: Experiment, values: dict[str, Any]) -> None:
    _search(experiment)


def _selection(experiment: Experiment, values: dict[str, Any]) -> None:
    _search(experiment)
    values["privacy"]["accounting"] = "selection"
    values["search"] |= {"sampler": "random", "pruner": "none", "when_sure": "go_on"}


def _proxy(experiment: Experiment, values: dict[str, Any]) -> None:
    declared = experiment.search.public
    if declared is None:
        raise CandidateRefused("no `search.public`")
    _search(experiment)
    values["privacy"]["accounting"] = "public"
    values["search"]["public"] = declared.model_dump(mode="json") | {"trials": None}


CANDIDATES: Mapping[str, Callable[[Experiment, dict[str, Any]], None]] = {
    NO_SEARCH: _prior,
    "gen": _gen,
    "commit": _commit,
    "full_runs": _full_runs,
    "composition": _composition,
    "selection": _selection,
    "proxy": _proxy,
}
"""Functions that change the values of a file into those of a candidate, by its name in the stored prices."""


def _search(experiment: Experiment) -> None:
    """Raise an error if the file allows no search."""
    space = written_space(experiment)
    if experiment.search.trials == 1:
        raise CandidateRefused("`search.trials` is 1")
    if not space.searched:
        raise CandidateRefused("the file searches no parameter")
    if dict(space.parameters).get("schedule") == Fixed(GEN):
        raise CandidateRefused("no search was measured with `schedule: gen`")


def _one_run(values: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Write one trial with these values. Parameters that affect the budget have keys of their own."""
    for name in ("batch_size", "epochs"):
        if name in chosen:
            values["trainable"][name] = chosen.pop(name)
    if chosen.pop("noise_multiplier", None) is not None:
        values["privacy"]["noise_multiplier"] = "auto"
    one: dict[str, Any] = {"trials": 1, "sampler": "random", "pruner": "none", "when_sure": "go_on"}
    values["search"] |= one | {"space": chosen}


def _single_values(experiment: Experiment) -> Iterator[tuple[str, object]]:
    """Yield one value for each parameter that the file names, within the domain that it gives.

    The rate and the clip are those of the shipped prior. Every other searched parameter has its default, or the nearest
    value of its domain, or its least value if it is in `_OFF`.
    """
    raw, trainable = _raw(experiment, one_run=True), experiment.trainable
    domains = dict(_parsed(raw, experiment).parameters)
    wanted: dict[str, Any] = hyperparameter_defaults(trainable.method)
    wanted |= {name: getattr(trainable, name) for name in _OF_TRAINABLE}
    wanted |= dict.fromkeys(_OFF, 0.0)
    chosen = {name: _single(domain, wanted.get(name)) for name, domain in domains.items() if name not in _SET_BY_PRIOR}
    chosen |= _rate_and_clip(experiment, raw, domains, chosen)
    for name in domains:
        owner = owner_of(name)
        if owner is None or can_be(name, [chosen.get(owner, wanted[owner])]):
            yield name, chosen[name]


def _rate_and_clip(
    experiment: Experiment,
    raw: Mapping[str, Any],
    domains: Mapping[str, Domain],
    chosen: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the values of the rate and the clip. Those that are searched are recommended by the shipped prior.

    The rate is recommended for the clip that is taken, so a clip outside its range moves the rate.
    """
    one = experiment.model_copy(
        update={
            "privacy": experiment.privacy.model_copy(update={"accounting": AUTO, "noise_multiplier": "auto"}),
            "search": experiment.search.model_copy(update={"trials": 1}),
        }
    )
    told: dict[str, Any] = {name: chosen[name] for name in _OF_TRAINABLE if name in chosen}
    mine = [name for name in ("max_grad_norm", "learning_rate") if name in domains]
    told |= {name: domain.value if isinstance(domain := domains[name], Fixed) else "default" for name in mine}
    for name in mine:
        if told[name] == "default":
            known = recommended(told, one).get(name)
            value = None if known is None else float(f"{known.value:.3g}")
            told[name] = value if raw[name] == "default" and value is not None else _single(domains[name], value)
    return {name: told[name] for name in mine}


def _single(domain: Domain, wanted: object) -> object:
    """Return the wanted value if the domain has it, else the nearest value. A promoted parameter stays as it is."""
    if isinstance(domain, Promoted):
        return domain.to_spec()
    if isinstance(domain, Fixed):
        return domain.value
    if isinstance(domain, Categorical):
        if wanted in domain.options or not is_number(wanted) or not all(map(is_number, domain.options)):
            return wanted if wanted in domain.options else domain.options[0]
        return min(domain.options, key=lambda option: abs(float(option) - float(wanted)))
    low, high = domain.grid(2)
    if not is_number(wanted):
        return domain.grid(1)[0]
    return min(max(wanted, low), high)
