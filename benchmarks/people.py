"""What people wait for and read: CPU time of commands, and words, links and commands of the documentation.

    python -m benchmarks.people [--quick] [--json] [--only SECTION ...]

Sections: `commands` runs the commands that people wait for; `docs` counts the words of the pages, looks for links that
lead nowhere, and calls every command of the pages for beginners in a folder of its own, in their order.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Benchmark, Results, Section, Settings, Table, at_least, at_most, run
from benchmarks.harness.machine import child_environment
from benchmarks.house.sizes import doc_words
from benchmarks.overhead import commands

ROOT = Path(__file__).parents[1]
RUN = ("tutorial.md", "own_data.md")
"""Pages whose commands are called as they stand."""

_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)\s#]+)")


def measure_docs(_settings: Settings, results: Results) -> None:
    """Count words and broken links, and call the commands."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    words = doc_words(ROOT, [str(page.relative_to(ROOT)) for page in pages])
    results.tables["Words of the pages"] = Table(
        ("page", "words"), tuple(sorted(words.items(), key=lambda each: -each[1]))
    )
    results.count("docs.words", sum(words.values()))
    generated = {"options.md", "errors.md"}  # made from the code when the site is built
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in _LINK.findall(page.read_text())
        if link not in generated and not (page.parent / link).exists()
    ]
    results.count("docs.broken_links", len(broken), note=", ".join(broken))
    called, failed = 0, []
    for page in RUN:
        with tempfile.TemporaryDirectory(prefix="people-") as folder:
            for command in _commands(ROOT / "docs" / page, Path(folder)):
                called += 1
                done = subprocess.run(
                    command, shell=True, cwd=folder, capture_output=True, text=True, check=False,
                    env=child_environment() | {"XDG_DATA_HOME": folder},
                )  # fmt: skip
                if done.returncode:
                    failed.append(f"{page}: {command}: {done.stderr[-200:]}")
    results.count("docs.commands_run", 100 * (called - len(failed)) / called, note="; ".join(failed))


def _commands(page: Path, folder: Path) -> list[str]:
    """Write the files that a page shows into the folder, and return its commands."""
    blocks = _BLOCK.findall(page.read_text())
    for kind, text in blocks:
        name = re.match(r"# (\S+)\n", text)
        if kind in ("python", "yaml") and name is not None:
            (folder / name.group(1)).write_text(text)
    lines = [line[2:] for kind, text in blocks if kind == "console" for line in text.splitlines()]
    program = {"dp-tune": f"{sys.executable} -m tuner", "python": sys.executable}
    return [" ".join([program.get(line.split()[0], line.split()[0]), *line.split()[1:]]) for line in lines]


BENCHMARK = Benchmark(
    name="people",
    about=__doc__,
    packages=("torch", "click", "rich"),
    quick_seconds=290.0,
    sections={
        "commands": Section(measure=commands.measure, bars=commands.BARS, datasets=commands.datasets),
        "docs": Section(
            measure=measure_docs,
            bars={
                "docs.words": at_most(16_000),
                "docs.broken_links": at_most(0),
                "docs.commands_run": at_least(100),
            },
        ),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
