"""Gate for `search.commit`: short, noisy trials, then one committed run under the same cap."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.privacy.modes import COMPOSITION

__all__ = ["COMMIT_GATES"]


@gate(
    "search.commit",
    "search.full_runs",
    "search.space",
    "privacy.accounting",
    "privacy.noise_multiplier",
    "privacy.cap",
)
def commit(draft: Draft) -> Iterator[GateFinding]:
    """Require what the two quotas of a search with a committed run are proved and built for."""
    experiment, key = draft.experiment, "search.commit"
    if experiment.search.commit is None:
        return
    privacy = experiment.privacy
    if draft.mode is not COMPOSITION:
        rule = (
            "a committed run needs `accounting: composition`, because the visible scores of trials decide its "
            f"configuration, but the accounting is {privacy.accounting}"
        )
        yield GateFinding("commit-needs-composition", key, rule, "Write `accounting: composition`, or remove the key.")
    if experiment.search.full_runs is not None:
        rule = "`search.commit` reserves the steps of a short trial at once, but `full_runs` reserves them rung by rung"
        yield GateFinding("commit-with-full-runs", "search.full_runs", rule, "Remove one of the two keys.")
    if draft.priced:
        rule = (
            f"a committed run needs the same batch size, number of epochs and noise in all trials, but this file "
            f"searches {' and '.join(draft.priced)}"
        )
        yield GateFinding("commit-priced-searched", key, rule, "Give each one value, or remove `search.commit`.")
    elif privacy.noise_multiplier != "auto":
        rule = "`search.commit` calibrates the noise of the trials and of the committed run, so no noise can be given"
        yield GateFinding("commit-noise-given", "privacy.noise_multiplier", rule, "Write auto, or remove the key.")
    if draft.mode.caps and privacy.cap not in ("auto", "coupon_book"):
        rule = f"a committed run needs `cap: coupon_book`, with a quota for each noise, but the cap is {privacy.cap}"
        yield GateFinding("commit-cap", "privacy.cap", rule, "Write auto.")


COMMIT_GATES: tuple[Gate, ...] = (commit,)
