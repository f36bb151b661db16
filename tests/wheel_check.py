"""Build the wheel, install it alone in a fresh environment, and run the commands from another folder.

Run by ``make wheel``. The fresh environment borrows the dependencies of the running one (a ``.pth`` line), so that only
what the wheel itself carries is under test: the packages, their data files, and the scripts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("tuner", "trainables", "search_spaces")


def run(*command: str, cwd: Path) -> str:
    """Run a command in ``cwd`` without the checkout on its path; return what it printed, or stop with it.

    Its ledger is a new one in ``cwd``, not the user's own.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DP_TUNER_LEDGER")}
    environment["XDG_DATA_HOME"] = str(cwd)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended in {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install, import and run; any failure ends with its output and exit code 1."""
    with tempfile.TemporaryDirectory() as scratch:
        away = Path(scratch)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", str(away / "dist"), str(CHECKOUT), cwd=away)
        (wheel,) = (away / "dist").glob("*.whl")
        venv.create(away / "env", with_pip=True)
        binaries = away / "env" / "bin"
        python = str(binaries / "python")
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel), cwd=away)
        site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=away).strip()
        # Our own packages are found first in the new environment, the dependencies behind them in the old one.
        (Path(site) / "zz_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for package in PACKAGES:
            where = run(python, "-c", f"import {package}; print({package}.__file__)", cwd=away).strip()
            if not where.startswith(str(away)):
                sys.exit(f"{package} was imported from {where}, not from the wheel")
        for script in ("tune", "dp-tune"):
            run(str(binaries / script), "--help", cwd=away)
        shipped = run(str(binaries / "dp-tune"), "ls", "--shipped", cwd=away)
        expected = sorted(path.name for path in (CHECKOUT / "experiments").glob("*.yaml"))
        missing = [name for name in expected if name not in shipped]
        if missing:
            sys.exit(f"the wheel lacks {missing}")
        run(python, "-m", "tuner", "plan", "digits_dplis.yaml", cwd=away)
        print(f"{wheel.name}: imports, scripts and {len(expected)} shipped experiments are there")


if __name__ == "__main__":
    main()
