"""What `tune doctor` tells: who owns the command and the packages, what is missing, and where the data lie."""

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

__all__ = ["DISTRIBUTION", "Finding", "diagnose", "findings_text", "fix_script"]

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
class Finding:
    """One thing that the doctor looked at.

    Attributes:
        subject: what was looked at.
        ok: whether it is as it should be.
        found: what was found.
        fix: what to do when it is not ok, or an empty string.
    """

    subject: str
    ok: bool
    found: str
    fix: str = ""


def diagnose(data_dir: str | None = None) -> list[Finding]:
    """Look at the interpreter, the scripts, the packages, the dependencies and the data."""
    findings = [
        Finding(
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


def _script(name: str) -> Finding:
    beside = _bin() / name
    found = shutil.which(name)
    fix = f"Run `{sys.executable} -m tuner doctor --fix`; `python -m tuner` works in any case."
    if not beside.exists():
        return Finding(subject=f"script {name}", ok=False, found="not installed", fix=fix)
    text = beside.read_text(errors="replace")
    imported = re.search(r"^from (\S+) import|^import (\S+)$(?<!import re)(?<!import sys)", text, re.MULTILINE)
    owner = next(iter(group for group in imported.groups() if group), "?") if imported else "?"
    if owner != _ENTRY:
        return Finding(subject=f"script {name}", ok=False, found=f"{beside} belongs to {owner}", fix=fix)
    if found is not None and Path(found).resolve() != beside.resolve():
        return Finding(
            subject=f"script {name}",
            ok=False,
            found=f"{beside} is ours, but the shell finds {found}",
            fix=f"Activate the environment, or call {beside}.",
        )
    return Finding(subject=f"script {name}", ok=True, found=f"{beside} is ours")


def _owner(package: str) -> Finding:
    owners = sorted(set(metadata.packages_distributions().get(package, [])))
    strangers = [name for name in owners if name.replace("_", "-").lower() != DISTRIBUTION]
    return Finding(
        subject=f"package {package}",
        ok=not strangers,
        found=f"owned by {', '.join(owners)}" if owners else "imported from the checkout, not installed",
        fix=f"Uninstall {', '.join(strangers)} and reinstall {DISTRIBUTION}: they write the same package."
        if strangers
        else "",
    )


def _dependencies() -> Iterable[Finding]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Finding(subject=DISTRIBUTION, ok=False, found="not installed", fix="Run `make install` in the checkout.")
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
            yield Finding(
                subject=name, ok=False, found="missing", fix=f"pip install -c constraints.txt '{requirement}'"
            )
            continue
        ok = minimum is None or _numbers(version) >= _numbers(minimum)
        fix = "" if ok else f"pip install -c constraints.txt '{requirement}'"
        yield Finding(subject=name, ok=ok, found=version, fix=fix)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _data(data_dir: str | None) -> Iterable[Finding]:
    from trainables.data import DATASETS, DatasetRequest, check_present
    from trainables.errors import DatasetError

    folder = data_dir or os.environ.get("DP_TUNER_DATA") or "./data"
    for name in DATASETS:
        try:
            check_present(DatasetRequest(name=name, data_dir=data_dir))
        except DatasetError as error:
            yield Finding(subject=f"data {name}", ok=True, found=f"not in {folder} (optional)", fix=str(error))
        else:
            yield Finding(subject=f"data {name}", ok=True, found="there, checksum as published")


def fix_script() -> list[Path]:
    """Write `tune` and `dp-tune` beside this interpreter so that they call this program.

    Returns:
        The files written.

    Raises:
        InputError: the folder cannot be written.
    """
    written = []
    for name in ("tune", "dp-tune"):
        path = _bin() / name
        draft = path.with_name(f".{name}.new")
        try:
            draft.write_text(_SCRIPT.format(python=sys.executable))
            draft.chmod(0o755)
            draft.replace(path)  # a link to another program's script is replaced, never written through
        except OSError as error:
            raise InputError(f"the scripts' folder must be writable, got {path.parent}: {error.strerror}.") from error
        written.append(path)
    return written


def findings_text(findings: Iterable[Finding]) -> str:
    """One line a finding, with its fix below when something is wrong."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok  ' if finding.ok else 'BAD '} {finding.subject}: {finding.found}")
        if not finding.ok and finding.fix:
            lines.append(f"     {finding.fix}")
    return "\n".join(lines)
