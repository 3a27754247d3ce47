"""The code blocks of a page: their commands, and a comparison of their outputs with those of the day. Pure.

A comment before a block names the world in which its commands run, or the reason why they do not run:

    <!-- shown:local -->
    <!-- shown:text/wrong-settings -->
    <!-- runs:loop -->
    <!-- file:train.py -->
    <!-- tested:tests/architecture/test_recipe.py -->
    <!-- not-run:opens-a-shell -->
    <!-- seen:verdict.html -->

* `shown` names the world in which the commands run. A block of one world sees the effects of the blocks of that world
  before it. Behind a slash stands the name of a text, and the block is this output alone.
* `runs` names a script of `tests/pages/scripts/`, into which the code goes.
* `file` names a file that the block is, in the folder where the commands run.
* `tested` names another test that reads the page and runs the block.
* `not-run` gives one of the reasons in `REASONS`.
* `seen` stands before a picture, and names the page that it shows, in the folder where the commands run.

A line `...` stands for any lines. A marker is one word, so that no count of a page's sentences meets it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

ANY_LINES = "..."
REASONS = {
    "asks-an-account": "It calls AWS in an account. Its lines are read up to the request.",
    "installs-packages": "It needs a package index. Its extras exist.",
    "is-a-diagram": "It is a drawing in characters.",
    "is-a-part": "It is a part of a script, a document or a log of the reader.",
    "is-measured": "It is the output of one long run, with the figures of its day.",
    "opens-a-shell": "It waits for a person.",
    "publishes": "It signs or uploads a release.",
    "runs-for-minutes": "It is a benchmark, a torture or a rehearsal, and a target of make runs it.",
}
"""The reasons why a block does not run. A new one is reviewed."""
_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<kind>shown|not-run|file|runs|tested):(?P<marker>\S+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[a-z]*)\n"
    r"(?P<content>.*?)^(?P=indent)```$",
    flags=re.MULTILINE | re.DOTALL,
)
_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b(?:[a-z]+-)?[0-9a-f]{17,}\b"), "ID"),
    (re.compile(r"(?<=-)[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"(?<![A-Za-z])[-+]?\d[\d.,:]*(?:e[-+]?\d+)?(?: ?(?:ms|[smhdB]|[kMGT]i?B)\b(?: \d+[smh]\b)*)?%?"), "N"),
    # Money of a run of seconds is next to nothing, and a saving of it may be below zero.
    (re.compile(r"[-<]+(?=\$)"), ""),
    (re.compile(r"[▁▂▃▄▅▆▇█]+"), "▁"),
    # A row of a plot, behind its axis.
    (re.compile(r"(?<=[│┤]).*"), ""),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One command of a block with the output that the page shows.

    Attributes:
        typed: The lines of the command, as the page has them. None for a block that is an output alone.
        command: The command on one line, without the prompt.
        output: The lines that follow.
    """

    typed: tuple[str, ...]
    command: str
    output: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page.

    Attributes:
        world: The word after "shown", or None.
        argument: The word after a slash. The block is then an output alone.
        reason: The reason why the block is not run, or None.
        file: The name of the file that the block is, or None.
        script: The name of the script into which the code goes, or None.
        test: The path of the test that runs the block, or None.
        language: The word behind the fence.
        content: The text between the fences, without their indentation.
        start: The place of the content in the page.
        end: Its end.
        indent: The indentation of the fences.
    """

    world: str | None
    argument: str
    reason: str | None
    file: str | None
    script: str | None
    test: str | None
    language: str
    content: str
    start: int
    end: int
    indent: str

    @property
    def has_prompts(self) -> bool:
        """True if the block shows outputs too. Without a prompt, each line of it is a command."""
        return self.content.startswith("$ ")

    def commands(self) -> list[Shown]:
        """Return the commands with their outputs. Code is one command."""
        lines = self.content.splitlines()
        if self.argument:
            return [Shown(typed=(), command="", output=tuple(lines))]
        if self.language == "python":
            return [Shown(typed=tuple(lines), command=self.content, output=())]
        return list(_prompted(lines) if self.has_prompts else _lines(lines))


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    blocks = []
    for found in _BLOCK.finditer(page):
        kind, marker = found["kind"], found["marker"] or ""
        world, _, argument = marker.partition("/") if kind == "shown" else ("", "", "")
        blocks.append(
            Block(
                world=world or None,
                argument=argument,
                reason=marker if kind == "not-run" else None,
                file=marker if kind == "file" else None,
                script=marker if kind == "runs" else None,
                test=marker if kind == "tested" else None,
                language=found["language"],
                content=re.sub(rf"^{found['indent']}", "", found["content"], flags=re.MULTILINE),
                start=found.start("content"),
                end=found.end("content"),
                indent=found["indent"],
            )
        )
    return blocks


def stable(line: str) -> str:
    """Return a line without its measured numbers, times, ids and widths."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.strip()


def exactly(line: str) -> str:
    """Return a line without the spaces at its end."""
    return line.rstrip()


def agrees(shown: Sequence[str], printed: Sequence[str], *, form: Callable[[str], str]) -> bool:
    """Return True if an output is the one that a page shows.

    Args:
        shown: The lines of the page, among them `...`.
        printed: The lines of the day.
        form: The part of a line that must be the same, `exactly` or `stable`.
    """
    return _matched(_trimmed(shown), _trimmed(printed), form) is not None


def renewed(shown: Sequence[str], printed: Sequence[str], *, form: Callable[[str], str]) -> list[str]:
    """Return the lines for the page, from the output of the day.

    Lines that the page leaves out stay left out, as long as the lines beside them are still printed.

    Args:
        shown: The lines of the page.
        printed: The lines of the day.
        form: The part of a line that must be the same.
    """
    if agrees(shown, printed, form=form):
        return list(shown)
    shown, printed = _trimmed(shown), _trimmed(printed)
    kept: list[str] = []
    matcher = SequenceMatcher(None, [form(line) for line in shown], [form(line) for line in printed], autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            kept += printed[begin:end]
        elif {line.strip() for line in shown[first:last]} == {ANY_LINES}:
            kept += shown[first:last]
        else:
            kept += printed[begin:end]
    return kept if agrees(kept, printed, form=form) else list(printed)


def _prompted(lines: Sequence[str]) -> Iterator[Shown]:
    typed: list[str] = []
    output: list[str] = []
    for line in lines:
        if typed and not output and _goes_on(typed):
            typed.append(line)
        elif line.startswith("$ "):
            if typed:
                yield _shown(typed, output)
            typed, output = [line], []
        else:
            output.append(line)
    yield _shown(typed, output)


def _lines(lines: Sequence[str]) -> Iterator[Shown]:
    typed: list[str] = []
    for line in lines:
        typed.append(line)
        if line.strip() and not _goes_on(typed):
            yield _shown(typed, [])
            typed = []


def _goes_on(typed: Sequence[str]) -> bool:
    """Return True if a shell would wait for more of a command: behind a backslash, in quotes, or in a loop."""
    text = "\n".join(typed)
    if text.endswith("\\"):
        return True
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return True
    return words.count("do") > words.count("done")


def _shown(typed: Sequence[str], output: Sequence[str]) -> Shown:
    lines = (line.removeprefix("$ ").strip() for line in typed)
    words = "".join(f"{line[:-1].strip()} " if line.endswith("\\") else f"{line}\n" for line in lines)
    return Shown(typed=tuple(typed), command=words.partition("  #")[0].strip(), output=tuple(output))


def _trimmed(lines: Sequence[str]) -> list[str]:
    trimmed = [line.rstrip() for line in lines]
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    while trimmed and not trimmed[0]:
        trimmed.pop(0)
    return trimmed


def _matched(shown: list[str], printed: list[str], form: Callable[[str], str]) -> int | None:
    """Return the number of lines of the output that the page's lines take, or None if they do not take all of it."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == ANY_LINES:
            parts.append([])
        else:
            parts[-1].append(form(line))
    lines = [form(line) for line in printed]
    if len(parts) == 1:
        return len(lines) if parts[0] == lines else None
    first, *middle, last = parts
    if lines[: len(first)] != first or (last and lines[-len(last) :] != last):
        return None
    at, end = len(first), len(lines) - len(last)
    for part in middle:
        place = next((k for k in range(at, end - len(part) + 1) if lines[k : k + len(part)] == part), None)
        if place is None:
            return None
        at = place + len(part)
    return len(lines) if at <= end else None
