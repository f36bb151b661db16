"""Pages of the site that are made from the code: options of all commands, and error codes. Called by mkdocs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from tuner.cli.app import cli
from tuner.error_codes import code_list, explain

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for name, text in (("options.md", options()), ("errors.md", errors())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Name files outside of the docs without a link, because the site has only the docs."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)


def options() -> str:
    """Return the help of every command, as a terminal of 100 columns shows it."""
    parts = ["# Options of the commands", "What `tune COMMAND --help` prints."]
    for name, command in sorted(_commands(cli, "tune")):
        context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
        parts += [f"## {name}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts)


def errors() -> str:
    """Return every error code with its exit code and explanation."""
    rows = ["| code | exit code | what it means |", "|---|---|---|"]
    for code in sorted(code_list()):
        found = explain(code)
        text = str(found["explanation"]).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
        rows.append(f"| `{code}` | {found['exit_code']} | {text} |")
    return (
        "# Error codes\n\nEvery error ends with a code in brackets. `tune explain CODE` prints the same.\n\n"
        + "\n".join(rows)
    )


def _commands(group: click.Group, name: str) -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for key, command in group.commands.items():
        inner = _commands(command, f"{name} {key}") if isinstance(command, click.Group) else []
        found += [(f"{name} {key}", command), *inner]
    return found
