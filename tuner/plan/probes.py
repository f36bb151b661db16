"""Noise of the loss probes of `schedule: gen`, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.domains import Fixed
from search_spaces.schedules import GEN
from trainables.engine.schedules import noise_split

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan

__all__ = ["ProbeError", "probe_error"]

_ERROR = 1.5  # standard error of a mean of probes, in units of its bound, times batch size over noise multiplier
_LARGE = 0.3


@dataclass(frozen=True)
class ProbeError:
    """Noise of one step's two releases.

    Attributes:
        gradient, probe: noise multipliers of the two releases.
        value: standard error of a mean of probes, in units of its bound.
    """

    gradient: float
    probe: float
    value: float

    @property
    def is_large(self) -> bool:
        """Whether a probe says so little that many steps are averaged."""
        return self.value > _LARGE


def probe_error(experiment: Experiment, plan: Plan) -> ProbeError | None:
    """Return the noise of the probes; None without the schedule gen, and if the noise or the share is searched."""
    share = dict(experiment.space.parameters).get(f"schedule.{GEN}.probe_share")
    if not (isinstance(share, Fixed) and isinstance(share.value, float)) or "noise_multiplier" in plan.priced:
        return None
    split = noise_split(plan.nominal.noise_multiplier, probe_share=share.value)
    probe = split.probe or 0.0
    return ProbeError(gradient=split.gradient, probe=probe, value=probe * _ERROR / plan.batch_size)
