"""Card sections: the exported files, the exported trial and its configuration, versions, and the card's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces import MINIMA
from search_spaces.schedules import GEN
from trainables.engine.schedules import noise_split
from tuner.errors import VerificationError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.sections.section import CardSection, Field, Subject, starting_weights
from tuner.privacy.card.text import settings_text

__all__ = ["CONFIGURATION", "EXPORTED_FILES", "SCHEMA", "SCHEMA_VERSION", "VERSIONS", "WINNER"]

SCHEMA_VERSION = 1
"""Version number of the card's format."""
_SEALED_WINNER = "winner"
"""Id of the winner on the card of every sealed search. The real id would reveal something about the other runs."""
_RATE_TOLERANCE = 1e-6

EXPORTED_FILES = CardSection(
    name="exported_files", title="The exported files", value=lambda subject: dict(subject.facts.files)
)
VERSIONS = CardSection(name="versions", title="Versions", value=lambda subject: dict(subject.facts.versions))
SCHEMA = CardSection(name="schema", title="Format of the card", value=lambda _: SCHEMA_VERSION)


_WARM_START = (
    "if this trial is the committed run, it started from the weights of another trial of this search. The claim covers "
    "the steps of that other trial, but the ε of this run alone does not count them"
)


def _winner(subject: Subject) -> dict[str, Any]:
    if subject.mode.on_release:
        return {
            "label": subject.mode.winner,
            "trial": subject.facts.winner,
            "single_run_epsilon": subject.single_run_epsilon,
            "at_delta": subject.search.delta,
        }
    mechanism, steps = subject.winner
    commit = subject.search.details.get("commit")
    warm = isinstance(commit, Mapping) and commit.get("start") == "best_trial"
    return {
        **({"starts_from": _WARM_START} if warm else {}),
        "label": subject.mode.winner,
        "trial": _SEALED_WINNER if subject.search.hides_runs else subject.facts.winner,
        **mechanism.body(),
        "releases": _releases(mechanism, subject),
        "steps": steps,
        "single_run_epsilon": subject.single_run_epsilon,
        "at_delta": subject.search.delta,
    }


def _releases(mechanism: SampledGaussian, subject: Subject) -> list[dict[str, Any]]:
    """Return the releases of a step of the exported trial, with the noise of each in units of its sensitivity.

    The share of the probes is the ledger's, or the winner's own if the search chose it.
    """
    parameters, share = subject.facts.parameters, None
    if parameters.get("schedule") == GEN:
        fixed = subject.search.details.get("probe_share")
        share = fixed if isinstance(fixed, float) else parameters.get(f"schedule.{GEN}.probe_share")
    number = isinstance(share, float) and 0 < share < 1
    noise = noise_split(mechanism.noise_multiplier, probe_share=share if number else None)
    what = "perturbed minimum" if subject.search.details.get("method") in MINIMA else "sum of clipped gradients"
    releases = [{"release": what, "noise_multiplier": noise.gradient}]
    if noise.probe is not None:
        releases.append({"release": "loss probes", "noise_multiplier": noise.probe})
    return releases


WINNER = CardSection(
    name="winner",
    title="The exported trial by itself",
    value=_winner,
    fields={
        "label": Field("what it is"),
        "trial": Field("trial"),
        "starts_from": Field("initial weights"),
        "sample_rate": Field("sample rate (probability that a unit is in a batch)"),
        "noise_multiplier": Field("noise multiplier (standard deviation of the noise, in units of the clipping norm)"),
        "releases": Field(
            "what one step releases (all of it costs as much as one release with the noise multiplier above)"
        ),
        "steps": Field("charged steps"),
        "single_run_epsilon": Field("ε of these steps"),
        "at_delta": Field("at δ"),
    },
)


def _configuration(subject: Subject) -> dict[str, Any]:
    details, facts = subject.search.details, subject.facts
    charged = (
        {}
        if subject.mode.on_release
        else {"batch_size_expected": _expected_batch(subject), "max_grad_norm": facts.max_grad_norm}
    )
    return {
        "method": details.get("method"),
        "model": subject.model,
        "starting_weights": starting_weights(subject),
        "frozen_layers": details.get("frozen", []),
        **charged,
        "parameters": dict(facts.parameters),
        "sampler": facts.sampler,
        "pruner": facts.pruner,
    }


def _expected_batch(subject: Subject) -> int:
    """Return the expected batch size: sample rate times public size. Refuse a size that is not a whole number."""
    rate, size = subject.winner[0].sample_rate, subject.facts.public_size
    batch = round(rate * size)
    if batch < 1 or abs(rate * size - batch) > _RATE_TOLERANCE * batch:
        raise VerificationError(
            "card-public-size",
            f"`records.public_size` of a privacy card times the charged sample rate {rate!r} must be a whole number "
            f"(got the size {size}). Give the size from which the sample rate was computed.",
        )
    return batch


CONFIGURATION = CardSection(
    name="configuration",
    title="Configuration",
    value=_configuration,
    fields={
        "method": Field("training method"),
        "model": Field("model"),
        "starting_weights": Field("initial weights of the trials"),
        "frozen_layers": Field("layers that are not trained"),
        "batch_size_expected": Field("expected batch size"),
        "max_grad_norm": Field("clipping norm C (the largest contribution of one unit to a sum of gradients)"),
        "parameters": Field("hyper-parameters of the exported trial", settings_text),
        "sampler": Field("sampler (chooses configurations)"),
        "pruner": Field("pruner (stops trials early)"),
    },
)
