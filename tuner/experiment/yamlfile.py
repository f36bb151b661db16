"""Reader of experiment files and of ``--set``: plain values, with the line and the spelling of each.

The rules are those of YAML 1.2's core schema (``1e-5`` is a number, ``yes`` is a word). Duplicate keys, anchors,
aliases, tags and several documents are refused, because they hide meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from search_spaces.domains import as_yaml
from tuner.errors import Problem

__all__ = ["Document", "Path", "dump", "parse"]

Path = tuple[str | int, ...]

_MAX_DEPTH = 30
_SET_ORDER = 1_000_000_000  # options come after every line of a file
_STR = "tag:yaml.org,2002:str"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|(false|False|FALSE))\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+])?\.(?:inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)\Z")


@dataclass
class Document:
    """The values of a file, with the place and the spelling of each.

    Attributes:
        source: the file's name as the user gave it.
        values: the sections; None when nothing could be read.
        problems: the mistakes of syntax.
    """

    source: str
    values: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    _options: list[Path] = field(default_factory=list)
    _where: dict[Path, str] = field(default_factory=dict)
    _order: dict[Path, int] = field(default_factory=dict)
    _spelled: dict[Path, str] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """Return ``file:line`` (or the ``--set`` option) of a key, or of the nearest section above it.

        The place of a section that options changed is that of the last of them.
        """
        return self._where.get(self._known(path), f"{self.source}:1")

    def order(self, path: Path) -> int:
        """Return a number that sorts places by line, ``--set`` after the file."""
        return self._order.get(self._known(path), 0)

    def spelled(self, path: Path) -> str | None:
        """Return a value as the user wrote it, or None when the file does not have it."""
        if path in self._spelled:
            return self._spelled[path]
        value: Any = self.values
        for key in path:
            inside = isinstance(value, Mapping) and key in value
            if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
                return None
            value = value[key]
        return as_yaml(value)

    def _known(self, path: Path) -> Path:
        for option in reversed(self._options):
            if path and option[: len(path)] == path:
                return option
        while path and path not in self._where:
            path = path[:-1]
        return path

    def refuse(self, code: str, path: Path, rule: str, value: str, fix: str = "", *, where: str | None = None) -> None:
        """Add a problem at ``path``."""
        key = ".".join(map(str, path)) or "file"
        at = self.where(path) if where is None else where
        self.problems.append(Problem(code=code, where=at, key=key, rule=rule, value=value, fix=fix))

    def place(self, path: Path, where: str, order: int, spelled: str | None = None) -> None:
        """Remember the place of the value at ``path`` and how it was written."""
        self._where[path] = where
        self._order[path] = order
        if spelled is not None:
            self._spelled[path] = spelled

    def override(self, options: Sequence[str]) -> None:
        """Apply ``--set path.to.key=value`` options in their order; a value is read as YAML."""
        for number, option in enumerate(options):
            self._override(option, number)

    def _override(self, option: str, number: int) -> None:
        where = f"--set {option}"
        key, equals, text = option.partition("=")
        path: Path = tuple(key.strip().split("."))
        if not equals or not all(path):
            fix = "Write --set privacy.epsilon=3."
            rule = "an override has the form path.to.key=value"
            self.refuse("override-invalid", ("--set",), rule, option or "nothing", fix, where=where)
            return
        inner = _read(text, source=where)
        if inner.problems:
            problem = inner.problems[0]
            self.refuse(problem.code, path, f"the value must be YAML: {problem.rule}", text, problem.fix, where=where)
            return
        section = self.values if self.values is not None else {}
        self.values = section
        for depth, name in enumerate(path[:-1]):
            below = section.setdefault(str(name), {})
            if not isinstance(below, dict):
                at = ".".join(map(str, path[: depth + 1]))
                rule = f"{at} is a value, not a section"
                self.refuse("override-invalid", path, rule, as_yaml(below), f"Set {at} itself.", where=where)
                return
            section = below
        section[str(path[-1])] = inner.values
        for known in [known for known in self._where if known[: len(path)] == path]:
            del self._where[known]
            self._order.pop(known, None)
            self._spelled.pop(known, None)
        spelled = None if isinstance(inner.values, dict | list) else _short(text.strip()) or "null"
        self._options = [option for option in self._options if option in self._where]
        self._options.append(path)
        self.place(path, where, _SET_ORDER + number, spelled)


def parse(text: str, *, source: str) -> Document:
    """Read the text of an experiment file. Never raises: mistakes are in ``problems``."""
    document = _read(text, source=source)
    if document.problems and document.values is None:
        return document
    if document.values is None:
        fix = "`tune init` writes a template."
        document.refuse("file-not-sections", (), "the file must not be empty", "nothing", fix)
    elif not isinstance(document.values, dict):
        kind = "a list" if isinstance(document.values, list) else "one value"
        fix = "Write name:, dataset:, trainable: and privacy: at the left edge."
        document.values = None
        document.refuse("file-not-sections", (), "the file must be sections with keys", kind, fix)
    return document


def _read(text: str, *, source: str) -> Document:
    document = Document(source=source)
    try:
        if not _is_plain(text, document):
            return document
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        lines = text.splitlines()
        found = lines[line - 1].strip() if line <= len(lines) else "the end of the file"
        rule, fix = _syntax(error, lines[line - 1] if line <= len(lines) else "")
        document.refuse("yaml-invalid", (), rule, found[:80] or "an empty line", fix, where=f"{source}:{line}")
        return document
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        rule = "the file must be plain text without control characters"
        value = f"character #x{error.character:04x}"
        document.refuse("yaml-invalid", (), rule, value, where=f"{source}:{line}")
        return document
    if node is not None:
        document.values = _value(node, (), document)
    return document


def _syntax(error: yaml.MarkedYAMLError, line: str) -> tuple[str, str]:
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or "'\\t'" in str(error.problem):
        return "YAML does not allow a tab to indent", "Use spaces."
    said = " ".join(part for part in (error.context, error.problem) if part)
    fix = "Put a space after every colon, close every bracket and quote, and quote words that contain : or #."
    return f"the file must be YAML ({said})", fix


def _is_plain(text: str, document: Document) -> bool:
    """Refuse anchors, aliases, a second document and deep nesting before anything recursive reads the text."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        mark = event.start_mark
        line = f"{document.source}:{mark.line + 1 if mark else 1}"
        anchor = getattr(event, "anchor", None)
        if anchor:
            rule = "anchors and aliases are not allowed: write every value where it is used"
            value = f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{anchor}"
            document.refuse("yaml-unsupported", (), rule, value, where=line)
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if depth > _MAX_DEPTH or documents > 1:
            rule = "one file has one experiment" if documents > 1 else f"at most {_MAX_DEPTH} levels may be nested"
            value = "a second document" if documents > 1 else f"level {depth}"
            fix = "Write one file for each." if documents > 1 else ""
            document.refuse("yaml-unsupported", (), rule, value, fix, where=line)
            return False
    return True


def _value(node: yaml.Node, path: Path, document: Document) -> Any:  # noqa: ANN401 - YAML holds anything
    line = node.start_mark.line + 1
    if path not in document._where:  # a key's own line goes before that of its value
        document.place(path, f"{document.source}:{line}", line)
    standard = {yaml.ScalarNode: _STR, yaml.MappingNode: "tag:yaml.org,2002:map"}
    if node.tag != standard.get(type(node), "tag:yaml.org,2002:seq"):
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        document.refuse("yaml-unsupported", path, "tags are not allowed", tag, "Leave it out.")
    if isinstance(node, yaml.SequenceNode):
        return [_value(entry, (*path, number), document) for number, entry in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    return _scalar(node, path, document) if isinstance(node, yaml.ScalarNode) else None


def _mapping(node: yaml.MappingNode, path: Path, document: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        where = f"{document.source}:{line}"
        if not isinstance(key_node, yaml.ScalarNode):
            rule = "a key must be a word"
            document.refuse("yaml-unsupported", path, rule, "a list or mapping as key", where=where)
            continue
        key = str(key_node.value)
        here: Path = (*path, key)
        if key in found:
            first = document.where(here).rpartition(":")[2]
            value = f"{key} again, after line {first}"
            document.refuse("key-duplicate", here, "a key must be given once", value, "Remove one.", where=where)
            continue
        document.place(here, where, line)
        found[key] = _value(value_node, here, document)
    return found


def _scalar(node: yaml.ScalarNode, path: Path, document: Document) -> str | int | float | bool | None:
    text = str(node.value)
    document.place(path, document.where(path), document.order(path), _short(text if node.style is None else repr(text)))
    if node.style is not None:
        return text
    if _NULL.match(text):
        document._spelled[path] = "null"
        return None
    if match := _BOOL.match(text):
        return match[1] is None
    if _INT.match(text):
        try:
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        except ValueError:
            return text  # more digits than Python reads: the model reports that it is not a number
    if _FLOAT.match(text):
        return float(text)
    if match := _INF.match(text):
        return float(f"{match[1] or ''}inf")
    return float("nan") if _NAN.match(text) else text


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


class _Dumper(yaml.SafeDumper):
    """Writer that quotes every word that either version of YAML would read as a number."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the base class's signature
        """Write every value out, because the reader refuses aliases."""
        return True


def _word(dumper: _Dumper, word: str) -> yaml.ScalarNode:
    # Only double quotes keep line breaks, of which Unicode has several.
    style = None if word.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", word, style=style)


_Dumper.add_representer(str, _word)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"0o[0-7]+\Z"), ["0"])


def dump(values: Mapping[str, Any]) -> str:
    """Return ``values`` as YAML that `parse` reads back to equal values, keys in their order."""
    return yaml.dump(
        dict(values), Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )
