"""The command `tune explain`."""

from __future__ import annotations

import click

from tuner.cli.options import json_option, print_json

__all__ = ["tune_explain"]


@click.command("explain", short_help="Explain an error code, or list all codes.")
@click.argument("code", required=False)
@json_option
def tune_explain(code: str | None, as_json: bool) -> None:
    """Explain the CODE at the end of an error message, with its exit code. Without a CODE: list all codes."""
    from tuner.error_codes import code_list, explain

    values = code_list() if code is None else explain(code)
    if as_json:
        print_json(values)
    elif code is None:
        for name, sentence in values.items():
            click.echo(f"{name:<28} {sentence}")
    else:
        click.echo(f"{values['code']} (exit code {values['exit_code']}: {values['family']})\n{values['explanation']}")
