"""The look at pages finds a page that a reader cannot use, and CI cannot leave it out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium, running

if TYPE_CHECKING:
    from tests.browser import Browser

GOOD = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>t</title>'
    '<meta name="viewport" content="width=device-width"></head><body><main>{}</main></body></html>'
)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('<h1>t</h1><div style="width: 900px">x</div>', "beyond the right edge"),
        ('<h1>t</h1><img src="data:image/png;base64,">', "image-alt"),
        ('<h1>t</h1><p style="color: #bbb; background: #fff">pale</p>', "color-contrast"),
        ("<p>no heading</p>", "page-has-heading-one"),
    ],
)
def test_a_page_that_somebody_cannot_read_is_found(browser: Browser, tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "page.html").write_text(GOOD.format(content))
    with pytest.raises(AssertionError, match=found):
        browser.check(tmp_path / "page.html", name="found")


def test_what_a_page_asks_for_and_what_its_scripts_do_is_seen(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.css").write_text("p { margin: 0 }")
    script = "<script>document.querySelector('h1').textContent = 'by a script'</script>"
    (tmp_path / "page.html").write_text(GOOD.format(f"<h1>plain</h1><link rel=stylesheet href=page.css>{script}"))
    for scripts, text in ((False, "plain"), (True, "by a script")):
        with browser.open_page(tmp_path / "page.html", name="asked", scripts=scripts) as opened:
            seen = opened.look(width=390)
        assert seen.requests == [(tmp_path / "page.css").as_uri()]
        assert seen.text.strip() == text


def test_a_chromium_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTKEEP_CHROMIUM", "/nowhere/chromium")
    program = chromium()
    assert program == "/nowhere/chromium"
    with pytest.raises(AssertionError, match="there is no Chromium at /nowhere/chromium"), running(program):
        pass


def test_ci_names_its_chromium_so_that_no_test_of_a_page_is_skipped() -> None:
    script = (Path(__file__).parents[1] / ".ci" / "run").read_text()
    assert script.index("export SPOTKEEP_CHROMIUM=") < script.index("apt-get install") < script.index("make setup")
