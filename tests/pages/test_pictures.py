"""The pictures are those of the outputs that pages show, and pages show all of them."""

from __future__ import annotations

import pytest

from tests.pages.pictures import DOCS, FOLDER, PICTURES, svg, write


def test_each_picture_is_drawn_from_the_output_of_its_page(request: pytest.FixtureRequest) -> None:
    if request.config.option.update_snapshots:
        write()
    drawn = {f"{name}.svg": svg(picture, name=name) for name, picture in PICTURES.items()}
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    assert sorted(kept) == sorted(drawn), "python -m tests.pages.pictures"
    assert [name for name in kept if kept[name] != drawn[name]] == [], "python -m tests.pages.pictures"


def test_a_picture_asks_no_other_host() -> None:
    assert [path.name for path in FOLDER.glob("*.svg") if "url(" in path.read_text().replace("url(#", "")] == []


def test_each_picture_is_shown() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("site/pages/*.md")]
    shown = "".join(page.read_text() for page in pages)
    assert [name for name in PICTURES if f"pictures/{name}.svg)" not in shown] == []
