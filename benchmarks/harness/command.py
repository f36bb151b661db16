"""The command of a benchmark: its options, its sections in order, and the exit code."""

from __future__ import annotations

import argparse
import platform
import sys
import time
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
        seed: of everything that is not secret.
        data_dir: folder with the data sets; None uses `DP_TUNER_DATA`.
        out: folder for the results of finished parts.
        jobs: processes that run at a time.
        deadline: value of `time.perf_counter` at which a quick run must end.
        own: the options that only this benchmark has.
    """

    quick: bool = False
    seed: int = 0
    data_dir: str | None = None
    out: Path = Path("runs")
    jobs: int = 1
    deadline: float = float("inf")
    own: argparse.Namespace = field(default_factory=argparse.Namespace)

    def time_for(self, seconds: float) -> bool:
        """Return whether that much time is left."""
        return time.perf_counter() + seconds < self.deadline


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a benchmark that `--only` can select.

    Attributes:
        measure: adds its figures and tables to the results.
        bars: by the name of their figures.
        quick: whether `--quick` runs the section.
        datasets: names of the data sets that must be present.
    """

    measure: Callable[[Settings, Results], None]
    bars: Mapping[str, Bar] = field(default_factory=dict)
    quick: bool = True
    datasets: Callable[[Settings], Iterable[str]] = lambda _settings: ()


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark and the options that it has.

    Attributes:
        name: `python -m benchmarks.NAME` runs it.
        about: its docstring; the first line is the description in `--help`.
        sections: in the order in which they run.
        packages: libraries whose versions the report shows.
        seed: the default of `--seed`; None means that the benchmark has no such option.
        jobs: the default of `--jobs`, likewise.
        out: the default of `--out`, likewise.
        quick_seconds: how long a quick run may take.
        add_options: adds the options that only this benchmark has.
        problems: yields what is wrong with the options.
        finish: completes the results after the last section.
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
    finish: Callable[[Settings, Results], None] = lambda _settings, _results: None

    @property
    def bars(self) -> dict[str, Bar]:
        """The bars of all sections."""
        return {name: bar for section in self.sections.values() for name, bar in section.bars.items()}


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a bar does not hold, 2 when an option or the data is wrong, else 0."""
    started = time.perf_counter()
    options = _parser(benchmark).parse_args(arguments)
    settings = _settings(benchmark, options, started)
    chosen = {name: benchmark.sections[name] for name in benchmark.sections if name in options.only}
    problems = dict.fromkeys(benchmark.problems(settings))
    for section in chosen.values():
        problems |= dict.fromkeys(_missing_data(section, settings))
    if problems:
        print("\n".join(f"error: {problem}" for problem in problems), file=sys.stderr)
        return 2
    results = Results()
    skipped = [name for name, bar in benchmark.bars.items() if settings.quick and not bar.quick]
    for name, section in benchmark.sections.items():
        if name not in chosen or (settings.quick and not section.quick):
            skipped += section.bars
            if name in chosen:
                results.remarks.append(f"{name}: left out by --quick")
            continue
        begun = time.perf_counter()
        section.measure(settings, results)
        results.remarks.append(f"{name}: {time.perf_counter() - begun:.0f} s")
    benchmark.finish(settings, results)
    verdict = judge(results, benchmark.bars, skipped=skipped)
    environment = {
        "machine": processor(),
        "versions": ", ".join(
            [
                f"python {platform.python_version()}",
                *(f"{package} {version(package)}" for package in benchmark.packages),
            ]
        ),
        "command": " ".join([f"python -m benchmarks.{benchmark.name}", *(arguments or sys.argv[1:])]),
        "seconds": round(time.perf_counter() - started),
    }
    if benchmark.seed is not None:
        environment["seed"] = settings.seed
    print(as_text(results, benchmark.bars, verdict, environment))
    if options.json:
        print(as_json(results, benchmark.bars, verdict, environment))
    return 1 if verdict.falls_short else 0


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark.name}", description=(benchmark.about or "").partition("\n")[0]
    )
    names = tuple(benchmark.sections)
    parser.add_argument("--quick", action="store_true", help="measure a part within minutes, and name what is left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", choices=names, nargs="+", default=names, help="run these sections only")
    parser.add_argument("--data-dir", help="folder with the data sets")
    if benchmark.seed is not None:
        parser.add_argument("--seed", type=int, default=benchmark.seed, help="seed of everything that is not secret")
    if benchmark.jobs is not None:
        parser.add_argument("--jobs", type=int, default=benchmark.jobs, help="processes that run at a time")
    if benchmark.out is not None:
        parser.add_argument("--out", type=Path, default=benchmark.out, help="keep finished results here, and continue")
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


def _missing_data(section: Section, settings: Settings) -> Iterable[str]:
    from trainables.data import DatasetRequest, check_present
    from trainables.errors import DatasetError

    for name in section.datasets(settings):
        try:
            check_present(DatasetRequest(name=name, data_dir=settings.data_dir))
        except DatasetError as error:
            yield str(error)
