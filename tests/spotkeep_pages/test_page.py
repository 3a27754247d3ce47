"""The shell of pages: its elements, its escaping, and its look in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spotkeep_pages.bars import Lane, Mark, Span, bars
from spotkeep_pages.elements import (
    append,
    badge,
    bullets,
    code,
    command,
    element,
    facts,
    figures,
    folded,
    link,
    notice,
    output,
    paragraph,
    table,
)
from spotkeep_pages.page import Section, page
from spotkeep_pages.plots import plot_style, svg
from tests.html import HOSTILE, Parsed, assert_harmless

if TYPE_CHECKING:
    from pathlib import Path
    from xml.etree import ElementTree as ET

    from tests.browser import Browser


def everything(text: str = "ml.g5.xlarge") -> str:
    """A page with one of each element, and a text of any origin in all of them."""
    return page(
        kind="Run",
        title=text,
        status=badge("FAIL", tone="bad"),
        lead=[
            paragraph("The run went on. ", code(text), " said so."),
            notice(paragraph(text), tone="warning"),
            figures([("Billed", "$1.23", text), ("Saved", "64%", "against on-demand"), (text, "3", "")]),
        ],
        sections=[
            Section("Timeline", [lanes(text)]),
            Section(
                "Metrics", [element("div", element("figure", plot(text), element("figcaption", text)), class_="plots")]
            ),
            Section(text, [facts([("Instance", text), (text, link("console", "https://console.aws.amazon.com/x"))])]),
            Section(
                "Bill",
                [
                    table(
                        caption=text,
                        headings=["Attempt", text, "Seconds"],
                        rows=[["1", text, "12"], [text, badge(text, tone="good"), "3"]],
                        numeric=[2],
                    ),
                    bullets([text, "two"]),
                ],
            ),
            Section("Notification", [output(f"Subject: {text}\n\n{text}"), folded(text, paragraph(text))]),
            Section("Permissions", [paragraph("All of them.")], is_folded=True),
            Section("Next", [command(f"spotkeep logs '{text}'", purpose=text)]),
        ],
        footer=text,
    )


def lanes(text: str) -> ET.Element:
    return bars(
        [
            Lane(
                f"Attempt 1 on {text}",
                [Span(0, 95, "waited", "waited 95 s"), Span(95, 1900, "trained", text)],
                [Mark(900, "saved", "saved step 100"), Mark(1900, "interrupted", text)],
            ),
            Lane("Attempt 2", [Span(2000, 2300, "repeated", "300 s again"), Span(2300, 4000, "trained", "trained")]),
        ],
        name="timeline",
        caption=text,
        unit="seconds",
        legend={
            "trained": "trained", "repeated": text, "waited": "waited for capacity", "interrupted": "interruption",
            "saved": "checkpoint",
        },
    )  # fmt: skip


def plot(text: str) -> ET.Element:
    from matplotlib.figure import Figure

    with plot_style():
        figure = Figure(layout="constrained")
        axes = figure.subplots()
        for number in range(8):
            axes.plot([1, 10, 100], [number, number / 2, number / 3], label=f"{number}")
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.set_title(text[:20])
        return svg(figure, name="loss", title=text, description=text)


def test_text_of_any_origin_stays_text() -> None:
    plain = "a name that nothing is wrong with"
    assert_harmless(everything(HOSTILE), plain=everything(plain))
    shown = Parsed(everything(HOSTILE)).text.count("<script>document.title='owned'</script>")
    assert shown == Parsed(everything(plain)).text.count(plain)


def test_a_page_asks_for_nothing_and_says_so_to_the_browser() -> None:
    parsed = Parsed(everything())
    fetched = [
        value
        for tag, attributes in parsed.tags
        for name, value in attributes.items()
        if name in {"src", "srcset"} or (tag == "link")
    ]
    assert fetched == []
    [policy] = [
        attributes["content"]
        for tag, attributes in parsed.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert str(policy).startswith("default-src 'none'")
    assert "url(http" not in everything()


def test_an_address_that_is_no_page_on_the_web_is_text() -> None:
    assert link("console", "javascript:alert(1)") == "console"
    assert link("console", "s3://bucket/key") == "console"


def test_names_within_a_page_are_unique_where_headings_or_pictures_repeat() -> None:
    text = page(
        kind="Sweep",
        title="s",
        lead=[],
        sections=[Section("Trials", [lanes("x")]), Section("Trials", [plot("x")]), Section("???", [])],
        footer="",
    )
    names = [str(attributes["id"]) for _, attributes in Parsed(text).tags if "id" in attributes]
    assert len(names) == len(set(names))
    used = {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)}
    assert used <= set(names)


def test_a_plot_takes_the_colours_of_the_page_and_brings_no_style_sheet_of_its_own() -> None:
    drawn = plot("loss")
    written = {value for each in drawn.iter() for value in each.attrib.values()}
    assert any("var(--series-8)" in value for value in written)
    assert any("var(--text)" in value for value in written)
    assert not re.search(
        "#[0-9a-f]{6}", " ".join(value for value in written if "var(" not in value and value[:1] != "#")
    )
    assert not list(drawn.iter("style"))
    texts = [each.text for each in drawn.iter("text")]
    assert {"loss", "step", "20", "100"} <= set(texts)
    assert not [text for text in texts if "$" in str(text)]


def test_texts_and_elements_keep_their_order() -> None:
    made = element("p", "a", code("b"), "c", None, "d")
    append(made, "e")
    assert "".join(made.itertext()) == "abcde"


def test_everybody_can_read_it(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(everything())
    for seen in browser.check(tmp_path / "page.html", name="shell"):
        assert seen.requests == []
        assert "The run went on." in seen.text


def test_hostile_text_is_shown_and_does_nothing(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(everything(HOSTILE))
    for seen in browser.check(tmp_path / "page.html", name="shell-hostile", scripts=True):
        assert seen.requests == []
        assert "owned" in seen.text


def test_a_path_in_a_large_figure_breaks_behind_its_slashes_alone(browser: Browser, tmp_path: Path) -> None:
    tiles = [("Interruptions", "3", "1 of them with a notice"), ("Went on", "2 of 3", ""), ("Repeated", "6", "steps")]
    tiles += [("Rehearsal", "16.0 s", ""), ("Checkpoint folder", "/opt/ml/checkpoints", "")]
    (tmp_path / "page.html").write_text(
        page(
            kind="Run",
            title="Figures",
            status=badge("PASS", tone="good"),
            lead=[figures(tiles)],
            sections=[],
            footer="today",
        )
    )
    with browser.open_page(tmp_path / "page.html", name="figures") as opened:
        opened.look(width=1280)
        text = opened.value("[...document.querySelectorAll('.figures .value')].at(-1).textContent")
        # A part of a path that stands in one line has one box, and a broken one has more.
        boxes = opened.value(
            "[...[...document.querySelectorAll('.figures .value')].at(-1).childNodes].filter(each => each.data).map("
            "each => { const part = document.createRange(); part.selectNode(each);"
            " return part.getClientRects().length })"
        )
    assert text == "/opt/ml/checkpoints"
    assert set(boxes) == {1}
    assert len(boxes) > 1


def test_a_printed_page_shows_what_is_folded(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(everything())
    with browser.open_page(tmp_path / "page.html", name="shell") as opened:
        assert "All of them." not in opened.look(width=720).text
        assert "All of them." in opened.look(width=720, printed=True).text


def test_the_style_of_a_section_is_part_of_the_style_sheet() -> None:
    made = page(
        kind="Run", title="a", lead=[], footer="b",
        sections=[Section("One", ["x"], style=".one{color:red}"), Section("Two", ["y"])],
    )  # fmt: skip
    assert made.count("<style>") == 1
    assert ".one{color:red}</style>" in made


def test_an_axis_of_time_has_whole_units() -> None:
    spans = [Span(0, 75, "trained", "trained")]
    made = bars([Lane("a", spans)], name="b", caption="c", unit="seconds", legend={"trained": "trained"})
    texts = ["".join(each.itertext()) for each in made.iter("text")]
    assert texts == ["0s", "15s", "30s", "45s", "1m", "1m 15s"]
