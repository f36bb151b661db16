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
        shape: shape of the negative binomial distribution, above -1 and at most 1e6. It must be 0, or at least 1e-9
            away from 0. The other distributions have no shape.
        at_most: maximum number of runs. Cutting the distribution there costs a part of delta. auto takes the smallest
            maximum for which this part is at most 1 %.
    """

    law: Word = "geometric"
    shape: Finite | None = None
    at_most: AtMost = "auto"


class ReleaseSection(Section):
    """One noisy copy of the records, on which all trials train (`accounting: release`).

    Attributes:
        guarantee: `rigorous` charges an ε that holds for the release. `published` takes the noise of the input
            perturbation paper. The paper's theorem is false, so this noise needs `private: false`.
        trust: `local` protects each noisy row by itself, against everyone who sees the row. `central` also relies on
            the secret order of the rows, in which a record hides among the others, and needs less noise for the same ε.
        clip: largest norm of a record's features before noise is added. Longer features are scaled down to this norm.
        label_share: share of ε for the labels. The rest is for the features.
        constant: the unknown constant c in the theorem of the paper, for `guarantee: published`.
        strong_convexity: Δ in the theorem of the paper, for `guarantee: published`.
    """

    guarantee: Literal["rigorous", "published"] = "rigorous"
    trust: Literal["local", "central"] = "local"
    clip: Annotated[Positive, one_release("clip")] = 1.0
    label_share: Annotated[Fraction, one_release("label_share")] = 0.3
    constant: Positive = 1.0
    strong_convexity: Positive = 0.01


class VotesSection(Section):
    """Labels that teachers voted for, on which all students train (`accounting: votes`). Their noise follows from ε.

    Attributes:
        threshold: number of votes. An input gets a label if its largest vote count plus noise reaches this number.
        queries: number of public inputs whose votes are tested against the threshold. null means all inputs.
        answers: maximum number of labels. After that, no more input is tested.
        threshold_share: share of the squared privacy loss (the μ² of Gaussian differential privacy) for the tests. The
            rest is for the labels.
    """

    threshold: Annotated[Finite, one_release("threshold")] = 200.0
    queries: Annotated[Count | None, one_release("queries")] = None
    answers: Annotated[Count, one_release("answers")] = 300
    threshold_share: Annotated[Fraction, one_release("threshold_share")] = 0.15


class PrivacySection(Section):
    """Privacy settings. The budget applies to the WHOLE search.

    Attributes:
        epsilon: ε of the search, which is never exceeded. From 1e-6 to 1e6. A sealed search allows at most about 670.
        delta: δ of the search, below 1/n. n is the public number of training records (or users with `unit: user`).
        unit: protected unit, which is one record or all records of one user.
        accounting: accounting mode. `composition` shows all trials. `selection` is a sealed search, which shows only
            the winner. `public` searches on public data and then trains once on the private records. `release`
            charges one noisy copy of the records, on which any number of trials train. `votes` charges labels of
            public inputs that teachers voted for, on which any number of students train. `auto` takes the way to
            search that is expected to cost the least accuracy (`tuner.plan.comparison`).
        cap: kind of cap with `composition`. auto chooses the tightest kind that the search space allows.
        order: Rényi order with `cap: fixed_order`, from 1.05 to 1024. auto chooses the best order for the plan.
        accountant: accountant that computes the claim. `pld` (privacy loss distributions) is the only one.
        adjacency: which data sets are neighbours. `add_or_remove_one` is the only one.
        noise_multiplier: a number from 0.001 to 1e6, or a domain to search. auto chooses the smallest noise with which
            the planned trials fit the budget. 0 only with `private: false`.
        runs: the hidden number of runs with `accounting: selection`.
        release: the noisy copy with `accounting: release`.
        votes: the labels with `accounting: votes`.
        purpose: purpose of the search, in one line. The ledger keeps this line for ever, for the data protection
            officer.
        contact: who answers questions about the search. The ledger keeps this line for ever, so prefer the mail address
            of a role to that of a person.
        private: whether the search is private. false is for studies, whose models cannot be exported as private.
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
