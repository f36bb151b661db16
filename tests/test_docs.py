"""README and docs: links lead somewhere, and every command and accounting mode is named where a reader looks for it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from search_spaces import PARAMETERS
from tuner.cli.app import cli
from tuner.experiment import Experiment
from tuner.experiment.sections import MetricSection
from tuner.privacy.modes import MODES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by the rule of the usual renderers."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading_of_a_plain_checkout(page: Path) -> None:
    assert broken_links(page) == []


def test_a_missing_page_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[here](#one) [there](other.md) [nowhere](#two) [away](https://example.org/x)\n")
    assert broken_links(page) == ["other.md", "#two"]


def test_every_command_is_on_the_page_of_commands() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name in cli.commands if not re.search(rf"`tune {name}\b|`{name}`", text)] == []


def test_every_accounting_mode_is_on_the_page_of_modes() -> None:
    text = (ROOT / "docs" / "modes.md").read_text()
    assert [name for name in MODES if f"| `{name}`" not in text] == []


def test_every_key_and_every_parameter_is_on_the_page_of_keys() -> None:
    generated = runpy.run_path(str(ROOT / "docs" / "generated.py"))
    page = generated["keys"]()
    for _, section in generated["sections"]("", Experiment):
        assert all(f"\n| `{field.alias or name}` |" in page for name, field in section.model_fields.items())
    assert all(f"\n| `{name}`" in page for name in PARAMETERS)


def test_a_key_without_a_description_is_found() -> None:
    class Longer(MetricSection):
        """Section with one key more than its docstrings describe."""

        unit: str = "percent"

    table = runpy.run_path(str(ROOT / "docs" / "generated.py"))["section_table"]
    assert "`mode`" in table("search.metric", MetricSection)
    with pytest.raises(KeyError, match="unit"):
        table("search.metric", Longer)
