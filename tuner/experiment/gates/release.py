"""Gates for searches on one noisy copy of the records (`accounting: release`)."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import Fixed
from search_spaces.schedules import GEN
from trainables.methods import METHODS
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.sections import ReleaseSection
from tuner.privacy.modes import RELEASE

__all__ = ["RELEASE_GATES"]

_UNUSED = ("max_grad_norm", "clipping", "augmentation", "augmentation_multiplicity", "ema_decay")
"""Parameters of private steps, which a training on a release does not have."""


@gate("privacy.accounting", "trainable.method", "privacy.release")
def on_release(draft: Draft) -> Iterator[GateFinding]:
    """Require the mode release for methods that train on a release, and for no other method."""
    privacy, method = draft.experiment.privacy, draft.experiment.trainable.method
    if draft.method is None:
        return
    trains_on_release = draft.method in METHODS and METHODS[draft.method].on_release  # a user's own method does not
    if trains_on_release != draft.mode.on_release:
        mine = [name for name, kind in METHODS.items() if kind.on_release == draft.mode.on_release]
        rule = (
            f"{method} trains on one noisy copy of the records, which needs `accounting: release`"
            if trains_on_release
            else f"{method} trains by private steps, which `accounting: release` does not have"
        )
        fix = f"Write `accounting: release`, or another method than {method}."
        if draft.mode.on_release:
            fix = f"Write `method: {mine[0]}`, or another accounting."
        yield GateFinding("release-method", "trainable.method", rule, fix)
    if not draft.mode.on_release and privacy.release != ReleaseSection():
        rule = f"release needs `accounting: release`, but the accounting is {privacy.accounting}"
        fix = "Remove the key, or write `accounting: release`."
        yield GateFinding("release-unused", "privacy.release", rule, fix)


@gate("privacy.accounting", "privacy.private", "privacy.release", "privacy.noise_multiplier")
def guarantee(draft: Draft) -> Iterator[GateFinding]:
    """Require a private run for a rigorous release, and one without privacy for the published noise."""
    privacy = draft.experiment.privacy
    if draft.mode is not RELEASE:
        return
    if privacy.private and privacy.release.guarantee == "published":
        rule = "the theorem of the input perturbation paper is false, so its noise guarantees nothing"
        fix = "Write `guarantee: rigorous`, or `private: false` to study the paper. See docs/methods.md."
        yield GateFinding("release-published", "privacy.release.guarantee", rule, fix)
    if not privacy.private and privacy.release.guarantee == "rigorous":
        rule = "a rigorous release is charged, so the search must be private"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true, or `guarantee: published`.")
    if privacy.noise_multiplier != "auto":
        rule = "the noise of a release follows from epsilon, delta, clip and label_share"
        yield GateFinding("release-noise", "privacy.noise_multiplier", rule, "Remove the key.")


@gate("privacy.accounting", "privacy.unit", "dataset", "search.commit", "search.full_runs", "search.space")
def what_a_release_lacks(draft: Draft) -> Iterator[GateFinding]:
    """Refuse settings of private steps, and units that a release of records does not protect."""
    experiment = draft.experiment
    if draft.mode is not RELEASE:
        return
    if experiment.privacy.unit != "record":
        rule = "a release protects each row, but a user may have several"
        yield GateFinding("release-unit", "privacy.unit", rule, "Write `unit: record`, or another accounting.")
    if experiment.dataset.validation.protected:
        rule = "a search on a release costs nothing, but protected scores would be charged one by one"
        fix = "Write `protected: false` (then the guarantee does not cover the scores)."
        yield GateFinding("release-scores", "dataset.validation.protected", rule, fix)
    if experiment.dataset.block is not None:
        rule = "a release of a table by blocks is not supported"
        yield GateFinding("release-blocks", "dataset.block", rule, "Remove the key, or use another accounting.")
    for key, value in (("commit", experiment.search.commit), ("full_runs", experiment.search.full_runs)):
        if value is not None:
            rule = f"{key} divides the budget among runs, but trials on a release cost nothing"
            yield GateFinding("release-steps", f"search.{key}", rule, "Remove the key.")
    for name, (_, path) in draft.priced.items():
        rule = f"{name} is set once for all trials on a release"
        yield GateFinding("release-steps", path, rule, "Write one number in the section trainable.")
    for name, domain in () if draft.space is None else draft.space.parameters:
        if name == "schedule" and GEN in domain.grid(1):
            rule = "the schedule gen probes the loss of private batches, and a release has none"
            yield GateFinding("release-steps", "search.space.schedule", rule, "Write another schedule.")
        if name in _UNUSED and name in experiment.search.space and not isinstance(domain, Fixed):
            rule = f"{name} belongs to private steps and has no effect on a release"
            yield GateFinding("release-steps", f"search.space.{name}", rule, "Remove the key.")


RELEASE_GATES: tuple[Gate, ...] = (on_release, guarantee, what_a_release_lacks)
