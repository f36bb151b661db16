"""Sensitivity probe: one sample more in a batch, and how far the clipped sum moved before the noise.

The probe runs the project's own step. Its generator adds no noise, takes every sample into the batch, and gives the
samples that two batches share the same random views. So the two sums differ by one sample's share, at most C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from trainables.audit.hostile import hostile_samples, random_inputs
from trainables.engine.gaussian import Words
from trainables.engine.layout import Layout
from trainables.engine.per_sample import PerSampleSource
from trainables.engine.random import Generator
from trainables.engine.step import Mechanism, PrivateStep
from trainables.engine.sums import blocks_for
from trainables.engine.update import Sgd
from trainables.errors import GateError
from trainables.hyperparameters import Hyperparameters
from trainables.methods import from_parameters
from trainables.model_gate import public_inputs

__all__ = ["Moved", "SensitivityProbe", "check_sensitivity"]

_BATCH: Final = 5  # samples next to which one more is put
_ROUNDING: Final = 1e-6  # of the sums in float64, and of the activations that kernels round
_RECORDS: Final = 8  # random records at the gate


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far one sample moved the clipped sum.

    Attributes:
        record: name of the inserted sample.
        place: its index in the larger batch.
        length: L2 norm of the difference of the two sums. NaN if one of them is not finite.
        bound: C(1 + slack), the largest norm that the noise covers.
    """

    record: str
    place: int
    length: float
    bound: float

    @property
    def within(self) -> bool:
        """Whether the noise covers the difference."""
        return self.length <= self.bound


class _Coupled(Generator):
    """Generator of a probe. The draws for a sample's views are a function of the sample's number, and noise is 0."""

    def __init__(self, numbers: Sequence[int], copies: int) -> None:
        super().__init__()
        self._numbers, self._copies = list(numbers), copies
        self._sampled = False

    def uniform(self, size: int) -> Tensor:
        """Return zeros for the first request, which samples the batch, and draws for the views for the later ones."""
        if not self._sampled:
            self._sampled = True
            return torch.zeros(size, dtype=torch.float64)
        draws = np.stack([np.random.Philox(number).random_raw(3 * self._copies) for number in self._numbers])
        table = torch.from_numpy((draws >> np.uint64(11)) * 2.0**-53).view(len(self._numbers), 3, self._copies)
        return table.permute(1, 0, 2).reshape(-1)[:size]

    def add_normal(self, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Return the sum without noise, in float64."""
        del scale, dtype
        return total.double().clone()

    def _request(self) -> Callable[[Words], None]:
        raise NotImplementedError

    def rekey(self) -> NoReturn:
        """Refuse: a probe is never stored."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Refuse: a probe is never stored."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse: a probe is never stored."""
        raise NotImplementedError


class SensitivityProbe:
    """Probe of one model, one method and one clipping.

    Args:
        module: the model.
        source: per-sample gradients of the model.
        settings: hyper-parameters of the method. Its clipping norm is C.
        theta: weights at which the sums are computed, shape (d,). None takes those of the module.
    """

    def __init__(
        self,
        module: nn.Module,
        source: PerSampleSource,
        settings: Hyperparameters,
        *,
        theta: Tensor | None = None,
    ) -> None:
        layout = Layout.of(module)
        self._theta = layout.flatten(module) if theta is None else theta
        self._source = source
        self._stages = settings.stages(layout)
        self._settings = settings
        self._mechanism = Mechanism(
            sample_rate=1.0,
            noise_multiplier=1.0,
            max_grad_norm=settings.max_grad_norm,
            expected_batch_size=settings.batch_size,
            clipping=settings.clipping,
        )
        blocks = blocks_for(self._theta.dtype, dimension=len(self._theta), expected_batch_size=settings.batch_size)
        self._slack = blocks.slack if blocks else 0.0

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, *, numbers: Sequence[int], users: Tensor | None = None
    ) -> Tensor:
        """Return the sum that the step would add noise to, shape (d,), float64.

        Args:
            inputs: shape (n, *input_shape).
            targets: labels, shape (n,).
            numbers: a number for each record of the batch. Records with one number get the same views.
            users: records of each user (`trainables.data.Splits`), or None if a sample is a record.
        """
        views = self._stages.augmentation
        seen: list[Tensor] = []

        def see(gradient: Tensor) -> Tensor:
            seen.append(gradient * self._mechanism.expected_batch_size)
            return gradient.to(self._theta.dtype)

        step = PrivateStep(
            mechanism=self._mechanism,
            stages=replace(self._stages, postprocess=see),
            source=self._source,
            update=Sgd(self._theta),
            secret=_Coupled(numbers, 1 if views is None else views.copies),
            public=torch.Generator().manual_seed(0),
        )
        step.take(self._theta, inputs, targets, learning_rate=self._settings.learning_rate, users=users)
        return seen[0]

    def moved(self, name: str, inputs: Tensor, targets: Tensor, *, place: int, users: bool = False) -> Moved:
        """Compare the batch with and without the sample at `place`.

        Args:
            name: name of that sample.
            inputs: records of the larger batch, shape (n, *input_shape), or (U, m, *input_shape) for users.
            targets: labels, shape (n,) or (U, m).
            place: index of the sample.
            users: whether a sample is a user with m records.
        """
        sums = []
        for kept in (list(range(len(targets))), [row for row in range(len(targets)) if row != place]):
            x, y, table, numbers = inputs[kept], targets[kept], None, kept
            if users:
                each = targets.shape[1]
                table = torch.arange(len(kept) * each).view(-1, each)
                x, y = x.flatten(0, 1), y.flatten()
                numbers = [row * each + record for row in kept for record in range(each)]
            sums.append(self.clipped_sum(x, y, numbers=numbers, users=table))
        size = _ROUNDING * (1 + len(targets))
        bound = self._mechanism.max_grad_norm * (1.0 + self._slack + size)
        return Moved(record=name, place=place, length=float((sums[0] - sums[1]).norm()), bound=bound)

    def probe(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        records: int,
        records_per_user: int = 0,
        hostile: bool = True,
        generator: torch.Generator,
    ) -> Iterator[Moved]:
        """Insert each hostile input, and `records` random ones, into a batch of ordinary public records.

        Args:
            input_shape: shape of one input.
            classes: number of classes.
            records: number of random records.
            records_per_user: number of records of a user, or 0 if a sample is a record.
            hostile: whether to insert the hostile inputs.
            generator: public randomness.
        """
        each = max(records_per_user, 1)
        company = public_inputs(input_shape, _BATCH * each)
        labels = torch.randint(classes, (_BATCH * each,), generator=generator)
        worst = hostile_samples(input_shape, company) if hostile else ()
        every = [*worst, *random_inputs(input_shape, records, generator=generator)]
        for number, (name, record) in enumerate(every):
            place = (0, _BATCH, 2)[number % 3]
            label = torch.randint(classes, (each,), generator=generator)
            inserted = torch.stack([record, *company[: each - 1].flip(0)])
            x, y = (
                torch.cat([old[: place * each], new, old[place * each :]])
                for old, new in ((company, inserted), (labels, label))
            )
            x = x.to(self._theta.device)
            y = y.to(self._theta.device)
            if records_per_user:
                x, y = x.view(-1, each, *input_shape), y.view(-1, each)
            yield self.moved(name, x, y, place=place, users=records_per_user > 0)


def check_sensitivity(
    module: nn.Module,
    source: PerSampleSource,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    method: str = "dp_sgd",
    parameters: Mapping[str, object] | None = None,
) -> None:
    """Raise GateError if one public record moves the clipped sum of a model's gradients further than C.

    The probe is a test on random and hostile inputs, at initial and random weights, and no proof: a model or a method
    of the user's own may mix samples elsewhere.
    """
    settings = from_parameters(method, parameters or {}, batch_size=_BATCH, steps=1, noise_multiplier=1.0)
    layout = Layout.of(module)
    initial = layout.flatten(module)
    found = (
        SensitivityProbe(module, source, settings, theta=theta).probe(
            input_shape, classes, records=_RECORDS, hostile=hostile, generator=torch.Generator().manual_seed(0)
        )
        for theta, hostile in ((initial, True), (layout.elsewhere(initial, seed=1), False))
    )
    for moved in chain.from_iterable(found):
        if not moved.within:
            raise GateError(
                "sensitivity-exceeded",
                f"With {type(module).__name__} and {method}, one record must move the sum of the clipped gradients "
                f"by at most the clipping norm ({moved.record} moved the sum by {moved.length / moved.bound:.3g} "
                "times as much). Model and method must compute each sample independently of the other samples.",
            )
