"""Errors of search spaces. A problem states the broken rule, the value and a fix. A SpaceError lists all problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["EXPLANATIONS", "DomainError", "SpaceError", "SpaceProblem"]


EXPLANATIONS: dict[str, str] = {
    "domain-bounds": (
        "A range needs a finite lower bound below a finite upper bound. A logarithmic scale needs a lower bound above "
        "0, and an integer range needs integers of at most 2^53. For a value that is not searched, write only the "
        "number."
    ),
    "domain-unknown": (
        "A domain is a single value or a mapping with one key: uniform, log_uniform, integer, log_integer, choice or "
        "promote. An example is {uniform: [0, 3]}."
    ),
    "grid-points-invalid": "The number of grid points must be a whole number of at least 1.",
    "choice-invalid": (
        "A choice needs a list of at least one option. Each option is a string, a finite number, true or false, and "
        "occurs only once."
    ),
    "value-not-plain": (
        "A fixed value must be a string, a finite number, true or false, because every storage keeps such values "
        "without loss. Put a string in quotes if YAML reads it as another type."
    ),
    "promotion-invalid": (
        "With promote, a parameter rises from one number to the next within every trial. List at least two "
        "whole numbers of at least 1, in rising order."
    ),
    "promotion-unsupported": (
        "Only smoothing_samples can rise within a trial. For any other parameter, write one value, a range or a choice."
    ),
    "unimodal-invalid": (
        "Only a range can be declared unimodal, which means that the score has a single maximum along it. Options "
        "have no order, and a single value is not searched. Remove unimodal, or write a range."
    ),
    "value-illegal": (
        "A value is not legal for its parameter, so a trial could fail or lose its privacy guarantee. Write a value "
        "that the message allows."
    ),
    "clipping-of-batch-mean": (
        "Clipping must bound the gradient of each record. If only the mean of a batch is clipped, one record can "
        "dominate the mean, and the noise does not hide that record. Choose flat, automatic or per_layer."
    ),
    "parameter-not-searchable": (
        "This setting is the same for all trials of a search, so it cannot be searched. Set the key that the "
        "message names instead."
    ),
    "parameter-repeated": "A parameter is given twice, perhaps by its name and by an alias. Remove one of the two.",
    "own-parameters-invalid": (
        "`search.space.own` is a mapping of the parameters of your own method. Give each parameter a value, a "
        "range or a choice."
    ),
    "parameter-unknown": (
        "The method has no parameter of this name. Check the spelling, choose another method, or remove the parameter."
    ),
    "schedule-missing": (
        "A parameter of a schedule has no effect if no trial can choose that schedule. Add the schedule, or remove the "
        "parameter."
    ),
    "optimizer-missing": (
        "A parameter of an optimizer has no effect if no trial can have that optimizer. Add the optimizer to the "
        "space, set trainable.optimizer, or remove the parameter."
    ),
    "schedule-invalid": (
        "A schedule is constant, step, inverse_time, exponential, cosine or gen. Its own parameters are keys below "
        "its name. Warm-up has a key of its own, warmup."
    ),
    "gen-with-searched-rate": (
        "The schedule gen sets the learning rate itself, at every step, from private measurements of the loss. "
        "Trials with a searched rate would differ only in their starting rate. Write one number as the starting "
        "rate, or choose another schedule."
    ),
    "prior-setting-invalid": (
        "The shipped prior needs public facts about the training: positive numbers such as the batch size and the "
        "number of steps, a known family of models, and a known optimizer. Give the value that the message names."
    ),
    "copies-without-augmentation": (
        "Without an augmentation, all copies of an image are equal and only cost time. Choose flip, crop or crop_flip, "
        "or set augmentation_multiplicity to 1."
    ),
}
"""Error code → its meaning, the reason, and the fix, in one to three sentences."""


class DomainError(ValueError):
    """Error of an illegal domain. The arguments are the fields of `SpaceProblem` with the same names."""

    def __init__(self, code: str, rule: str, value: str, fix: str = "") -> None:
        self.code, self.rule, self.value, self.fix = code, rule, value, fix
        super().__init__(code, rule, value, fix)

    def __str__(self) -> str:
        return _line(self.rule, self.value, self.fix, self.code)


@dataclass(frozen=True, kw_only=True)
class SpaceProblem:
    """Problem in a search space.

    Attributes:
        code: stable error code, a key of `EXPLANATIONS`.
        path: keys in the file that lead from `search.space` to the problem.
        rule: the rule that the value breaks.
        value: illegal value, as text.
        fix: what to write instead; empty if the rule makes it clear.
    """

    code: str
    path: tuple[str | int, ...]
    rule: str
    value: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {_line(self.rule, self.value, self.fix, self.code)}"


class SpaceError(ValueError):
    """Error that contains all problems of a search space. Its code is the code of the first problem."""

    def __init__(self, problems: Iterable[SpaceProblem]) -> None:
        self.problems = tuple(problems)
        self.code = self.problems[0].code
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def _line(rule: str, value: str, fix: str, code: str) -> str:
    return f"{rule} (got {value}). {fix} [{code}]" if fix else f"{rule} (got {value}). [{code}]"
