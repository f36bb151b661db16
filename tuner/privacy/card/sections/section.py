"""Classes for the sections of a card: a section, its fields, and the subject of the card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainables.model_names import MODELS
from tuner.errors import VerificationError
from tuner.privacy.accountant.filters import Filter
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.card.own_words import CardFacts
from tuner.privacy.card.text import detail, plain, words
from tuner.privacy.card.wording import UNITS, UnitWords
from tuner.privacy.ledger.state import DatasetState, SearchState
from tuner.privacy.modes import Mode, mode_of_charges

__all__ = ["CardSection", "Field", "Subject", "starting_weights"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Subject of a card: a search, its data set's state in the ledger, and the facts that the operator supplies.

    For a search over blocks of a table, `state` is that of its first block, and `others` are those of its other blocks.
    """

    state: DatasetState
    search: SearchState
    facts: CardFacts
    others: tuple[DatasetState, ...] = ()

    @property
    def mode(self) -> Mode:
        """The search's accounting mode."""
        public = bool(self.search.details.get("public_search"))
        return mode_of_charges(self.search.filter.mode, searched_publicly=public)

    @property
    def unit(self) -> UnitWords:
        """Words for the search's unit of protection."""
        return UNITS[self.search.unit]

    @cached_property
    def winner(self) -> tuple[SampledGaussian, int]:
        """The winner's mechanism and its number of charged steps. Raises `VerificationError` if no step was charged.

        A model that was trained on a release has none.
        """
        found, name = self.search, self.search.search
        if found.charged_whole:
            if not found.begun:
                raise _not_charged(f"The sealed search {name!r} never began, so none of its runs was charged.")
            run = self.facts.winner_run
            if run is None or not _may_make(found.filter, run):
                raise _not_charged(f"The sealed search {name!r} was not charged for the run {run!r}.")
            return run
        trial = found.trials.get(self.facts.winner)
        if trial is None or not trial.leased or trial.mechanism is None:
            raise _not_charged(f"Trial {self.facts.winner!r} of the search {name!r} has no charged steps.")
        return trial.mechanism, trial.leased

    @property
    def model(self) -> str | None:
        """Name of the trained model. The entry of a release has none, because any model may train on it."""
        return self.facts.model or self.search.details.get("model")

    @cached_property
    def single_run_epsilon(self) -> float:
        """ε of the winner's steps alone, at the search's δ. For a release, its ε."""
        if self.mode.on_release:
            if not (self.search.begun and self.search.stored):
                raise _not_charged(f"The release {self.search.search!r} was not charged or not stored.")
            return self.search.filter.claim(self.search.delta)
        return epsilon(*self.winner, self.search.delta)


def starting_weights(subject: Subject) -> str:
    """Return which weights a search starts from, as the ledger keeps it."""
    start, commit = subject.search.details.get("start"), subject.search.details.get("commit")
    seed = "a seed that was secret until the winner's release" if subject.mode.runs_hidden else "the public seed"
    found = f"random, from {seed}"
    if isinstance(start, Mapping):
        found = (
            f"assumed public, sha256 {start.get('sha256')}; the experiment file declares this, and it is not checked"
        )
    elif subject.model is not None and subject.model not in MODELS:
        found = f"what the user's own function {subject.model} returns, assumed to depend on no private record"
    warm = isinstance(commit, Mapping) and commit.get("start") == "best_trial"
    return f"{found}; the committed run starts from a charged trial's" if warm else found


def _may_make(filter: Filter, run: tuple[SampledGaussian, int]) -> bool:
    """Return whether a sealed search was charged for `run`, or for a longer run of the same mechanism."""
    return any(run[0] == mechanism and 1 <= run[1] <= most for mechanism, most in filter.charged_runs)


def _not_charged(said: str) -> VerificationError:
    return VerificationError("card-run-not-charged", f"{said} Only a charged run gets a privacy card.")


@dataclass(frozen=True)
class Field:
    """How the page shows a field of the card: the label, and the function that formats the value."""

    label: str
    show: Callable[[Any], str] = detail


@dataclass(frozen=True, kw_only=True)
class CardSection:
    """Section of a card.

    Attributes:
        name: key in the JSON file.
        title: heading on the page.
        value: function that returns the section's JSON value.
        fields: fields by key, in the order of the page; None hides a key. Keys that are not listed follow, with the
            key as the label.
        row: function that returns the page's line for an item, if the section's value is a list.
    """

    name: str
    title: str
    value: Callable[[Subject], Any]
    fields: Mapping[str, Field | None] = field(default_factory=dict)
    row: Callable[[Any], str] = plain

    def lines(self, value: Any) -> list[str]:  # noqa: ANN401 - any JSON value
        """Return the section's lines of Markdown. `value` is the JSON value of the section."""
        if isinstance(value, list):
            return [f"- {self.row(item)}" for item in value] or ["none"]
        if not isinstance(value, Mapping):
            return [plain(value)]
        # Lines have the order of `fields`, because the keys of a card file are sorted.
        keys = [*(key for key in self.fields if key in value), *sorted(value.keys() - self.fields.keys())]
        shown = ((self.fields.get(key, Field(words(key))), value[key]) for key in keys)
        return [f"- {field.label}: {field.show(item)}" for field, item in shown if field is not None]
