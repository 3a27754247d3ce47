"""The whole site in a browser, from a folder. It asks no host, its search finds pages, and its pictures are there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs.site.hooks import ROOT, SCRIPTS

if TYPE_CHECKING:
    from tests.browser import Browser

pytestmark = pytest.mark.long

PAGES = ("index", "tutorial", "train", "operate", "reference", "contribute", "architecture", "reference/python")
_PATIENCE_SECONDS = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with the scripts that `make docs` installs."""
    if not SCRIPTS.exists():
        subprocess.run(["make", "-o", "setup", "docs"], cwd=ROOT, check=True)
    built = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return built


def test_pages_ask_no_host_and_show_their_pictures(site: Path, browser: Browser) -> None:
    for name in PAGES:
        with browser.open_page(site / f"{name}.html", name=f"site-{name.replace('/', '-')}", scripts=True) as opened:
            seen = opened.look(width=1280)
            asked = [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))]
            assert asked == [], name
            assert seen.scroll_width <= 1280, name
            broken = "[...document.images].filter(each => !each.naturalWidth).map(each => each.src)"
            assert opened.value(broken) == [], name


def test_the_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    found = "[...document.querySelectorAll('.md-search-result__link')].map(each => each.getAttribute('href'))"
    with browser.open_page(site / "index.html", name="site-search", scripts=True) as opened:
        opened.value("document.querySelector('[data-md-component=search-query]').focus()")
        opened.value(
            "(field => { field.value = 'keep_alive'; field.dispatchEvent(new Event('keyup', {bubbles: true}));"
            " field.dispatchEvent(new Event('input', {bubbles: true})) })"
            "(document.querySelector('[data-md-component=search-query]'))"
        )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (links := opened.value(found)) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert any("warm-pools" in link for link in links), links


def test_files_for_programs_are_published(site: Path) -> None:
    for name in ("job.schema.json", "json/ps.schema.json", "llms.txt", "SKILL.md"):
        assert (site / name).is_file(), name
    index = (site / "llms.txt").read_text()
    assert "](tutorial.html)" in index
    assert "](SKILL.md)" in index
