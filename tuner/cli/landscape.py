"""The command `tune landscape`: how flat the loss of exported models is, on public records."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.budget import json_option, say_json

__all__ = ["landscape"]


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="EXPORT_DIR...", type=click.Path(path_type=Path))
@click.option("--public-data", is_flag=True, help="Your word that the records may be known to all who see the result.")
@click.option(
    "--split", default="validation", show_default=True, help="validation or test, never the training records."
)
@click.option("--dataset", default=None, help="A shipped data set that no model was trained on (with --split test).")
@click.option(
    "--data-dir", type=click.Path(), envvar="DP_TUNER_DATA", help="Folder with the data sets (default ./data)."
)
@click.option("--records", type=click.IntRange(min=1), default=2000, show_default=True, help="At most; spread evenly.")
@click.option("--radius", type=float, default=0.0045, show_default=True, help="ε of the sharpness' box.")
@click.option("--iterations", type=int, default=20, show_default=True, help="Gradient steps of a start in the box.")
@click.option("--restarts", type=int, default=4, show_default=True, help="Random starts, besides the model itself.")
@click.option("--extent", type=float, default=0.8, show_default=True, help="Slices span α in [-extent, extent].")
@click.option("--points", type=int, default=41, show_default=True, help="Of the line; an odd number.")
@click.option("--plane", type=int, default=None, help="Also a plane of so many points a side; an odd number.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Public: the directions.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Default: `landscape` in the first folder.")
@json_option
def landscape(
    folders: tuple[Path, ...],
    public_data: bool,
    split: str,
    dataset: str | None,
    data_dir: str | None,
    records: int,
    radius: float,
    iterations: int,
    restarts: int,
    extent: float,
    points: int,
    plane: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """How flat the loss around exported models is, on PUBLIC records: sharpness, slices, pictures.

    Several folders of `tune export` are drawn together.
    """
    from tuner.runner.landscape import LandscapeOptions, landscape_command

    options = LandscapeOptions(
        public_data=public_data,
        data_dir=data_dir,
        dataset=dataset,
        split=split,
        records=records,
        radius=radius,
        iterations=iterations,
        restarts=restarts,
        extent=extent,
        points=points,
        plane=plane,
        seed=seed,
        out=out,
    )
    values = landscape_command(folders, options, None if as_json else click.echo)
    if as_json:
        say_json(values)
        return
    from tuner.report.landscape_pictures import table
    from tuner.report.text import console

    console().print(table(values["models"]))
    for note in values["notes"]:
        click.echo(f"  {note}")
    for path in values["files"]:
        click.echo(f"wrote {path}")
