"""Checks of the installation: the scripts, the packages, the dependencies and the data sets."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InputError
from tuner.files import write_text

__all__ = ["DISTRIBUTION", "Diagnosis", "diagnose", "diagnosis_text", "fix_script"]

DISTRIBUTION = "dp-tuner"
PACKAGES = ("tuner", "trainables", "search_spaces")
_ENTRY = "tuner.cli.app"
_SCRIPT = """#!{python}
import sys
from tuner.cli.app import main
if __name__ == "__main__":
    sys.exit(main())
"""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Result of one check.

    Attributes:
        subject: what was checked.
        ok: whether the check passed.
        found: what was found.
        fix: what to do when the check failed, or an empty string.
    """

    subject: str
    ok: bool
    found: str
    fix: str = ""


def diagnose(data_dir: str | None = None) -> list[Diagnosis]:
    """Check the interpreter, the scripts, the packages, the dependencies and the data sets."""
    findings = [
        Diagnosis(
            subject="python",
            ok=sys.version_info >= (3, 11),
            found=f"{sys.version.split()[0]} at {sys.executable}",
            fix="Python 3.11 or newer is needed.",
        )
    ]
    findings += [_script(name) for name in ("tune", "dp-tune")]
    findings += [_owner(package) for package in PACKAGES]
    findings += list(_dependencies())
    findings += list(_data(data_dir))
    return findings


def _bin() -> Path:
    return Path(sys.executable).parent


def _script(name: str) -> Diagnosis:
    script = _bin() / name
    found = shutil.which(name)
    fix = f"Run `{sys.executable} -m tuner doctor --fix`; `python -m tuner` works in any case."
    if not script.exists():
        return Diagnosis(subject=f"script {name}", ok=False, found="not installed", fix=fix)
    text = script.read_text(errors="replace")
    imported = re.search(r"^from (\S+) import|^import (\S+)$(?<!import re)(?<!import sys)", text, re.MULTILINE)
    owner = next(iter(group for group in imported.groups() if group), "?") if imported else "?"
    if owner != _ENTRY:
        return Diagnosis(subject=f"script {name}", ok=False, found=f"{script} belongs to {owner}", fix=fix)
    if found is not None and Path(found).resolve() != script.resolve():
        return Diagnosis(
            subject=f"script {name}",
            ok=False,
            found=f"{script} is ours, but the shell finds {found}",
            fix=f"Activate the environment, or call {script}.",
        )
    return Diagnosis(subject=f"script {name}", ok=True, found=f"{script} is ours")


def _owner(package: str) -> Diagnosis:
    owners = sorted(set(metadata.packages_distributions().get(package, [])))
    strangers = [name for name in owners if name.replace("_", "-").lower() != DISTRIBUTION]
    return Diagnosis(
        subject=f"package {package}",
        ok=not strangers,
        found=f"owned by {', '.join(owners)}" if owners else "imported from the checkout, not installed",
        fix=f"Uninstall {', '.join(strangers)} and reinstall {DISTRIBUTION}: they write the same package."
        if strangers
        else "",
    )


def _dependencies() -> Iterable[Diagnosis]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Diagnosis(
            subject=DISTRIBUTION, ok=False, found="not installed", fix="Run `make install` in the checkout."
        )
        return
    for requirement in requirements:
        if "extra ==" in requirement:
            continue
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?", requirement)
        if match is None:
            continue
        name, minimum = match.groups()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Diagnosis(
                subject=name, ok=False, found="missing", fix=f"pip install -c constraints.txt '{requirement}'"
            )
            continue
        ok = minimum is None or _numbers(version) >= _numbers(minimum)
        fix = "" if ok else f"pip install -c constraints.txt '{requirement}'"
        yield Diagnosis(subject=name, ok=ok, found=version, fix=fix)


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
            yield Diagnosis(subject=f"data {name}", ok=True, found=f"not in {folder} (optional)", fix=str(error))
        else:
            yield Diagnosis(subject=f"data {name}", ok=True, found="available, checksum as published")


def fix_script() -> list[Path]:
    """Write the scripts `tune` and `dp-tune` next to this interpreter, so that they call this program.

    Returns:
        The files written.

    Raises:
        InputError: the folder cannot be written.
    """
    written = []
    for name in ("tune", "dp-tune"):
        path = _bin() / name
        try:  # a link to another program's script is replaced, and its target stays as it is
            write_text(path, _SCRIPT.format(python=sys.executable), mode=0o755)
        except OSError as error:
            raise InputError(
                "output-unwritable",
                f"The folder {path.parent} of the scripts cannot be written ({error.strerror}). Make it "
                "writable, or call `python -m tuner`.",
            ) from error
        written.append(path)
    return written


def diagnosis_text(findings: Iterable[Diagnosis]) -> str:
    """Return one line for each check, followed by the fix when it failed."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok  ' if finding.ok else 'BAD '} {finding.subject}: {finding.found}")
        if not finding.ok and finding.fix:
            lines.append(f"     {finding.fix}")
    return "\n".join(lines)
