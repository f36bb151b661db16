"""Gates for searches on a release: one noisy copy of the records, or voted labels (`accounting: release, votes`)."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import Fixed
from search_spaces.schedules import GEN
from trainables.data import DATASETS, DatasetInfo
from trainables.methods import METHODS
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.privacy_sections import ReleaseSection, VotesSection
from tuner.privacy.modes import RELEASE, VOTES, Mode

__all__ = ["RELEASE_GATES"]

_UNUSED = ("max_grad_norm", "clipping", "augmentation", "augmentation_multiplicity", "ema_decay", "extrapolation")
"""Parameters of private steps, which a training on a release does not have."""

_RELEASES = {RELEASE.name: "one noisy copy of the records", VOTES.name: "labels that teachers voted for"}


@gate("privacy.accounting", "trainable.method", "privacy.release", "privacy.votes")
def on_release(draft: Draft) -> Iterator[GateFinding]:
    """Require the mode of the release that a method trains on, and no such mode for other methods."""
    privacy, method = draft.experiment.privacy, draft.experiment.trainable.method
    if draft.method is None:
        return
    mode = _mode_of(draft.method)
    if mode is not (draft.mode if draft.mode.on_release else None):
        mine = [name for name in METHODS if _mode_of(name) is draft.mode]
        rule = (
            f"{method} trains with private steps, but `accounting: {draft.mode.name}` has none"
            if mode is None
            else f"{method} trains on {_RELEASES[mode.name]}, which needs `accounting: {mode.name}`"
        )
        fix = f"Write `accounting: {mode.name}`, or another method than {method}." if mode is not None else ""
        if draft.mode.on_release:
            fix = f"Write `method: {mine[0]}`, or another accounting."
        yield GateFinding("release-method", "trainable.method", rule, fix)
    for each, unset in ((RELEASE, privacy.release == ReleaseSection()), (VOTES, privacy.votes == VotesSection())):
        if draft.mode is not each and not unset:
            rule = f"this section needs `accounting: {each.name}`, but the accounting is {privacy.accounting}"
            fix = f"Remove the key, or write `accounting: {each.name}`."
            yield GateFinding("release-unused", f"privacy.{each.name}", rule, fix)


@gate("privacy.accounting", "dataset", "privacy.private")
def votes(draft: Draft) -> Iterator[GateFinding]:
    """Require votes for the mode votes, and this mode for a data set of public inputs with private votes."""
    privacy, name = draft.experiment.privacy, draft.experiment.dataset.name
    known = DATASETS.get(name)
    voted = known is not None and known.teachers is not None
    if draft.mode is VOTES and not voted:
        rule = f"`accounting: votes` needs votes of teachers, but {name} has none"
        having = ", ".join(each for each, about in DATASETS.items() if about.teachers is not None)
        yield GateFinding("votes-without", "dataset.name", rule, f"Write `name: {having}`, or another accounting.")
    if draft.mode is not VOTES and voted:
        rule = f"the records of {name} are public, and only its votes are private, so the accounting must be votes"
        yield GateFinding("votes-without", "privacy.accounting", rule, "Write `accounting: votes`.")
    if draft.mode is VOTES and not privacy.private:
        rule = "voted labels are charged, so the search must be private"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true.")
    if draft.mode is VOTES and privacy.noise_multiplier != "auto":
        rule = "must be auto, because epsilon, delta, queries, answers and threshold_share decide the noise of votes"
        yield GateFinding("release-noise", "privacy.noise_multiplier", rule, "Remove the key.")
    if draft.mode is VOTES and known is not None and not privacy.delta < 1 / _records(known):
        rule = f"must be below 1/n, where n = {_records(known)} is the number of records of the teachers"
        yield GateFinding("delta-too-large", "privacy.delta", rule, f"Write at most {_records(known) ** -1.1:.1g}.")


def _mode_of(method: str) -> Mode | None:
    """Return the mode of the release that a method trains on; None for a method of private steps."""
    kind = METHODS.get(method)  # None for a user's own method, which trains by private steps
    if kind is None or not kind.on_release:
        return None
    return VOTES if kind.on_votes else RELEASE


def _records(known: DatasetInfo) -> int:
    return DATASETS[known.budget_owner].public_train_size


@gate("privacy.accounting", "privacy.private", "privacy.release", "privacy.noise_multiplier")
def guarantee(draft: Draft) -> Iterator[GateFinding]:
    """Require a private run for a rigorous release, and one without privacy for the published noise."""
    privacy = draft.experiment.privacy
    if draft.mode is not RELEASE:
        return
    if privacy.private and privacy.release.guarantee == "published":
        rule = "the theorem of the input perturbation paper is false, so the noise of the paper guarantees nothing"
        fix = "Write `guarantee: rigorous`, or `private: false` to study the paper. See docs/methods.md."
        yield GateFinding("release-published", "privacy.release.guarantee", rule, fix)
    if not privacy.private and privacy.release.guarantee == "rigorous":
        rule = "a rigorous release is charged, so the search must be private"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true, or `guarantee: published`.")
    if privacy.noise_multiplier != "auto":
        rule = "must be auto, because epsilon, delta, clip and label_share decide the noise of a release"
        yield GateFinding("release-noise", "privacy.noise_multiplier", rule, "Remove the key.")


@gate("privacy.accounting", "privacy.unit", "dataset", "search.commit", "search.full_runs", "search.space")
def what_a_release_lacks(draft: Draft) -> Iterator[GateFinding]:
    """Refuse settings of private steps, and units that a release of records does not protect."""
    experiment = draft.experiment
    if not draft.mode.on_release:
        return
    if experiment.privacy.unit != "record":
        rule = "a release protects single records, but a user may have several records"
        yield GateFinding("release-unit", "privacy.unit", rule, "Write `unit: record`, or another accounting.")
    if experiment.dataset.validation.protected:
        rule = "a search on a release costs nothing, but protected scores would be charged one by one"
        fix = "Write `protected: false` (then the guarantee does not cover the scores)."
        yield GateFinding("release-scores", "dataset.validation.protected", rule, fix)
    if experiment.dataset.block is not None:
        rule = "a release covers a whole table, so blocks are not supported"
        yield GateFinding("release-blocks", "dataset.block", rule, "Remove the key, or use another accounting.")
    for key, value in (("commit", experiment.search.commit), ("full_runs", experiment.search.full_runs)):
        if value is not None:
            rule = f"{key} divides the budget among runs, but trials on a release cost nothing"
            yield GateFinding("release-steps", f"search.{key}", rule, "Remove the key.")
    for name, (_, path) in draft.priced.items():
        rule = f"{name} must have one value for all trials on a release"
        yield GateFinding("release-steps", path, rule, "Write one number in the section trainable.")
    for name, domain in () if draft.space is None else draft.space.parameters:
        if name == "schedule" and GEN in domain.grid(1):
            rule = "the schedule gen probes the loss of private batches, but training on a release has none"
            yield GateFinding("release-steps", "search.space.schedule", rule, "Write another schedule.")
        if name in _UNUSED and name in experiment.search.space and not isinstance(domain, Fixed):
            rule = f"{name} has an effect only on private steps, but training on a release has none"
            yield GateFinding("release-steps", f"search.space.{name}", rule, "Remove the key.")


RELEASE_GATES: tuple[Gate, ...] = (on_release, votes, guarantee, what_a_release_lacks)
