"""Measure the layout of the code: sizes, rooms, imports, names, dispatch, shared code and words of the docs.

    python -m benchmarks.house [--json] [--root DIR]

Only files that git tracks are read, and none is imported. The exit code is 1 only if nothing can be measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.house.dispatch import filter_dispatch, mode_dispatch
from benchmarks.house.modules import double_names, import_circles
from benchmarks.house.shared import shared_pairs
from benchmarks.house.sizes import (
    contract_rows,
    doc_words,
    flat_modules,
    function_median,
    lines_and_files,
    long_modules,
)
from benchmarks.house.tree import read_sources, tracked_files

__all__ = ["falls_short", "main", "measure"]

_ROOT = Path(__file__).resolve().parents[2]
_LISTED_PAIRS = 10
_AREAS_OF_PAIRS = ("packages", "benchmarks", "tests", "across")


def measure(root: Path) -> dict[str, Any]:
    """Return every figure of a checkout, and `falls_short`: one line for each bar that does not hold."""
    paths = tracked_files(root)
    sources = read_sources(root, paths)
    packages = [source for source in sources if source.area == "packages"]
    untested = [source for source in sources if source.area != "tests"]
    words = doc_words(root, paths)
    pairs = shared_pairs(sources)
    figures: dict[str, Any] = {
        "rooms": lines_and_files(sources, "room"),
        "totals": lines_and_files(sources, "area"),
        "flat_modules": flat_modules(sources),
        "contract_rows": contract_rows(root),
        "import_circles": import_circles(untested, type_checking=False),
        "import_circles_with_type_checking": import_circles(untested, type_checking=True),
        "filter_dispatch": filter_dispatch(packages),
        "mode_dispatch": mode_dispatch(packages),
        "double_names": double_names(packages),
        "shared_pairs": {area: sum(pair.area == area for pair in pairs) for area in _AREAS_OF_PAIRS},
        "longest_shared_pairs": [pair._asdict() for pair in pairs[:_LISTED_PAIRS]],
        "doc_words": sum(words.values()),
        "doc_words_of_pages": words,
        "long_modules": long_modules(sources),
        "function_median": function_median(packages),
    }
    return figures | {"falls_short": falls_short(figures)}


def falls_short(figures: dict[str, Any]) -> list[str]:
    """Return one line for each bar that does not hold."""
    lines = {area: size["lines"] for area, size in figures["totals"].items()}
    bars = [
        ("lines in the three packages", lines.get("packages", 0), 31_000),
        ("lines in tests", lines.get("tests", 0), 22_000),
        ("lines in benchmarks", lines.get("benchmarks", 0), 4_500),
        ("flat modules in tuner/", len(figures["flat_modules"]), 5),
        ("rows of the import contract", figures["contract_rows"], 9),
        ("import circles", len(figures["import_circles"]), 0),
        ("files that dispatch on the kind of a filter", len(figures["filter_dispatch"]), 8),
        ("files that dispatch on the kind of a mode", len(figures["mode_dispatch"]), 8),
        ("public names with two meanings", len(figures["double_names"]), 0),
    ]
    return [f"{what}: {value}, at most {most} wanted" for what, value, most in bars if value > most]


def _table(figures: dict[str, Any]) -> Iterator[str]:
    for name, value in figures.items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            yield f"{label} ({len(value)})"
            yield from (f"    {key:<40}{_cell(entry)}" for key, entry in value.items())
        elif isinstance(value, list):
            yield f"{label} ({len(value)})"
            yield from (f"    {_cell(entry)}" for entry in value)
        else:
            yield f"{label}: {value}"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{_cell(entry)} {key}" for key, entry in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if nothing can be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--root", type=Path, default=_ROOT, help="the checkout to measure; this one by default")
    options = parser.parse_args(arguments)
    try:
        figures = measure(options.root)
    except (OSError, subprocess.CalledProcessError, SyntaxError, ValueError, LookupError) as error:
        print(f"{options.root} cannot be measured: {error}. Name a git checkout of this project.", file=sys.stderr)
        return 1
    print("\n".join(_table(figures)))
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
