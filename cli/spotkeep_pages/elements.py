"""Elements of HTML, with text that is always escaped. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union
from xml.etree import ElementTree as ET

from spotkeep_fleet.printable_text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

Content = Union[str, ET.Element]
"""Text of any origin, or an element."""

_SHORT = 30
TONES = ("good", "bad", "warning", "neutral")
"""The tones of a badge, a notice or a figure. The text beside the colour says the same."""


def element(tag: str, *content: Content | None, **attributes: str) -> ET.Element:
    """Return an element.

    Args:
        tag: Its name, such as `p`.
        content: Its texts and elements in order. None is left out.
        attributes: Its attributes. `class_` is `class`, and other underscores are hyphens.
    """
    named = {name.rstrip("_").replace("_", "-"): printable(value) for name, value in attributes.items()}
    made = ET.Element(tag, named)
    for each in content:
        append(made, each)
    return made


def append(parent: ET.Element, content: Content | None) -> None:
    """Add a text or an element at the end of an element."""
    if content is None:
        return
    if isinstance(content, ET.Element):
        parent.append(content)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + printable(content)
    else:
        parent.text = (parent.text or "") + printable(content)


def paragraph(*content: Content | None, class_: str = "") -> ET.Element:
    """Return a paragraph."""
    return element("p", *content, **({"class_": class_} if class_ else {}))


def code(text: str) -> ET.Element:
    """Return text that a person types or a program printed, inside a line."""
    return element("code", text)


def link(text: str, url: str) -> Content:
    """Return a link to a page on the web, or the text alone where the address is none."""
    return element("a", text, href=url) if url.startswith("https://") else text


def badge(text: str, *, tone: str = "neutral") -> ET.Element:
    """Return a short text on a coloured ground.

    Args:
        text: The text, such as `PASS`.
        tone: One of `TONES`.
    """
    return element("span", text, class_=f"badge {tone}")


def notice(*content: Content | None, tone: str = "neutral") -> ET.Element:
    """Return a box with something that the reader must not miss.

    Args:
        content: Its texts and elements.
        tone: One of `TONES`.
    """
    return element("div", *content, class_=f"notice {tone}")


def bullets(items: Iterable[Content]) -> ET.Element:
    """Return a list of points."""
    return element("ul", *(element("li", each) for each in items))


def output(text: str) -> ET.Element:
    """Return lines that a program printed or a message held, as they are."""
    return element("pre", text, class_="output")


def command(line: str, *, purpose: str) -> ET.Element:
    """Return a command to copy, below its purpose."""
    return element("div", paragraph(purpose, class_="purpose"), element("pre", element("code", line)), class_="command")


def facts(pairs: Iterable[tuple[str, Content]]) -> ET.Element:
    """Return names with their values, a row each."""
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *rows, class_="facts")


def _breaking_behind_slashes(value: str) -> Iterator[Content]:
    """Yield the value with a place for a line break behind each slash. A path is else broken within a word."""
    first, *others = value.split("/")
    yield first
    for part in others:
        yield "/"
        yield element("wbr")
        yield part


def figures(tiles: Iterable[tuple[str, str, str]]) -> ET.Element:
    """Return large figures side by side.

    Args:
        tiles: For each figure its name, its value and a remark. The remark may be empty.
    """
    made = (
        element(
            "div",
            element("dt", name),
            element("dd", *_breaking_behind_slashes(value), class_="value"),
            element("dd", remark, class_="remark") if remark else None,
        )
        for name, value, remark in tiles
    )
    return element("dl", *made, class_="figures")


def table(
    *, caption: str, headings: Sequence[str], rows: Iterable[Sequence[Content]], numeric: Collection[int] = ()
) -> ET.Element:
    """Return a table. The first cell of each row is its heading. A wide table scrolls by itself.

    Args:
        caption: The subject of the table.
        headings: The names of the columns.
        rows: The cells, row by row.
        numeric: Places of columns with numbers, which are set flush right.
    """
    kinds = ["number" if at in numeric else "" for at in range(len(headings))]
    head = element("tr", *(_cell("th", each, kind, scope="col") for each, kind in zip(headings, kinds)))
    body = element("tbody")
    for first, *others in rows:
        cells = (_cell("td", each, kind) for each, kind in zip(others, kinds[1:]))
        body.append(element("tr", _cell("th", first, kinds[0], scope="row"), *cells))
    made = element("table", element("caption", caption), element("thead", head), body)
    return element("div", made, class_="scroll", role="group", tabindex="0", aria_label=caption)


def _cell(tag: str, content: Content, kind: str, **attributes: str) -> ET.Element:
    """Return a cell. A short one stays on one line, so that a narrow page scrolls the table and breaks no figure."""
    kind = kind or ("short" if isinstance(content, str) and len(content) <= _SHORT else "")
    return element(tag, content, **attributes, **({"class_": kind} if kind else {}))


def folded(summary: str, *content: Content | None) -> ET.Element:
    """Return content that a reader opens. A printed page shows it."""
    return element("details", element("summary", summary), *content)
