"""Card sections: the assumptions of the claim with their status, and what is not proved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces import METHODS, MINIMA
from trainables.model_names import MODELS
from tuner.privacy.accountant.filters import Filter, Sealed, VotedLabels
from tuner.privacy.card.sections.records import GENERATOR
from tuner.privacy.card.sections.section import CardSection, Subject, starting_weights
from tuner.privacy.card.text import plain
from tuner.privacy.card.wording import OPERATOR_TRUST
from tuner.privacy.ledger.division import basis

__all__ = ["ASSUMPTIONS", "NOT_PROVED"]

_ENGINE = "holds: enforced by the engine, tested"
_LEDGER = "holds: enforced by the ledger, tested"
_BOTH = "holds: enforced by the engine and the ledger, tested"
_RAISING = "if a record makes the code raise an error, the record adds a zero gradient, or counts as a wrong answer"
_ROUNDED = "floating-point numbers are not exactly Gaussian"
_ASSUMED, _NOT_COVERED = "assumed", "not covered"

Assumption = tuple[str, str, str]
"""An assumption in words, its status, and the reason for the status."""


def _value(subject: Subject) -> list[dict[str, str]]:
    rows = [*_of_steps(subject), *_of_charging(subject), *_of_records(subject)]
    return [{"assumption": what, "status": status, "why": why} for what, status, why in rows]


def _of_steps(subject: Subject) -> list[Assumption]:
    facts, unit = subject.facts, subject.search.unit
    if subject.mode.on_release:
        return _of_release(subject)
    if subject.search.details.get("method") in MINIMA:
        return _of_minimum(subject)
    public = "holds: the experiment file sets it, and it does not depend on the number of records in the data"
    clipped = (
        "the gradients of all augmented views of a record are clipped as one vector"
        if unit == "record"
        else f"the gradients of at most {facts.records_per_user} records of a user are clipped as one vector; "
        "a hash chooses these records, independently of other users"
    )
    return [
        (
            "each batch is a Poisson sample at the sample rate",
            _ENGINE,
            f"each {unit} is drawn by its index, independently of the others; a batch may be empty",
        ),
        (
            f"one {unit} changes the sum of clipped gradients by at most C",
            _ENGINE if _comes_with_us(subject) else _ASSUMED,
            f"{clipped}; this also needs the assumptions below on single samples and on how a trial ends",
        ),
        *_of_probes(subject),
        *_of_code(subject),
        *_of_start(subject),
        *_of_device(subject),
        (
            "sums over records are divided by a public number",
            public if facts.public_size_is_public else _ASSUMED,
            "the expected batch size",
        ),
        ("the noise is Gaussian, and drawn anew each time", _ASSUMED, f"{GENERATOR}; {_ROUNDED}"),
        (subject.search.filter.assumption[0], _LEDGER, subject.search.filter.assumption[1]),
    ]


def _of_votes(subject: Subject) -> list[Assumption]:
    return [
        (
            "one record changes the votes of at most one teacher",
            _ASSUMED,
            "each record must train one teacher only, and removing it must move no other record to another teacher; a "
            "teacher and its settings must depend on its own records only; the settings of the tests and answers must "
            "depend on no record and no vote; none of this is checked, because the votes come as a file",
        ),
        (
            "a teacher has one vote on each input",
            _ENGINE,
            "the counts of each input add up to the public number of teachers, or no label is drawn",
        ),
        (
            "the inputs that the teachers voted on are public",
            _ASSUMED,
            "the data set declares that these inputs and its test set are public",
        ),
        ("the noise is Gaussian, and drawn anew each time", _ASSUMED, f"{GENERATOR}; {_ROUNDED}"),
        (subject.search.filter.assumption[0], _LEDGER, subject.search.filter.assumption[1]),
        ("computations on the labels read no vote", _ENGINE, "students get the stored labels, and no vote"),
        *_of_constants(subject),
    ]


def _of_minimum(subject: Subject) -> list[Assumption]:
    proof = (
        "a step costs at most as much as one Gaussian mechanism (docs/guarantees.md: A perturbed minimum, A perturbed "
        "objective)"
    )
    return [
        ("a step computes one perturbed minimum over all records, at sample rate 1", _ENGINE, proof),
        (
            "the loss is convex and smooth, and its L2 coefficient is above 0",
            _ENGINE,
            "only logistic regression is admitted; the inputs of a record are clipped, each record by itself",
        ),
        (
            "the solver stops near the minimum",
            _ENGINE,
            "the solver checks the size of the gradient, with a factor of 2 for rounding; the noise covers the "
            "remaining distance to the minimum",
        ),
        (
            "sums over records are divided by a public number",
            "holds: the experiment file sets it, and it does not depend on the number of records in the data"
            if subject.facts.public_size_is_public
            else _ASSUMED,
            "the public number of records",
        ),
        ("the noise is Gaussian, and drawn anew each time", _ASSUMED, f"{GENERATOR}; {_ROUNDED}"),
        (subject.search.filter.assumption[0], _LEDGER, subject.search.filter.assumption[1]),
    ]


def _of_release(subject: Subject) -> list[Assumption]:
    if isinstance(subject.search.filter, VotedLabels):
        return _of_votes(subject)
    return [
        (
            "the features of each record are clipped separately, before noise is added",
            _ENGINE,
            "if a value of a record is not finite, all its features count as zeros",
        ),
        (
            "the number of rows is public",
            "holds: the experiment file sets it, and it does not depend on the number of records in the data"
            if subject.facts.public_size_is_public
            else _ASSUMED,
            "if there are fewer records than rows, rows without a record fill the rest; if there are more, a random "
            "choice of the records is used",
        ),
        ("the noise is Gaussian, and drawn anew each time", _ASSUMED, f"{GENERATOR}; {_ROUNDED}"),
        (subject.search.filter.assumption[0], _LEDGER, subject.search.filter.assumption[1]),
        (
            "computations on the release read no training record",
            _ENGINE,
            "trials get the stored release instead of the records",
        ),
        *_of_constants(subject),
    ]


def _of_probes(subject: Subject) -> list[Assumption]:
    if "probe_share" not in subject.search.details:
        return []
    return [
        (
            f"one {subject.search.unit} changes the loss probes by at most their sensitivity",
            _ENGINE if _comes_with_us(subject) else _ASSUMED,
            "the differences of its losses are clipped, and a difference that is not finite counts as 0",
        )
    ]


def _of_code(subject: Subject) -> list[Assumption]:
    """Return the assumptions about the code that sees records before the clip.

    The card vouches for the models and methods that come with dp-tuner. Others were only tested on public inputs.
    """
    crash = "a crash of the process, or a pass that never ends, is not covered"
    if _comes_with_us(subject):
        return [
            (
                "before clipping, each sample is computed without the other samples",
                _ENGINE,
                "the model and the method come with dp-tuner",
            ),
            ("no record decides how a trial ends", _ENGINE, f"{_RAISING}; {crash}"),
        ]
    tested = (
        f"{_own_code(subject)}: the user's own code, which does not come with dp-tuner; it was tested on public "
        "inputs, but such tests cannot find every dependence between samples"
    )
    return [
        ("before clipping, each sample is computed without the other samples", _ASSUMED, tested),
        ("no record decides how a trial ends", _ASSUMED, f"{_RAISING}; {crash}"),
        *_of_constants(subject),
    ]


def _of_constants(subject: Subject) -> list[Assumption]:
    """Return the assumption about what the user's own code brings with it, such as weights that it reads."""
    if _comes_with_us(subject):
        return []
    return [
        (
            "the initial weights, buffers and constants of the user's own code depend on no private record",
            _ASSUMED,
            f"they are those of {_own_code(subject)}, and are not checked",
        )
    ]


def _own_code(subject: Subject) -> str:
    kinds = (("model", subject.model, MODELS), ("method", subject.search.details.get("method"), METHODS))
    return " and ".join(f"{kind} {name}" for kind, name, ours in kinds if name not in ours)


def _of_start(subject: Subject) -> list[Assumption]:
    """Return the assumption about public weights. Whoever wrote the experiment file declared them."""
    details = subject.search.details
    if "start" not in details:
        return []
    return [("the weights from which training starts depend on no private record", _ASSUMED, starting_weights(subject))]


def _of_device(subject: Subject) -> list[Assumption]:
    """Return the assumption about a GPU. The engine was tested on CPUs, and on a pretended GPU, which rounds alike."""
    if subject.search.details.get("device") != "cuda":
        return []
    why = (
        "the trials ran on a GPU, where the other records of a pass could change how a record is rounded; all passes "
        "have one public size, and products are computed in full float32; no test on a real GPU has shown that this is "
        "enough"
    )
    return [("rounding on the GPU stays within what the noise covers", _ASSUMED, why)]


def _comes_with_us(subject: Subject) -> bool:
    """Return whether the model and the method come with dp-tuner."""
    return subject.model in MODELS and subject.search.details.get("method") in METHODS


def _of_drawing(filter: Filter) -> Assumption:
    """Return the assumption about how a sealed search draws configurations."""
    if not isinstance(filter, Sealed) or filter.ratio == (1.0, 1.0):
        why = "random search with a secret key from the operating system"
        return "configurations are drawn independently from a fixed distribution", _ENGINE, why
    low, high = filter.ratio
    return (
        f"whatever earlier runs scored, the density of a configuration is between {low:g} and {high:g} times that of a "
        "fixed distribution",
        _ENGINE,
        "the sampler draws from a mixture with these bounds, and ε includes what its choices reveal",
    )


def _of_charging(subject: Subject) -> list[Assumption]:
    found = subject.search
    rows: list[Assumption]
    if subject.mode.on_release:
        rows = []
    elif found.hides_runs:
        rows = [
            (
                "the number of runs has the planned distribution and is independent of everything else",
                _ENGINE,
                "it is drawn from the operating system's generator and never shown",
            ),
            _of_drawing(found.filter),
            ("only the winner is released", _ASSUMED, OPERATOR_TRUST),
        ]
    else:
        rows = [
            (
                "every training step was charged before it was taken",
                _BOTH,
                "a step's charge is stored durably before the step is taken",
            ),
            (
                "the charges stay within the cap",
                _LEDGER,
                "each reservation and charge is checked and written in one transaction",
            ),
        ]
    if found.validation is not None:
        rows += [
            (
                "adding a record moves no other record between training and validation",
                _ENGINE,
                "a keyed hash of each record, or of its published index, decides between training and validation",
            ),
            (
                "every score was charged before its noise was drawn",
                _BOTH,
                "a score's charge is stored durably before the score is computed",
            ),
        ]
    return rows


def _of_records(subject: Subject) -> list[Assumption]:
    found, rows = subject.search, []
    if subject.mode.searches_public:
        declared = "the experiment file declares that they are public and contain no private record"
        rows.append(("the records of the search are public", _ASSUMED, declared))
    if found.unit == "user":
        rows += [
            ("the user of each record is known and correct", _ASSUMED, "this is not checked"),
            (
                "all searches assign each record to the same user",
                _ASSUMED if found.division is None or found.division.user_key is not None else _LEDGER,
                basis(subject.state) or "none",
            ),
        ]
    scored = "test records" if found.validation is not None else "validation and test records"
    return [
        *rows,
        ("preprocessing does not depend on private records", _ASSUMED, subject.facts.preprocessing),
        ("the operator hides checkpoints, logs, records and noise from others", _ASSUMED, OPERATOR_TRUST),
        ("other uses of these records, outside this ledger", _NOT_COVERED, "the ledger cannot know about them"),
        (scored, _NOT_COVERED, "the guarantee does not cover scores on these records"),
    ]


def _row(row: Mapping[str, Any]) -> str:
    return f"**{plain(row['assumption'])}**: {plain(row['status'])} ({plain(row['why'])})"


ASSUMPTIONS = CardSection(
    name="assumptions", title="Assumptions, their status, and the reason for it", value=_value, row=_row
)
NOT_PROVED = CardSection(
    name="not_proved",
    title="Not proved",
    value=lambda _: [
        "the code does what this card says: the code was tested against references, but not formally verified",
        "the margin subtracted from δ covers rounding in the accountant: the margin was measured, not proved",
        f"the ledger is complete: {OPERATOR_TRUST}; the hash chain reveals changed entries, but not entries that were "
        "never written",
    ],
)
