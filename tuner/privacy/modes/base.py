"""Accounting mode. It decides what a search may show, what is charged, and how the privacy card describes both."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KEPT", "KEY", "Mode"]

KEY = "A checkpoint file contains the random key of future noise, so only the model in it may be shown, not the file"
"""Sentence of the card: why checkpoint files are for the operator only."""

KEPT = f"checkpoint files, raw logs, noise and records are for the operator only. {KEY}"
"""Sentence of the card: what every mode hides from analysts."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Accounting mode of a search (``privacy.accounting``).

    To add a mode, write a module with an instance of this class and list the instance in `tuner.privacy.modes.MODES`.
    Then add how the mode is planned (`tuner.plan.modes.PLANNERS`), shown (`tuner.report.plan_modes.MODE_ROWS`) and run
    (`tuner.runner.start.RUNNERS`).

    Attributes:
        name: stable name that experiment files and cards use.
        runs_hidden: whether only the winner is shown. If so, the search is charged as a whole, and only the operator
            may see anything that depends on the number of its runs.
        searches_public: whether the trials run on public records and are not charged. If so, one run of the best
            configuration is trained on the private records and charged.
        on_release: whether the trials train on one noisy copy of the records, which is charged as a whole. If so, no
            trial reads a record or is charged.
        record: what one record is, for the sentence of the guarantee.
        inputs: what the trials train on, for plans.
        caps: kinds of privacy filter (cap) that the experiment file may choose; empty if the mode fixes the kind.
        samplers: samplers that the mode allows; empty if it allows all.
        pruners: pruners that the mode allows; empty if it allows all.
        guarantee: what the guarantee covers, for plans and reports.
        label: how trials are charged, in the words of the card.
        covers: what the card's claim covers.
        access: which steps used the records, and when they were charged.
        released: what may be shown.
        kept: what is hidden from analysts.
        winner: meaning of the ε that the card states for the exported run alone.
        winner_row: short form of `winner`, for the table of the card's page.
        extent: what the card's numbers cover. The card replaces `{most}` by what the cap allows, and `{so_far}` by a
            sentence that says what was charged so far.
    """

    name: str
    runs_hidden: bool = False
    searches_public: bool = False
    on_release: bool = False
    record: str = "training record"
    inputs: str = "training records"
    caps: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ()
    pruners: tuple[str, ...] = ()
    guarantee: str
    label: str
    covers: str
    access: str
    released: str
    kept: str = KEPT
    winner: str = "ε that this run would have as the only trial: NOT a guarantee for a tuned model"
    winner_row: str = "as if it were the only trial: not a guarantee"
    extent: str

    @property
    def charges_trials(self) -> bool:
        """Whether the ledger charges the sweep under its own name, for what its trials do."""
        return not (self.searches_public or self.on_release)

    def private_trials(self, trials: int) -> int:
        """Return how many of the planned trials are trained on the private records."""
        return 1 if self.searches_public else trials
