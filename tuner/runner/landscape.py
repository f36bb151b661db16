"""The command `landscape`, which measures how flat the loss of exported models is on PUBLIC records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuner
from trainables.data import as_it_is, check_present, info, load_records
from trainables.errors import TrainableError, WalledError
from trainables.tasks import CLASSIFICATION
from trainables.wall import behind, operator_log
from tuner.errors import InputError
from tuner.export.exported_models import (
    Exported,
    read_export,
    records_to_measure,
    require_same_records,
    require_same_shape,
)
from tuner.files import write_text
from tuner.sweep.identity import landscape_refusal

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainables.landscape import LossSurface

__all__ = ["LandscapeOptions", "landscape_command"]


@dataclass(frozen=True, kw_only=True)
class LandscapeOptions:
    """Options of `tune landscape`. The command's help describes each option. `split` is ``validation`` or ``test``."""

    public_data: bool
    data_dir: str | None
    dataset: str | None
    split: str
    records: int
    radius: float
    iterations: int
    restarts: int
    extent: float
    points: int
    plane: int | None
    seed: int
    out: Path | None


def landscape_command(
    folders: Sequence[Path], options: LandscapeOptions, say: Callable[[str], None] | None
) -> dict[str, Any]:
    """Measure exported models on public records, write the numbers and the pictures, and return the numbers.

    Formal guarantee: the result is post-processing of released models, so it costs the TRAINING records no further
    privacy. The records on which the models are measured are not protected and must be public.

    Raises:
        InputError: the records were not confirmed to be public, the models cannot be compared, or a folder is not an
            export. Nothing was written.
        trainables.errors.TrainableError: the data are missing, or a number is out of its range. Nothing was written.
    """
    from tuner.figures import svg_text
    from tuner.report.landscape_pictures import line_chart, plane_chart

    _require_public(options)
    _require_numbers(options)
    exports = [read_export(folder) for folder in folders]
    for folder, export in zip(folders, exports, strict=True):
        if (task := export.experiment.trainable.task) != CLASSIFICATION:
            raise InputError(
                "landscape-task",
                f"{folder}: `tune landscape` needs a model with `task: classification` (got {task}), because it "
                "measures the cross-entropy. Name other folders.",
            )
    require_same_records(exports, dataset=options.dataset, split=options.split)
    out = options.out or folders[0] / "landscape"
    _require_writable(out)
    request = records_to_measure(exports[0], dataset=options.dataset, data_dir=options.data_dir)
    if options.dataset is not None:
        require_same_shape(exports, info(request), data_dir=options.data_dir)
    check_present(request)
    request = as_it_is(request)
    searches = [export.search for export in exports]
    refusal = landscape_refusal(exports[0].experiment, request, split=options.split, searches=searches)
    if refusal is not None:
        raise refusal
    about = info(request)
    # Build all models before measuring the first one, so that a broken one is reported at once.
    modules = [export.module(input_shape=about.input_shape, classes=about.classes) for export in exports]
    for export, module in zip(exports, modules, strict=True):
        _require_finite(export, module)
    splits = load_records(request)
    held = {"validation": (splits.x_validation, splits.y_validation), "test": (splits.x_test, splits.y_test)}
    inputs, targets = (_spread(each, options.records) for each in held[options.split])
    labels = _labels(exports)
    models = []
    for export, module, label in zip(exports, modules, labels, strict=True):
        if say is not None:
            say(f"measuring {label} on {len(targets)} {options.split} records of {request.name}")
        measured = partial(_measured, module, inputs, targets, options)
        models.append({"label": label, **export.facts(), **_behind_the_wall(export, measured)})
    values = {
        "program": tuner.__version__,
        "data": {
            "dataset": request.name,
            "split": options.split,
            "records": len(targets),
            "said_to_be_public_by": "the user, with --public-data",
        },
        "settings": {
            key: value for key, value in asdict(options).items() if key not in {"public_data", "data_dir", "out"}
        },
        "notes": [*_notes(options.split), *(export.note for export in exports if export.note)],
        "models": models,
    }
    pictures = {"line.svg": svg_text(line_chart(models), "Loss and accuracy along a random direction")}
    if options.plane:
        pictures["plane.svg"] = svg_text(plane_chart(models), "Loss over two random directions")
    files = [out / name for name in ("landscape.json", *pictures)]
    out.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        write_text(out / name, picture)
    values["files"] = [str(path) for path in files]
    write_text(files[0], json.dumps(values, indent=2, allow_nan=False))
    return values


def _require_public(options: LandscapeOptions) -> None:
    if not options.public_data:
        raise InputError(
            "public-data-unconfirmed",
            "The loss around a model is an exact function of the records, without noise, and may only be "
            "computed on public records. Add `--public-data` if everyone who sees the result is allowed to "
            "know the records. Otherwise name a public data set with `--dataset`, and add `--split test` and "
            "`--public-data`.",
        )


def _require_numbers(options: LandscapeOptions) -> None:
    """Refuse invalid numbers before any model is measured."""
    from trainables.landscape import check_box, check_grid

    check_box(options.radius, iterations=options.iterations, restarts=options.restarts)
    for option, points in (("--points", options.points), ("--plane", options.plane)):
        if points is None:
            continue
        if not (points >= 3 and points % 2 == 1):
            raise InputError(
                "grid-points-invalid",
                f"{option} must be odd and at least 3, so that the model is one of the points (got {points}). "
                f"Use {option} {max(3, points + 1)}.",
            )
        check_grid(options.extent, points=points, dimensions=1 if option == "--points" else 2)


def _require_writable(out: Path) -> None:
    """Refuse an output folder that cannot be created. This is checked early, because measuring takes hours."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise InputError("output-unwritable", f"The folder {out} of `--out` cannot be written. Choose another folder.")


def _require_finite(export: Exported, module: nn.Module) -> None:
    """Refuse a model with NaN or infinite parameters, before it sees a record."""
    if not all(bool(each.isfinite().all()) for each in module.parameters()):
        raise TrainableError(
            "parameters-not-finite",
            f"{export.folder}: all parameters of the model must be finite. Measure another model.",
        )


def _labels(exports: Sequence[Exported]) -> list[str]:
    """Return the folders' names, or their full paths if two names are equal."""
    names = [export.folder.resolve().name for export in exports]
    return names if len(set(names)) == len(names) else [str(export.folder) for export in exports]


def _notes(split: str) -> list[str]:
    notes = [
        "the sharpness is a lower bound, because the search in the box may miss the largest loss",
        "these numbers depend on records that the user declared public; no guarantee protects these records",
    ]
    if split == "test":
        notes.append("this is a second use of the test set, so do not choose a model by these numbers")
    return notes


def _spread(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return at most `count` rows, evenly spread. The first `count` rows may all have the same label."""
    size = len(rows)
    return rows if size <= count else rows[[at * size // count for at in range(count)]]


def _behind_the_wall(export: Exported, measured: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return the measurements, without what the model says of the records. It could raise our own errors too."""
    try:
        values = behind(operator_log(), measured)
    except WalledError as error:
        if not export.own_model:
            raise
        raise InputError(
            "model-code-failed",
            f"The model in {export.folder} fails in double precision on the records. Create its tensors with the "
            f"dtype of its parameters, or use fewer `--records`. The error is in the operator's log {operator_log()}.",
        ) from error
    if values is None:
        raise TrainableError(
            "parameters-not-finite", f"{export.folder}: the loss of the model must be finite. Measure another model."
        )
    return values


def _measured(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, options: LandscapeOptions
) -> dict[str, Any] | None:
    """Return the sharpness and the slices of one model, measured on a GPU if one is available.

    Return None if the loss of the model itself is not finite.
    """
    import torch

    from trainables.landscape import PublicLoss, loss_surface, sharpness

    measured = (module.to("cuda" if torch.cuda.is_available() else "cpu"), inputs, targets)
    loss = PublicLoss(*measured)
    if not isfinite(loss.loss(loss.theta)):
        return None
    seed, extent = options.seed, options.extent
    steps, starts = options.iterations, options.restarts
    found = sharpness(*measured, radius=options.radius, iterations=steps, restarts=starts, seed=seed)
    line = loss_surface(*measured, extent=extent, points=options.points, dimensions=1, seed=seed)
    plane = None
    if options.plane is not None:
        plane = loss_surface(*measured, extent=extent, points=options.plane, dimensions=2, seed=seed)
    return {
        "loss": found.loss,
        "accuracy": float(line.accuracies[options.points // 2]),
        "sharpness": {"value": found.value, "highest_loss": found.highest, "by_start": list(found.by_start)},
        "line": _plain(line),
        "plane": None if plane is None else _plain(plane),
    }


def _plain(surface: LossSurface) -> dict[str, Any]:
    """Return a loss surface as plain JSON values; values that are not finite become null."""

    def finite(value: Any) -> Any:  # noqa: ANN401 - nested lists of numbers
        if isinstance(value, list):
            return [finite(each) for each in value]
        return value if isfinite(value) else None

    return {
        "coordinates": surface.coordinates.tolist(),
        "losses": finite(surface.losses.tolist()),
        "accuracies": finite(surface.accuracies.tolist()),
    }
