"""The harness of all benchmarks: options, figures and their bars, reports, and results that survive a kill.

A `Benchmark` has named sections with bars. `run` parses the options, checks the data, measures, prints tables and
figures, and returns the exit code: 1 when a bar does not hold or a section fails, 2 for wrong options or data.
"""

from benchmarks.harness.command import Benchmark, Section, Settings, run
from benchmarks.harness.figures import Bar, Figure, Results, Table, Verdict, at_least, at_most, judge
from benchmarks.harness.kept import Kept

__all__ = [
    "Bar",
    "Benchmark",
    "Figure",
    "Kept",
    "Results",
    "Section",
    "Settings",
    "Table",
    "Verdict",
    "at_least",
    "at_most",
    "judge",
    "run",
]
