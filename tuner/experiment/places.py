"""Locations of keys in an experiment file, for errors that are found after the file was loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from trainables.errors import TrainableError
from tuner.errors import ClusterError, ExperimentError, InputError
from tuner.experiment.yamlfile import Document, parse

__all__ = ["Places"]


class Places:
    """Locations of the keys of an experiment file that was loaded with ``--set`` options.

    Args:
        path: the experiment file.
        overrides: the options, ``path.to.key=value``.
    """

    def __init__(self, path: Path, overrides: Sequence[str] = ()) -> None:
        self._path, self._overrides = path, tuple(overrides)

    def of(self, *keys: str) -> str:
        """Return ``file:line: key`` or ``--set option: key`` of the first of these keys that is written, or the last.

        A key that is not written has the line of the section around it.
        """
        document = self._document
        if document is None:
            return f"{self._path}: {keys[0]}"
        written = (key for key in keys if document.spelled(tuple(key.split("."))) is not None)
        key = next(written, keys[-1])
        return f"{document.where(tuple(key.split('.')))}: {key}"

    @contextmanager
    def at(self, *keys: str, codes: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
        """Put the location of these keys before every line of an error of bad input. Its code and class stay.

        `codes` names the key of an error that is about another one, by its code. Other errors pass unchanged: those
        that have a location, and failures.
        """
        try:
            yield
        except (InputError, TrainableError) as error:
            if isinstance(error, ExperimentError | ClusterError) or error.exit_code != InputError.exit_code:
                raise
            where = self.of(*([codes[error.code]] if error.code in codes else keys))
            message = "\n".join(f"{where}: {line}" for line in error.message.splitlines())
            raise type(error)(error.code, message) from error

    @cached_property
    def _document(self) -> Document | None:
        try:
            text = self._path.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):  # the file was read before and has been removed since
            return None
        document = parse(text, source=str(self._path))
        document.override(self._overrides)
        return document
