"""Faults that the audit's own checks find: the sensitivity probe and the canaries; and one in the audit itself."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

_PROBE = "tests/trainables/audit/test_sensitivity.py::test_no_hostile_sample_moves_the_sum_further_than_c"
_CANARIES = "tests/trainables/audit/test_one_run.py::test_the_bound_of_a_small_claim_is_below_it"

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="correction-by-the-drawn-noise",
        breaks="the corrected Adam takes off the noise that was drawn, so that its steps show gradients without noise",
        file="trainables/engine/step.py",
        old="        self.noise_draws += 1\n",
        new="        self.noise_draws += 1\n        self._update._variance = (noised - clipped).square() / b**2\n",
        test="tests/trainables/audit/test_one_run.py::test_the_weights_follow_from_the_noised_gradients_alone",
    ),
    Fault(
        name="clip-of-the-mean-seen-by-the-probe",
        breaks="the mean norm is clipped and not each record, so one record is not bounded",
        file="trainables/engine/clip.py",
        old="factors = clip_factors(norms, max_grad_norm, clipping=clipping)",
        new="factors = clip_factors(norms.mean(1, keepdim=True).expand_as(norms), max_grad_norm, clipping=clipping)",
        test=_PROBE,
    ),
    Fault(
        name="gradients-of-other-samples-added",
        breaks="gradients are not zeroed between samples, so each share holds those of the samples before it",
        file="trainables/engine/sums.py",
        old="    if block is None or left.shape[1] != 1 or left.dtype == torch.float64:\n        exact",
        new="    left = left.cumsum(0)\n"
        "    if block is None or left.shape[1] != 1 or left.dtype == torch.float64:\n        exact",
        test=_PROBE,
    ),
    Fault(
        name="perturbation-of-the-data-seen-by-the-probe",
        breaks="DPLIS perturbs the weights by randomness that depends on the batch",
        file="trainables/engine/step.py",
        old="points = objective.points(theta, noise_scale=noise_in_theta, public=self._public)",
        new="parts = list(parts)\n"
        "        seeded = torch.Generator().manual_seed(len(parts[0][0]))\n"
        "        points = objective.points(theta, noise_scale=noise_in_theta, public=seeded)",
        test=_PROBE,
    ),
    Fault(
        name="public-views-seen-by-the-probe",
        breaks="one more record shifts the public draws of all others, which the noise does not cover",
        file="trainables/engine/step.py",
        old="stages.augmentation(inputs, self._secret)",
        new="stages.augmentation(inputs, __import__('trainables.engine.random').engine.random.SeededGenerator(1))",
        test=_PROBE,
    ),
    Fault(
        name="users-clipped-record-by-record",
        breaks="each record of a user is clipped by itself, so a user moves the sum by many times C",
        file="trainables/engine/step.py",
        old="copies=records.copies, whole=len(split) == 1)",
        new="copies=1, whole=len(split) == 1)",
        test=_PROBE,
    ),
    Fault(
        name="noise-a-tenth-seen-by-the-canaries",
        breaks="the noise is a tenth of what is charged",
        file="trainables/engine/step.py",
        old="return self.noise.gradient * self.max_grad_norm",
        new="return self.noise.gradient * self.max_grad_norm / 10",
        test=_CANARIES,
    ),
    Fault(
        name="sampled-always-seen-by-the-canaries",
        breaks="each record enters every batch, and a tenth of that is charged",
        file="trainables/engine/step.py",
        old="len(records), self.mechanism.sample_rate)",
        new="len(records), 1.0)",
        test=_CANARIES,
    ),
    Fault(
        name="divided-by-the-batch-size-twice",
        breaks="the noised sum is divided by the batch size twice, so the model is not the charged one",
        file="trainables/engine/step.py",
        old="return noised.div_(b)",
        new="return noised.div_(b).div_(b)",
        test="tests/trainables/test_reference.py::test_each_step_equals_the_naive_loop",
    ),
    Fault(
        name="canary-bound-without-delta",
        breaks="the bound of an audit leaves out δ, so it exceeds the true ε too often",
        file="trainables/audit/bound.py",
        old="return min(beta + 2.0 * canaries * delta * alpha, 1.0)",
        new="return min(beta + 0.0 * alpha, 1.0)",
        test="tests/trainables/audit/test_bound.py::test_the_probability_is_the_enumerated_one",
    ),
)
