"""Parsers of a domain and of ``search.space`` in an experiment file. All problems of a space are reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from search_spaces import optimizers, schedules
from search_spaces.domains import (
    PROMOTE,
    UNIMODAL,
    Categorical,
    Domain,
    Fixed,
    Integer,
    LogUniform,
    Promoted,
    Uniform,
    as_yaml,
    is_number,
)
from search_spaces.errors import DomainError, SpaceError, SpaceProblem
from search_spaces.methods import METHODS
from search_spaces.parameter import Parameter
from search_spaces.spaces import (
    OWN,
    PARAMETERS,
    SearchSpace,
    can_be,
    is_own_method,
    method_parameters,
    owner_of,
)

__all__ = ["parse_declared", "parse_domain", "parse_space"]

Path = tuple[str | int, ...]

_ELSEWHERE = {
    "model": "trainable.model",
    "normalization": "trainable.normalization",
    "precision": "trainable.precision",
    "steps": "trainable.epochs",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
}
_MISSING = {"schedule": "schedule-missing", "optimizer": "optimizer-missing"}
_RANGES = ("uniform", "log_uniform", "integer", "log_integer")
_KINDS = (*_RANGES, "choice")


def parse_domain(raw: object) -> Domain:
    """Return the domain that the value ``raw`` of an experiment file describes. An illegal value raises DomainError."""
    if isinstance(raw, list | tuple):
        fix = "Write `{choice: [...]}` for options or `{uniform: [low, high]}` for a range."
        raise DomainError("domain-unknown", "a domain must not be a list", as_yaml(raw), fix)
    if not isinstance(raw, Mapping):
        return Fixed(raw)  # type: ignore[arg-type]  # Fixed checks it
    if len(raw) != 1:
        fix = f"Use one of the keys {', '.join(_KINDS)}."
        raise DomainError("domain-unknown", "a domain must have exactly one key", as_yaml(raw), fix)
    kind, body = next(iter(raw.items()))
    if kind == PROMOTE:
        return Promoted(tuple(body) if isinstance(body, list | tuple) else body)
    if kind not in _KINDS:
        near = get_close_matches(str(kind), (*_KINDS, PROMOTE), n=1)
        fix = f"Did you mean {near[0]!r}?" if near else ""
        raise DomainError("domain-unknown", f"the key must be one of {', '.join(_KINDS)}", as_yaml(kind), fix)
    if kind == "choice":
        if not isinstance(body, list | tuple):
            fix = "Write `{choice: [a, b]}`."
            raise DomainError("choice-invalid", "a choice needs a list of options", as_yaml(body), fix)
        return Categorical(tuple(body))
    if not isinstance(body, list | tuple) or len(body) != 2:
        fix = f"Write {{{kind}: [low, high]}}."
        raise DomainError("domain-bounds", "a range needs two bounds", as_yaml(body), fix)
    low, high = body
    match kind:
        case "uniform":
            return Uniform(low, high)
        case "log_uniform":
            return LogUniform(low, high)
        case _:
            return Integer(low, high, log=kind == "log_integer")


def parse_declared(raw: object) -> tuple[Domain, bool]:
    """Return the domain that the value ``raw`` of an experiment file describes, and whether it is declared unimodal.

    Raises:
        DomainError: ``raw`` is not a legal domain, or it is declared unimodal but is not a range.
    """
    if not (isinstance(raw, Mapping) and UNIMODAL in raw):
        return parse_domain(raw), False
    declared = raw[UNIMODAL]
    if not isinstance(declared, bool):
        raise DomainError("unimodal-invalid", f"{UNIMODAL} must be true or false", as_yaml(declared))
    rest = {key: value for key, value in raw.items() if key != UNIMODAL}
    if declared and not set(rest) & set(_RANGES):
        rule = "only a range can be unimodal, because options have no order and a single value is not searched"
        fix = f"Write for example {{uniform: [0, 100], {UNIMODAL}: true}}, or remove {UNIMODAL}."
        raise DomainError("unimodal-invalid", rule, as_yaml(raw), fix)
    return parse_domain(rest), declared


def parse_space(raw: Mapping[str, object], *, method: str | None, optimizer: str = optimizers.SGD) -> SearchSpace:
    """Return the search space of an experiment file.

    Args:
        raw: mapping under ``search.space``.
        method: training method, whose parameters are accepted. None accepts the parameters of every method.
        optimizer: optimizer of the trials, if the space does not choose it.

    Raises:
        SpaceError: the space has problems. The error lists all of them in the order of the file.
        KeyError: the method is unknown.
    """
    reader = _Reader(PARAMETERS if method is None else method_parameters(method), method, optimizer)
    for key, value in raw.items():
        reader.read(key, value)
    return reader.space()


class _Reader:
    """Reader of one search space. It reads the keys one by one, and collects their domains and problems."""

    def __init__(self, parameters: Mapping[str, Parameter], method: str | None, optimizer: str) -> None:
        self._parameters = parameters
        self._method = method
        self._optimizer = optimizer
        self._names = {alias: name for name, entry in parameters.items() for alias in (name, *entry.aliases)}
        self._domains: dict[str, Domain] = {}
        self._unimodal: set[str] = set()
        self._written: dict[str, str] = {}
        self._conditional_at: dict[str, Path] = {}
        self._problems: list[SpaceProblem] = []

    def read(self, key: object, value: object) -> None:
        path: Path = (str(key),)
        name = self._names.get(str(key))
        own = self._method is not None and is_own_method(self._method)
        if own and key == OWN:
            self._own(path, value)
        elif own and str(key).startswith(f"{OWN}."):  # one value of an exported file
            self._own(path, {str(key).partition(".")[2]: value})
        elif name is None:
            self._unknown(path, value)
        elif self._is_new(name, path):
            if name == schedules.SCHEDULE.name:
                self._schedule(path, value)
            else:
                if owner_of(name) is not None:
                    self._conditional_at[name] = path
                self._domain(name, path, value)

    def space(self) -> SearchSpace:
        usual = {"schedule": "constant", "optimizer": self._optimizer}
        for name, path in self._conditional_at.items():
            needs = self._parameters[name].needs
            if needs is None:
                continue
            owner, words = needs
            chosen = self._domains.get(owner)
            if chosen is None and owner in self._written:
                continue  # its own problem is reported
            if not can_be(name, [usual[owner]] if chosen is None else chosen.grid(1)):
                self._problem(
                    _MISSING[owner],
                    path,
                    f"{name} needs the {owner} {' or '.join(words)}",
                    f"{owner}: {as_yaml(chosen.to_spec()) if chosen else f'{usual[owner]} (the default)'}",
                    f"Add {words[0]} to {owner}, or remove {name}.",
                )
        self._check_multiplicity()
        self._check_rate()
        if self._problems:
            raise SpaceError(self._problems)
        return SearchSpace.of(self._domains, unimodal=self._unimodal, optimizer=self._optimizer)

    def _check_multiplicity(self) -> None:
        """Refuse several copies of an image without augmentation, because such a trial would fail at its start."""
        copies = self._domains.get("augmentation_multiplicity")
        augmentation = self._domains.get("augmentation", Fixed("none"))
        malformed = "augmentation" in self._written and "augmentation" not in self._domains
        if copies is None or malformed or not any(is_number(count) and count > 1 for count in copies.grid(2)):
            return
        if augmentation.contains("none"):
            self._problem(
                "copies-without-augmentation",
                (self._written["augmentation_multiplicity"],),
                "augmentation_multiplicity above 1 needs an augmentation, because without one all copies of an "
                "image are equal",
                f"{as_yaml(copies.to_spec())} with augmentation: {as_yaml(augmentation.to_spec())}",
                "Set augmentation to flip, crop, crop_flip or a choice of them, or set augmentation_multiplicity to 1.",
            )

    def _check_rate(self) -> None:
        """Refuse a searched learning rate if a trial may have the schedule that sets the rate itself."""
        rate, schedule = self._domains.get("learning_rate"), self._domains.get("schedule")
        if rate is None or schedule is None or not schedule.contains(schedules.GEN):
            return
        if isinstance(rate, Fixed):
            if not schedules.GEN_RATES.allows(rate.value):
                rule = f"learning_rate must be {schedules.GEN_RATES} with `schedule: {schedules.GEN}`"
                path: Path = (self._written["learning_rate"],)
                self._problem("value-illegal", path, rule, as_yaml(rate.value), "Write for example 0.1.")
            return
        self._problem(
            "gen-with-searched-rate",
            (self._written["learning_rate"],),
            f"learning_rate cannot be searched with `schedule: {schedules.GEN}`, which sets the rate itself",
            as_yaml(rate.to_spec()),
            f"Write one number as the starting rate, or remove learning_rate or {schedules.GEN}.",
        )

    def _problem(self, code: str, path: Path, rule: str, value: str, fix: str = "") -> None:
        self._problems.append(SpaceProblem(code=code, path=path, rule=rule, value=value, fix=fix))

    def _is_new(self, name: str, path: Path) -> bool:
        if name in self._written:
            rule, value = f"{name} must be given only once", f"{self._written[name]} and {path[-1]}"
            self._problem("parameter-repeated", path, rule, value, "Remove one of the two.")
            return False
        self._written[name] = str(path[-1])
        return True

    def _unknown(self, path: Path, value: object) -> None:
        key = str(path[-1])
        owners = [method for method, own in METHODS.items() if any(key in (p.name, *p.aliases) for p in own)]
        if owners:
            rule = f"{self._method} has no parameter {_full(key)}"
            fix = f"Use the method {' or '.join(owners)}, or remove the parameter."
            self._problem("parameter-unknown", path, rule, as_yaml(value), fix)
        elif key in _ELSEWHERE:
            rule = f"{key} cannot be searched"
            fix = f"Set {_ELSEWHERE[key]} instead. This key applies to all trials."
            self._problem("parameter-not-searchable", path, rule, as_yaml(value), fix)
        else:
            own = METHODS.get(self._method or "", ())
            fix = _nearest(key, self._names, own) or "docs/methods.md lists the parameters of each method."
            self._problem("parameter-unknown", path, "unknown parameter", key, fix)

    def _domain(self, name: str, path: Path, value: object) -> None:
        parameter = self._parameters[name]
        try:
            domain, unimodal = (parameter.default, False) if value == "default" else parse_declared(value)
            parameter.check(domain)
        except DomainError as error:
            self._problem(error.code, path, error.rule, error.value, error.fix)
        else:
            self._domains[name] = domain
            if unimodal:
                self._unimodal.add(name)

    def _own(self, path: Path, raw: object) -> None:
        """Read the parameters of a method of the user's own. Its function decides which names and values it takes."""
        if not isinstance(raw, Mapping) or not all(str(key).isidentifier() for key in raw):
            rule = f"{OWN} must be a mapping from each parameter of your method to its domain"
            self._problem("own-parameters-invalid", path, rule, as_yaml(raw), "Write for example {keep: 0.5}.")
            return
        for key, value in raw.items():
            name, here = f"{OWN}.{key}", (*path, str(key))
            try:
                domain, unimodal = parse_declared(value)
            except DomainError as error:
                self._problem(error.code, here, error.rule, error.value, error.fix)
                continue
            if isinstance(domain, Promoted) or value == "default":
                rule = f"{name} must be a value, a range or a choice"
                self._problem(
                    "own-parameters-invalid", here, rule, as_yaml(value), "Write for example {uniform: [0, 1]}."
                )
                continue
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
            rule = "a choice needs a list of at least one schedule"
            self._problem("choice-invalid", (*path, "choice"), rule, as_yaml(options))
            return
        found = [self._kind((*path, "choice", place), option) for place, option in enumerate(options)]
        kinds = [kind for kind in found if kind is not None]
        if len(kinds) < len(found):
            return
        try:
            self._domains["schedule"] = Categorical(tuple(kinds))
        except DomainError as error:
            self._problem(error.code, (*path, "choice"), error.rule, error.value, error.fix)

    def _kind(self, path: Path, raw: object) -> str | None:
        """Read a schedule: a word or ``{kind: {parameter: domain}}``. Return its kind. Return None if it is illegal."""
        body: object = {}
        kind: object = raw
        if isinstance(raw, Mapping):
            if len(raw) != 1:
                fix = f"Use one of {', '.join(schedules.KINDS)}."
                self._problem("schedule-invalid", path, "a schedule must have exactly one kind", as_yaml(raw), fix)
                return None
            kind, body = next(iter(raw.items()))
            path = (*path, str(kind))
        if kind == "warmup":
            rule = "warmup is not a schedule, but a key of its own"
            self._problem(
                "schedule-invalid", path, rule, as_yaml(raw), "Write for example `warmup: 0.1` next to schedule."
            )
            return None
        if not isinstance(kind, str) or kind not in schedules.KINDS:
            fix = _nearest(str(kind), schedules.KINDS)
            self._problem("schedule-invalid", path, "unknown schedule", as_yaml(kind), fix)
            return None
        own = [name for name in self._parameters if schedules.kind_of(name) == kind]
        short = {name.rpartition(".")[2]: name for name in own}
        if not isinstance(body, Mapping):
            rule = f"the parameters of {kind} must be written as a mapping"
            self._problem("schedule-invalid", path, rule, as_yaml(body), _offer(kind, short))
            return kind
        for key, value in body.items():
            name = short.get(str(key))
            here = (*path, str(key))
            if name is None:
                fix = _nearest(str(key), short) or _offer(kind, short)
                self._problem("parameter-unknown", here, f"{kind} has no parameter {key}", as_yaml(value), fix)
            elif self._is_new(name, here):
                self._domain(name, here, value)
        return kind


def _full(key: str) -> str:
    name = next(name for name, entry in PARAMETERS.items() if key in (name, *entry.aliases))
    return name if name == key else f"{name} ({key})"


def _offer(kind: str, short: Iterable[str]) -> str:
    names = ", ".join(short)
    return f"The parameters of {kind} are {names}." if names else f"{kind} has no parameters. Write only {kind}."


def _nearest(key: str, known: Iterable[str], own: Iterable[Parameter] = ()) -> str:
    names = sorted(set(known))
    near = get_close_matches(key, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = sorted({parameter.name for parameter in own}) or names
    return f"Known: {', '.join(shown)}." if 0 < len(shown) <= 8 else ""
