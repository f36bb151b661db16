"""Gates of the unimodal sampler and pruner: their options, and the parameter that they need."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import PARAMETERS
from search_spaces.domain_parsing import UNIMODAL
from search_spaces.domains import is_number
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.model import Experiment
from tuner.study.names import PRUNERS, SAMPLERS, canonical_pruner, canonical_sampler
from tuner.study.unimodal.options import BY_ITSELF, option_problems

__all__ = ["UNIMODAL_GATES"]

_CHOSEN = ("search.sampler", "search.pruner")


def _kinds(experiment: Experiment) -> tuple[str, ...]:
    """Return which of the two is unimodal: sampler, pruner, both or none."""
    search = experiment.search
    named = {"sampler": canonical_sampler(search.sampler.name), "pruner": canonical_pruner(search.pruner.name)}
    return tuple(kind for kind, name in named.items() if name == "unimodal")


@gate(*_CHOSEN)
def options(draft: Draft) -> Iterator[GateFinding]:
    """Require options in range; the gates of the sampler and pruner refuse values that are not finite."""
    for kind in _kinds(draft.experiment):
        part = draft.experiment.search.sampler if kind == "sampler" else draft.experiment.search.pruner
        known = (SAMPLERS if kind == "sampler" else PRUNERS)["unimodal"]
        given = {
            name: value
            for name, value in part.options.items()
            if name in known and (is_number(value) or not isinstance(value, float))
        }
        for option, rule, fix in option_problems(given):
            yield GateFinding("option-invalid", ("search", kind, option), rule, fix)


@gate(*_CHOSEN)
def tolerances(draft: Draft) -> Iterator[GateFinding]:
    """Require the same tolerance for the sampler and the pruner."""
    search = draft.experiment.search
    given = [part.options.get("tolerance") for part in (search.sampler, search.pruner)]
    if len(_kinds(draft.experiment)) == 2 and None not in given and given[0] != given[1]:
        rule = f"the sampler's tolerance is {given[0]}, and the pruner's must be the same"
        fix = "Write it for one of the two: it applies to both."
        yield GateFinding("tolerance-conflict", "search.pruner.tolerance", rule, fix)


@gate(
    *_CHOSEN,
    "search.space",
    "search.trials",
    "trainable.method",
    "privacy.noise_multiplier",
    "privacy.accounting",
)
def parameter(draft: Draft) -> Iterator[GateFinding]:
    """Require a searched range, in every trial, along which the score has one maximum."""
    kind, declared, space = next(iter(_kinds(draft.experiment)), None), draft.space, draft.resolved
    if kind is None or declared is None or space is None or draft.mode.runs_hidden:
        return  # another gate refuses the sampler or the pruner
    conditional = dict(space.conditions) if "schedule" in space.searched else {}
    for name in (name for name in space.unimodal if name in conditional):
        rule = f"{name} is declared unimodal, and not every trial has it"
        fix = "Remove unimodal there, or fix the schedule."
        yield GateFinding("unimodal-conditional", "search.space", rule, fix, f"{name} declared unimodal")
    if space.unimodal:
        if not declared.unimodal and (denied := _denied(draft.experiment)):
            rule = f"the unimodal {kind} uses the smoothing radius unless another parameter is declared unimodal"
            fix = "Declare another range unimodal: true, or use another sampler and pruner."
            yield GateFinding("unimodal-denied", ("search", "space", denied), rule, fix, "unimodal: false")
        return
    found = ", ".join(space.searched)
    yield GateFinding(
        "unimodal-parameter-missing",
        f"search.{kind}",
        f"the unimodal {kind} needs a searched range with one maximum of the score: smoothing_radius, or another that "
        "is declared unimodal",
        "Write unimodal: true in a domain, for example learning_rate: {log_uniform: [0.01, 2], unimodal: true}, or use "
        f"another {kind}.",
        f"{found} searched" if found else "nothing searched",
    )


def _denied(experiment: Experiment) -> str | None:
    """Return the file's name of the smoothing radius if it is declared not unimodal."""
    spellings = (BY_ITSELF, *PARAMETERS[BY_ITSELF].aliases)
    for name, value in experiment.search.space.items():
        if name in spellings and isinstance(value, dict) and value.get(UNIMODAL) is False:
            return name
    return None


@gate(*_CHOSEN, "search.when_sure", "privacy.accounting")
def when_sure(draft: Draft) -> Iterator[GateFinding]:
    """Require a sampler that measures how sure it is, if the search acts on that."""
    search, kinds = draft.experiment.search, _kinds(draft.experiment)
    key = "search.when_sure"
    if search.when_sure == "go_on":
        return
    if draft.mode.runs_hidden:
        rule = f"{search.when_sure} cannot be used in a sealed search: it would show the number of runs"
        yield GateFinding("when-sure-sealed", key, rule, "Write go_on.")
    elif "sampler" not in kinds:
        rule = f"{search.when_sure} needs a sampler that measures how sure it is, and {search.sampler.name} does not"
        yield GateFinding("when-sure-sampler", key, rule, "Write sampler: unimodal, or go_on.")
    elif search.when_sure == "replicate" and "pruner" in kinds and search.pruner.options.get("runs"):
        rule = "replicate compares configurations over complete runs, and the option runs stops the unlucky ones"
        fix = "Leave it out, or write when_sure: stop."
        yield GateFinding("replicate-with-runs", "search.pruner.runs", rule, fix)


UNIMODAL_GATES: tuple[Gate, ...] = (options, tolerances, parameter, when_sure)
