"""Gates of the unimodal sampler and pruner: their options, a parameter along which they can look, and what follows."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import PARAMETERS, SearchSpace, SpaceError, parse_space
from search_spaces.domains import UNIMODAL, is_number
from trainables.hyperparameters import HYPERPARAMETERS
from tuner.experiment.findings import Finding, Gate
from tuner.experiment.model import Experiment
from tuner.experiment.resolving import resolved_space
from tuner.experiment.yamlfile import Path
from tuner.study.names import PRUNERS, SAMPLERS, canonical_pruner, canonical_sampler
from tuner.study.unimodal_options import BY_ITSELF, assumed, option_problems

__all__ = ["UNIMODAL_GATES"]


def _kinds(experiment: Experiment) -> Iterator[str]:
    """Which of the two is unimodal."""
    if canonical_sampler(experiment.search.sampler.name) == "unimodal":
        yield "sampler"
    if canonical_pruner(experiment.search.pruner.name) == "unimodal":
        yield "pruner"


def _options(experiment: Experiment) -> Iterator[Finding]:
    for kind in _kinds(experiment):
        part = experiment.search.sampler if kind == "sampler" else experiment.search.pruner
        known = (SAMPLERS if kind == "sampler" else PRUNERS)["unimodal"]
        given = {name: value for name, value in part.options.items() if name in known}
        # What is not finite is refused of every sampler and pruner.
        for problem in option_problems({name: value for name, value in given.items() if not _is_wild(value)}):
            yield Finding(path=("search", kind, problem.option), rule=problem.rule, fix=problem.fix)


def _tolerances(experiment: Experiment) -> Iterator[Finding]:
    search = experiment.search
    told = [part.options.get("tolerance") for part in (search.sampler, search.pruner)]
    if len(list(_kinds(experiment))) < 2 or None in told or told[0] == told[1]:
        return
    yield Finding(
        path=("search", "pruner", "tolerance"),
        rule=f"the sampler's tolerance is {told[0]}, and how much better a score must be to matter is one question",
        fix="Write it beside one of the two: it is the other's too.",
    )


def _is_wild(value: object) -> bool:
    return isinstance(value, float) and not is_number(value)


def _parameter(experiment: Experiment) -> Iterator[Finding]:
    kind, space = next(_kinds(experiment), None), _space(experiment)
    if kind is None or space is None or experiment.privacy.accounting == "selection":
        return  # a sealed search refuses it anyway
    sometimes = dict(space.conditions) if "schedule" in space.searched else {}
    for name in (name for name in space.unimodal if name in sometimes):
        yield Finding(
            path=("search", "space"),
            rule=f"{name} is not of every trial, and a trial without it would have no place on its curve: it can never "
            "be believed to be the best",
            value=f"{name} declared unimodal",
            fix="Leave unimodal out there, or fix the schedule and search what it decays by alone.",
        )
    if assumed(space).unimodal:
        if not space.unimodal and (denied := _denied(experiment)):
            rule = f"the search looks along the smoothing radius where nothing else is declared, by the unimodal {kind}"
            fix = "Declare another range unimodal: true, or take another sampler and pruner."
            yield Finding(path=("search", "space", denied), rule=rule, value="unimodal: false", fix=fix)
        return
    found = ", ".join(space.searched)
    yield Finding(
        path=("search", kind),
        rule=f"the unimodal {kind} needs a searched range along which the score has one top: smoothing_radius, or one "
        "that is declared so",
        value=f"{found} searched" if found else "nothing searched",
        fix="Write unimodal: true beside a domain, for example learning_rate: {log_uniform: [0.01, 2], unimodal: "
        "true}, or take another.",
    )


def _denied(experiment: Experiment) -> str | None:
    """How the file calls the smoothing radius, where it says that the score is not unimodal along it."""
    for name, value in experiment.search.space.items():
        if (
            name in (BY_ITSELF, *PARAMETERS[BY_ITSELF].aliases)
            and isinstance(value, dict)
            and value.get(UNIMODAL) is False
        ):
            return name
    return None


def _space(experiment: Experiment) -> SearchSpace | None:
    """What is searched, with what the file leaves out; None where another gate says what is wrong with it."""
    method, search, noise = experiment.trainable.method, experiment.search, experiment.privacy.noise_multiplier
    if method not in HYPERPARAMETERS:
        return None
    try:
        space = resolved_space(search.space, method=method, trials=search.trials)
        return parse_space({**space, "noise_multiplier": noise} if isinstance(noise, dict) else space, method=method)
    except SpaceError:
        return None


def _when_sure(experiment: Experiment) -> Iterator[Finding]:
    search, path = experiment.search, ("search", "when_sure")
    if search.when_sure == "go_on":
        return
    if experiment.privacy.accounting == "selection":
        rule = "a sealed search hides how many runs it made, and one that ends or repeats by its scores would show it"
        yield Finding(path=path, rule=rule, fix="Write go_on.")
    elif "sampler" not in _kinds(experiment):
        rule = f"{search.when_sure} needs a sampler that knows how sure it is, and {search.sampler.name} does not"
        yield Finding(path=path, rule=rule, fix="Write sampler: unimodal, or go_on.")
    elif search.when_sure == "replicate" and "pruner" in _kinds(experiment) and search.pruner.options.get("runs"):
        rule = "repetitions tell two configurations apart, and where runs are judged only the lucky ones come to an end"
        yield Finding(path=("search", "pruner", "runs"), rule=rule, fix="Leave it out, or write when_sure: stop.")


_CHOSEN: tuple[Path, ...] = (("search", "sampler"), ("search", "pruner"))

UNIMODAL_GATES: tuple[tuple[Gate, tuple[Path, ...]], ...] = (
    (_options, _CHOSEN),
    (_tolerances, _CHOSEN),
    (
        _parameter,
        (
            *_CHOSEN,
            ("search", "space"),
            ("search", "trials"),
            ("trainable", "method"),
            ("privacy", "noise_multiplier"),
            ("privacy", "accounting"),
        ),
    ),
    (_when_sure, (*_CHOSEN, ("search", "when_sure"), ("privacy", "accounting"))),
)
"""Every gate with the keys it looks at."""
