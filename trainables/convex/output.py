"""Output perturbation: the minimum of a strongly convex loss, plus Gaussian noise (Chaudhuri et al. 2011).

Formal guarantee: adding or removing one record moves the exact minimum by at most G/(m·λ), where G = √2·√(C² + 1)
bounds the norm of a record's gradient, m is the PUBLIC normaliser and λ the L2 coefficient. The computed minimum is
within tolerance/λ of the exact one, on both data sets. So with noise of σ·(G/m + 2·tolerance)/λ, the output is one
Gaussian mechanism with noise multiplier σ and sample rate 1.

Proof. J is λ-strongly convex, so the exact minima of D and of D′ = D with z satisfy
λ·‖θ′ − θ‖ <= ‖∇J_D(θ′)‖ = ‖∇ℓ(θ′; z)‖/m <= G/m, and λ·‖θ̂ − θ‖ <= ‖∇J(θ̂)‖ <= tolerance for a computed θ̂. The solver
checks half of the tolerance, which covers the rounding of its sums (`logistic`). That the logits of a record are
rounded well enough is not proved for extreme C and λ.
"""

from __future__ import annotations

from torch import Tensor

from trainables.convex.logistic import Problem, minimum
from trainables.convex.noise import sensitivity
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator
from trainables.errors import GateError

__all__ = ["output_perturbation", "require_convex"]


def require_convex(model: str) -> None:
    """Raise GateError unless the model is logistic regression. The loss of a network is not convex."""
    if model != "logistic_regression":
        raise GateError(
            "model-not-convex",
            f"Output and objective perturbation need a convex loss, which {model} does not have. With another loss, "
            "one record may move the minimum by more than the noise covers. Use logistic_regression, or a "
            "method with private steps.",
        )


def output_perturbation(
    problem: Problem, *, clip: float, noise_multiplier: float, tolerance: float, generator: Generator | None = None
) -> Tensor:
    """Return the noised minimum, float64, shape (k·d,). It must be charged before, as one step at sample rate 1."""
    moved = sensitivity(
        clip=clip, normaliser=problem.normaliser, weight_decay=problem.weight_decay, tolerance=tolerance
    )
    found = minimum(problem, tolerance=tolerance)
    secret = SecureGenerator() if generator is None else generator
    return add_noise(found, standard_deviation=noise_multiplier * moved, generator=secret, dtype=found.dtype)
