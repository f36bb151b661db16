"""Canary audits of every private method: the bound keeps below the claim, and above a tenth of it."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from scipy import stats

from benchmarks.harness import Results, Settings, Table, at_least

DELTA, CONFIDENCE, CANARIES = 1e-5, 0.95, 512
_LEVEL = 0.001

BARS = {
    "canary.share_of_claim": at_least(0.1),
    "canary.exceeding_p": at_least(_LEVEL),
    "canary.planted_found": at_least(1.0),
}


def measure(settings: Settings, results: Results) -> None:
    """Audit each method many times with fresh secret noise, and once without noise."""
    import torch

    from trainables.audit.one_run import audit_run
    from trainables.audit.task import METHOD_PARAMETERS, canary_task
    from trainables.engine import step
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    torch.set_num_threads(1)
    runs = settings.own.runs or (6 if settings.quick else 200)
    rows, exceeding, shares = [], 0, []
    for method in METHOD_PARAMETERS:
        with tempfile.TemporaryDirectory() as folder:
            spec, canaries = canary_task(Path(folder), method, canaries=CANARIES)
            claim = epsilon(SampledGaussian(spec.sample_rate, spec.noise_multiplier), spec.steps, DELTA)
            bounds = [
                audit_run(spec, canaries, delta=DELTA, claim=claim, confidence=CONFIDENCE).epsilon_at_least
                for _ in range(runs)
            ]
        above = sum(bound > claim for bound in bounds)
        exceeding += above
        shares.append(statistics.median(bounds) / claim)
        rows.append((method, runs, claim, statistics.median(bounds), min(bounds), max(bounds), above))
    results.tables["canary audits"] = Table(
        ("method", "runs", "claimed ε", "median bound", "least", "largest", "above the claim"), tuple(rows)
    )
    total = runs * len(METHOD_PARAMETERS)
    results.count("canary.runs", total)
    results.count("canary.exceeding", exceeding, note=f"of {total} bounds above the claim; chance allows 5 %")
    results.count(
        "canary.exceeding_p", float(stats.binom.sf(exceeding - 1, total, 1 - CONFIDENCE)), note="binomial test"
    )
    results.count("canary.share_of_claim", min(shares), note="median bound over the claim, of the weakest method")
    real = step.add_noise
    try:
        step.add_noise = lambda clipped, *, dtype, **_: clipped.to(dtype)
        found = 0
        for method in METHOD_PARAMETERS:
            with tempfile.TemporaryDirectory() as folder:
                spec, canaries = canary_task(Path(folder), method, canaries=CANARIES, parameters={
                    **METHOD_PARAMETERS[method], "learning_rate": 1e-3
                })  # fmt: skip
                found += audit_run(spec, canaries, delta=DELTA, claim=claim).epsilon_at_least > claim
    finally:
        step.add_noise = real
    results.count("canary.planted_found", found / len(METHOD_PARAMETERS), note="share of methods found without noise")
