"""The command `tune landscape`: the flatness of the loss of exported models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuner.cli.options import data_option, json_option, print_json

__all__ = ["tune_landscape"]


@click.command("landscape", short_help="Measure how flat the loss of exported models is.")
@click.argument("folders", nargs=-1, required=True, metavar="EXPORT_DIR...", type=click.Path(path_type=Path))
@click.option(
    "--public-data", is_flag=True, help="Confirm that everyone who sees the result is allowed to know the records."
)
@click.option(
    "--split",
    default="validation",
    show_default=True,
    help="Split to measure on: validation or test. The training records are never used.",
)
@click.option(
    "--dataset",
    help="Measure on this shipped data set. It must share no records with the models' training data. Needs "
    "--split test.",
)
@data_option
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Maximum number of measured records, evenly spread over the split.",
)
@click.option(
    "--radius",
    type=float,
    default=0.0045,
    show_default=True,
    help="Size r of the box around the model's parameters θ in which the largest loss is sought: θ + z with "
    "|z_i| ≤ r (|θ_i| + 1).",
)
@click.option(
    "--iterations",
    type=int,
    default=20,
    show_default=True,
    help="Number of gradient steps towards the largest loss in the box, from each starting point.",
)
@click.option(
    "--restarts",
    type=int,
    default=4,
    show_default=True,
    help="Number of random starting points in the box. The model itself is one more starting point.",
)
@click.option(
    "--extent",
    type=float,
    default=0.8,
    show_default=True,
    help="Range of a slice, which shows the loss at θ + α · direction for α from -extent to extent.",
)
@click.option(
    "--points", type=int, default=41, show_default=True, help="Number of values of α in a slice, an odd number."
)
@click.option(
    "--plane",
    type=int,
    help="Also plot the loss over two random directions, with this odd number of points per side.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Public seed of the random directions and the random starting points.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Output folder (default: `landscape` inside the first exported folder).",
)
@json_option
def tune_landscape(folders: tuple[Path, ...], as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Measure how flat the loss of exported models is on PUBLIC records: the sharpness, and pictures of the loss.

    EXPORT_DIR is a folder that `tune export` wrote. With several folders, each picture shows all models.
    """
    from tuner.runner.landscape import LandscapeOptions, landscape_command

    values = landscape_command(folders, LandscapeOptions(**options), None if as_json else click.echo)
    if as_json:
        print_json(values)
        return
    from tuner.report.landscape_pictures import landscape_table
    from tuner.report.text import console

    console().print(landscape_table(values["models"]))
    for note in values["notes"]:
        click.echo(f"  {note}")
    for path in values["files"]:
        click.echo(f"wrote {path}")
