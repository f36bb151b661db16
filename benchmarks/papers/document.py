"""The page of all results: theirs next to ours, and the numbers that we miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import Results, judge
from benchmarks.harness.machine import processor
from benchmarks.harness.report import table_lines
from benchmarks.papers.paper import Paper

__all__ = ["write"]

_HEAD = """# The published tables

What the papers print, next to what this implementation measures; docs/papers.md is a short version. This page is
written from the results that are kept, by

```console
$ python -m benchmarks.papers --data-dir DIR --write FILE
```

which continues where it stopped. It takes `--only PAPER`, `--seeds N`, `--minutes N`, and `--report` to train nothing.
PATE (DPLIS, Tables 12 and 13) and next-word prediction (Table 5) have their own commands, `python -m benchmarks.pate`
and `python -m benchmarks.next_word`.

- **Accounting.** Unless a table says otherwise: Poisson batches, add or remove one record, δ = 1e-5, ε of ONE run by a
  privacy loss distribution. The papers use the moments accountant or theorems of their own, which need more noise for
  the same ε. As in the papers, the choice of settings is not charged; what a whole search costs is in docs/budget.md.
- **Choices** are made on validation records, with seeds that are used for nothing else. Only the chosen settings are
  trained with the seeds of the table, on the same training records, and score the test records once. ± is the standard
  deviation over the seeds, as the papers print it; an interval is 95 % (Student's t over the seeds), paired by seed.
  With one seed there is neither. Three grids of rates (DP-LSSGD, DPLIS, λ) got one more value where a choice was at
  their end, after some test scores had been seen; the validation scores alone decided it.
- **Seconds** are those of one training on one thread: processor time, and the wall clock in brackets, on a machine
  that other work shared.
"""


def write(path: Path, papers: Mapping[str, Paper], out: Path) -> None:
    """Write the page of what is kept in a folder."""
    path.write_text("\n".join(_lines(papers, out)) + "\n")


def _lines(papers: Mapping[str, Paper], out: Path) -> Iterator[str]:
    yield _HEAD
    yield f"Machine: {processor()}, torch {version('torch')} on the CPU."
    for paper in papers.values():
        results = Results()
        paper.report(out, results, quick=False)
        yield from ("", f"## {paper.title}", "", paper.about)
        for title, table in results.tables.items():
            if table.rows:
                yield from ("", f"**{title}**", "", *table_lines(table))
        if results.remarks:
            yield ""
        yield from (f"- {remark}" for remark in results.remarks if "left out" not in remark)
        verdict = judge(results, paper.bars)
        missed = [f"`{name}` {results.figures[name].value:.2f} ({paper.bars[name]})" for name in verdict.falls_short]
        if paper.bars:
            yield from ("", f"**Missed:** {'; '.join(missed) or 'none of what was run'}.")
        if results.left_out:
            yield from ("", f"**Left out:** {'; '.join(_left_out(results.left_out))}.")


def _left_out(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a phrase for each reason; names that differ in their last part alone become one."""
    for reason in dict.fromkeys(reasons.values()):
        stems: dict[str, list[str]] = {}
        for name, why in reasons.items():
            if why == reason:
                stem, _, last = name.rpartition(".")
                stems.setdefault(stem, []).append(last)
        names = (
            f"`{stem}.{same[0]}`" if len(same) == 1 else f"`{stem}.({'|'.join(same)})`" for stem, same in stems.items()
        )
        yield f"{', '.join(names)} ({reason})"
