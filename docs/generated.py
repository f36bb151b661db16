"""Pages of the site that are made from the code: keys of a file, options of commands, error codes. Called by mkdocs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from search_spaces import METHODS, PARAMETERS
from search_spaces.domains import as_yaml
from trainables.model_names import ACTIVATIONS, MODELS, NORMALIZATIONS
from trainables.tasks import METRICS
from tuner.cli.app import cli
from tuner.error_codes import code_list, explain
from tuner.experiment import Experiment
from tuner.experiment.resolving import hyperparameter_defaults
from tuner.experiment.sections import AUTO, Component, Section
from tuner.privacy.accountant.run_laws import LAWS
from tuner.privacy.modes import MODES
from tuner.study.names import PRUNERS, SAMPLERS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

WORDS: dict[str, Iterable[str]] = {
    "trainable.method": METHODS,
    "trainable.model": MODELS,
    "trainable.activation": ACTIVATIONS,
    "trainable.normalization": [name for name in NORMALIZATIONS if name != "batch"],
    "privacy.accounting": [*MODES, AUTO],
    "privacy.runs.law": LAWS,
    "search.sampler": SAMPLERS,
    "search.pruner": PRUNERS,
    "search.metric.name": METRICS,
}
"""Legal words of the keys whose type is any text. The gates check these words."""

_TYPES = {str: "text", bool: "true or false", int: "whole number", float: "number", NoneType: "null"}
_SIGNS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_LARGEST = 2**53  # largest whole number of any key, which is no limit in practice


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for name, text in (("keys.md", keys()), ("options.md", options()), ("errors.md", errors())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Name files outside of the docs without a link, because the site has only the docs."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)


def keys() -> str:
    """Return every key of the experiment file with its type, default and description, and the names of all choices.

    Raises:
        KeyError: a key has no line in the `Attributes` of its section's docstring.
    """
    parts = [
        "# Keys of the experiment file",
        "Every key, made from the code. [The experiment file](experiment.md) has an example and rules between keys.",
    ]
    for path, section in sections("", Experiment):
        parts += [f"## {path or 'Top level'}", _docstring(section)[0], section_table(path, section)]
    options = [("sampler", *each) for each in SAMPLERS.items()] + [("pruner", *each) for each in PRUNERS.items()]
    parts += [
        "## Parameters of the space",
        "`default` is the domain in the third column. If the space does not name a parameter, a trial has the value in "
        "the fourth. [The methods](methods.md) define the parameters.",
        _table(("parameter", "legal", "`default`", "not named", "source of the default"), _parameters()),
        "## Models",
        _table(("model", "layers"), [(f"`{name}`", text) for name, text in MODELS.items()]),
        "## Scores",
        _table(
            ("score", "mode", "tasks"),
            [(f"`{name}`", each.mode, ", ".join(each.tasks)) for name, each in METRICS.items()],
        ),
        "## Options of samplers and pruners",
        "Optuna's documentation explains the options of its samplers and pruners. Counts of steps are training steps.",
        _table(("kind", "name", "options"), [(kind, f"`{name}`", _words(names)) for kind, name, names in options]),
    ]
    return "\n\n".join(parts)


def options() -> str:
    """Return the help of every command, as a terminal of 100 columns shows it."""
    parts = ["# Options of the commands", "What `tune COMMAND --help` prints."]
    for name, command in sorted(_commands(cli, "tune")):
        context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
        parts += [f"## {name}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts)


def errors() -> str:
    """Return every error code with its exit code and explanation."""
    found = {code: explain(code) for code in sorted(code_list())}
    rows = [(f"`{code}`", each["exit_code"], each["explanation"]) for code, each in found.items()]
    return (
        "# Error codes\n\nEvery error ends with a code in brackets. `tune explain CODE` prints the same.\n\n"
        + _table(("code", "exit code", "what it means"), rows)
    )


def sections(path: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    """Yield a section and all sections in it, each with its dotted name."""
    yield path, section
    for name, field in section.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if inspect.isclass(kind) and issubclass(kind, Section) and kind is not Component:
                yield from sections(f"{path}.{name}".lstrip("."), kind)


def section_table(path: str, section: type[Section]) -> str:
    """Return the table of a section's keys.

    Raises:
        KeyError: a key has no line in the `Attributes` of the section's docstring.
    """
    told: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section):
            told |= _docstring(kind)[1]
    rows = [
        (f"`{field.alias or name}`", _values(f"{path}.{name}", field), _default(field), told[name])
        for name, field in section.model_fields.items()
    ]
    return _table(("key", "values", "default", "what it is"), rows)


def _docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return a class docstring without its `Attributes`, and these by name."""
    text, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", attributes, flags=re.MULTILINE)
    return text, {name: re.sub(r"\s+", " ", line) for name, line in found}


def _values(path: str, field: FieldInfo) -> str:
    if path in WORDS:
        return _words(WORDS[path])
    return _typed(field.annotation, field.metadata)


def _typed(kind: object, limits: Iterable[object] = ()) -> str:
    """Return a type and its limits in words."""
    if get_origin(kind) is Literal:
        return _words(map(str, get_args(kind)))
    if hasattr(kind, "__metadata__"):  # Annotated, inside of a union
        inner, *metadata = get_args(kind)
        return _typed(inner, [limit for each in metadata for limit in getattr(each, "metadata", [])])
    origin = get_origin(kind) or kind
    if origin in (dict, tuple):
        return "mapping" if origin is dict else "list"
    if inspect.isclass(origin) and issubclass(origin, Section):
        return "section"
    if origin in _TYPES:
        found = [
            f"{sign} {as_yaml(getattr(each, name))}"
            for each in limits
            for name, sign in _SIGNS.items()
            if getattr(each, name, None) not in (None, _LARGEST)
        ]
        return f"{_TYPES[origin]} {', '.join(found)}".strip()
    return ", or ".join(_typed(part) for part in get_args(kind))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "computed"
    if isinstance(field.default, Section) and not isinstance(field.default, Component):
        return ""
    value = field.default.name if isinstance(field.default, Component) else field.default
    return _code(value)


def _parameters() -> Iterator[tuple[str, ...]]:
    defaults = {method: hyperparameter_defaults(method) for method in METHODS}
    for name, parameter in PARAMETERS.items():
        methods: dict[str, list[str]] = {}
        for method, values in defaults.items():
            if name in values:
                methods.setdefault(_code(values[name]), []).append(method)
        usual = [value if len(methods) == 1 else f"{value} ({', '.join(who)})" for value, who in methods.items()]
        needs = "" if parameter.needs is None else f"; with {parameter.needs[0]} {_words(parameter.needs[1])}"
        domain = _code(parameter.default.to_spec())
        also = "".join(f", `{alias}`" for alias in parameter.aliases)
        yield (
            f"`{name}`{also}",
            f"{parameter.legal}{needs}",
            domain,
            "; ".join(usual) or "`trainable`, `privacy`",
            parameter.source,
        )


def _code(value: object) -> str:
    """Return a value as a file has it, without the quotes that it may have there."""
    return f"`{as_yaml(value)}`".replace("'", "")


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in ([*head], ["---"] * len(head), *cells))


def _commands(group: click.Group, name: str) -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for key, command in group.commands.items():
        inner = _commands(command, f"{name} {key}") if isinstance(command, click.Group) else []
        found += [(f"{name} {key}", command), *inner]
    return found
