"""The site's pages that are no files of docs/, for MkDocs.

Pages of docs/ link sources, tests and examples. The site has a page for each of them, so no link leaves it. README.md
is the site's first page. `pages/` holds the first pages of the groups and the pages of the Python API.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Section
from mkdocs.structure.pages import Page

from docs.site.job_file_page import job_file_page

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "site" / "pages"
SCRIPTS = ROOT / ".spotkeep" / "site-scripts" / "node_modules"
"""The scripts of package.json, as `make docs` installs them."""

SKILL = ROOT / "cli" / "spotkeep_cli" / "SKILL.md"
"""The instructions for assistants. The wheel has them too."""

_ASSETS = {
    "assets/mermaid.js": SCRIPTS / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js",
    "assets/iframe-worker.js": SCRIPTS / "iframe-worker" / "shim" / "index.js",
    "assets/site.css": ROOT / "docs" / "site" / "site.css",
}
_FENCE = re.compile(r"^(?P<fence> *`{3,})[^\n]*\n.*?^(?P=fence) *$", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".ipynb": "json", ".sh": "bash"}
_MORE_TICKS = "`" * 8
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def page_of(path: str) -> str:
    """Return the site's page of a file or folder of the repository.

    Args:
        path: Relative to the repository, `docs/fleets.md`.
    """
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"repository/{path}/index.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def with_links_of_the_site(text: str, *, path: str, page: str) -> str:
    """Return a page's Markdown with its links to files of the repository leading to their pages.

    Args:
        text: The Markdown.
        path: The file that it is from, relative to the repository.
        page: Its page.
    """

    def link(match: re.Match[str]) -> str:
        target = _target(match["target"], path=path)
        if target is None:
            return match[0]
        return f"]({posixpath.relpath(page_of(target), posixpath.dirname(page) or '.')}{match['anchor'] or ''})"

    return _outside_of_fences(text, lambda prose: _LINK.sub(link, prose))


def linked_files(text: str, *, path: str) -> Iterator[str]:
    """Yield the files and folders of the repository, outside of docs/, that a page links.

    Args:
        text: The Markdown.
        path: The file that it is from, relative to the repository.
    """
    for match in _LINK.finditer(_FENCE.sub("", text)):
        target = _target(match["target"], path=path)
        if target is not None and not target.startswith("docs/"):
            yield target


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of docs/.

    Args:
        files: The files of docs/.
        config: The configuration of mkdocs.yml.
    """
    missing = [str(source) for source in _ASSETS.values() if not source.exists()]
    if missing:
        raise PluginError(f"{missing[0]} is missing. `make docs` installs the scripts and builds the site")
    for name, source in _ASSETS.items():
        files.append(File.generated(config, name, content=source.read_bytes()))
    for own in sorted(PAGES.rglob("*.md")):
        _add(files, config, own.relative_to(PAGES).as_posix(), own.read_text())
    _add(files, config, "reference/job-file.md", job_file_page())
    open_paths = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))] + ["README.md"]
    seen = set(open_paths)
    while open_paths:
        path = open_paths.pop()
        if not path.startswith("docs/"):
            _add(files, config, page_of(path), _page_of_source(path))
        if path.endswith(".md"):
            more = set(linked_files((ROOT / path).read_text(), path=path)) - seen
            seen |= more
            open_paths += sorted(more)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Lead a page's links to files of the repository to their pages.

    Args:
        markdown: The page's text.
        page: The page.
    """
    source = page.file.abs_src_path
    if source is None:
        return markdown
    return with_links_of_the_site(markdown, path=os.path.relpath(source, ROOT), page=page.file.src_uri)


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Refuse a page that loads something of another host, a first page without a picture, and a list shown as text.

    Args:
        output: The page's HTML.
        page: The page.
    """
    if loaded := loaded_from_other_hosts(output):
        raise PluginError(f"{page.file.src_uri} loads {', '.join(loaded)}. The site works without a network")
    if picture := picture_without_text(output):
        raise PluginError(f"{page.file.src_uri} has a picture without a text in its place: {picture}")
    if is_first_of_group(page) and "<img" not in output:
        raise PluginError(f"{page.file.src_uri} is the first page of a group and has no picture")
    if line := list_in_paragraph(output):
        raise PluginError(f"{page.file.src_uri} shows a list as text, since no empty line is before it: {line}")
    return output


def on_post_build(*, config: MkDocsConfig) -> None:
    """Publish the two files for assistants. The index names the pages as the site has them.

    Args:
        config: The configuration of mkdocs.yml.
    """
    site = Path(config.site_dir)
    (site / SKILL.name).write_bytes(SKILL.read_bytes())
    index = site / "llms.txt"
    index.write_text(re.sub(r"\]\((?!SKILL)([\w-]+)\.md\)", r"](\1.html)", index.read_text()))


def loaded_from_other_hosts(html: str) -> list[str]:
    """Return the addresses of other hosts that a browser asks when it shows a page.

    Args:
        html: The page.
    """
    loading = re.findall(r"<(?:script|link|img|iframe|source|video)\b[^>]*", html)
    return [found for tag in loading for found in re.findall(r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""", tag)]


def picture_without_text(html: str) -> str | None:
    """Return a picture of a page that a reader without eyes misses, or None.

    Args:
        html: The page.
    """
    return next((tag for tag in re.findall(r"<img\b[^>]*>", html) if not re.search(r"\balt=\"[^\"]+\"", tag)), None)


def is_first_of_group(page: Page) -> bool:
    """Return True for the page that a group of the navigation begins with.

    Args:
        page: The page.
    """
    group = page.parent
    return isinstance(group, Section) and group.parent is None and group.children[0] is page


def list_in_paragraph(html: str) -> str | None:
    """Return a line of a list that a page shows as text of a paragraph, or None.

    Args:
        html: The page.
    """
    for paragraph in re.findall(r"<p>(.*?)</p>", html, flags=re.DOTALL):
        if found := re.search(r"^(?:[-*]|\d\.) .*", paragraph, flags=re.MULTILINE):
            return found[0]
    return None


def _add(files: Files, config: MkDocsConfig, name: str, text: str) -> None:
    files.append(File.generated(config, name, content=text))


def _target(link: str, *, path: str) -> str | None:
    """Return the file of the repository that a link leads to, or None if there is none."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target if not target.startswith("..") and (ROOT / target).exists() else None


def _outside_of_fences(text: str, change: Callable[[str], str]) -> str:
    changed, end = [], 0
    for fence in _FENCE.finditer(text):
        changed += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*changed, change(text[end:])])


def _page_of_source(path: str) -> str:
    source = ROOT / path
    if path.endswith(".md"):
        return with_links_of_the_site(source.read_text(), path=path, page=page_of(path))
    if source.is_dir():
        names = "\n".join(f"- `{child.name}`" for child in sorted(source.iterdir()) if not child.name.startswith("__"))
        return f"{_UNSEARCHED}# {path}\n\n{names}\n"
    language = _LANGUAGES.get(source.suffix, "text")
    return f"{_UNSEARCHED}# {path}\n\n{_MORE_TICKS}{language}\n{source.read_text()}\n{_MORE_TICKS}\n"
