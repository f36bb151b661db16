"""The commands of `tune budget`, and how every command answers a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["budget", "json_option", "say_json"]

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


def say_json(values: object) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(values, indent=2, default=str))


def _answer(words: str, values: dict[str, Any], *, as_json: bool) -> None:
    say_json(values) if as_json else click.echo(words)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """`--ledger` and `--json`, which may stand before the command's name too."""
    where = click.option("--ledger", help="The ledger of the data.")
    return where(json_option(click.pass_context(command)))


@click.group(invoke_without_command=True)
@click.option(
    "--ledger",
    default="sqlite:///runs/ledger.db",
    envvar="DP_TUNER_LEDGER",
    show_default=True,
    help="The ledger of the data: a file, or postgresql://user@host/database.",
)
@json_option
@click.pass_context
def budget(ctx: click.Context, ledger: str, as_json: bool) -> None:
    """What every data set in the ledger has spent over ALL its searches, its cap, and its users' shares."""
    ctx.obj = (ledger, as_json)
    if ctx.invoked_subcommand is None:
        ctx.invoke(budget_show, dataset=None, ledger=None, as_json=False)


@budget.command("show")
@click.argument("dataset", required=False)
@_common
def budget_show(ctx: click.Context, dataset: str | None, ledger: str | None, as_json: bool) -> None:
    """One data set, or all: cap, committed, shares, every search with its own cap and what it has spent."""
    from tuner.report.budget import budget_text, budget_values

    values = budget_values(ledger or ctx.obj[0], dataset)
    _answer(budget_text(values), values, as_json=as_json or ctx.obj[1])


@budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="Cap over all searches on this data set.")
@click.option("--delta", type=float, required=True, help="δ over all searches; each search brings its own.")
@click.option(
    "--order",
    metavar="A|auto|none",
    help="Order of a Rényi filter that may admit a search where the sum of claims does not; each rule then has half of "
    "δ. Fixed while a search counts. Left out: as it is.",
)
@click.option("--new", is_flag=True, help="The name is meant, though it looks like that of another data set.")
@_common
def budget_set(
    ctx: click.Context,
    dataset: str,
    epsilon: float,
    delta: float,
    order: str | None,
    new: bool,
    ledger: str | None,
    as_json: bool,
) -> None:
    """Set the cap of a data set. It is for the data's owner; the history of caps stays in the ledger."""
    from tuner.report.budget import changed_text, set_cap

    values = set_cap(ledger or ctx.obj[0], dataset, epsilon=epsilon, delta=delta, order=order, new=new)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@budget.command("grant")
@click.argument("dataset")
@click.argument("user")
@click.option("--epsilon", type=float, required=True, help="Share over all searches of this user.")
@click.option("--delta", type=float, required=True, help="δ over all searches of this user.")
@_common
def budget_grant(
    ctx: click.Context, dataset: str, user: str, epsilon: float, delta: float, ledger: str | None, as_json: bool
) -> None:
    """Set USER's share of a data set's cap. From the first share on, who has none can start nothing.

    USER is an account of this machine where the ledger is a file, a role of the database where it is in PostgreSQL.
    """
    from tuner.report.budget import changed_text, grant

    values = grant(ledger or ctx.obj[0], dataset, user, epsilon=epsilon, delta=delta)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@budget.command("revoke")
@click.argument("dataset")
@click.argument("user")
@_common
def budget_revoke(ctx: click.Context, dataset: str, user: str, ledger: str | None, as_json: bool) -> None:
    """Take USER's share away: nothing more can be started; what was committed stays committed."""
    from tuner.report.budget import changed_text, revoke

    values = revoke(ledger or ctx.obj[0], dataset, user)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@budget.command("report")
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The HTML page to write.")
@_common
def budget_report(ctx: click.Context, dataset: str, out: Path, ledger: str | None, as_json: bool) -> None:
    """Check the ledger, and write its history of one data set as a page for a data protection officer."""
    from tuner.report.budget import report

    values = report(ledger or ctx.obj[0], dataset, out)
    _answer(f"the chain is unbroken; written to {out}", values, as_json=as_json or ctx.obj[1])
