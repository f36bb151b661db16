"""A method of your own (`trainable.method: own_method:stages`): only the long entries of a gradient are used."""

import torch


def stages(layout, *, keep: float = 0.5, root: bool = False):  # noqa: ANN001, ANN201 - the engine's Layout, and a dict
    """Return the stages that change, each a function of one gradient, shape (layout.dimension,)."""

    def after_noise(gradient: torch.Tensor) -> torch.Tensor:  # post-processing: any function of the noised gradient
        return torch.where(gradient.abs() >= gradient.abs().quantile(1 - keep), gradient, 0.0)

    def before_clip(gradient: torch.Tensor) -> torch.Tensor:  # of ONE sample; the clip that follows bounds it
        return gradient.sign() * gradient.abs().sqrt()

    return {"after_noise": after_noise, **({"before_clip": before_clip} if root else {})}
