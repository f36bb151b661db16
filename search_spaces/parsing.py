"""From the ``space`` of an experiment file to a `SearchSpace`; all problems at once, with the nearest valid key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from search_spaces import schedules
from search_spaces.domains import Categorical, Domain, Fixed, is_number, parse_declared, show
from search_spaces.errors import DomainError, SpaceError, SpaceProblem
from search_spaces.methods import METHODS
from search_spaces.parameter import Parameter
from search_spaces.spaces import PARAMETERS, SearchSpace, parameters_of

__all__ = ["parse_space"]

Path = tuple[str | int, ...]

_ELSEWHERE = {
    "optimizer": "trainable.optimizer",
    "momentum": "trainable.momentum",
    "model": "trainable.model",
    "activation": "trainable.activation",
    "normalization": "trainable.normalization",
    "precision": "trainable.precision",
    "steps": "trainable.epochs",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
}


def parse_space(raw: Mapping[str, object], *, method: str | None) -> SearchSpace:
    """Return the search space that stands in a file.

    Args:
        raw: the mapping under ``search.space``.
        method: the training method; its parameters are those that may be searched. None where it is not known: the
            domains are checked all the same, and the parameters of every method may stand.

    Raises:
        SpaceError: all problems, in the order of the file.
        KeyError: there is no such method.
    """
    reader = _Reader(PARAMETERS if method is None else parameters_of(method), method)
    for key, value in raw.items():
        reader.read(key, value)
    return reader.space()


class _Reader:
    """Reads one space key by key and keeps what it found and what was wrong."""

    def __init__(self, parameters: Mapping[str, Parameter], method: str | None) -> None:
        self._parameters = parameters
        self._method = method
        self._names = {alias: name for name, entry in parameters.items() for alias in (name, *entry.aliases)}
        self._domains: dict[str, Domain] = {}
        self._unimodal: set[str] = set()
        self._written: dict[str, str] = {}
        self._conditional_at: dict[str, Path] = {}
        self._problems: list[SpaceProblem] = []

    def read(self, key: object, value: object) -> None:
        """Read one key of the space."""
        path: Path = (key if isinstance(key, str) else str(key),)
        name = self._names.get(str(key))
        if name is None:
            self._unknown(path, value)
        elif self._is_new(name, path):
            if name == schedules.SCHEDULE.name:
                self._schedule(path, value)
            else:
                if schedules.kind_of(name) is not None:
                    self._conditional_at[name] = path
                self._domain(name, path, value)

    def space(self) -> SearchSpace:
        """Return the space that was read.

        Raises:
            SpaceError: something was wrong.
        """
        chosen = self._domains.get("schedule")
        kinds = _kinds(chosen)
        for name, path in self._conditional_at.items():
            kind = schedules.kind_of(name)
            if kind not in kinds and ("schedule" in self._domains or "schedule" not in self._written):
                self._problem(
                    path,
                    f"{name} needs the schedule {kind}",
                    f"schedule: {show(chosen.to_spec()) if chosen else 'constant (the default)'}",
                    f"Add {kind} to schedule, or leave {name} out.",
                )
        self._check_multiplicity()
        if self._problems:
            raise SpaceError(self._problems)
        return SearchSpace.of(self._domains, unimodal=self._unimodal)

    def _check_multiplicity(self) -> None:
        """Refuse several copies where a trial may be without augmentation: it would fail when it starts."""
        copies = self._domains.get("augmentation_multiplicity")
        augmentation = self._domains.get("augmentation", Fixed("none"))
        malformed = "augmentation" in self._written and "augmentation" not in self._domains
        if copies is None or malformed or not any(is_number(count) and count > 1 for count in copies.grid(2)):
            return
        if augmentation.contains("none"):
            self._problem(
                (self._written["augmentation_multiplicity"],),
                "augmentation_multiplicity above 1 needs an augmentation: without one all copies are the same",
                f"{show(copies.to_spec())} with augmentation: {show(augmentation.to_spec())}",
                "Write augmentation: flip, crop or crop_flip (or a choice of them), or augmentation_multiplicity: 1.",
            )

    def _problem(self, path: Path, rule: str, value: str, fix: str = "") -> None:
        self._problems.append(SpaceProblem(path=path, rule=rule, value=value, fix=fix))

    def _is_new(self, name: str, path: Path) -> bool:
        if name in self._written:
            rule = f"{name} must stand once"
            self._problem(path, rule, f"{path[-1]} beside {self._written[name]}", "Leave one of them out.")
            return False
        self._written[name] = str(path[-1])
        return True

    def _unknown(self, path: Path, value: object) -> None:
        key = str(path[-1])
        owners = [method for method, own in METHODS.items() if any(key in (p.name, *p.aliases) for p in own)]
        if owners:
            rule = f"{self._method} has no parameter {_full(key)}"
            self._problem(path, rule, show(value), f"Take the method {' or '.join(owners)}, or leave it out.")
        elif key in _ELSEWHERE:
            rule = f"{key} is not searched in this version"
            self._problem(path, rule, show(value), f"Set it once, at {_ELSEWHERE[key]}.")
        else:
            own = () if self._method is None else METHODS[self._method]
            self._problem(path, "unknown parameter", key, _nearest(key, self._names, own))

    def _domain(self, name: str, path: Path, value: object) -> None:
        parameter = self._parameters[name]
        try:
            domain, unimodal = (parameter.default, False) if value == "default" else parse_declared(value)
            parameter.check(domain)
        except DomainError as error:
            self._problem(path, error.rule, error.value, error.fix)
        else:
            self._domains[name] = domain
            if unimodal:
                self._unimodal.add(name)

    def _schedule(self, path: Path, raw: object) -> None:
        if raw == "default":
            self._domains["schedule"] = schedules.SCHEDULE.default
            return
        if not (isinstance(raw, Mapping) and set(raw) == {"choice"}):
            kind = self._kind(path, raw)
            if kind is not None:
                self._domains["schedule"] = Fixed(kind)
            return
        options = raw["choice"]
        if not isinstance(options, list | tuple) or not options:
            self._problem((*path, "choice"), "a choice needs a list of at least one schedule", show(options))
            return
        # The place of `schedule` in the file comes before those of its parameters, which `_kind` reads.
        found = [self._kind((*path, "choice", place), option) for place, option in enumerate(options)]
        kinds = [kind for kind in found if kind is not None]
        if len(kinds) < len(found):
            return
        try:
            self._domains["schedule"] = Categorical(tuple(kinds))
        except DomainError as error:
            self._problem((*path, "choice"), error.rule, error.value, error.fix)

    def _kind(self, path: Path, raw: object) -> str | None:
        """Read one schedule, a word or ``{kind: {parameter: domain}}``; return its kind when that is known."""
        body: object = {}
        kind: object = raw
        if isinstance(raw, Mapping):
            if len(raw) != 1:
                self._problem(
                    path, "a schedule has exactly one kind", show(raw), f"Use one of {', '.join(schedules.KINDS)}."
                )
                return None
            kind, body = next(iter(raw.items()))
            path = (*path, kind if isinstance(kind, str) else str(kind))
        if kind == "warmup":
            self._problem(
                path, "warm-up is a prefix of any schedule, not a kind", show(raw), "Write warmup: beside schedule:."
            )
            return None
        if not isinstance(kind, str) or kind not in schedules.KINDS:
            self._problem(path, "unknown schedule", show(kind), _nearest(str(kind), schedules.KINDS))
            return None
        own = [name for name in self._parameters if schedules.kind_of(name) == kind]
        short = {name.rpartition(".")[2]: name for name in own}
        if body is None or not isinstance(body, Mapping):
            self._problem(path, f"{kind} needs its parameters as keys", show(body), _offer(kind, short))
            return kind
        for key, value in body.items():
            name = short.get(str(key))
            here = (*path, key if isinstance(key, str) else str(key))
            if name is None:
                self._problem(
                    here,
                    f"{kind} has no parameter {key}",
                    show(value),
                    _nearest(str(key), short) or _offer(kind, short),
                )
            elif self._is_new(name, here):
                self._domain(name, here, value)
        return kind


def _kinds(domain: Domain | None) -> tuple[object, ...]:
    if isinstance(domain, Categorical):
        return domain.options
    return (domain.value,) if isinstance(domain, Fixed) else ("constant",)


def _full(key: str) -> str:
    name = next(name for name, entry in PARAMETERS.items() if key in (name, *entry.aliases))
    return name if name == key else f"{name} ({key})"


def _offer(kind: str, short: Iterable[str]) -> str:
    names = ", ".join(short)
    return f"{kind} has {names}." if names else f"{kind} has no parameters: write {kind} alone."


def _nearest(key: str, known: Iterable[str], own: Iterable[Parameter] = ()) -> str:
    names = sorted(set(known))
    near = get_close_matches(key, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = sorted({parameter.name for parameter in own}) or names
    return f"Known: {', '.join(shown)}." if 0 < len(shown) <= 8 else ""
