"""Objective perturbation: the minimum of a convex loss with a random term (`trainables.convex.objective`)."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.methods.output_perturbation import OutputPerturbation


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(OutputPerturbation):
    """Hyper-parameters of a perturbed objective. λ is raised if the noise needs it (`objective_noise`)."""


METHOD = ObjectivePerturbation
