"""The command `tune doctor`."""

from __future__ import annotations

import sys

import click

from tuner.cli.options import data_option, json_option, print_json

__all__ = ["tune_doctor"]


@click.command("doctor", short_help="Check the installation and suggest fixes.")
@data_option
@json_option
@click.option("--fix", is_flag=True, help="Point the scripts `tune` and `dp-tune` to this program.")
def tune_doctor(data_dir: str | None, as_json: bool, fix: bool) -> None:
    """Check the installation: scripts, packages, dependencies and data sets. Suggest fixes."""
    from tuner.doctor import diagnose, diagnosis_text, fix_script

    if fix:
        for path in fix_script():
            click.echo(f"wrote {path}", err=as_json)
    found = diagnose(data_dir)
    print_json({"findings": [vars(each) for each in found]}) if as_json else click.echo(diagnosis_text(found))
    sys.exit(0 if all(each.ok for each in found) else 1)
