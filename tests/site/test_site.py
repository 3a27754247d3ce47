"""The site that `make docs` builds: a dead link fails, nothing comes from another host, and sources have pages."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from docs.site.hooks import (
    PAGES,
    ROOT,
    linked_files,
    list_in_paragraph,
    loaded_from_other_hosts,
    page_of,
    picture_without_text,
    with_links_of_the_site,
)
from docs.site.job_file_page import GROUPS, SCHEMA, job_file_page


def _build(tmp_path: Path, **pages: str) -> None:
    """Build a site of a few pages with the rules of mkdocs.yml."""
    source = tmp_path / "docs"
    source.mkdir()
    (source / "index.md").write_text("# Start\n\n[other](other.md#a-part)\n")
    (source / "other.md").write_text("# Other\n\n## A part\n")
    for name, text in pages.items():
        (source / f"{name}.md").write_text(text)
    config = load_config(
        io.BytesIO((ROOT / "mkdocs.yml").read_bytes()),
        docs_dir=str(source),
        site_dir=str(tmp_path / "site"),
        nav=["index.md", "other.md"],
        hooks=[],
        plugins=["search"],
        extra_javascript=[],
        extra_css=[],
    )
    handler = logging.getLogger("mkdocs")
    handler.setLevel(logging.INFO)
    build(config)


def test_a_site_without_a_dead_link_is_built(tmp_path: Path) -> None:
    _build(tmp_path)
    assert "A part" in (tmp_path / "site" / "other" / "index.html").read_text()


@pytest.mark.parametrize(
    "text",
    ["[dead](nothing.md)", "[dead](index.md#nothing)", "[dead](#nothing)", "![dead](nothing.svg)", "[dead](folder/)"],
)
def test_a_dead_link_an_anchor_or_a_picture_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(Abort, match="warnings in strict mode"):
        _build(tmp_path, other=f"# Other\n\n## A part\n\n{text}\n")


def test_a_page_in_no_group_fails(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="warnings in strict mode"):
        _build(tmp_path, forgotten="# Forgotten\n")


def test_links_lead_to_the_pages_of_sources() -> None:
    text = "[a](../README.md#try-it) [b](../tests/security) [c](fleets.md) [d](../app.py)\n```\n[e](../app.py)\n```\n"
    assert with_links_of_the_site(text, path="docs/traps.md", page="traps.md") == (
        "[a](index.md#try-it) [b](repository/tests/security/index.md) [c](fleets.md) [d](repository/app.py.md)\n"
        "```\n[e](../app.py)\n```\n"
    )
    assert list(linked_files(text, path="docs/traps.md")) == ["README.md", "tests/security", "app.py"]
    assert with_links_of_the_site("[a](docs/traps.md)", path="README.md", page="index.md") == "[a](traps.md)"
    assert with_links_of_the_site("[a](../../docs/traps.md)", path="examples/own-app/README.md",
                                  page=page_of("examples/own-app/README.md")) == "[a](../../../traps.md)"  # fmt: skip


def test_a_page_that_asks_another_host_is_found() -> None:
    html = '<a href="https://aws.amazon.com"></a><script src="https://unpkg.com/x.js"></script><img src=//cdn/x.png>'
    assert loaded_from_other_hosts(html) == ["https://unpkg.com/x.js", "//cdn/x.png"]


def test_a_list_without_an_empty_line_before_it_is_found() -> None:
    assert list_in_paragraph("<p>Two things:\n- one\n- two</p>") == "- one"
    assert list_in_paragraph("<p>One - two</p><ul><li>one</li></ul>") is None


def test_a_picture_without_a_text_is_found() -> None:
    assert picture_without_text('<img alt="A verdict" src="a.svg">') is None
    assert picture_without_text('<img alt="" src="a.svg">') == '<img alt="" src="a.svg">'
    assert picture_without_text('<img src="a.svg">') == '<img src="a.svg">'


def test_the_page_of_the_job_file_has_each_field_once() -> None:
    schema = json.loads(SCHEMA.read_text())
    grouped = [field for fields in GROUPS.values() for field in fields]
    assert sorted(grouped) == sorted(schema["properties"]), "name new fields in GROUPS of docs/site/job_file_page.py"
    page = job_file_page()
    assert "| `name` | text | required |" in page
    assert "[VolumeRequest](#volumerequest)" in page
    assert "### VolumeRequest" in page


def test_pages_of_their_own_do_not_hide_pages_of_docs() -> None:
    assert [page for page in PAGES.rglob("*.md") if (ROOT / "docs" / page.relative_to(PAGES)).exists()] == []
