"""Checks of the installation: the scripts, the packages, the dependencies, the data sets, and doors left open."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tuner.errors import InputError
from tuner.files import write_text

__all__ = ["DISTRIBUTION", "Diagnosis", "diagnose", "diagnosis_text", "fix_script"]

DISTRIBUTION = "dp-tuner"
PACKAGES = ("tuner", "trainables", "search_spaces")
_SCRIPTS = ("tune", "dp-tune")
_ENTRY = "tuner.cli.app"
_SCRIPT = """#!{python}
import sys
from tuner.cli.app import main
if __name__ == "__main__":
    sys.exit(main())
"""


@dataclass(frozen=True)
class Diagnosis:
    """Result of one check: what was checked, whether the check passed, what was found, and the fix after a failure.

    A warning is a check that passed and has a fix nevertheless.
    """

    subject: str
    _: KW_ONLY
    ok: bool
    found: str
    fix: str = ""
    warning: bool = False


def diagnose(data_dir: str | None = None) -> list[Diagnosis]:
    """Check the interpreter, the scripts, the packages, the dependencies, the data sets, tokens and open ports."""
    return [
        Diagnosis(
            "python",
            ok=sys.version_info >= (3, 11),
            found=f"{sys.version.split()[0]} at {sys.executable}",
            fix="Python 3.11 or newer is needed.",
        ),
        *(_script(name) for name in _SCRIPTS),
        *_owners(),
        *_dependencies(),
        *_data(data_dir),
        *_tokens(),
        *_open_ports(),
        *_gpu(),
    ]


def _bin() -> Path:
    return Path(sys.executable).parent


def _script(name: str) -> Diagnosis:
    script, first = _bin() / name, shutil.which(name)
    fix, ok = f"Run `{sys.executable} -m tuner doctor --fix`, or use `python -m tuner`.", False
    text = script.read_text(errors="replace") if script.exists() else ""
    imported = re.search(r"^from (\S+) import|^import (\S+)$(?<!import re)(?<!import sys)", text, re.MULTILINE)
    owner = next((group for group in imported.groups() if group), "?") if imported else "?"
    if not script.exists():
        found = "not installed"
    elif owner != _ENTRY:
        found = f"{script} belongs to {owner}"
    elif first is not None and Path(first).resolve() != script.resolve():
        found = f"{script} calls dp-tuner, but the shell finds {first} first"
        fix = f"Activate the environment, or call {script}."
    else:
        found, fix, ok = f"{script} calls dp-tuner", "", True
    return Diagnosis(f"script {name}", ok=ok, found=found, fix=fix)


def _owners() -> Iterable[Diagnosis]:
    installed = metadata.packages_distributions()
    for package in PACKAGES:
        owners = sorted(set(installed.get(package, [])))
        strangers = [name for name in owners if name.replace("_", "-").lower() != DISTRIBUTION]
        found = f"owned by {', '.join(owners)}" if owners else "imported from the checkout, not installed"
        fix = f"Uninstall {', '.join(strangers)} and reinstall {DISTRIBUTION}, because both install {package}."
        yield Diagnosis(f"package {package}", ok=not strangers, found=found, fix=fix if strangers else "")


def _dependencies() -> Iterable[Diagnosis]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Diagnosis(DISTRIBUTION, ok=False, found="not installed", fix="Run `make install` in the checkout.")
        return
    for requirement in requirements:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?", requirement)
        if match is None or "extra ==" in requirement:
            continue
        name, minimum = match.groups()
        try:
            found = metadata.version(name)
            ok = minimum is None or _numbers(found) >= _numbers(minimum)
        except metadata.PackageNotFoundError:
            found, ok = "missing", False
        yield Diagnosis(name, ok=ok, found=found, fix="" if ok else f"pip install -c constraints.txt '{requirement}'")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _data(data_dir: str | None) -> Iterable[Diagnosis]:
    from trainables.data import DATASETS, DatasetRequest, check_present
    from trainables.errors import DatasetError

    folder = data_dir or os.environ.get("DP_TUNER_DATA") or "./data"
    for name in DATASETS:
        try:
            check_present(DatasetRequest(name=name, data_dir=data_dir))
        except DatasetError as error:
            yield Diagnosis(f"data {name}", ok=True, found=f"not in {folder} (optional)", fix=str(error))
        else:
            yield Diagnosis(f"data {name}", ok=True, found="available, checksum as published")


def _tokens() -> Iterable[Diagnosis]:
    """Yield a warning for each file with a token of Ray that other accounts may read. Ray itself writes such a file."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    for path in dict.fromkeys([Path.home() / ".ray" / "auth_token", *([Path(named)] if named else [])]):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & 0o077:
            fix = f"Run `chmod 600 {path}`. Whoever has the token can enter the cluster and read checkpoints."
            yield Diagnosis(f"token {path}", ok=True, found="readable by others", fix=fix, warning=True)
        else:
            yield Diagnosis(f"token {path}", ok=True, found="readable by this account only")


def _open_ports() -> Iterable[Diagnosis]:
    """Yield a warning for each program of this account that others can reach, and that asks them for nothing."""
    from tuner.executors.ray import machine

    for name, asks, ports in machine.open_programs():
        shown = f"accepts connections from other machines on port {', '.join(map(str, ports))}"
        if asks:
            yield Diagnosis(f"open {name}", ok=True, found=f"{shown}, and asks for a token")
            continue
        fix = (
            "Start it with RAY_AUTH_MODE=token. Without it, whoever reaches Ray can run programs and read checkpoints."
            if name == "Ray"
            else "Start it with --host 127.0.0.1, or with authentication (`--app-name basic-auth`)."
        )
        yield Diagnosis(f"open {name}", ok=True, found=f"{shown}, without a token", fix=fix, warning=True)


def _gpu() -> Iterable[Diagnosis]:
    """Yield a warning if torch finds a GPU: what runs there was tested on a pretended GPU only."""
    try:
        import torch

        if not torch.cuda.is_available():
            return
        found = torch.cuda.get_device_name(0)
    except Exception as error:  # noqa: BLE001 - the driver of the GPU may raise anything
        yield Diagnosis("gpu", ok=False, found=f"torch fails: {type(error).__name__}: {error}", fix="Check its driver.")
        return
    yield Diagnosis(
        "gpu",
        ok=True,
        found=f"{found}. Training was never tested on a real GPU, so privacy cards list GPU rounding as an assumption",
        fix="Run `make gpu-check` in the checkout, and keep its output.",
        warning=True,
    )


def fix_script() -> list[Path]:
    """Write the scripts `tune` and `dp-tune`, which call dp-tuner, into the folder of this Python interpreter.

    Return the files, or raise an InputError if the folder cannot be written.
    """
    written = [_bin() / name for name in _SCRIPTS]
    for path in written:
        try:  # this replaces a link to another program's script; the link's target is unchanged
            write_text(path, _SCRIPT.format(python=sys.executable), mode=0o755)
        except OSError as error:
            raise InputError(
                "output-unwritable",
                f"The folder {path.parent} of the scripts cannot be written ({error.strerror}). Make it "
                "writable, or call `python -m tuner`.",
            ) from error
    return written


def diagnosis_text(findings: Iterable[Diagnosis]) -> str:
    """Return one line for each check. After the line of a failed check or a warning, a second line shows the fix."""
    lines = []
    for finding in findings:
        mark = "BAD " if not finding.ok else "WARN" if finding.warning else "ok  "
        lines.append(f"{mark} {finding.subject}: {finding.found}")
        lines += [f"     {finding.fix}"] if finding.fix and (finding.warning or not finding.ok) else []
    return "\n".join(lines)
