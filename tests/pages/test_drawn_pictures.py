"""The pictures of pages in docs/ are those that commands draw today, and docs/ shows all of them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.pages.drawn_pictures import FOLDER, write


def words(path: Path) -> list[str]:
    """The texts of a picture. Its lines may differ in the last digit from machine to machine."""
    root = ET.parse(path).getroot()  # noqa: S314 - our own picture
    return ["".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_each_picture_has_the_words_of_today(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.option.update_snapshots:
        write()
    write(tmp_path)
    drawn = {path.name: words(path) for path in tmp_path.glob("*.svg")}
    assert {path.name: words(path) for path in FOLDER.glob("*.svg")} == drawn, "python -m tests.pages.drawn_pictures"
    assert all(drawn.values())


def test_each_picture_is_shown() -> None:
    shown = "".join(page.read_text() for page in FOLDER.parents[1].glob("*.md"))
    assert [path.name for path in FOLDER.glob("*.svg") if f"pictures/drawn/{path.name})" not in shown] == []
