"""Gates for `accounting: auto`, which chooses how to search from public facts."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.privacy_sections import RunsSection

__all__ = ["AUTO_GATES"]


@gate("privacy", "search", "chosen_by_auto")
def auto(draft: Draft) -> Iterator[GateFinding]:
    """Require a private search, and leave to `accounting: auto` what it decides."""
    experiment = draft.experiment
    if not experiment.is_auto:
        return
    privacy, search = experiment.privacy, experiment.search
    if not privacy.private:
        rule = "`accounting: auto` compares ways to spend a privacy budget, so the search must be private"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true, or `accounting: composition`.")
    decided = {
        "search.commit": search.commit is not None,
        "search.full_runs": search.full_runs is not None,
        "privacy.runs": privacy.runs != RunsSection(),
        "privacy.cap": privacy.cap != "auto",
        "privacy.order": privacy.order != "auto",
        "privacy.noise_multiplier": isinstance(privacy.noise_multiplier, int | float),
        "chosen_by_auto": experiment.chosen_by_auto is not None,
    }
    for key in (key for key, given in decided.items() if given):
        rule = "`accounting: auto` chooses the value of this key itself"
        fix = "Remove the key, or replace auto by the accounting that uses this key."
        if key == "chosen_by_auto":
            fix = "dp-tuner wrote this file after auto had chosen a mode. Use the original file instead."
        yield GateFinding("auto-decides", key, rule, fix)


AUTO_GATES: tuple[Gate, ...] = (auto,)
