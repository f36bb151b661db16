"""Faults of perturbed minima: a sensitivity, solver or curvature that no noise covers, a condition that is missing."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

_EXACT = "tests/trainables/convex/test_objective.py::test_no_data_set_and_record_exceed_the_gaussian_claim"

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="minimum-sensitivity-of-another-decay",
        breaks="the noise of a minimum is that of twice the L2 coefficient",
        file="trainables/convex/noise.py",
        old="    return (gradient_norm(clip) / normaliser + 2 * tolerance) / weight_decay\n",
        new="    return (gradient_norm(clip) / normaliser + 2 * tolerance) / weight_decay / 2\n",
        test="tests/trainables/convex/test_convex.py"
        "::test_a_record_that_the_others_oppose_moves_the_minimum_by_most_of_the_bound",
    ),
    Fault(
        name="minimum-solver-not-covered",
        breaks="objective perturbation adds no noise for where its solver stops",
        file="trainables/convex/noise.py",
        old="        output=2 * tolerance / decay * noise_multiplier / sqrt(_OUTPUT_SHARE),\n",
        new="        output=0.1 * tolerance / decay * noise_multiplier / sqrt(_OUTPUT_SHARE),\n",
        test="tests/trainables/convex/test_objective.py::test_the_two_parts_together_cost_what_is_charged",
    ),
    Fault(
        name="objective-curvature-left-out",
        breaks="the change of the Hessian by a record is not counted",
        file="trainables/convex/noise.py",
        old="    return (classes - 1) * log1p(length**2 / (classes * regulariser))\n",
        new="    return 0.0\n",
        test=_EXACT,
    ),
    Fault(
        name="objective-wrong-common-mass",
        breaks="the shift of the linear term is counted at a third",
        file="trainables/convex/noise.py",
        old="        return 2 * float(ndtr(-shift / sqrt(2))) * (1 - _ROUNDING)\n",
        new="        return 2 * float(ndtr(-shift / 3 / sqrt(2))) * (1 - _ROUNDING)\n",
        test=_EXACT,
    ),
    Fault(
        name="minimum-noise-a-third-seen-by-the-audit",
        breaks="the noise of a perturbed minimum is a third of what is charged",
        file="trainables/convex/step.py",
        old="            noise_multiplier=mechanism.noise_multiplier,\n",
        new="            noise_multiplier=mechanism.noise_multiplier / 3,\n",
        test="tests/trainables/audit/test_minimum.py"
        "::test_a_sound_step_is_below_its_claim_and_the_audit_sees_a_part_of_it",
    ),
    Fault(
        name="minimum-of-a-network",
        breaks="a network is trained under the proof of a convex loss",
        file="trainables/convex/output.py",
        old='    if model != "logistic_regression":\n',
        new='    if model == "":\n',
        test="tests/trainables/convex/test_minimum_training.py::test_conditions_are_enforced",
    ),
    Fault(
        name="minimum-charged-as-sampled",
        breaks="a minimum over all records is charged at a sample rate below 1",
        file="trainables/convex/step.py",
        old="        if mechanism.sample_rate != 1:\n",
        new="        if mechanism.sample_rate > 1:\n",
        test="tests/trainables/convex/test_minimum_training.py::test_conditions_are_enforced",
    ),
)
