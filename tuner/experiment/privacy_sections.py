"""Section `privacy` of the experiment file. See `tuner.experiment.sections`."""

from __future__ import annotations

from typing import Annotated, Literal

from tuner.experiment.sections import Section
from tuner.experiment.values import (
    AtMost,
    Count,
    Finite,
    Fraction,
    Line,
    Noise,
    Order,
    Positive,
    Seed,
    Word,
    one_release,
)

__all__ = ["PrivacySection", "ReleaseSection", "RunsSection", "VotesSection"]


class RunsSection(Section):
    """Distribution of the number of runs of a sealed search. The number is hidden, and its mean is search.trials.

    Attributes:
        law: name of the distribution.
        shape: shape of the negative binomial distribution, above -1 and at most 1e6, and 0 or at least 1e-9 from it.
            The other distributions have no shape.
        at_most: maximum number of runs. With auto, the probability of more runs costs 1 % of delta.
    """

    law: Word = "geometric"
    shape: Finite | None = None
    at_most: AtMost = "auto"


class ReleaseSection(Section):
    """One noisy copy of the records, on which all trials train (`accounting: release`).

    Attributes:
        guarantee: `rigorous` charges the release for what is true of it. `published` is the noise of the input
            perturbation paper, whose theorem is false; it needs `private: false`.
        trust: `local` protects each row by itself, against everyone who sees it. `central` also uses the secret order
            of the rows, so that a record hides among the others, and needs less noise for the same ε.
        clip: largest norm of a record's features before noise.
        label_share: share of ε for the labels. The rest is for the features.
        constant: the unknown constant c of the published theorem.
        strong_convexity: Δ of the published theorem.
    """

    guarantee: Literal["rigorous", "published"] = "rigorous"
    trust: Literal["local", "central"] = "local"
    clip: Annotated[Positive, one_release("clip")] = 1.0
    label_share: Annotated[Fraction, one_release("label_share")] = 0.3
    constant: Positive = 1.0
    strong_convexity: Positive = 0.01


class VotesSection(Section):
    """Labels that teachers voted for, on which all students train (`accounting: votes`). Its noise follows from ε.

    Attributes:
        threshold: votes that the largest count of a query plus noise must reach for an answer.
        queries: number of public inputs that are tested; null for all of them.
        answers: largest number of labels. After it, no query is tested any more.
        threshold_share: the tests' share of the squared noise-to-signal ratio. The answers have the rest.
    """

    threshold: Annotated[Finite, one_release("threshold")] = 200.0
    queries: Annotated[Count | None, one_release("queries")] = None
    answers: Annotated[Count, one_release("answers")] = 300
    threshold_share: Annotated[Fraction, one_release("threshold_share")] = 0.15


class PrivacySection(Section):
    """Privacy settings. The budget applies to the WHOLE search.

    Attributes:
        epsilon: ε of the search, which is never exceeded. From 1e-6 to 1e6; of a sealed search at most about 670.
        delta: δ of the search, below 1/n. n is the public number of training records (or users with `unit: user`).
        unit: protected unit, which is one record or all records of one user.
        accounting: accounting mode. `composition` shows all trials. `selection` is a sealed search, which shows only
            the winner. `public` searches on public data and then trains once on the private records. `release`
            charges one noisy copy of the records, on which any number of trials train. `votes` charges labels of
            public inputs that teachers voted for, on which any number of students train. `auto` takes what
            is expected to cost the least accuracy (`tuner.plan.comparison`).
        cap: filter for `composition`. auto chooses the tightest filter that the search space allows.
        order: Rényi order of the fixed_order filter, from 1.05 to 1024. auto chooses the best order for the plan.
        accountant: accountant of the claim. `pld` is the only one.
        adjacency: which data sets are neighbours. `add_or_remove_one` is the only one.
        noise_multiplier: a number from 0.001 to 1e6, or a domain to search. auto chooses the smallest noise with which
            the planned trials fit the budget. 0 only with `private: false`.
        runs: the hidden number of runs of `accounting: selection`.
        release: the noisy copy of `accounting: release`.
        votes: the labels of `accounting: votes`.
        purpose: what the search is for, one line. The ledger keeps it for ever, for the data protection officer.
        contact: who answers questions about the search. The ledger keeps it for ever, so prefer the mail address of a
            role to that of a person.
        private: false is for studies without privacy, whose models cannot be exported as private.
        noise_seed: seed of the noise, allowed only with `private: false`.
    """

    epsilon: Positive
    delta: Fraction = 1e-5
    unit: Literal["record", "user"] = "record"
    accounting: Word = "composition"
    cap: Literal["auto", "total_steps", "coupon_book", "fixed_order"] = "auto"
    order: Order = "auto"
    accountant: Word = "pld"
    adjacency: Word = "add_or_remove_one"
    noise_multiplier: Noise = "auto"
    runs: RunsSection = RunsSection()
    release: ReleaseSection = ReleaseSection()
    votes: VotesSection = VotesSection()
    purpose: Line | None = None
    contact: Line | None = None
    private: bool = True
    noise_seed: Seed | None = None
