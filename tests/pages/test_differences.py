"""The difference that `docs/training-scripts.md` shows is the one between two scripts of an example."""

from __future__ import annotations

import difflib
from pathlib import Path

from tests.pages.code import PROJECT
from tests.pages.every_block import placed_blocks

EXAMPLE = PROJECT / "examples" / "pytorch-digits"


def test_the_page_shows_the_whole_difference_of_the_example() -> None:
    here = f"tests/pages/{Path(__file__).name}"
    [block] = [placed.block for placed in placed_blocks() if placed.block.test == here]
    plain, resumable = ((EXAMPLE / name).read_text().splitlines() for name in ("plain.py", "train.py"))
    lines = [line for line in difflib.unified_diff(plain, resumable, n=0, lineterm="") if line[:1] in "+-"][2:]
    code = [line for line in lines if "import" in line or line[1:].startswith("    ")]
    shown = block.content.splitlines()
    assert [line for line in shown if line[:1] in {"+", "-"}] == code
    assert [line[1:] for line in shown if line.startswith(" ")] == [
        line for line in resumable if line in {text[1:] for text in shown if text.startswith(" ")}
    ]
