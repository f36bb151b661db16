"""The command `tune verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli.options import json_option, print_json

__all__ = ["tune_verify"]


@click.command("verify", short_help="Recompute a privacy card from its ledger: yes or no.")
@click.argument("card", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--ledger",
    default=None,
    envvar="DP_TUNER_LEDGER",
    help="The card's ledger (default: the one of the experiment file in the same folder).",
)
@json_option
def tune_verify(card: Path, ledger: str | None, as_json: bool) -> None:
    """Recompute a privacy card from its ledger with independent accountants, answer yes or no, and say why."""
    from tuner.export.verification import verify_card

    values, text = verify_card(card, ledger)
    print_json(values) if as_json else click.echo(text)
    sys.exit(0 if values["ok"] else 1)
