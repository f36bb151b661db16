"""The command `landscape`: how flat the loss of exported models is, on PUBLIC records, in numbers and pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuner
from trainables.data import check_present, info, load
from tuner.errors import InputError
from tuner.export.exported_models import Exported, read_export, records_of, same_records, same_shape
from tuner.export.landscape_values import measured

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["LandscapeOptions", "landscape_command"]


@dataclass(frozen=True, kw_only=True)
class LandscapeOptions:
    """What is measured, and where it is written.

    Attributes:
        public_data: the user's word that the records are public; without it nothing is read.
        data_dir: folder with the data sets.
        dataset: a shipped data set instead of the models' own.
        split: 'validation' or 'test'.
        records: how many of the split's records at most, spread evenly over it.
        radius: ε_s of the sharpness.
        iterations: gradient steps of one start of its search.
        restarts: random starts, besides the one at the model.
        extent: the slices span α in [−extent, extent].
        points: of the line.
        plane: points along each side of a plane; None draws none.
        seed: public, of directions and starts.
        out: folder to write; None is `landscape` in the first model's folder.
    """

    public_data: bool
    data_dir: str | None = None
    dataset: str | None = None
    split: str = "validation"
    records: int = 2000
    radius: float = 0.0045
    iterations: int = 20
    restarts: int = 4
    extent: float = 0.8
    points: int = 41
    plane: int | None = None
    seed: int = 0
    out: Path | None = None


def landscape_command(
    folders: Sequence[Path], options: LandscapeOptions, say: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Measure exported models on public records, and write the numbers and the pictures.

    Formal guarantee: what is told of the TRAINING records is post-processing of models that were released, and costs
    nothing. Of the records that it is computed on it protects none: so they must be public.

    Args:
        folders: of `tune export`, one a model.
        options: what to measure.
        say: told which model is being measured.

    Returns:
        Everything that was measured, as it was written to `landscape.json`.

    Raises:
        InputError: the data were not said to be public, the models do not belong together, a folder is not an export.
        trainables.errors.TrainableError: the data are missing, or a number is out of its range.
        In both cases nothing was written.
    """
    from tuner.report.landscape_pictures import line_svg, plane_svg

    _require_public(options)
    _require_numbers(options)
    exports = [read_export(folder) for folder in folders]
    same_records(exports, dataset=options.dataset, split=options.split)
    out = options.out or folders[0] / "landscape"
    _require_writable(out)
    request = records_of(exports[0], dataset=options.dataset, data_dir=options.data_dir)
    if options.dataset is not None:
        same_shape(exports, info(request), data_dir=options.data_dir)
    check_present(request)
    about = info(request)
    # All models before the first is measured: what cannot be measured is said at once.
    modules = [export.module(input_shape=about.input_shape, classes=about.classes) for export in exports]
    splits = load(request)
    held = {"validation": (splits.x_validation, splits.y_validation), "test": (splits.x_test, splits.y_test)}
    inputs, targets = (_spread(each, options.records) for each in held[options.split])
    labels = _labels(exports)
    models = []
    for export, module, label in zip(exports, modules, labels, strict=True):
        if say is not None:
            say(f"measuring {label} on {len(targets)} {options.split} records of {request.name}")
        models.append({"label": label, **export.facts(), **_measured(export, module, inputs, targets, options)})
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
        "notes": _notes(options.split),
        "models": models,
    }
    pictures = {"line.svg": line_svg(models)} | ({"plane.svg": plane_svg(models)} if options.plane else {})
    files = [out / name for name in ("landscape.json", *pictures)]
    out.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (out / name).write_text(picture, encoding="utf-8")
    values["files"] = [str(path) for path in files]
    files[0].write_text(json.dumps(values, indent=2, allow_nan=False), encoding="utf-8")
    return values


def _require_public(options: LandscapeOptions) -> None:
    if not options.public_data:
        raise InputError(
            "the loss around a model is told only of records that are public: it is an exact function of them, "
            "no noise covers it, and what is written here leaves the machine. Add --public-data if the records of the "
            "split may be known to everyone who sees the result; if not, name a public set with --dataset."
        )


def _require_numbers(options: LandscapeOptions) -> None:
    """Refuse them here, not after the first model was measured."""
    from trainables.landscape import check_box, check_grid

    check_box(options.radius, iterations=options.iterations, restarts=options.restarts)
    for option, points in (("--points", options.points), ("--plane", options.plane)):
        if points is None:
            continue
        if not (points >= 3 and points % 2 == 1):
            raise InputError(
                f"{option} must be odd and at least 3, so that the model itself is one of the points, got {points}. "
                f"Write {option} {max(3, points + 1)}."
            )
        check_grid(options.extent, points=points, dimensions=1 if option == "--points" else 2)


def _require_writable(out: Path) -> None:
    """Hours of measuring must not end at a folder that cannot be made; nothing is made yet."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise InputError(f"--out must be a folder that can be written, got {out}. Choose another one.")


def _labels(exports: Sequence[Exported]) -> list[str]:
    """The folders' names, or the whole paths where two are the same."""
    names = [export.folder.resolve().name for export in exports]
    return names if len(set(names)) == len(names) else [str(export.folder) for export in exports]


def _notes(split: str) -> list[str]:
    notes = [
        "the sharpness is a lower bound: the largest loss that was found in the box, not the largest there is",
        "computed on records that were said to be public; nothing here protects them",
    ]
    if split == "test":
        notes.append("a second look at the test set: whoever chooses a model by it has searched over the test set")
    return notes


def _spread(rows: torch.Tensor, count: int) -> torch.Tensor:
    """At most `count` rows, evenly spread: the first ones of a file may all be of one label."""
    size = len(rows)
    return rows if size <= count else rows[[at * size // count for at in range(count)]]


def _measured(
    export: Exported, module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, options: LandscapeOptions
) -> dict[str, Any]:
    """The sharpness and the slices of one model."""
    try:
        return measured(
            module,
            inputs,
            targets,
            radius=options.radius,
            iterations=options.iterations,
            restarts=options.restarts,
            extent=options.extent,
            points=options.points,
            plane=options.plane,
            seed=options.seed,
        )
    except RuntimeError as error:
        if not export.own_model:
            raise
        raise InputError(
            f"the model in {export.folder} must work in double precision on {len(targets)} records, got "
            f"{type(error).__name__}: {error}. Make its tensors of the type of its parameters, or give fewer --records."
        ) from error
