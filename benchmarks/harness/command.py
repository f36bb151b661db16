"""The command of a benchmark: its options, its sections in order, and the exit code."""

from __future__ import annotations

import argparse
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.figures import Bar, Results, judge
from benchmarks.harness.machine import processor
from benchmarks.harness.report import as_json, as_text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of one run.

    Attributes:
        quick: whether only a part is measured, within minutes.
        seed: seed of everything that is not secret.
        data_dir: folder with the data sets; None uses `DP_TUNER_DATA`.
        out: folder that keeps finished results.
        jobs: processes that run at a time.
        deadline: value of `time.perf_counter` at which a quick run must end.
        own: all options as parsed, with those that only this benchmark has.
    """

    quick: bool = False
    seed: int = 0
    data_dir: str | None = None
    out: Path = Path("runs")
    jobs: int = 1
    deadline: float = float("inf")
    own: argparse.Namespace = field(default_factory=argparse.Namespace)

    def time_for(self, seconds: float) -> bool:
        """Return whether `seconds` are left before the deadline."""
        return time.perf_counter() + seconds < self.deadline


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a benchmark that `--only` can select.

    Attributes:
        measure: adds the section's figures and tables to the results.
        bars: bars by the name of their figure.
        quick: whether `--quick` runs the section.
        datasets: returns the names of the data sets that must be present.
    """

    measure: Callable[[Settings, Results], None]
    bars: Mapping[str, Bar] = field(default_factory=dict)
    quick: bool = True
    datasets: Callable[[Settings], Iterable[str]] = lambda _settings: ()


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark and its options.

    Attributes:
        name: `python -m benchmarks.NAME` runs the benchmark.
        about: text of `--help`.
        sections: sections by name, in the order in which they run.
        packages: libraries whose versions the report shows.
        seed: default of `--seed`; None for a benchmark without this option.
        jobs: default of `--jobs`; None for a benchmark without this option.
        out: default of `--out`; None for a benchmark without this option.
        quick_seconds: longest duration of a quick run.
        add_options: adds the options that only this benchmark has.
        problems: yields a sentence for each wrong option.
    """

    name: str
    about: str | None
    sections: Mapping[str, Section]
    packages: Sequence[str] = ("torch",)
    seed: int | None = None
    jobs: int | None = None
    out: Path | None = None
    quick_seconds: float = float("inf")
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
    problems: Callable[[Settings], Iterable[str]] = lambda _settings: ()

    @property
    def bars(self) -> dict[str, Bar]:
        """The bars of all sections."""
        return {name: bar for section in self.sections.values() for name, bar in section.bars.items()}


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a bar does not hold or a section fails, 2 for wrong options or data, else 0."""
    started = time.perf_counter()
    options = _parser(benchmark).parse_args(arguments)
    settings = _settings(benchmark, options, started)
    running = {
        name: section
        for name, section in benchmark.sections.items()
        if name in options.only and (section.quick or not settings.quick)
    }
    problems = [*benchmark.problems(settings), *_missing_data(running.values(), settings)]
    if problems:
        print("\n".join(f"error: {problem}" for problem in dict.fromkeys(problems)), file=sys.stderr)
        return 2
    results = Results()
    skipped = [name for name, bar in benchmark.bars.items() if settings.quick and not bar.quick]
    for name, section in benchmark.sections.items():
        if name in running:
            _measure(name, section, settings, results)
            continue
        skipped += section.bars
        if name in options.only:
            results.remarks.append(f"{name}: left out by --quick")
    verdict = judge(results, benchmark.bars, skipped=skipped)
    versions = {"python": platform.python_version(), **{package: version(package) for package in benchmark.packages}}
    environment = {
        "machine": processor(),
        "versions": ", ".join(f"{package} {found}" for package, found in versions.items()),
        "command": " ".join([f"python -m benchmarks.{benchmark.name}", *(arguments or sys.argv[1:])]),
        "seconds": round(time.perf_counter() - started),
    }
    if benchmark.seed is not None:
        environment["seed"] = settings.seed
    print(as_text(results, benchmark.bars, verdict, environment))
    if options.json:
        print(as_json(results, benchmark.bars, verdict, environment))
    return 1 if verdict.falls_short else 0


def _measure(name: str, section: Section, settings: Settings, results: Results) -> None:
    """Measure one section; an error is shown and noted, and what was measured before it is kept."""
    begun = time.perf_counter()
    try:
        section.measure(settings, results)
    except Exception as error:  # noqa: BLE001 - the other sections are measured
        traceback.print_exc()
        results.failed[name] = f"{type(error).__name__}: {error}"
    results.remarks.append(f"{name}: {time.perf_counter() - begun:.0f} s")


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark.name}",
        usage="%(prog)s [OPTION ...]",
        description=benchmark.about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = tuple(benchmark.sections)
    parser.add_argument("--quick", action="store_true", help="measure a part within minutes, and name what is left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument(
        "--only",
        choices=names,
        nargs="+",
        default=names,
        metavar="SECTION",
        help=f"run these sections only: {', '.join(names)}",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data sets; DP_TUNER_DATA by default")
    if benchmark.seed is not None:
        parser.add_argument(
            "--seed", type=int, metavar="N", default=benchmark.seed, help="seed of everything that is not secret"
        )
    if benchmark.jobs is not None:
        parser.add_argument(
            "--jobs", type=int, metavar="N", default=benchmark.jobs, help="processes that run at a time"
        )
    if benchmark.out is not None:
        parser.add_argument(
            "--out", type=Path, metavar="DIR", default=benchmark.out, help="folder that keeps finished results"
        )
    benchmark.add_options(parser)
    return parser


def _settings(benchmark: Benchmark, options: argparse.Namespace, started: float) -> Settings:
    return Settings(
        quick=options.quick,
        seed=getattr(options, "seed", 0),
        data_dir=options.data_dir,
        out=getattr(options, "out", Path("runs")),
        jobs=getattr(options, "jobs", 1),
        deadline=started + benchmark.quick_seconds if options.quick else float("inf"),
        own=options,
    )


def _missing_data(sections: Iterable[Section], settings: Settings) -> Iterable[str]:
    from trainables.data import DatasetRequest, check_present
    from trainables.errors import DatasetError

    for name in [name for section in sections for name in section.datasets(settings)]:
        try:
            check_present(DatasetRequest(name=name, data_dir=settings.data_dir))
        except DatasetError as error:
            yield str(error)
