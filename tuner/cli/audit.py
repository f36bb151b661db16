"""The command `tune audit`: a lower bound of ε, and the effect of one record, on made-up records."""

from __future__ import annotations

import sys

import click

from tuner.cli.options import data_option, file_argument, json_option, print_answer, set_option

__all__ = ["tune_audit"]


@click.command("audit", short_help="Try to refute the guarantee of a training, on made-up records.")
@file_argument
@click.option(
    "--canaries",
    type=click.IntRange(32, 4096),
    default=512,
    show_default=True,
    help="Maximum number of made-up records, half of which enter the training.",
)
@click.option(
    "--steps", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of steps of the audited run."
)
@click.option(
    "--public-data",
    metavar="FILE.npz",
    help="Insert the training records of this file instead of made-up records. Everyone must be allowed to see them.",
)
@set_option
@data_option
@json_option
def tune_audit(
    file: str,
    canaries: int,
    steps: int,
    public_data: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Try to refute the guarantee of a file's method, model and clipping. Nothing is charged.

    Made-up records (canaries) enter one training, each with probability 1/2. The command guesses which ones entered,
    and computes a lower bound of ε from its right guesses. A bound above the claim proves a fault (except in one of 20
    audits, by chance). A bound below the claim proves nothing: the true ε is between the bound and the claim if the
    claim is right.

    With --public-data, the records of a file of yours replace the made-up ones. The ledger is asked first, and refuses
    records that it holds as private. Made-up records usually give a higher bound.

    The command also puts hostile records into a batch and compares the clipped sums before the noise. No private record
    is read. Exit code 1: a fault was found.
    """
    from tuner.runner.audit import audit_command, audit_text

    values = audit_command(file, overrides, data_dir=data_dir, canaries=canaries, steps=steps, public=public_data)
    print_answer(values, audit_text(values), as_json=as_json)
    sys.exit(0 if values["ok"] else 1)
