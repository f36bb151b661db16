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

    @click.option("--ledger", metavar="URL", help="Address of the ledger. tune budget -h shows its forms.")
    @json_option
    @click.pass_context
    def called(ctx: click.Context, /, ledger: str | None, as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
        values, text = command(ledger or ctx.obj[0], **arguments)
        print_answer(values, text, as_json=as_json or ctx.obj[1])

    return update_wrapper(called, command)


@click.group(
    "budget", short_help="Show or set the privacy budgets of data sets in the ledger.", invoke_without_command=True
)
@click.option(
    "--ledger",
    metavar="URL",
    envvar="DP_TUNER_LEDGER",
    help="Address of the ledger, which holds the budgets of the data sets: sqlite:///my.db for the file my.db in this "
    "folder, sqlite:////srv/my.db for the file /srv/my.db, or postgresql://user@host/database. Default: the file "
    "dp-tuner/ledger.db in $XDG_DATA_HOME or ~/.local/share.",
)
@json_option
@click.pass_context
def tune_budget(ctx: click.Context, ledger: str | None, as_json: bool) -> None:
    """Show each data set in the ledger: its cap, the total of ALL its searches, and each person's share of the cap."""
    from tuner.privacy.ledger.stores import default_url

    ctx.obj = (ledger or default_url(), as_json)
    if ctx.invoked_subcommand is None:
        ctx.invoke(budget_show, dataset=None, ledger=None, as_json=False)


@tune_budget.command("show")
@click.argument("dataset", required=False)
@_answers
def budget_show(ledger: str, dataset: str | None) -> tuple[dict[str, Any], str]:
    """Show one data set, or all: its cap, committed total and shares, and the cap and spending of each search."""
    from tuner.report.budget import budget_values
    from tuner.report.budget_text import budget_text

    values = budget_values(ledger, dataset)
    return values, budget_text(values)


@tune_budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="Cap on the ε of all searches on this data set together.")
@click.option("--delta", type=float, required=True, help="Cap on the δ of all searches on this data set together.")
@click.option(
    "--order",
    metavar="A|auto|none",
    help="Order of a Rényi filter, a second rule next to the sums of ε and δ. With the filter, a search can start if "
    "one of the two rules allows it, so more searches may fit the cap. Each rule gets half of δ. The order cannot "
    "change while a search counts against the cap. `auto` chooses the order, and `none` removes the filter. Default: "
    "no change.",
)
@click.option("--new", is_flag=True, help="Allow a new data set whose name is similar to the name of another one.")
@click.option("--yes", is_flag=True, help="Allow a cap below the total that searches have already committed.")
@_answers
def budget_set(ledger: str, **cap: Any) -> tuple[dict[str, Any], str]:  # noqa: ANN401 - arguments of set_cap
    """Set the cap of a data set. Only the owner of the data should do this. The ledger still lists all earlier caps."""
    from tuner.report.budget import set_cap
    from tuner.report.budget_text import changed_text

    values = set_cap(ledger, **cap)
    return values, changed_text(values)


@tune_budget.command("public")
@click.argument("dataset")
@click.argument("file", type=click.Path())
@_answers
def budget_public(ledger: str, dataset: str, file: str) -> tuple[dict[str, Any], str]:
    """Declare that the records of FILE are public. Only the owner of the data should do this.

    The command refuses records that the ledger holds as private. So its answer may reveal something about private
    records, for example that FILE is a copy of them.

    The command is needed once the ledger holds private records of your own. From then on, a public search, or one
    with `private: false`, can use another file of your own only if this command declared the file public.
    """
    from tuner.report.budget import enter_public
    from tuner.report.budget_text import changed_text

    values = enter_public(ledger, dataset, file)
    return values, changed_text(values)


@tune_budget.command("grant")
@click.argument("dataset")
@click.argument("user")
@click.option("--epsilon", type=float, required=True, help="Cap on the ε of all searches by USER on DATASET together.")
@click.option("--delta", type=float, required=True, help="Cap on the δ of all searches by USER on DATASET together.")
@_answers
def budget_grant(ledger: str, dataset: str, user: str, epsilon: float, delta: float) -> tuple[dict[str, Any], str]:
    """Set the share of USER in the cap of a data set.

    Then people without a share cannot start a search on this data set.

    If the ledger is a file, USER is an account of this machine. If the ledger is in PostgreSQL, USER is a database
    role.
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
    """Revoke the share of USER, who then cannot start a new search. What is already committed stays committed."""
    from tuner.report.budget import revoke
    from tuner.report.budget_text import changed_text

    values = revoke(ledger, dataset, user)
    return values, changed_text(values)


@tune_budget.command("report")
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The HTML page to write.")
@_answers
def budget_report(ledger: str, dataset: str, out: Path) -> tuple[dict[str, Any], str]:
    """Check the ledger, and write an HTML page with the budget history of a data set, for a data protection officer."""
    from tuner.report.budget import write_budget_report

    return write_budget_report(ledger, dataset, out), f"the hash chain of the ledger is unbroken; wrote {out}"
