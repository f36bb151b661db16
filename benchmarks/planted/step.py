"""Faults in the private step: sampling, clipping, noise, normalisation, and the order of the stages."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="batches-of-fixed-size",
        breaks="batches are shuffled and of one size, and the accountant assumes Poisson samples",
        file="trainables/engine/sampling.py",
        old="    if sample_rate >= _GAPS_BELOW:",
        new="    if records:\n"
        "        return generator.uniform(records).argsort()[: round(records * sample_rate)].sort().values\n"
        "    if sample_rate >= _GAPS_BELOW:",
        test="tests/trainables/test_sampling.py::test_batches_follow_the_poisson_sampling_law",
    ),
    Fault(
        name="sampled-more-often-than-charged",
        breaks="each record enters a batch at twice the rate that is charged",
        file="trainables/engine/step.py",
        old="len(samples), self.mechanism.sample_rate)",
        new="len(samples), min(2 * self.mechanism.sample_rate, 1.0))",
        test="tests/trainables/test_stages.py"
        "::test_a_step_draws_its_own_batch_from_all_records_at_the_rate_that_it_claims",
    ),
    Fault(
        name="own-batch-claims-a-subsample",
        breaks="a batch that was chosen in any way is credited with amplification by sampling",
        file="trainables/engine/step.py",
        old="if self.mechanism.sample_rate != 1:",
        new="if self.mechanism.sample_rate > 1:",
        test="tests/trainables/test_stages.py::test_a_batch_that_was_shuffled_cannot_claim_a_subsample",
    ),
    Fault(
        name="clip-of-the-mean",
        breaks="the mean norm is clipped and not each record, so one record is not bounded",
        file="trainables/engine/clip.py",
        old="factors = clip_factors(norms, max_grad_norm, clipping=clipping)",
        new="factors = clip_factors(norms.mean(1, keepdim=True).expand_as(norms), max_grad_norm, clipping=clipping)",
        test="tests/trainables/test_stages.py::test_no_record_moves_the_sum_by_more_than_the_clip",
    ),
    Fault(
        name="nan-gradient-left-in",
        breaks="one record without a finite gradient turns the model into NaN, which no noise hides",
        file="trainables/engine/clip.py",
        old="return torch.where((factors >= _LEAST_FACTOR).all(0), factors, 0.0)",
        new="return factors",
        test="tests/trainables/test_stages.py::test_clip_factors",
    ),
    Fault(
        name="norms-without-their-rounding-bound",
        breaks="a norm of float32 may come out too small, and the clip lets too much through",
        file="trainables/engine/sums.py",
        old="return squares.mul_(_NORM_MARGIN).add_(width * _LOST_SQUARE)",
        new="return squares",
        test="tests/trainables/test_sums.py::test_squares_that_float32_loses_are_made_up_for",
    ),
    Fault(
        name="decay-left-out-of-the-norm",
        breaks="weight decay is added after the clip was measured, so a record's share is longer than C",
        file="trainables/engine/layers/outer.py",
        old="            return self.decay.squared_norms()",
        new="            return self.decay.squares",
        test="tests/trainables/test_reference.py::test_each_step_equals_the_naive_loop",
    ),
    Fault(
        name="rounding-not-covered-by-noise",
        breaks="the noise does not cover what rounding adds to the sensitivity",
        file="trainables/engine/step.py",
        old="deviation = mechanism.noise_scale * (1.0 + blocks.slack if blocks else 1.0)",
        new="deviation = mechanism.noise_scale",
        test="tests/trainables/test_stages.py::test_the_noise_covers_the_slack_where_there_is_one",
    ),
    Fault(
        name="noise-off-by-root-two",
        breaks="the noise is smaller than charged by a factor of √2",
        file="trainables/engine/step.py",
        old="return self.noise_multiplier * self.max_grad_norm",
        new="return self.noise_multiplier * self.max_grad_norm / 2**0.5",
        test="tests/trainables/test_stages.py::test_the_noise_covers_the_slack_where_there_is_one",
    ),
    Fault(
        name="noise-not-added",
        breaks="the clipped sum is used as it is, without noise",
        file="trainables/engine/noise.py",
        old="return generator.add_normal(clipped, standard_deviation, dtype)",
        new="return clipped.to(dtype)",
        test="tests/trainables/test_stages.py::test_an_empty_batch_is_noise_alone_over_the_expected_size",
    ),
    Fault(
        name="noise-reused-across-steps",
        breaks="every step draws the same noise, so two steps cancel it",
        file="trainables/engine/random.py",
        old="        self._key = cipher.update(bytes(_KEY_BYTES))",
        new="        cipher.update(bytes(_KEY_BYTES))",
        test="tests/trainables/test_random.py::test_the_stream_is_aes_256_in_counter_mode_with_key_erasure",
    ),
    Fault(
        name="secret-generator-seeded",
        breaks="the secret generator starts from a known key, so its noise can be drawn again",
        file="trainables/engine/random.py",
        old="self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key",
        new="self._key = bytes(_KEY_BYTES) if key is None else key",
        test="tests/trainables/test_random.py::test_no_two_secret_generators_agree",
    ),
    Fault(
        name="forked-child-repeats-the-noise",
        breaks="a forked worker draws the same noise as its parent",
        file="trainables/engine/random.py",
        old="if self._process != os.getpid():  # a forked child",
        new="if self._process is None:  # a forked child",
        test="tests/trainables/test_random.py::test_a_forked_child_does_not_repeat_its_parents_noise",
    ),
    Fault(
        name="divided-by-the-realised-size",
        breaks="the normaliser is the realised batch size, which is private",
        file="trainables/engine/step.py",
        old="return noised.div_(b)",
        new="return noised.div_(max(counted, 1))",
        test="tests/trainables/test_stages.py::test_an_empty_batch_is_noise_alone_over_the_expected_size",
    ),
    Fault(
        name="smoothing-before-the-noise",
        breaks="post-processing is applied to the sum without noise, which breaks the order of the stages",
        file="trainables/engine/step.py",
        old="        noised = add_noise(clipped, standard",
        new="        clipped = self._stages.postprocess(clipped)\n        noised = add_noise(clipped, standard",
        test="tests/trainables/test_reference.py::test_each_step_equals_the_naive_loop",
    ),
    Fault(
        name="perturbation-drawn-from-the-data",
        breaks="DPLIS perturbs the weights by randomness that depends on the batch",
        file="trainables/engine/step.py",
        old="points = objective.points(theta, noise_scale=noise_in_theta, public=self._public)",
        new="seeded = torch.Generator().manual_seed(int(inputs.double().abs().sum() * 1e6))\n"
        "        points = objective.points(theta, noise_scale=noise_in_theta, public=seeded)",
        test="tests/trainables/test_reference.py::test_each_step_equals_the_naive_loop",
    ),
    Fault(
        name="augmented-views-clipped-one-by-one",
        breaks="each view of a record is clipped by itself, so the record moves the sum by many times C",
        file="trainables/engine/step.py",
        old="targets, copies = targets.repeat_interleave(views, 0), copies * views",
        new="targets, samples = targets.repeat_interleave(views, 0), samples * views",
        test="tests/trainables/test_training.py::test_mirrors_of_what_is_its_own_mirror_change_nothing",
    ),
    Fault(
        name="views-drawn-from-a-public-stream",
        breaks="one more record shifts the public draws of all others, which the noise does not cover",
        file="trainables/engine/step.py",
        old="stages.augmentation(inputs, self._secret)",
        new="stages.augmentation(inputs, __import__('trainables.engine.random').engine.random.SeededGenerator(1))",
        test="tests/trainables/test_reference.py::test_each_step_equals_the_naive_loop",
    ),
    Fault(
        name="batch-norm-accepted",
        breaks="a layer mixes the records of a batch before the clip, so no bound on one record holds",
        file="trainables/model_gate.py",
        old="if isinstance(layer, nn.modules.batchnorm._BatchNorm):",
        new="if isinstance(layer, nn.modules.batchnorm.BatchNorm3d):",
        test="tests/trainables/test_models.py::test_the_gate",
    ),
    Fault(
        name="user-divided-by-own-records",
        breaks="a user's gradient is divided by that user's number of records, which is private",
        file="trainables/engine/step.py",
        old="samples, copies = len(targets) // records_per_sample, records_per_sample",
        new="samples, copies = len(targets), 1",
        test="tests/trainables/test_users.py::test_one_user_moves_the_sum_by_the_clip_at_most",
    ),
)
