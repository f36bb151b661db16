"""Accounting mode: what a search may show, what it is charged for, and how the privacy card words it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KEPT", "KEY", "Mode"]

KEY = "A checkpoint holds the key of noise still to be drawn: a model in it may be shown, the file may not"
"""Why checkpoint files are for the operator only, on the card."""

KEPT = f"checkpoint files, raw logs, noise and records are for the operator only. {KEY}"
"""What every mode keeps from analysts, on the card."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Accounting mode of a search (``privacy.accounting``).

    A new mode is one module with an instance of this class, listed in `tuner.privacy.modes.MODES`, and three entries of
    registries: how it is planned (`tuner.plan.modes.PLANNERS`), shown (`tuner.report.plan_modes.MODE_ROWS`) and run
    (`tuner.runner.start.RUNNERS`).

    Attributes:
        name: stable name, in experiment files and on cards.
        runs_hidden: whether only the winner is shown. Then the search is charged as a whole, and nothing that depends
            on the number of its runs leaves the operator.
        searches_public: whether the trials run on public records and are charged nowhere. Then one run of the best
            configuration is trained on the private records and charged.
        caps: kinds of filter among which the file may choose; empty if the mode has one of its own.
        samplers: samplers that the mode allows; empty for all.
        pruners: pruners that the mode allows; empty for all.
        guarantee: what the guarantee covers, in the sentence of plans and reports.
        label: how trials are charged, on the card.
        covers: what the card's claim covers.
        access: how the search used the records.
        released: what may be shown.
        kept: what is kept from analysts.
        winner: meaning of the exported run's own ε.
        winner_row: the same in the table of the card's page.
        extent: what the card's numbers cover; `{most}` is what the cap allows, `{so_far}` what was charged.
    """

    name: str
    runs_hidden: bool = False
    searches_public: bool = False
    caps: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ()
    pruners: tuple[str, ...] = ()
    guarantee: str
    label: str
    covers: str
    access: str
    released: str
    kept: str = KEPT
    winner: str = "ε of this run as if it were the only one: NOT a guarantee for a tuned model"
    winner_row: str = "as if it were the only one: not a guarantee"
    extent: str

    def private_trials(self, trials: int) -> int:
        """Return how many of the planned trials are trained on the private records."""
        return 1 if self.searches_public else trials
