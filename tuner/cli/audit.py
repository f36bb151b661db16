"""The command `tune audit`: a lower bound of ε, and the effect of one record, on made-up records."""

from __future__ import annotations

import sys

import click

from tuner.cli.options import data_option, file_argument, json_option, print_answer, set_option

__all__ = ["tune_audit"]


@click.command("audit", short_help="Try to disprove the guarantee of a training, with made-up records.")
@file_argument
@click.option(
    "--canaries",
    type=click.IntRange(32, 4096),
    default=512,
    show_default=True,
    help="Maximum number of made-up records. Each of them enters the training with probability 1/2.",
)
@click.option(
    "--steps", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of steps of the audited run."
)
@click.option(
    "--public-data",
    metavar="FILE.npz",
    help="Use the training records of this file instead of made-up ones. You declare that everyone may see them.",
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
    """Try to disprove the guarantee of the method, model and clipping in FILE. Nothing is charged.

    Made-up records (canaries) enter one training, each with probability 1/2. The command guesses which of them entered,
    and computes a lower bound of ε from its right guesses. A bound above the claim shows a fault, but in one of 20
    audits it can be chance. A bound below the claim proves nothing. If the claim is right, the true ε is between the
    bound and the claim.

    With --public-data, the records of your own file replace the made-up records. Records that the ledger holds as
    private are refused. Made-up records usually give a higher bound.

    The command also adds adversarial records to a batch, and measures how far each one moves the clipped sum of
    gradients before the noise. No private record is read. Exit code 1 means that a fault was found.
    """
    from tuner.runner.audit import audit_command, audit_text

    values = audit_command(file, overrides, data_dir=data_dir, canaries=canaries, steps=steps, public=public_data)
    print_answer(values, audit_text(values), as_json=as_json)
    sys.exit(0 if values["ok"] else 1)
