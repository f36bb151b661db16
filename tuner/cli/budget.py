"""Commands of `tune budget`: the privacy budget of data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tuner.cli.options import json_option, print_json

__all__ = ["tune_budget"]


def _answer(text: str, values: dict[str, Any], *, as_json: bool) -> None:
    print_json(values) if as_json else click.echo(text)


def _common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--ledger` and `--json`, which are also accepted before the name of the subcommand."""
    where = click.option("--ledger", help="The ledger of the data.")
    return where(json_option(click.pass_context(command)))


@click.group(
    "budget", short_help="Show the total spending of every data set in the ledger.", invoke_without_command=True
)
@click.option(
    "--ledger",
    default="sqlite:///runs/ledger.db",
    envvar="DP_TUNER_LEDGER",
    show_default=True,
    help="The ledger of the data: a file, or postgresql://user@host/database.",
)
@json_option
@click.pass_context
def tune_budget(ctx: click.Context, ledger: str, as_json: bool) -> None:
    """Show what every data set in the ledger has spent over ALL its searches, its cap, and its users' shares."""
    ctx.obj = (ledger, as_json)
    if ctx.invoked_subcommand is None:
        ctx.invoke(budget_show, dataset=None, ledger=None, as_json=False)


@tune_budget.command("show")
@click.argument("dataset", required=False)
@_common_options
def budget_show(ctx: click.Context, dataset: str | None, ledger: str | None, as_json: bool) -> None:
    """Show one data set or all: cap, committed total, shares, and every search with its cap and spending."""
    from tuner.report.budget import budget_values
    from tuner.report.budget_text import budget_text

    values = budget_values(ledger or ctx.obj[0], dataset)
    _answer(budget_text(values), values, as_json=as_json or ctx.obj[1])


@tune_budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="Cap over all searches on this data set.")
@click.option("--delta", type=float, required=True, help="δ over all searches; each search adds its own.")
@click.option(
    "--order",
    metavar="A|auto|none",
    help="Order of a Rényi filter that may admit a search where the sum of claims does not; each rule then has half of "
    "δ. Cannot change while a search counts. Default: unchanged.",
)
@click.option("--new", is_flag=True, help="Accept a name that is similar to that of another data set.")
@_common_options
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
    """Set the cap of a data set. This is for the data's owner; the ledger keeps the history of caps."""
    from tuner.report.budget import set_cap
    from tuner.report.budget_text import changed_text

    values = set_cap(ledger or ctx.obj[0], dataset, epsilon=epsilon, delta=delta, order=order, new=new)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@tune_budget.command("grant")
@click.argument("dataset")
@click.argument("user")
@click.option("--epsilon", type=float, required=True, help="Share over all searches of this user.")
@click.option("--delta", type=float, required=True, help="δ over all searches of this user.")
@_common_options
def budget_grant(
    ctx: click.Context, dataset: str, user: str, epsilon: float, delta: float, ledger: str | None, as_json: bool
) -> None:
    """Set USER's share of a data set's cap. Once a share exists, users without one cannot start a search.

    USER is an account of this machine where the ledger is a file, a role of the database where it is in PostgreSQL.
    """
    from tuner.report.budget import grant
    from tuner.report.budget_text import changed_text

    values = grant(ledger or ctx.obj[0], dataset, user, epsilon=epsilon, delta=delta)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@tune_budget.command("revoke")
@click.argument("dataset")
@click.argument("user")
@_common_options
def budget_revoke(ctx: click.Context, dataset: str, user: str, ledger: str | None, as_json: bool) -> None:
    """Revoke USER's share: the user can start no new search. What was committed stays committed."""
    from tuner.report.budget import revoke
    from tuner.report.budget_text import changed_text

    values = revoke(ledger or ctx.obj[0], dataset, user)
    _answer(changed_text(values), values, as_json=as_json or ctx.obj[1])


@tune_budget.command("report")
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The HTML page to write.")
@_common_options
def budget_report(ctx: click.Context, dataset: str, out: Path, ledger: str | None, as_json: bool) -> None:
    """Check the ledger, and write the history of one data set as a page for a data protection officer."""
    from tuner.report.budget import write_budget_report

    values = write_budget_report(ledger or ctx.obj[0], dataset, out)
    _answer(f"the chain is unbroken; written to {out}", values, as_json=as_json or ctx.obj[1])
