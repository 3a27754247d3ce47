"""Pictures of outputs that pages show, as a terminal shows them.

`python -m tests.pages.pictures` writes docs/pictures/.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.pages.shown import ANY_LINES, blocks_of

DOCS: Final = Path(__file__).parents[2] / "docs"
FOLDER: Final = DOCS / "pictures"
_STYLES: Final = (
    (r"^\$ .*", "bold white"),
    (r"\bPASS\b.*|✓|\bcompleted\b|●", "bold green"),
    (r"\bFAIL\b.*|✗|^Error:.*|\bLost its capacity\b", "bold red"),
    (r"▶|↻|\bresumed\b", "cyan"),
    (r"^(?:Next|Hint|Change): ?", "bold"),
    (r"[▁▂▃▄▅▆▇█]{2,}", "cyan"),
    (r"^[A-Z][A-Z -]+$|─+", "dim"),
    (r"https?://\S+|s3://\S+", "blue"),
)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A part of an output of a page.

    Attributes:
        page: The page of docs/.
        command: The command, as the page has it. With several of the same, the last one counts.
        first: The beginning of the first line. Empty for the first of the output.
        last: The beginning of the line behind the last one. Empty for the end.
        number: The number of the command among those that are the same, from 0.
    """

    page: str
    command: str
    first: str = ""
    last: str = ""
    number: int = 0

    def lines(self) -> list[str]:
        """Return the command and the part of its output."""
        outputs = [
            shown.output
            for block in blocks_of((DOCS / self.page).read_text())
            if block.world and not block.argument
            for shown in block.commands()
            if shown.command == self.command
        ]
        output = list(outputs[self.number])
        begin = next((k for k, line in enumerate(output) if line.startswith(self.first)), 0)
        end = next((k for k, line in enumerate(output) if self.last and line.startswith(self.last)), len(output))
        part = [line for line in output[begin:end] if line.strip() != ANY_LINES]
        while part and not part[-1].strip():
            part.pop()
        return [f"$ {self.command}", *part]


PICTURES: Final = {
    "rehearsal": Picture(
        page="tutorial.md", command="spotkeep rehearse -- python train.py", first="What was taken", number=1
    ),
    "tutorial-fail": Picture(
        page="tutorial.md", command="spotkeep rehearse -- python train.py", first="What was taken"
    ),
    "tutorial-describe": Picture(page="tutorial.md", command="spotkeep --local describe first", last="Next"),
    "tutorial-rehearsal": Picture(
        page="tutorial.md", command="spotkeep rehearse job.yaml --no-deploy", first="What was taken", last="Next"
    ),
    "describe": Picture(page="command-line.md", command="spotkeep --local describe digits-l", last="Next"),
    "account": Picture(page="command-line.md", command="spotkeep --local doctor --account", last="Next"),
    "doctor": Picture(
        page="command-line.md",
        command="spotkeep doctor job.yaml --set max_run=4hours --set max_wiat=1h --set 'command=python tran.py'",
    ),
}
"""The pictures by the names of their files."""


def svg(picture: Picture, *, name: str) -> str:
    """Draw a picture.

    Args:
        picture: Its content.
        name: The name of its file, which makes the names of its styles its own.
    """
    lines = picture.lines()
    console = Console(record=True, file=io.StringIO(), width=max(map(len, lines)) + 2, force_terminal=True)
    for line in lines:
        text = Text(line, no_wrap=True, overflow="ignore")
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        console.print(text, highlight=False, crop=False)
    drawn = console.export_svg(title="", theme=MONOKAI, unique_id=name)
    # The fonts of another host, which rich names, would not be asked for anyway.
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace(
        "Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    )


def write() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(svg(picture, name=name))


if __name__ == "__main__":
    write()
