"""The check of a user's own data file, as values and as text for the operator's terminal. Nothing else may show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.tasks import CLASSIFICATION
from tuner.report.wording import format_value, plural

__all__ = ["WARNING", "check_values", "data_text"]

WARNING = "FOR THE OPERATOR ONLY: exact facts about private records, outside any guarantee. Do not share them."
"""First line of the output."""

_MARKS = {"refused": "✗", "warning": "!", "note": "·"}
_MOST = 20  # columns and classes that are listed


def check_values(path: Path, *, unit: str | None, task: str = CLASSIFICATION) -> dict[str, Any]:
    """Return the values of `tune data check --json`. While a large file is read, a terminal shows the progress.

    Raises:
        DatasetError: the file is missing, damaged, or lacks an array.
    """
    from rich.console import Console
    from rich.progress import Progress

    from trainables.data.inspection import inspect_file

    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        row = bar.add_task("reading", total=2.0)

        def show(what: str, share: float) -> None:
            bar.update(row, description=f"reading {what}", completed=share + (what == "x_test"))

        facts = inspect_file(path, users=None if unit is None else unit == "user", task=task, progress=show)
    usable = not any(each["level"] == "refused" for each in facts["findings"])
    return {"warning": WARNING, "file": str(path), "usable": usable, **facts}


def data_text(values: dict[str, Any]) -> str:
    """Return the check as text. Its first line says for whom it is."""
    return "\n".join([WARNING, *_facts(values), *_findings(values), _answer(values)])


def _facts(values: dict[str, Any]) -> Iterator[str]:
    yield f"{values['file']}, protected unit: {values['unit']}"
    for name, array in values["arrays"].items():
        yield f"  {name:<11} {array['dtype']:<8} {' × '.join(map(str, array['shape'])) or 'one number'}"
    if "records" not in values:
        return
    labels, inputs = values["labels"], values.get("inputs")
    for part in ("train", "test"):
        each = labels[part]
        if "counts" not in each:
            yield f"  labels, {part:<5} {each['lowest']:.4g} to {each['highest']:.4g}, mean {each['mean']:.4g}"
            continue
        counts = each["counts"]
        shown = ", ".join(f"{label}: {count}" for label, count in enumerate(counts[:_MOST]))
        more = f", and {plural(len(counts) - _MOST, 'class')} more" if len(counts) > _MOST else ""
        yield f"  labels, {part:<5} {each['lowest']} to {each['highest']}; records by class {shown}{more}"
    bad = values["not_finite"]
    yield f"  not finite     {plural(bad['train']['numbers'], 'number')} in training, {bad['test']['numbers']} in test"
    if inputs is not None:
        yield f"  inputs, train  {_range(inputs)}"
        for index, column in enumerate((inputs["columns"] or [])[:_MOST]):
            yield f"    column {index:<4} {_range(column)}"
        if len(inputs["columns"] or []) > _MOST:
            yield f"    (the first {_MOST} of {len(inputs['columns'])} columns; --json has all)"
    twice = values["duplicates"]
    yield (
        f"  duplicates     {plural(twice['copies_in_train'], 'copy')} in training, "
        f"{plural(twice['same_inputs_other_label'], 'input')} with several labels, "
        f"{plural(twice['test_records_in_train'], 'test record')} in training"
    )
    if "blocks" in values:
        listed = [f"{name}: {count}" for name, count in values["blocks"].items()]
        more = f", and {plural(len(listed) - _MOST, 'block')} more" if len(listed) > _MOST else ""
        yield f"  blocks         records by block {', '.join(listed[:_MOST])}{more}"
    if "users" in values:
        users, each = values["users"], values["users"]["records_per_user"]
        tested = (
            "no array user_test" if users["test"] is None else f"{users['test']} in test, {users['in_both']} in both"
        )
        many = (
            ""
            if each is None
            else f"; records of a user: {each['fewest']} to {each['most']}, median {each['median']:g}"
        )
        yield f"  users          {users['train']} in training, {tested}{many}"


def _range(numbers: dict[str, float]) -> str:
    low, high, mean, std = (format_value(numbers[name]) for name in ("smallest", "largest", "mean", "std"))
    return f"{low} to {high}, mean {mean}, standard deviation {std}"


def _findings(values: dict[str, Any]) -> Iterator[str]:
    order = list(_MARKS)
    for each in sorted(values["findings"], key=lambda finding: order.index(finding["level"])):
        yield f"{_MARKS[each['level']]} {each['text']}"


def _answer(values: dict[str, Any]) -> str:
    if values["usable"]:
        return "usable: `tune run` can train on this file"
    return "refused: `tune run` would stop with an error. Correct the problems marked ✗"
