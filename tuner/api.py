"""Python interface: load an experiment, plan it, run it, look at its sweep, export the winner, verify its card.

The commands call the same functions, so both check, charge and record in the same way::

    from tuner.api import load, verify

    search = load("digits_dplis.yaml", {"search.trials": 4})
    print(search.plan().epsilon_planned)
    sweep = search.run(local=True)
    exported = sweep.export("exports/mine")
    assert verify(exported / "privacy_card.json").ok

Every error is a `tuner.errors.TunerError`, or a `trainables.errors.TrainableError` about data and models. Both have a
`code` that ``tune explain`` explains. Bad input (`InputError`) and a search that does not fit the budget
(`BudgetRefusedError`) are raised before anything is charged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.runner.run import RunOptions
from tuner.sweep.folder import SweepFolder, find_sweep

if TYPE_CHECKING:
    from tuner.plan.plan import Plan
    from tuner.report.sweep_report import SweepReport
    from tuner.sweep.preflight import ReadySearch

__all__ = ["Search", "Sweep", "Verified", "load", "open_sweep", "verify"]


def load(
    file: str | Path, settings: Mapping[str, object] | None = None, *, data_dir: str | Path | None = None
) -> Search:
    """Return the search of an experiment file. Its methods read and check the file.

    Args:
        file: a path, or the name of a file that comes with the program.
        settings: values that replace those of the file, by dotted name, for example ``{"search.trials": 4}``.
        data_dir: folder with the data sets; by default ``DP_TUNER_DATA``, or ``data``.
    """
    return Search(file=str(file), overrides=_overrides(settings), data_dir=None if data_dir is None else str(data_dir))


def open_sweep(name: str | Path, *, storage: str | Path = "runs") -> Sweep:
    """Return a sweep by its experiment's name (the newest one), its id or its folder.

    Raises:
        InputError: no such sweep exists.
    """
    return Sweep(find_sweep(Path(storage), str(name)))


def verify(card: str | Path, *, ledger: str | None = None) -> Verified:
    """Recompute a privacy card from its ledger. The accountants share no code with those that issued the card.

    Args:
        card: the file ``privacy_card.json`` of an export.
        ledger: URL of the ledger; by default that of the experiment file next to the card.

    Raises:
        InputError: the file is not a privacy card.
    """
    from tuner.export.verification import verify_card

    values, text = verify_card(Path(card), ledger)
    return Verified(ok=bool(values["ok"]), text=text, values=values)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Result of a check: whether the card follows from its ledger, and the report as text and as ``--json``."""

    ok: bool
    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search of an experiment file. It is made by `load`."""

    file: str
    overrides: tuple[str, ...] = ()
    data_dir: str | None = field(default=None, repr=False)

    def plan(self) -> Plan:
        """Return trials, steps, noise and ε of the search, as ``tune plan`` shows them. No record is read.

        Raises:
            InputError: the file has problems. The error lists all of them.
            BudgetRefusedError: not even one trial fits the search's own ε.
        """
        return self._ready(need_data=False).plan

    def run(self, *, local: bool = False, address: str | None = None) -> Sweep:
        """Run the search to its end, and return its sweep. It is charged to the ledger like ``tune run``.

        Args:
            local: run one trial at a time in this process, without Ray.
            address: Ray cluster that runs the trials; by default Ray is started on this machine.

        Raises:
            InputError: the search cannot start. Nothing was charged.
            BudgetRefusedError: the search does not fit the cap of the data set. Nothing was charged.
            SweepInterrupted: the search was interrupted, and can be resumed.
        """
        from tuner.runner.commands import check, start

        options = _silent(local=local, address=address, data_dir=self.data_dir)
        ready = self._ready()
        check(ready, options)
        ended = start(ready, options)
        return Sweep(SweepFolder(Path(str(ended.values["folder"]))))

    def _ready(self, *, need_data: bool = True) -> ReadySearch:
        from tuner.sweep.preflight import prepare

        return prepare(self.file, self.overrides, data_dir=self.data_dir, need_data=need_data)


@dataclass(frozen=True)
class Sweep:
    """A sweep: one run of a search, with everything that it left in its folder. It is made by `open_sweep` or `run`."""

    folder: SweepFolder

    @property
    def id(self) -> str:
        """The sweep's name in the ledger and in MLflow."""
        return self.folder.id

    @property
    def report(self) -> SweepReport:
        """State, trials, winner and budget now. For a sealed search, the winner is the only trial."""
        from tuner.report.facts import read_sweep

        return read_sweep(self.folder)

    def resume(
        self, settings: Mapping[str, object] | None = None, *, local: bool = False, address: str | None = None
    ) -> Sweep:
        """Continue an interrupted sweep, or extend a finished one with ``{"search.trials": N}``."""
        from tuner.runner.commands import go_on

        go_on(self.folder, _overrides(settings), _silent(local=local, address=address))
        return self

    def export(self, out: str | Path, *, data_dir: str | Path | None = None) -> Path:
        """Write the winner's configuration, model and privacy card into the folder `out`, and return it.

        Raises:
            InputError: the sweep has not ended, has no winner, or was not private. Nothing was written.
        """
        from tuner.runner.commands import export_to

        export_to(self.folder, Path(out), data_dir=None if data_dir is None else str(data_dir))
        return Path(out)


def _overrides(settings: Mapping[str, object] | None) -> tuple[str, ...]:
    """Return settings as the command line writes them. JSON is YAML.

    Raises:
        InputError: a value cannot be written in a file.
    """
    found = []
    for name, value in (settings or {}).items():
        try:
            found.append(f"{name}={json.dumps(value, default=_plain)}")
        except (TypeError, ValueError) as error:
            raise InputError(
                "value-wrong-type",
                f"{name}: a setting must be a number, a text, a path, true, false, None, or a list or dictionary of "
                f"these (got a {type(value).__name__}: {error}).",
            ) from error
    return tuple(found)


def _plain(value: object) -> object:
    """Return a path as text, and a number of numpy as a number of Python. Raise TypeError for other values."""
    import numpy as np

    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, os.PathLike):
        return str(value)
    raise TypeError(f"{type(value).__name__} is none of these")


def _silent(*, local: bool, address: str | None, data_dir: str | None = None) -> RunOptions:
    """Return options with which nothing is printed."""
    return RunOptions(data_dir=data_dir, local=local, address=address, quiet=True, as_json=True)
