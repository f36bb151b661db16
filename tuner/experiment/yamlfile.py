"""Reader of experiment files and ``--set`` options. For messages, it keeps the line and the spelling of each value.

The reader follows the core schema of YAML 1.2, in which ``1e-5`` is a number and ``yes`` is a text. Duplicate keys,
anchors, aliases, tags and several documents are refused, because they hide the meaning of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from search_spaces.domains import as_yaml
from tuner.errors import Problem
from tuner.passwords import hide_password

__all__ = ["Document", "Path", "dump", "parse"]

Path = tuple[str | int, ...]

_MAX_DEPTH = 30
_FIRST_OPTION = 1_000_000_000  # larger than every line number
_STR = "tag:yaml.org,2002:str"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|(false|False|FALSE))\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+])?\.(?:inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)\Z")


class _Place(NamedTuple):
    """Location of a value, as text for messages and as a sort key. Lines of the file sort before ``--set`` options."""

    where: str
    order: int


@dataclass
class Document:
    """Values of a file, with the location and the spelling of each value.

    Attributes:
        source: the file's name as the user gave it.
        what: what the text is, for messages: the file, or the value of a ``--set`` option.
        values: the file's sections, or None if the file could not be read.
    """

    source: str
    what: str = "the file"
    values: dict[str, Any] | None = None
    _refused: list[tuple[int, Problem]] = field(default_factory=list)
    _options: list[Path] = field(default_factory=list)
    _places: dict[Path, _Place] = field(default_factory=dict)
    _spelled: dict[Path, str] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, sorted by line, followed by the problems of ``--set`` options."""
        return tuple(problem for _, problem in sorted(self._refused, key=lambda each: each[0]))

    def where(self, path: Path) -> str:
        """Return the location of a key, which is ``file:line`` or a ``--set`` option.

        A missing key has the location of the innermost existing section around it.
        """
        return self._place(path).where

    def spelled(self, path: Path) -> str | None:
        """Return a value as the user wrote it, or None if the file has no value at `path`."""
        if path in self._spelled:
            return self._spelled[path]
        value: Any = self.values
        for key in path:
            inside = isinstance(value, Mapping) and key in value
            if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
                return None
            value = value[key]
        return as_yaml(value)

    def refuse(self, code: str, path: Path, rule: str, value: str, fix: str = "", *, at: _Place | None = None) -> None:
        """Add a problem of the key at `path`. `at` is the location to report, by default the location of the key."""
        where, order = at or self._place(path)
        key = ".".join(map(str, path)) or "file"
        if order >= _FIRST_OPTION and path:  # an option has another form than a line of the file
            fix = fix.replace(f"Write for example {path[-1]}: ", f"Write for example --set {key}=")
        self._refused.append((order, Problem(code=code, where=where, key=key, rule=rule, value=value, fix=fix)))

    def override(self, options: Sequence[str]) -> None:
        """Apply ``--set path.to.key=value`` options in their order. Each value is read as YAML."""
        for number, option in enumerate(options):
            shown = hide_password(" ".join(option.split()))
            self._override(option, _Place(f"--set {shown}", _FIRST_OPTION + number))

    def _line(self, number: int) -> _Place:
        return _Place(f"{self.source}:{number}", number)

    def _place(self, path: Path) -> _Place:
        """Return the location of a key, or of the innermost existing section around a missing key.

        If ``--set`` options changed a section, its location is the last of these options.
        """
        for option in reversed(self._options):
            if path and option[: len(path)] == path:
                return self._places[option]
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, self._line(1))

    def _override(self, option: str, place: _Place) -> None:
        key, equals, text = option.partition("=")
        path: Path = tuple(key.strip().split("."))
        if not equals or not all(path):
            rule, fix = "must have the form path.to.key=value", "Write for example --set privacy.epsilon=3."
            self.refuse("override-invalid", ("--set",), rule, option or "nothing", fix, at=place)
            return
        if path[0] == "exported_from":
            rule, fix = (
                "must stay as exported",
                "Remove the option. A new training is charged in the ledger of the export.",
            )
            self.refuse("override-invalid", path, rule, option, fix, at=place)
            return
        inner = _read(text, source=place.where, what="the value")
        if inner.problems:
            problem = inner.problems[0]
            self.refuse(problem.code, path, problem.rule, text, problem.fix, at=place)
            return
        section = self.values if self.values is not None else {}
        self.values = section
        for depth, name in enumerate(path[:-1]):
            below = section.setdefault(str(name), {})
            if not isinstance(below, dict):
                above = ".".join(map(str, path[: depth + 1]))
                rule, fix = f"{above} is a single value, not a section", f"Set {above} itself."
                self.refuse("override-invalid", path, rule, as_yaml(below), fix, at=place)
                return
            section = below
        section[str(path[-1])] = inner.values
        for known in [known for known in self._places if known[: len(path)] == path]:
            del self._places[known]
            self._spelled.pop(known, None)
        self._options = [*(option for option in self._options if option in self._places), path]
        self._places[path] = place
        if not isinstance(inner.values, dict | list):
            self._spelled[path] = _short(text.strip()) or "null"


def parse(text: str, *, source: str) -> Document:
    """Parse the text of an experiment file. Mistakes are in the `problems` of the returned document."""
    document = _read(text, source=source)
    if document.problems and document.values is None:
        return document
    if document.values is None:
        rule, fix = "the file must not be empty", "`tune init` writes a template."
        document.refuse("file-not-sections", (), rule, "nothing", fix)
    elif not isinstance(document.values, dict):
        kind = "a list" if isinstance(document.values, list) else "one value"
        fix = "Write name:, dataset:, trainable: and privacy: without indentation."
        document.values = None
        document.refuse("file-not-sections", (), "the file must have sections with keys", kind, fix)
    return document


def _read(text: str, *, source: str, what: str = "the file") -> Document:
    document = Document(source=source, what=what)
    try:
        if not _is_plain(text, document):
            return document
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        lines = text.splitlines()
        found = lines[line - 1].strip() if line <= len(lines) else f"the end of {what}"
        rule, fix = _syntax(error, lines[line - 1] if line <= len(lines) else "", what)
        document.refuse("yaml-invalid", (), rule, found[:80] or "an empty line", fix, at=document._line(line))
        return document
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        rule = f"{what} must be plain text without control characters"
        value = f"character #x{error.character:04x}"
        document.refuse("yaml-invalid", (), rule, value, "Remove the character.", at=document._line(line))
        return document
    if node is not None:
        document.values = _value(node, (), document)
    return document


def _syntax(error: yaml.MarkedYAMLError, line: str, what: str) -> tuple[str, str]:
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or "'\\t'" in str(error.problem):
        return "YAML does not allow indentation with tabs", "Use spaces."
    said = " ".join(part for part in (error.context, error.problem) if part)
    fix = "Put a space after every colon, close every bracket and quote, and quote words that contain : or #."
    return f"{what} must be valid YAML ({said})", fix


def _events(text: str) -> list[yaml.Event]:
    try:
        return list(yaml.parse(text, Loader=_fast_loader(text)))
    except yaml.YAMLError:  # the messages of the loader in Python are those that we explain
        return yaml.parse(text, Loader=yaml.BaseLoader)  # type: ignore[return-value]  # a generator; it fails in place


def _compose(text: str) -> yaml.Node | None:
    return yaml.compose(text, Loader=_fast_loader(text))


def _fast_loader(text: str) -> type[yaml.BaseLoader]:
    """Return libyaml's loader, which takes a tenth of the time. It allows tabs where YAML's own loader refuses them."""
    return yaml.BaseLoader if "\t" in text else getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _is_plain(text: str, document: Document) -> bool:
    """Return whether the text has no anchor, alias, second document or deep nesting. Report the first that occurs."""
    depth = documents = 0
    for event in _events(text):
        mark = event.start_mark
        place = document._line(mark.line + 1 if mark else 1)
        anchor = getattr(event, "anchor", None)
        if anchor:
            rule, fix = "anchors and aliases are not allowed", "Write every value at its own key."
            value = f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{anchor}"
            document.refuse("yaml-unsupported", (), rule, value, fix, at=place)
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if depth > _MAX_DEPTH or documents > 1:
            found = (f"{document.what} must be one YAML document", "a second document", "Remove the line ---.")
            if documents == 1:
                found = (
                    f"values may be nested at most {_MAX_DEPTH} levels deep",
                    f"level {depth}",
                    "Remove the brackets or the indentation.",
                )
            document.refuse("yaml-unsupported", (), *found, at=place)
            return False
    return True


def _value(node: yaml.Node, path: Path, document: Document) -> Any:  # noqa: ANN401 - YAML holds anything
    # If the value has a key, the key's line is already stored.
    document._places.setdefault(path, document._line(node.start_mark.line + 1))
    standard = {yaml.ScalarNode: _STR, yaml.MappingNode: "tag:yaml.org,2002:map"}
    if node.tag != standard.get(type(node), "tag:yaml.org,2002:seq"):
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        document.refuse("yaml-unsupported", path, "tags are not allowed", tag, "Remove the tag.")
    if isinstance(node, yaml.SequenceNode):
        return [_value(entry, (*path, number), document) for number, entry in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    return _scalar(node, path, document) if isinstance(node, yaml.ScalarNode) else None


def _mapping(node: yaml.MappingNode, path: Path, document: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = document._line(key_node.start_mark.line + 1)
        if not isinstance(key_node, yaml.ScalarNode):
            document.refuse("yaml-unsupported", path, "a key must be a text", "a list or mapping as key", at=place)
            continue
        key = str(key_node.value)
        here: Path = (*path, key)
        if key in found:
            value = f"{key} again, after line {document._places[here].order}"
            document.refuse("key-duplicate", here, "a key must occur only once", value, "Remove one of them.", at=place)
            continue
        document._places[here] = place
        found[key] = _value(value_node, here, document)
    return found


def _scalar(node: yaml.ScalarNode, path: Path, document: Document) -> str | int | float | bool | None:
    text = str(node.value)
    document._spelled[path] = _short(text if not node.style else repr(text))
    if node.style:
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
            return text  # Python does not convert so many digits; the model then refuses the text
    if _FLOAT.match(text):
        return float(text)
    if match := _INF.match(text):
        return float(f"{match[1] or ''}inf")
    return float("nan") if _NAN.match(text) else text


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


class _Dumper(yaml.SafeDumper):
    """YAML writer that quotes every text that YAML 1.1 or 1.2 would read as a number."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the base class's signature
        """Never write an alias, because the reader refuses aliases."""
        return True


def _word(dumper: _Dumper, word: str) -> yaml.ScalarNode:
    # Only double quotes preserve all line breaks of Unicode.
    style = None if word.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", word, style=style)


_Dumper.add_representer(str, _word)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"0o[0-7]+\Z"), ["0"])


def dump(values: Mapping[str, Any]) -> str:
    """Return `values` as YAML, with the keys in their order. `parse` returns equal values for this text."""
    return yaml.dump(
        dict(values), Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )
