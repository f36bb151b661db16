"""Commands of `tune budget`: the privacy budget of data sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from tuner.cli.options import json_option, print_answer

__all__ = ["tune_budget"]


def _answers(command: Callable[..., tuple[dict[str, Any], str]]) -> Callable[..., None]:
    """Add `--ledger` and `--json` to a subcommand, and print the values that it returns.

    The user may write these options before or after the subcommand's name.
    """

    @click.option("--ledger", metavar="URL", help="The ledger with the budgets of the data sets: see tune budget -h.")
    @json_option
    @click.pass_context
    def called(ctx: click.Context, /, ledger: str | None, as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
        values, text = command(ledger or ctx.obj[0], **arguments)
        print_answer(values, text, as_json=as_json or ctx.obj[1])

    return update_wrapper(called, command)


@click.group(
    "budget", short_help="Show the total spending of every data set in the ledger.", invoke_without_command=True
)
@click.option(
    "--ledger",
    metavar="URL",
    envvar="DP_TUNER_LEDGER",
    help="The ledger with the budgets of the data sets: sqlite:///my.db for the file my.db in this folder, "
    "sqlite:////srv/my.db for /srv/my.db, or postgresql://user@host/database. Default: dp-tuner/ledger.db in "
    "$XDG_DATA_HOME or ~/.local/share.",
)
@json_option
@click.pass_context
def tune_budget(ctx: click.Context, ledger: str | None, as_json: bool) -> None:
    """Show each data set in the ledger: its cap, the spending of ALL its searches, and the shares of users."""
    from tuner.privacy.ledger.stores import default_url

    ctx.obj = (ledger or default_url(), as_json)
    if ctx.invoked_subcommand is None:
        ctx.invoke(budget_show, dataset=None, ledger=None, as_json=False)


@tune_budget.command("show")
@click.argument("dataset", required=False)
@_answers
def budget_show(ledger: str, dataset: str | None) -> tuple[dict[str, Any], str]:
    """Show one data set, or all: cap, committed total, the users' shares, and the cap and spending of each search."""
    from tuner.report.budget import budget_values
    from tuner.report.budget_text import budget_text

    values = budget_values(ledger, dataset)
    return values, budget_text(values)


@tune_budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="Cap on the ε of all searches on this data set together.")
@click.option("--delta", type=float, required=True, help="Cap on the δ of all searches together.")
@click.option(
    "--order",
    metavar="A|auto|none",
    help="Order of a Rényi filter, a second rule that may admit more searches. A search may then start if the sum of "
    "all claims or this filter allows it. Each of the two rules gets half of δ. The order cannot change while a search "
    "counts against the cap. Default: the order stays as it is.",
)
@click.option("--new", is_flag=True, help="Accept a data set whose name is similar to the name of another data set.")
@click.option("--yes", is_flag=True, help="Accept a cap below what the searches have committed already.")
@_answers
def budget_set(ledger: str, **cap: Any) -> tuple[dict[str, Any], str]:  # noqa: ANN401 - arguments of set_cap
    """Set the cap of a data set. Only the data's owner should do this. The ledger keeps all earlier caps."""
    from tuner.report.budget import set_cap
    from tuner.report.budget_text import changed_text

    values = set_cap(ledger, **cap)
    return values, changed_text(values)


@tune_budget.command("public")
@click.argument("dataset")
@click.argument("file", type=click.Path())
@_answers
def budget_public(ledger: str, dataset: str, file: str) -> tuple[dict[str, Any], str]:
    """Declare that the records of FILE are public. Only the data's owner should do this.

    The answer may reveal something about private records.

    Once the ledger holds private records of your own, a public search, or one with `private: false`, can use another
    file of your own only after this command. Records that the ledger holds as private are refused.
    """
    from tuner.report.budget import enter_public
    from tuner.report.budget_text import changed_text

    values = enter_public(ledger, dataset, file)
    return values, changed_text(values)


@tune_budget.command("grant")
@click.argument("dataset")
@click.argument("user")
@click.option("--epsilon", type=float, required=True, help="Cap on the ε of all searches of this user together.")
@click.option("--delta", type=float, required=True, help="Cap on the δ of all searches of this user together.")
@_answers
def budget_grant(ledger: str, dataset: str, user: str, epsilon: float, delta: float) -> tuple[dict[str, Any], str]:
    """Set USER's share of a data set's cap. After the first share is set, users without a share cannot start a search.

    If the ledger is a file, USER is an account of this machine. If it is in PostgreSQL, USER is a database role.
    """
    from tuner.report.budget import grant
    from tuner.report.budget_text import changed_text

    values = grant(ledger, dataset, user, epsilon=epsilon, delta=delta)
    return values, changed_text(values)


@tune_budget.command("revoke")
@click.argument("dataset")
@click.argument("user")
@_answers
def budget_revoke(ledger: str, dataset: str, user: str) -> tuple[dict[str, Any], str]:
    """Revoke USER's share. The user cannot start new searches. Budget that is already committed stays committed."""
    from tuner.report.budget import revoke
    from tuner.report.budget_text import changed_text

    values = revoke(ledger, dataset, user)
    return values, changed_text(values)


@tune_budget.command("report")
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The HTML page to write.")
@_answers
def budget_report(ledger: str, dataset: str, out: Path) -> tuple[dict[str, Any], str]:
    """Check the ledger, and write an HTML page for a data protection officer: one data set's budget history."""
    from tuner.report.budget import write_budget_report

    return write_budget_report(ledger, dataset, out), f"the hash chain is unbroken; the page is {out}"
