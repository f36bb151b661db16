"""Trial-epochs and ε that a search needs to find a good smoothing radius, in simulated sweeps.

    python -m benchmarks.pruning [--quick] [--json] [--only SECTION ...] [--jobs N] [--seed N]

Sections: `times` measures a decision of the unimodal search; `sweeps` compares all methods on unimodal curves; `slots`
runs one trial at a time; `shapes` has curves on which the assumption fails or only just holds, and other noise.
`benchmarks/pruning/curves.py` describes the simulation and its assumptions.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Benchmark, Section, at_least, at_most, run
from benchmarks.pruning import comparison, times

BENCHMARK = Benchmark(
    name="pruning",
    about=__doc__,
    packages=("optuna", "numpy"),
    seed=5,
    jobs=2,
    sections={
        "times": Section(measure=times.measure, bars={"times.decision_ms": at_most(20), "times.refit_s": at_most(1)}),
        "sweeps": Section(
            measure=comparison.unimodal,
            bars={
                "unimodal.ours.epochs_80": at_most(165),
                "unimodal.ours.epochs_90": at_most(185),
                "unimodal.ours_over_asha_80": at_most(0.5, quick=False),
                "unimodal.ours_over_bohb_80": at_most(0.5, quick=False),
                "unimodal.ours_over_gp_90": at_most(0.55, quick=False),
                "unimodal.ours.stop_right": at_least(0.95),
                "unimodal.ours.stop_median": at_most(180),
                "unimodal.ours.best_pruned": at_most(0.02),
                "unimodal.ours.near_pruned": at_most(0.03),
            },
        ),
        "slots": Section(measure=comparison.one_slot, bars={"one_slot.ours.epochs_90": at_most(160)}, quick=False),
        "shapes": Section(
            measure=comparison.other_shapes,
            bars={
                "drifting.ours.epochs_90": at_most(200),
                "wide_second_peak.ours_less_random_540": at_most(0),
                "narrow_second_peak.ours_over_asha_540": at_most(2),
            },
            quick=False,
        ),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
