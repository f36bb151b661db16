"""Faults of the audit's list, planted in a copy of the source, each with the check that must find it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.harness import Results, Settings, Table, at_most
from benchmarks.planted.catalogue import FAULTS
from benchmarks.planted.runner import clean_failures, copied_tree, plant

__all__ = ["BARS", "CHECKS", "measure"]

BARS = {"planted.missed": at_most(0)}
_ROOT: Final = Path(__file__).resolve().parents[2]

CHECKS: Final[dict[str, str]] = {
    "clip-of-the-mean": "sensitivity test",
    "clip-of-the-mean-seen-by-the-probe": "sensitivity probe",
    "noise-off-by-root-two": "law of the noise",
    "noise-not-added": "law of the noise",
    "noise-a-tenth-seen-by-the-canaries": "canary audit",
    "divided-by-the-batch-size-twice": "reference test",
    "gradients-of-other-samples-added": "sensitivity probe",
    "perturbation-drawn-from-the-data": "reference test",
    "perturbation-of-the-data-seen-by-the-probe": "sensitivity probe",
    "views-drawn-from-a-public-stream": "reference test",
    "public-views-seen-by-the-probe": "sensitivity probe",
    "batches-of-fixed-size": "law of Poisson batches",
    "sampled-always-seen-by-the-canaries": "canary audit",
    "smoothing-before-the-noise": "reference test",
    "divided-by-the-realised-size": "reference test of an empty batch",
    "noise-reused-across-steps": "test of the generator's stream",
    "secret-generator-seeded": "test of the generator's keys",
    "worker-accepts-seeded-noise": "gates of a private run",
    "checkpoint-exported": "test of what leaves with a model",
    "raising-record-ends-the-trial": "test of hostile records",
    "wall-lets-any-error-out": "test of the wall",
    "users-divided-anew": "test of the division into users",
    "restored-ledger-resumed": "test of the ledger's head",
    "users-clipped-record-by-record": "sensitivity probe",
    "user-divided-by-own-records": "sensitivity test of users",
    "uncharged-steps-exported": "export against the ledger",
    "canary-bound-without-delta": "enumeration of the bound",
}
"""Fault of `benchmarks.planted.catalogue` → the kind of check that finds it."""


def measure(settings: Settings, results: Results) -> None:
    """Plant each fault and run its check."""
    faults = [fault for fault in FAULTS if fault.name in CHECKS]
    unknown = set(CHECKS) - {fault.name for fault in faults}
    rows: list[tuple[object, ...]] = [(name, "-", CHECKS[name], "not in the catalogue") for name in sorted(unknown)]
    missed = len(unknown)
    with copied_tree(_ROOT) as copy:
        unusable = clean_failures(faults, copy)
        for fault in faults:
            if settings.quick and not settings.time_for(20.0):
                results.remarks.append(f"planted: out of time before {fault.name}")
                break
            outcome = None if fault.test in unusable else plant(fault, copy)
            caught = outcome is not None and outcome.caught
            missed += not caught
            said = "caught" if caught else f"MISSED: {unusable.get(fault.test) or (outcome and outcome.found)}"
            rows.append((fault.name, fault.breaks, CHECKS[fault.name], said))
            results.tables["planted faults"] = Table(("fault", "what it breaks", "check", "result"), tuple(rows))
    results.count("planted.faults", len(rows))
    results.count("planted.missed", missed)
