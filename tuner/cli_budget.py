"""The commands of `tune budget`, and how every command answers a program."""

from __future__ import annotations

import json

import click

__all__ = ["budget", "json_option", "say_json"]

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
_ledger = click.option(
    "--ledger",
    default="sqlite:///runs/ledger.db",
    envvar="DP_TUNER_LEDGER",
    show_default=True,
    help="The ledger of the data.",
)


def say_json(values: object) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(values, indent=2, default=str))


@click.group(invoke_without_command=True)
@_ledger
@json_option
@click.pass_context
def budget(ctx: click.Context, ledger: str, as_json: bool) -> None:
    """What every data set in the ledger has spent over ALL its searches, and its cap."""
    ctx.obj = (ledger, as_json)
    if ctx.invoked_subcommand is None:
        ctx.invoke(budget_show, dataset=None)


@budget.command("show")
@click.argument("dataset", required=False)
@click.pass_context
def budget_show(ctx: click.Context, dataset: str | None) -> None:
    """One data set, or all: cap, committed, every search with its own cap and what it has spent."""
    from tuner.budget_view import budget_text, budget_values

    ledger, as_json = ctx.obj
    values = budget_values(ledger, dataset)
    say_json(values) if as_json else click.echo(budget_text(values))


@budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="Cap over all searches on this data set.")
@click.option("--delta", type=float, required=True, help="δ over all searches; each search brings its own.")
@click.pass_context
def budget_set(ctx: click.Context, dataset: str, epsilon: float, delta: float) -> None:
    """Set the cap of a data set. It is for the data's owner; the history of caps stays in the ledger."""
    from tuner.budget_view import set_cap

    click.echo(set_cap(ctx.obj[0], dataset, epsilon=epsilon, delta=delta))
