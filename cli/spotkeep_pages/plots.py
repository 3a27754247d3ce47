"""Plots of matplotlib inside a page. Their colours follow the page into dark mode, and their text stays text."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from spotkeep_pages.elements import element

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.figure import Figure

SERIES = ("#0b66c3", "#bd5209", "#1a7a37", "#7a49d6", "#b8327f", "#0a7684", "#7d5a2b", "#5d6773")
"""Colours of series, also for people who see fewer colours. The page turns them into its own, light or dark."""
TEXT, SOFT, GRID, GROUND = "#1b222c", "#545e6b", "#e3e7ec", "#ffffff"
"""The colours of text, of axes, of lines behind the data, and of the page itself."""

_PAGE_COLOURS = {
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
    TEXT: "var(--text)",
    SOFT: "var(--soft)",
    GRID: "var(--grid)",
    GROUND: "var(--ground)",
}
_COLOUR = re.compile("|".join(_PAGE_COLOURS))
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_SIZE = 10.5


def plot_style() -> AbstractContextManager[None]:
    """Return the context in which a figure is made and drawn.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from cycler import cycler

    return mpl.rc_context(
        {
            "axes.axisbelow": True,
            "axes.edgecolor": SOFT,
            "axes.facecolor": "none",
            "axes.grid": True,
            "axes.labelcolor": TEXT,
            # A narrow page has larger letters, which need room.
            "axes.labelpad": 8,
            "axes.prop_cycle": cycler(color=list(SERIES)),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": _FONT_SIZE,
            "figure.facecolor": "none",
            "figure.figsize": (5.4, 3.1),
            "font.size": _FONT_SIZE,
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "legend.frameon": False,
            "lines.linewidth": 1.7,
            "savefig.facecolor": "none",
            "svg.fonttype": "none",
            "svg.hashsalt": "spotkeep",
            "text.color": TEXT,
            "text.parse_math": False,
            "xtick.color": SOFT,
            "xtick.labelcolor": TEXT,
            "ytick.color": SOFT,
            "ytick.labelcolor": TEXT,
        }
    )


def svg(figure: Figure, *, name: str, title: str, description: str) -> ET.Element:
    """Return a figure as an element of a page.

    Args:
        figure: A figure of the usual width, drawn within `plot_style`. A page of 390 pixels shows its text still well.
        name: A name that no other picture of the page has.
        title: Its subject, for readers who do not see it.
        description: Its values in a sentence or two, for the same readers.
    """
    written = io.BytesIO()
    with plot_style():
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    drawn = ET.fromstring(written.getvalue())  # noqa: S314 - matplotlib wrote it, a line ago
    drawn = _without_namespaces(drawn)
    for parent in list(drawn.iter()):
        for child in list(parent):
            # Its style would be one of the whole page.
            if child.tag in {"metadata", "style"}:
                parent.remove(child)
    for each in drawn.iter():
        _rename(each, name=name)
    drawn.attrib = {
        "viewBox": drawn.attrib["viewBox"],
        "class": "plot",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-description",
        "stroke-linejoin": "round",
    }
    drawn.insert(0, element("title", title, id=f"{name}-title"))
    drawn.insert(1, element("desc", description, id=f"{name}-description"))
    return drawn


def _without_namespaces(drawn: ET.Element) -> ET.Element:
    for each in drawn.iter():
        each.tag = each.tag.rpartition("}")[2]
        each.attrib = {key.rpartition("}")[2]: value for key, value in each.attrib.items()}
    return drawn


def _rename(each: ET.Element, *, name: str) -> None:
    """Give an element names and colours of the page. Several figures of one page share no name."""
    changed: dict[str, Any] = {}
    for key, value in each.attrib.items():
        if key == "id":
            changed[key] = f"{name}-{value}"
        elif key == "href" and value.startswith("#"):
            changed[key] = f"#{name}-{value[1:]}"
        else:
            coloured = _COLOUR.sub(lambda found: _PAGE_COLOURS[found[0]], value)
            changed[key] = _REFERENCE.sub(lambda found: f"url(#{name}-{found[1]})", coloured)
    each.attrib = changed
