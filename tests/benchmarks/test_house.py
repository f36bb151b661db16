"""Each measurement of the layout finds what is planted in a small checkout, and nothing in a clean one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from benchmarks.house.__main__ import measure

CLEAN = {
    "pyproject.toml": """
        [tool.importlinter]
        contracts = [{ type = "layers", containers = ["tuner"], layers = ["plan", "privacy"] }]
        """,
    "README.md": "Two words - here.",
    "docs/page.md": "# One page\n",
    "tuner/__init__.py": "",
    "tuner/plan/__init__.py": "",
    "tuner/plan/shapes.py": """
        from tuner.privacy import filters

        def shape(kind: str = "coupon_book") -> object:
            return filters.CouponBook()
        """,
    "tuner/privacy/__init__.py": "",
    "tuner/privacy/filters.py": """
        class CouponBook:
            kind = "coupon_book"
        """,
    "tuner/privacy/ledger/__init__.py": "",
    "trainables/methods/dp_sgd.py": "def stages(): ...\n",
    "trainables/methods/dplis.py": "def stages(): ...\n",
    "benchmarks/speed/__main__.py": "",
    "tests/test_plan.py": "def test_a(): ...\n",
}
SIX_LINES = "\n".join(f"value_{number} = {number}" for number in range(6))

Measure = Callable[[dict[str, str]], dict[str, Any]]


@pytest.fixture
def measured(tmp_path: Path) -> Measure:
    """Measure the clean checkout with more files."""

    def with_files(files: dict[str, str]) -> dict[str, Any]:
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
        for name, text in (CLEAN | files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"))
        subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
        (tmp_path / "tuner" / "untracked.py").write_text("not python")
        return measure(tmp_path)

    return with_files


def test_a_clean_checkout_has_no_findings(measured: Measure) -> None:
    figures = measured({})
    assert figures["falls_short"] == []
    for name in ("flat_modules", "import_circles", "import_circles_with_type_checking", "filter_dispatch",
                 "mode_dispatch", "double_names", "longest_shared_pairs", "long_modules"):  # fmt: skip
        assert not figures[name], name


@pytest.mark.parametrize(
    ("back", "circles", "with_types"),
    [
        ("from tuner.plan.shapes import shape", 1, 1),
        ("def late():\n    import tuner.plan.shapes", 1, 1),
        ("from ..plan import shapes", 1, 1),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tuner.plan import shapes", 0, 1),
        ("from tuner import plan", 0, 0),
    ],
)
def test_import_circles(measured: Measure, back: str, circles: int, with_types: int) -> None:
    figures = measured({"tuner/privacy/filters.py": back})
    circle = ["tuner.plan.shapes", "tuner.privacy.filters"]
    assert figures["import_circles"] == [circle] * circles
    assert figures["import_circles_with_type_checking"] == [circle] * with_types


def test_public_names_with_two_meanings(measured: Measure) -> None:
    figures = measured(
        {"search_spaces/a.py": "class shape: ...\ndef _own(): ...", "trainables/b.py": "def _own(): ..."}
    )
    assert figures["double_names"] == {"shape": ["search_spaces.a", "tuner.plan.shapes"]}


FILTERS = (
    "a = kind == 'coupon_book'",
    "a = kind in ('total_steps', 'auto')",
    "a = kind is Kind.FIXED_ORDER",
    "a = body['kind'] == CouponBook.kind",
    "a = isinstance(given, CouponBook | int)",
    "a = {'total_steps': 1, 'coupon_book': 2}[kind]",
    "match given:\n    case CouponBook(): pass",
    "match kind:\n    case 'sealed': pass",
)
MODES = (
    "a = accounting != 'selection'",
    "match mode:\n    case 'public' | 'composition': pass",
    "a = 1 if report.sealed else 2",
    "a = not sweep.is_sealed",
    "a = [x for x in rows if x.sealed]",
    "if is_public_search(sweep): pass",
    "a = known and details.get('public_search')",
    "a = plan.selection is not None",
    "a = {COMPOSITION.name: 1, SELECTION.name: 2}",
)
NEITHER = ("a = call(sealed=sealed)", "mode = 'public'", "a = {'public': None}", "a = 1 if mode.runs_hidden else 2")


def test_dispatch_on_filters_and_on_modes(measured: Measure) -> None:
    kinds = {"filter": FILTERS, "mode": MODES, "neither": NEITHER}
    files = {
        f"tuner/plan/{kind}_{number}.py": code for kind, codes in kinds.items() for number, code in enumerate(codes)
    }
    figures = measured(files)
    for kind in ("filter", "mode"):
        assert figures[f"{kind}_dispatch"] == [name for name in files if f"/{kind}_" in name]


def test_shared_code(measured: Measure) -> None:
    with_noise = SIX_LINES.replace("\n", "  # a comment\n\n    # another\n", 2).replace("= 4", "=  4")
    figures = measured(
        {
            "tuner/plan/a.py": f"import os\n\n{SIX_LINES}\n",
            "tests/test_a.py": f'"""Tests."""\n\n{with_noise}\nvalue_6 = 6\n',
            "tests/test_five.py": SIX_LINES.replace("value_5", "other"),
        }
    )
    assert figures["shared_pairs"] == {"packages": 0, "benchmarks": 0, "tests": 0, "across": 1}
    pair = {"lines": 6, "places": ["tests/test_a.py:3", "tuner/plan/a.py:3"], "area": "across"}
    assert figures["longest_shared_pairs"] == [pair]
