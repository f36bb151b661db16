"""A sampler that records what a space asks for."""

from __future__ import annotations

from search_spaces import Scalar


class Recorder:
    """Chooses the first or the last of everything and remembers what it was asked."""

    def __init__(self, place: int = 0, kind: str | None = None) -> None:
        self.asked: list[str] = []
        self._place = place
        self._kind = kind

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        self.asked.append(name)
        return (low, high)[self._place]

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        self.asked.append(name)
        return (low, high)[self._place]

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        self.asked.append(name)
        return self._kind if name == "schedule" and self._kind else options[self._place]
