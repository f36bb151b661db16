"""Gates for unimodal samplers and pruners. The gates check the options and the unimodal parameter."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import PARAMETERS
from search_spaces.domains import UNIMODAL, is_number
from search_spaces.spaces import owner_of
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.model import Experiment
from tuner.study.names import PRUNERS, SAMPLERS
from tuner.study.unimodal.options import BY_ITSELF, option_problems

__all__ = ["UNIMODAL_GATES"]

_CHOSEN = ("search.sampler", "search.pruner")


@gate(*_CHOSEN)
def options(draft: Draft) -> Iterator[GateFinding]:
    """Require valid options. The gates `sampler` and `pruner` already refuse unknown options and infinite values."""
    search = draft.experiment.search
    for kind in search.unimodal_parts:
        part = search.sampler if kind == "sampler" else search.pruner
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
    if len(search.unimodal_parts) == 2 and None not in given and given[0] != given[1]:
        rule = f"the pruner must have the same tolerance as the sampler, which is {given[0]}"
        fix = "Remove one of the two tolerances. The other one then applies to both."
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
    """Require a searched range that is declared unimodal and that every trial has."""
    kind, declared, space = next(iter(draft.experiment.search.unimodal_parts), None), draft.space, draft.resolved
    if kind is None or declared is None or space is None or draft.mode.runs_hidden:
        return  # another gate refuses the sampler or the pruner
    conditional = [name for name in space.unimodal if owner_of(name) in space.searched]
    for name in conditional:
        owner = owner_of(name)
        rule = f"a unimodal parameter must occur in every trial, but {name} occurs only with some {owner}s"
        fix = f"Remove `unimodal` from {name}, or write a single {owner}."
        yield GateFinding("unimodal-conditional", "search.space", rule, fix, f"{name} declared unimodal")
    if space.unimodal:
        if not declared.unimodal and (denied := _denied(draft.experiment)):
            rule = f"the unimodal {kind} needs a unimodal parameter, but the usual one, {denied}, has `unimodal: false`"
            fix = "Write `unimodal: true` in the domain of another parameter, or use another sampler and pruner."
            yield GateFinding("unimodal-denied", ("search", "space", denied), rule, fix, "unimodal: false")
        return
    found = ", ".join(space.searched)
    yield GateFinding(
        "unimodal-parameter-missing",
        f"search.{kind}",
        f"the unimodal {kind} needs a range for smoothing_radius, or for a parameter with `unimodal: true`",
        f"Write for example `learning_rate: {{log_uniform: [0.01, 2], unimodal: true}}`, or use another {kind}.",
        f"{found} searched" if found else "nothing searched",
    )


def _denied(experiment: Experiment) -> str | None:
    """Return the file's key for the smoothing radius if its domain says `unimodal: false`."""
    spellings = (BY_ITSELF, *PARAMETERS[BY_ITSELF].aliases)
    for name, value in experiment.search.space.items():
        if name in spellings and isinstance(value, dict) and value.get(UNIMODAL) is False:
            return name
    return None


@gate(*_CHOSEN, "search.when_sure", "privacy.accounting")
def when_sure(draft: Draft) -> Iterator[GateFinding]:
    """If `when_sure` is ``stop`` or ``replicate``, require the unimodal sampler and refuse a sealed search."""
    search, key = draft.experiment.search, "search.when_sure"
    if search.when_sure == "go_on":
        return
    if draft.mode.runs_hidden:
        rule = f"{search.when_sure} is not allowed in a sealed search, because it would reveal the number of runs"
        yield GateFinding("when-sure-sealed", key, rule, "Write go_on.")
    elif "sampler" not in search.unimodal_parts:
        rule = (
            f"{search.when_sure} needs the unimodal sampler, because the {search.sampler.name} sampler does not "
            "compute the probability that a trial is near the best one"
        )
        yield GateFinding("when-sure-sampler", key, rule, "Write `sampler: unimodal`, or go_on.")


UNIMODAL_GATES: tuple[Gate, ...] = (options, tolerances, parameter, when_sure)
