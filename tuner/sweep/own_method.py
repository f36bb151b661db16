"""Check of a method of the user's own before a search starts: its parameters, its functions, and the sensitivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.spaces import OWN
from trainables.errors import TrainableError
from trainables.own_code import place_in_own_code
from tuner.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from trainables.data import DatasetInfo
    from trainables.engine.per_sample import PerSampleSource
    from tuner.experiment import Experiment

__all__ = ["check_method"]


def check_method(experiment: Experiment, about: DatasetInfo, module: nn.Module, source: PerSampleSource) -> None:
    """Try the user's functions on public inputs, with the ends and the options of each domain. No record is read.

    Raises:
        TrainableError: the function does not take the parameters, or supplies something that it may not; or a function
            depends on more than its argument; or one record moves the clipped sum further than the clip.
        InputError: the user's code raised an error.
    """
    from trainables.audit.sensitivity import check_sensitivity
    from trainables.engine.layout import Layout
    from trainables.methods import from_parameters
    from trainables.own_method import OwnMethod, check_own_method

    method, domains = experiment.trainable.method, dict(experiment.space.parameters)
    own = {name: domain.grid(2) for name, domain in domains.items() if name.startswith(f"{OWN}.")}
    most = max(map(len, own.values()), default=1)
    tried = [{name: values[place % len(values)] for name, values in own.items()} for place in range(most)]
    optimizers = domains["optimizer"].grid(1) if "optimizer" in domains else [experiment.trainable.optimizer]
    try:
        for parameters in tried:
            for optimizer in optimizers:
                chosen = {**parameters, "optimizer": optimizer}
                settings = from_parameters(method, chosen, batch_size=1, steps=1, noise_multiplier=1.0)
                if isinstance(settings, OwnMethod):
                    check_own_method(settings, Layout.of(module))
            check_sensitivity(
                module,
                source,
                input_shape=about.input_shape,
                classes=about.classes,
                method=method,
                parameters=parameters,
            )
    except (TrainableError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also a script's `sys.exit`
        # The user's code may raise anything. No record has been read yet, so its message may be shown.
        raise InputError(
            "method-code-failed",
            f"trainable.method: the method {method} failed on made-up gradients with {type(error).__name__}: "
            f"{str(error).rstrip('.')}{place_in_own_code(error)}. See 'A method of your own' in docs/experiment.md.",
        ) from error
