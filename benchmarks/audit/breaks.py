"""Known breaks, played by the commands: each is refused or without effect, and each has a control.

A control is the same play with the break made harmless or the leak put back. It shows that the check can fail.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from benchmarks.audit.bench import RECORDS, Bench, Said, copy_ledger
from benchmarks.audit.models import TRIGGER
from benchmarks.audit.state import masked
from benchmarks.harness import Results, Settings, Table, at_most

BARS = {"breaks.open": at_most(0), "breaks.controls_failed": at_most(0)}


@dataclass(frozen=True)
class Seen:
    """Result of one play: what was seen, whether the break works, and whether the control shows it."""

    seen: str
    broken: bool
    control: bool


Make = Callable[[], Bench]


def _shown(bench: Bench, changes: Mapping[str, object]) -> str:
    said = bench("run", bench.write(**changes), "--local")
    text = masked(said.text.replace(str(bench.folder), ""))
    return f"{said.code} {bench.sweep_states()} {text}"


def _fails(*_: object) -> None:
    raise RuntimeError("the control")


def _neighbours(make: Make, more: tuple[float, ...], **changes: object) -> Seen:
    """Run one search on D, on D′, and on D′ with a record-dependent failure put back."""
    from trainables.training import PrivateTraining

    shown = []
    for record in (None, more, more):
        bench = make()
        bench.records(more=record)
        with contextlib.ExitStack() as stack:
            if len(shown) == 2:  # the control
                stack.enter_context(mock.patch.object(PrivateTraining, "evaluate", _fails))
            shown.append(_shown(bench, changes))
    same = shown[0] == shown[1]
    at = next((n for n, pair in enumerate(zip(*shown[:2], strict=False)) if pair[0] != pair[1]), 0)
    seen = "the same on D and D′" if same else f"other on D′: {shown[1][max(0, at - 20) : at + 80]}"
    return Seen(seen, not same, shown[0] != shown[2])


_PER_USER: Final[dict[str, Any]] = {
    "dataset": {
        "name": "own",
        "path": "own.npz",
        "public_size": RECORDS,
        "public_users": 30,
        "records_per_user": 2,
        "validation": {"fraction": 0.3},
    },
    "privacy__unit": "user",
    "trainable__batch_size": 8,
    "privacy__delta": 1e-2,
}
_TRAINS: Final = {"dataset__validation": {"fraction": 0.1}}
"""With exact scores, the claim covers training records only. With this split, the inserted record is one."""
_RAISING = {"trainable__model": "benchmarks.audit.models:raising"}


def composition(make: Make) -> Seen:
    """A model that raises for one record, in the open search."""
    return _neighbours(make, (TRIGGER, 0.5), **_RAISING, **_TRAINS)


def selection(make: Make) -> Seen:
    """A model that raises for one record, in a sealed search."""
    sealed = {"privacy__accounting": "selection", "privacy__epsilon": 40.0, "search__trials": 3}
    return _neighbours(make, (TRIGGER, 0.5), **_RAISING, **_TRAINS, **sealed)


def protected_scores(make: Make) -> Seen:
    """A model that raises for one record, where scores are protected and all records may validate."""
    return _neighbours(make, (TRIGGER, 0.5), **_RAISING, dataset__validation={"fraction": 0.6, "protected": True})


def overflow_warning(make: Make) -> Seen:
    """A record of 1e300, which overflows in single precision."""
    return _neighbours(make, (1e300,))


def redivided_users(make: Make) -> Seen:
    """The same records with other users in a second search."""
    bench = make()
    bench.records()
    file = bench.write(**_PER_USER)
    first, control = bench("run", file, "--local"), bench("run", file, "--local")
    bench.records(user_train=np.array([f"v{number}" for number in range(RECORDS)]))
    second = bench("run", file, "--local")
    return Seen(_last(second), not second.refused, first.code == control.code == 0)


def restored_ledger(make: Make) -> Seen:
    """An older copy of the ledger is put back before a resume."""
    bench = make()
    bench.records()
    bench("run", bench.write(search__trials=1), "--local")
    copy = bench.folder / "copy.db"
    copy_ledger(bench.folder / "runs" / "ledger.db", copy)
    control = bench("resume", "break", "--local", "--set", "search.trials=2")
    copy_ledger(copy, bench.folder / "runs" / "ledger.db")
    said = bench("resume", "break", "--local", "--set", "search.trials=3")
    return Seen(_last(said), not said.refused, control.code == 0)


def public_search_on_a_private_set(make: Make) -> Seen:
    """The public set of a public search is the private, capped set."""
    bench = _capped(make)
    bench.records("other.npz", key=1)
    public = {
        "dataset": {"name": "other", "path": "other.npz", "public_size": RECORDS},
        "privacy__accounting": "public",
    }
    before = bench.entries()
    file = bench.write("p.yaml", **public, search__public={"name": "own", "path": "own.npz", "public_size": RECORDS})
    said = bench("run", file, "--local")
    bench.enter_public("open", key=2)
    ledger = f"sqlite:///{bench.folder}/runs/ledger.db"
    bench("budget", "set", "other", "--epsilon", "9", "--delta", "1e-3", "--ledger", ledger)
    file = bench.write("q.yaml", **public, search__public={"name": "open", "path": "open.npz", "public_size": RECORDS})
    control = bench("run", file, "--local")
    told = said.refused or _void(bench)
    return Seen(_last(said), not told, control.code == 0 and bench.entries() > before)


def non_private_search_on_a_capped_set(make: Make) -> Seen:
    """A search with `private: false` on the private, capped set."""
    bench = _capped(make)
    said = bench("run", bench.write("n.yaml", privacy__private=False), "--local")
    bench.enter_public("open", key=2)
    other = {"dataset": {"name": "open", "path": "open.npz", "public_size": RECORDS}}
    control = bench("run", bench.write("m.yaml", privacy__private=False, **other), "--local")
    return Seen(_last(said), not (said.refused or _void(bench)), control.code == 0)


def mixing_model(make: Make) -> Seen:
    """The card of a model in which samples meet under a condition that no gate tries."""
    bench = make()
    bench.records()
    bench("run", bench.write(trainable__model="benchmarks.audit.models:mixing"), "--local")
    said = bench("export", "break", "--out", "out")
    path = bench.folder / "out" / "privacy_card.json"
    vouched = path.exists() and _vouches(path)
    plain = make()
    plain.records()
    plain("run", plain.write(), "--local")
    plain("export", "break", "--out", "out")
    control = plain.folder / "out" / "privacy_card.json"
    seen = "the card vouches for the model" if vouched else f"exit {said.code}; the card does not vouch"
    return Seen(seen, vouched, _vouches(control))


def identity_answers(make: Make) -> Seen:
    """A right and a wrong guess of the private records, as public records and under a new name.

    In the control the owner enters the guess, and sees whether it is right.
    """
    told: list[list[str]] = []
    for key in (0, 5):
        bench = make()
        bench.records("secret.npz")
        file = bench.write("first.yaml", dataset={"name": "own", "path": "secret.npz", "public_size": RECORDS})
        bench("run", file, "--local")
        bench.records("guess.npz", key=key)
        guess = {"name": "guess", "path": "guess.npz", "public_size": RECORDS}
        public = {"dataset": {"name": "own", "path": "secret.npz", "public_size": RECORDS}, "search__public": guess}
        answers = (
            bench("run", bench.write("g.yaml", **public, privacy__accounting="public"), "--local"),
            bench("run", bench.write("h.yaml", dataset=guess), "--local"),
            bench("run", bench.write("i.yaml", dataset=guess, privacy__private=False), "--local"),
            bench.enter_public("guess", key=key),
        )
        told.append([masked(f"{said.code} {said.text.replace(str(bench.folder), '')}") for said in answers])
    *others, control = zip(*told, strict=True)
    return Seen(told[0][0][-120:], any(right != wrong for right, wrong in others), control[0] != control[1])


def another_users_sweep(make: Make) -> Seen:
    """A user resumes the closed search of another user, with more trials.

    A ledger in a file takes the user's name from the system. `tests/privacy/ledger/postgres` has the same for roles
    that a server authenticates.
    """
    bench = make()
    bench.records()
    more = ("resume", "break", "--local", "--set")
    with _as_user("alice"):
        bench("run", bench.write(), "--local")
        control = bench(*more, "search.trials=2")
    before = bench.entries()
    with _as_user("bob"):
        said = bench(*more, "search.trials=3")
    return Seen(_last(said), not said.refused or bench.entries() != before, control.code == 0)


@contextlib.contextmanager
def _as_user(name: str) -> Iterator[None]:
    from tuner.privacy.ledger.stores.sqlite import Sqlite

    with mock.patch.object(Sqlite, "user", return_value=name):
        yield


def missing_ledger(make: Make) -> Seen:
    """`train` on an exported configuration after the ledger was moved away."""
    bench = make()
    bench.records()
    bench("run", bench.write(), "--local")
    bench("export", "break", "--out", "out")
    control = bench("train", "out/experiment.yaml", "--local")
    bench("export", "break", "--out", "again")
    for path in bench.folder.glob("runs/ledger.db*"):
        path.rename(bench.folder / f"moved-{path.name}")
    said = bench("train", "again/experiment.yaml", "--local")
    made = (bench.folder / "runs" / "ledger.db").exists()
    return Seen(_last(said), made and not said.refused, control.code == 0)


def edited_export(make: Make) -> Seen:
    """An exported file in which one value was changed, and `landscape` on its folder."""
    bench = make()
    bench.records()
    bench("run", bench.write(**_PER_USER), "--local")
    bench("export", "break", "--out", "out")
    measure = ("landscape", "out", "--public-data", "--iterations", "1", "--restarts", "0", "--points", "3")
    control = bench(*measure)
    file = bench.folder / "out" / "experiment.yaml"
    kept = (
        line for line in file.read_text().splitlines() if "records_per_user" not in line and "public_users" not in line
    )
    changed = "\n".join(kept).replace("unit: user", "unit: record")
    edited = changed != file.read_text()
    file.write_text(changed)
    said = bench(*measure)
    return Seen(_last(said), not said.refused, control.code == 0 and edited)


BREAKS: Final[tuple[Callable[[Make], Seen], ...]] = (
    composition, selection, protected_scores, overflow_warning, redivided_users, restored_ledger,
    public_search_on_a_private_set, non_private_search_on_a_capped_set, mixing_model, identity_answers,
    another_users_sweep, missing_ledger, edited_export,
)  # fmt: skip
"""The breaks of the first version. A further one is a function here."""


def measure(settings: Settings, results: Results) -> None:
    """Play each break in folders of its own."""
    import torch

    from tuner.recorder.mlflow_store import connect

    torch.set_num_threads(1)
    rows: list[tuple[object, ...]] = []
    broken = failed = 0
    with tempfile.TemporaryDirectory(prefix="breaks-") as name:
        root = Path(name)
        connect(f"sqlite:///{root}/mlflow.db")
        numbers = iter(range(10_000))
        for play in BREAKS:
            try:
                seen = play(lambda: Bench(root / f"bench-{next(numbers)}", root / "mlflow.db"))
            except Exception as error:  # noqa: BLE001 - the other breaks are played
                seen = Seen(f"the play failed: {type(error).__name__}: {error}", broken=True, control=False)
            broken, failed = broken + seen.broken, failed + (not seen.control)
            answer = "OPEN" if seen.broken else "closed"
            rows.append((play.__name__, answer, "holds" if seen.control else "FAILED", masked(seen.seen)[-110:]))
            results.tables["breaks"] = Table(("break", "result", "control", "seen"), tuple(rows))
    results.count("breaks.played", len(rows))
    results.count("breaks.open", broken)
    results.count("breaks.controls_failed", failed)


def _last(said: Said) -> str:
    lines = [line for line in said.text.splitlines() if line.strip()]
    return f"exit {said.code}: {' '.join(lines[-1:])}"


def _void(bench: Bench) -> bool:
    """Return whether the owner's page says that the total is void."""
    said = bench("budget", "show", "own", "--json", "--ledger", f"sqlite:///{bench.folder}/runs/ledger.db")
    return said.code == 0 and any(_values_of("void", json.loads(said.text)))


def _values_of(key: str, value: object) -> list[object]:
    """Return the values of a key anywhere in a parsed JSON text."""
    if isinstance(value, list):
        return [found for each in value for found in _values_of(key, each)]
    if not isinstance(value, dict):
        return []
    return [
        *([value[key]] if key in value else []),
        *(found for each in value.values() for found in _values_of(key, each)),
    ]


def _vouches(card: Path) -> bool:
    """Return whether a card says of a user's model that one record changes the sum by at most C."""
    assumptions = next(iter(_values_of("assumptions", json.loads(card.read_text()))), [])
    said = [each for each in assumptions if "sum of clipped gradients" in each.get("assumption", "")]  # type: ignore[attr-defined]
    return any(each.get("status") != "assumed" for each in said)


def _capped(make: Make) -> Bench:
    """Return a bench whose set `own` has a cap that is used up."""
    bench = make()
    bench.records()
    bench("run", bench.write(), "--local")
    ledger = f"sqlite:///{bench.folder}/runs/ledger.db"
    bench("budget", "set", "own", "--epsilon", "9", "--delta", "1e-3", "--ledger", ledger)
    return bench
