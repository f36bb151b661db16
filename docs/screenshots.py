"""Pictures of the pages, with public data: `python docs/screenshots.py` (needs chromium, two minutes).

Two searches on scikit-learn's digits are run in a temporary folder with a ledger of its own. Their report, comparison,
officer's page and MLflow runs are drawn by a headless browser into docs/pictures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
_FILE = """\
name: {name}
dataset: {{name: digits}}
trainable: {{method: dplis, batch_size: 128, epochs: 5}}
privacy: {{epsilon: {epsilon}, delta: 1e-5, purpose: pictures for the docs, contact: ann@example.org}}
search:
  trials: 12
  sampler: tpe
  pruner: median
  space:
    learning_rate: {{log_uniform: [0.1, 10]}}
    max_grad_norm: {{log_uniform: [0.1, 3]}}
    smoothing_radius: {{uniform: [0, 20]}}
"""


def main() -> int:
    """Run the searches, and draw the pages."""
    browser = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if browser is None:
        sys.stderr.write("error: no chromium was found. Install it, for example with: apt-get install chromium\n")
        return 2
    (HERE / "pictures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="screenshots-") as inside:
        folder = Path(inside)
        os.environ["XDG_DATA_HOME"] = inside
        _tune(folder, "budget", "set", "digits", "--epsilon", "12", "--delta", "1e-4")
        for name, epsilon in (("cautious", 2.0), ("generous", 6.0)):
            (folder / f"{name}.yaml").write_text(_FILE.format(name=name, epsilon=epsilon))
            _tune(folder, "run", f"{name}.yaml", "--local", "--quiet")
        _tune(folder, "export", "generous")
        _tune(folder, "report", "generous", "--out", "report.html")
        _tune(folder, "compare", "cautious", "generous", "--out", "compare.html")
        _tune(folder, "budget", "report", "digits", "--out", "officer.html")
        for page, height in (("report", 3300), ("compare", 1250), ("officer", 1500)):
            _draw(browser, f"file://{folder}/{page}.html", page, height=height)
        _draw_mlflow(browser, folder)
    return 0


def _tune(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "tuner", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _draw_mlflow(browser: str, folder: Path) -> None:
    command = [sys.executable, "-u", "-m", "tuner", "ui", "generous", "--port", "5077"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = re.search(r"http\S+", server.stdout.readline() if server.stdout else "")
            time.sleep(15)  # MLflow's server takes its time
            if address is not None:
                _draw(browser, address.group(), "mlflow", height=800)
        finally:
            server.terminate()


def _draw(browser: str, address: str, name: str, *, height: int) -> None:
    """Draw a page into docs/pictures, in 128 colours, which keeps the file small."""
    path = HERE / "pictures" / f"{name}.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000", f"--screenshot={path}"]
    subprocess.run([browser, *options, f"--window-size=1200,{height}", address], check=True, capture_output=True)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
