"""Each fenced block of each page, and its test. `python -m tests.pages.every_block` counts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.pages.shown import Block, blocks_of

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").glob("*.md"))]
GENERATED = {"docs/command-reference.md": "tests/spotkeep_cli/test_command_reference.py"}
"""Pages that a test compares as a whole with the generator of the page."""
_BY_LANGUAGE = {"yaml": "parsed as a job file", "json": "parsed as JSON", "mermaid": "drawn from its text"}


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A block with its place.

    Attributes:
        page: The path of the page in the repository.
        line: The number of the line of its first fence.
        block: The block.
    """

    page: str
    line: int
    block: Block

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def way(self) -> str | None:
        """The way in which the block is tested, or None."""
        block = self.block
        if self.page in GENERATED:
            return "generated"
        if block.world:
            return "compared" if block.argument or block.has_prompts else "run"
        if block.script or block.test:
            return "run"
        if block.file:
            return "run as a file"
        if block.reason:
            return f"not run: {block.reason}"
        return _BY_LANGUAGE.get(block.language)


def placed_blocks() -> list[Placed]:
    """Return the blocks of all pages, in order."""
    return [
        Placed(page=str(page.relative_to(PROJECT)), line=text.count("\n", 0, block.start), block=block)
        for page in PAGES
        for text in [page.read_text()]
        for block in blocks_of(text)
    ]


def counts() -> str:
    """Return a line with the number of blocks for each way."""
    ways = Counter(placed.way or "without a way" for placed in placed_blocks())
    return ", ".join(f"{ways[way]} {way}" for way in sorted(ways))


if __name__ == "__main__":
    print(counts())
