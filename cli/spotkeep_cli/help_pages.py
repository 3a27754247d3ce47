"""`spotkeep help`: the pages of the documentation at the command line.

Python 3.9 and the standard library suffice. A checkout has the pages in `docs/`, and an installed wheel carries them.
"""

from __future__ import annotations

import difflib
import pydoc
import re
import sys
from typing import TYPE_CHECKING

from spotkeep_constructs.carried import carried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_DONE, _USAGE = 0, 2
_HEADING = re.compile(r"(#{1,6}) (.*)")
_CODE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^()\s]+)\)")
_MOST_FOUND = 12


def topics() -> dict[str, Path]:
    """Return the pages by their topic, which is the name of the file. Example: `job-file`."""
    return {path.stem: path for path in sorted(carried("docs").glob("*.md"))}


def page(topic: str, section: str = "") -> str | None:
    """Return a page as text, or the sections of it whose headings have some words.

    Args:
        topic: The topic. Example: `runbook`.
        section: Words of a heading. Example: `a record cannot be read`. The whole page without them.

    Returns:
        The text. None where there is no such page, or no such section in it.
    """
    path = topics().get(topic)
    if path is None:
        return None
    lines = list(_readable(path.read_text(encoding="utf-8")))
    if not section:
        return "\n".join(line for line, _ in lines) + "\n"
    wanted, level = [], 7
    for line, depth in lines:
        if depth and depth <= level:
            level = depth if section.lower() in line.lower() else 7
        if level < 7:
            wanted.append(line)
    return "\n".join(wanted) + "\n" if wanted else None


def _readable(markdown: str) -> Iterator[tuple[str, int]]:
    """Yield each line of a page with its depth as a heading, or 0. Links name the topic or the address of their end."""
    for number, part in enumerate(_CODE.split(_COMMENT.sub("", markdown))):
        in_code = number % 2 == 1
        for line in (part if in_code else _LINK.sub(_link, part)).strip("\n").splitlines():
            heading = None if in_code else _HEADING.match(line)
            yield line, len(heading[1]) if heading else 0
        yield "", 0


def _link(found: re.Match[str]) -> str:
    text, target = found[1], found[2]
    if "://" in target:
        return f"{text} <{target}>"
    topic = target.partition("#")[0]
    return f"{text} [{topic[: -len('.md')]}]" if topic.endswith(".md") and "/" not in topic else text


def main(arguments: Sequence[str]) -> int:
    """Run `spotkeep help`.

    Args:
        arguments: The words after `help`, a topic and words of a heading.

    Returns:
        The exit code. It is 2 where there is no such page.
    """
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        _show(_contents())
        return _DONE
    topic, section = words[0].lower(), " ".join(words[1:]).rstrip(".")
    text = page(topic, section)
    if text is not None:
        _show(text)
        return _DONE
    sys.stderr.write(_unknown(topic, section))
    return _USAGE


def _contents() -> str:
    width = max(map(len, topics()))
    lines = [f"  {topic:<{width}}  {_title(path)}" for topic, path in topics().items()]
    return "\n".join(
        [
            "The pages of the documentation. `spotkeep help TOPIC` prints one, `spotkeep help TOPIC WORDS` a section.",
            "`spotkeep help COMMAND` prints the help of a command.",
            "",
            *lines,
            "",
        ]
    )


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _unknown(topic: str, section: str) -> str:
    known = topics()
    if topic in known:
        headings = [line for line, depth in _readable(known[topic].read_text(encoding="utf-8")) if depth == 2]
        listed = "\n".join(f"  {line.lstrip('# ')}" for line in headings)
        return f"Error: the page {topic} has no section {section!r}\nHint: its sections are\n{listed}\n"
    near = difflib.get_close_matches(topic, known, n=3)
    found = [
        f"spotkeep help {name} {line.lstrip('# ')!r}"
        for name, path in known.items()
        for line, depth in _readable(path.read_text(encoding="utf-8"))
        if depth > 1 and topic in line.lower()
    ]
    if near:
        hint = f"did you mean {', '.join(near)}?"
    elif found:
        hint = "sections about it:\n  " + "\n  ".join(found[:_MOST_FOUND])
    else:
        hint = "`spotkeep help` lists the pages"
    return f"Error: there is no page {topic!r}\nHint: {hint}\n"


def _show(text: str) -> None:
    if sys.stdout.isatty():
        pydoc.pager(text)
    else:
        sys.stdout.write(text)
