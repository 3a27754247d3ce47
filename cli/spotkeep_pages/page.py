"""The shell of every page. Its style sheet comes from the file beside this module and is part of the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from spotkeep_fleet.printable_text import printable
from spotkeep_pages.elements import Content, element, paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""Nothing is fetched and no script runs, even where a text found a way to be markup."""


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        heading: Its heading.
        content: Its texts and elements.
        is_folded: True if a reader opens it. A printed page shows it.
        style: Rules of the style sheet that this part needs. No text of another origin belongs here.
    """

    heading: str
    content: Sequence[Content | None]
    is_folded: bool = False
    style: str = ""


def page(
    *,
    kind: str,
    title: str,
    lead: Sequence[Content | None],
    sections: Sequence[Section],
    footer: str,
    status: ET.Element | None = None,
) -> str:
    """Return a page as one HTML file.

    Args:
        kind: The kind of page, such as `Run`.
        title: Its subject, such as the id of a run.
        lead: The most important content, above all sections.
        sections: Its sections in order.
        footer: The origin of the page, such as the command and the time.
        status: The state or the verdict, as `badge` returns it.
    """
    names = _anchors([each.heading for each in sections])
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} · {kind} · Spotkeep"),
        _style("".join(each.style for each in sections)),
    )
    links = (element("a", each.heading, href=f"#{name}") for each, name in zip(sections, names))
    contents = element("nav", element("ul", *(element("li", each) for each in links)), aria_label="On this page")
    header = element(
        "header",
        paragraph("Spotkeep", element("span", kind), class_="kind"),
        element("div", element("h1", title), status, class_="title"),
    )
    main = element("main", element("div", *lead, class_="lead"), contents if len(sections) > 2 else None)
    for each, name in zip(sections, names):
        main.append(_section(each, name=name))
    body = element("body", header, main, element("footer", paragraph(footer)))
    html = element("html", head, body, lang="en")
    return f"<!DOCTYPE html>\n{ET.tostring(html, encoding='unicode', method='html')}\n"


def _section(section: Section, *, name: str) -> ET.Element:
    heading = element("h2", section.heading, id=name)
    if section.is_folded:
        inside = element("details", element("summary", heading), *section.content)
        return element("section", inside, aria_labelledby=name)
    return element("section", heading, *section.content, aria_labelledby=name)


def _anchors(headings: Sequence[str]) -> list[str]:
    """Return a name for each heading, no name twice."""
    names: list[str] = []
    for heading in headings:
        name = re.sub(r"[^a-z0-9]+", "-", printable(heading).lower()).strip("-") or "section"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def _style(more: str) -> ET.Element:
    # The serializer writes the text of `style` as it is. No text but that of the file and of sections comes here.
    made = ET.Element("style")
    made.text = _style_sheet() + more
    return made


@lru_cache(maxsize=1)
def _style_sheet() -> str:
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")
