"""Read back what a figure draws."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from tuner.figures import svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"


def series(figure: Figure | None, panel: int = 0) -> dict[str, list[tuple[float, float]]]:
    """Label → points of every line of a panel; lines without a label are named by their place."""
    assert figure is not None
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()]
        for line in figure.axes[panel].get_lines()
    }


def texts(figure: Figure | None) -> list[str]:
    """Every text of the SVG, which also must be well-formed and load nothing."""
    assert figure is not None
    return svg_texts(svg_text(figure, "a title"))


def svg_texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    for element in root.iter():
        assert element.tag not in {f"{SVG}script", f"{SVG}image"}
        for name, value in element.attrib.items():
            assert not name.endswith("href") or value.startswith("#"), "only parts of the picture itself"
            assert "url(" not in value or "url(#" in value
    return ["".join(element.itertext()) for element in root.iter() if element.tag in {f"{SVG}text", f"{SVG}title"}]
