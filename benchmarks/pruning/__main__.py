"""Trial-epochs and ε that a search needs to find a good smoothing radius, in simulated sweeps.

    python -m benchmarks.pruning [--quick] [--json] [--only SECTION ...] [--jobs N] [--seed N]

Sections: `times` measures a decision of the unimodal search; `sweeps` compares all methods on unimodal curves;
`ablations` changes our rule in one thing at a time; `shapes` compares it with a rule of a few lines on all curves, some
of which have no single top; `random` does so on random curves (`random_curves.py`); `slots` runs one trial at a time.
`benchmarks/pruning/curves.py` describes the simulation.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Benchmark, Section, at_least, at_most, run
from benchmarks.pruning import comparison, times
from benchmarks.pruning.random_curves import JUDGED

BENCHMARK = Benchmark(
    name="pruning",
    about=__doc__,
    packages=("optuna", "numpy"),
    seed=5,
    jobs=2,
    quick_seconds=270,
    sections={
        "times": Section(measure=times.measure, bars={"times.decision_ms": at_most(20), "times.refit_s": at_most(1)}),
        "sweeps": Section(
            measure=comparison.unimodal,
            bars={
                "unimodal.ours.epochs_80": at_most(114, quick=False),
                "unimodal.ours.epochs_90": at_most(156, quick=False),
                "unimodal.ours_over_asha_80": at_most(0.5, quick=False),
                "unimodal.ours_over_bohb_80": at_most(0.5, quick=False),
                "unimodal.ours_over_gp_90": at_most(0.55, quick=False),
                "unimodal.ours.stop_right": at_least(0.95, quick=False),
                "unimodal.ours.best_pruned": at_most(0.02),
            },
        ),
        "ablations": Section(measure=comparison.ablations, quick=False),
        "shapes": Section(
            measure=comparison.other_shapes,
            bars={
                "best_at_zero.ours.epochs_90": at_most(120, quick=False),
                "best_at_the_end.ours.epochs_90": at_most(84, quick=False),
                "best_at_zero.ours.stop_right": at_least(0.95, quick=False),
                "best_at_the_end.ours.stop_right": at_least(0.95, quick=False),
                "uneven_noise.ours.stop_right": at_least(0.95, quick=False),
                "uneven_noise.ours.best_pruned": at_most(0.02, quick=False),
                "unequal_tops.ours.stop_right": at_least(0.95, quick=False),
                "unequal_tops.ours.best_pruned": at_most(0.1, quick=False),
                "drifting.ours.stop_right": at_least(0.95, quick=False),
                "drifting.ours.epochs_90": at_most(200, quick=False),
            },
        ),
        "random": Section(
            measure=comparison.random_curves,
            bars={f"{family}.ours.stop_right": at_least(0.95, quick=False) for family in JUDGED},
            quick=False,
        ),
        "slots": Section(measure=comparison.one_slot, bars={"one_slot.ours.epochs_90": at_most(160)}, quick=False),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
