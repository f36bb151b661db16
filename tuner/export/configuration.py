"""Configuration of an exported trial, as an experiment file that trains it again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.plan.plan import mechanism_of
from tuner.privacy.ledger.amounts import amount
from tuner.study.promotion import rungs_of_levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.experiment import Experiment
    from tuner.export.exported_trial import ExportedTrial
    from tuner.plan.plan import Plan

__all__ = ["standalone_yaml"]


def standalone_yaml(experiment: Experiment, plan: Plan, best: ExportedTrial, *, origin: Mapping[str, object]) -> str:
    """Return an experiment file with which `tune train` trains the best configuration in one trial.

    Training it again is a new charge. The file's cap is the ε of that trial, rounded upward to six digits. The file's
    accounting mode is composition, even if the search had another mode. Only a search on a release keeps its mode and
    its ε, because training on the stored release is no charge. `origin` are the values of `exported_from`: the place in
    the ledger that `tune train` must find again.
    """
    from tuner.experiment.yamlfile import dump
    from tuner.privacy.accountant.pld import epsilon

    shape = plan.shape_of(best.parameters, committed=best.committed)
    mechanism = mechanism_of(shape)
    on_release = plan.mode.on_release
    cost = plan.epsilon if on_release else epsilon(mechanism, shape.steps, plan.delta)
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = f"{experiment.name[:57]}-best"
    values["seed"] = best.seed
    values["exported_from"] = dict(origin)
    values["chosen_by_auto"] = None
    values["tracking"]["experiment"] = values["name"]
    values["trainable"]["batch_size"] = shape.batch_size
    if "epochs" in plan.priced:
        values["trainable"]["epochs"] = best.parameters["epochs"]
    if plan.commit is not None and not best.committed:
        values["trainable"]["epochs"] *= plan.commit.length
    privacy = {"epsilon": _round_up(cost), "noise_multiplier": mechanism.noise_multiplier, "accounting": "composition"}
    values["privacy"] |= {} if on_release else {**privacy, "cap": "auto", "order": "auto"}
    values["privacy"].pop("runs")
    if experiment.dataset.validation.protected:
        # One trial releases few scores, so their noise is calibrated again for the smaller number. Their budget stays
        # as it was declared, but the trial's own may be smaller.
        scores = values["dataset"]["validation"]
        for name in ("epsilon", "delta"):
            if scores[name] is not None:
                scores[name] = min(scores[name], values["privacy"][name])
        scores["noise"] = "auto"
    space = {name: value for name, value in best.parameters.items() if name not in plan.priced}
    one: dict[str, object] = {
        "trials": 1,
        "full_runs": None,
        "commit": None,
        "sampler": "random",
        "pruner": "none",
        "when_sure": "go_on",
    }
    values["search"] |= one | {"space": space, "public": None}
    if (plan.priced or plan.commit is not None) and (
        fractions := rungs_of_levels(space, rungs=plan.rungs, steps=shape.steps)
    ):
        # Trials of another length have other rung steps; K must grow at the same steps as before.
        values["search"]["rungs"] = fractions
    values["resources"]["concurrent_trials"] = 1
    head = (
        f"# tune run experiment.yaml\n#\n"
        f"# The configuration of the best trial of {experiment.name}. Training on the stored release costs nothing.\n"
        f"# If the stored release is missing, a new one is drawn: a NEW charge of epsilon = {amount(cost)} on the "
        "data.\n"
        if on_release
        else f"# tune train experiment.yaml\n#\n"
        f"# The configuration of the best trial of {experiment.name}. Training it again is a NEW charge of epsilon = "
        f"{amount(values['privacy']['epsilon'])} on the data.\n"
        "# The exported model needs no new charge, because the search paid for it.\n"
    )
    if best.committed and plan.commit is not None and plan.commit.start == "best_trial":
        head += (
            "# This run started from the weights of a trial of the search. A new run starts without these weights.\n"
        )
    if best.steps is not None and best.steps < shape.steps:
        head += f"# Interruptions ended the exported run after {best.steps} of these {shape.steps} steps.\n"
    if best.why:
        head += f"# Chosen: {best.why}.\n"
        if best.by == "score":
            head += (
                "# A new training run may score lower. `tune export --by curve` chooses by the fitted curve instead.\n"
            )
    return head + dump(values)


def _round_up(epsilon: float) -> float:
    scale = 10.0 ** (6 - math.ceil(math.log10(epsilon)))
    return math.ceil(epsilon * scale) / scale
