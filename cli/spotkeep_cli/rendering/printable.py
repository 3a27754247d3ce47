"""Makes text of unknown origin harmless.

No control sequence steers the terminal but those that Rich makes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from spotkeep_fleet.printable_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment


def printable_line(text: str, *, longest: int | None = None) -> str:
    """Write out unprintable characters, as Python would in a string, and shorten text beyond the limit."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


class PrintableConsole(Console):
    """Writes text out that would steer the terminal, and takes no text for Rich's markup.

    Colours, cursor movements and links that Rich makes itself are not in the text of a segment.

    Args:
        stderr: True if it writes to standard error.
    """

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, soft_wrap=False, emoji=False, markup=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as Rich does. Everything that is printed goes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def coloured(text: str) -> Text:
    """Return a text with its own colours, and without any other control sequence."""
    lines = printable(text, colours=True).split("\n")
    return Text("\n").join(Text.from_ansi(line) for line in lines)
