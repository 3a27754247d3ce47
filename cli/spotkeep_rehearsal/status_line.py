"""The line at the lower edge of a terminal, with the run at work, its time and the last line of its output."""

from __future__ import annotations

import contextlib
import os
import shutil
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from spotkeep_fleet.printable_text import printable

_REDRAWN_EVERY_SECONDS = 0.5
_BAR_WIDTH = 20
_CLEAR_LINE = "\r\x1b[K"
_WIDEST = 100


def text_width() -> int:
    """Return the columns that text may take, those of the terminal and at most 100."""
    return min(shutil.get_terminal_size(fallback=(_WIDEST, 24)).columns, _WIDEST)


def wrapped(text: str, *, indent: str = "", hanging: str = "") -> list[str]:
    """Wrap text to the terminal. A word that is longer, such as a path, has a line of its own.

    Args:
        text: The text of one paragraph.
        indent: The beginning of the first line.
        hanging: The beginning of the others.
    """
    return textwrap.wrap(
        text,
        text_width(),
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


class StatusLine:
    """Shows that a run goes on. Lines that are written stand above it. Without a terminal it writes them alone.

    Args:
        stream: The stream to write to.
        began: The begin of the elapsed time, in seconds of `time.monotonic`.
    """

    def __init__(self, stream: TextIO, *, began: float) -> None:
        self._stream, self._began = stream, began
        self._is_drawn = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._writing = threading.Lock()
        self._doing = ""
        self._last_line = ""
        self._run_began = began
        self._expected_seconds: float | None = None

    def write(self, text: str) -> None:
        """Write a line of text."""
        with self._writing:
            self._stream.write((_CLEAR_LINE if self._doing else "") + printable(text) + "\n" + self._line())
            self._stream.flush()

    def said(self, line: str) -> None:
        """Take a line of the run's output."""
        if line.strip():
            self._last_line = line.strip()

    @contextlib.contextmanager
    def showing(self, doing: str, *, expected_seconds: float | None) -> Iterator[None]:
        """Draw the line during this block.

        Args:
            doing: The present work, such as `interrupted`.
            expected_seconds: The seconds that it will take, about. None where that is not known.
        """
        if not self._is_drawn:
            yield
            return
        self._doing, self._last_line = doing, ""
        self._run_began, self._expected_seconds = time.monotonic(), expected_seconds
        over = threading.Event()
        drawing = threading.Thread(target=self._draw_until, args=(over,), name="status line", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()
            with self._writing:
                self._doing = ""
                self._stream.write(_CLEAR_LINE)
                self._stream.flush()

    def _draw_until(self, over: threading.Event) -> None:
        while not over.is_set():
            with self._writing, contextlib.suppress(OSError):
                self._stream.write(_CLEAR_LINE + self._line())
                self._stream.flush()
            over.wait(_REDRAWN_EVERY_SECONDS)

    def _line(self) -> str:
        """Give the line, cut to the width of the terminal. Empty where nothing is drawn."""
        if not self._doing:
            return ""
        now = time.monotonic()
        parts = [f"{now - self._began:6.1f} s  {self._doing}"]
        if self._expected_seconds:
            share = min(0.99, (now - self._run_began) / self._expected_seconds)
            full = int(share * _BAR_WIDTH)
            parts.append(f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] about {share * 100:.0f}%")
        if self._last_line:
            parts.append(self._last_line)
        return printable("  ".join(parts)).replace("\n", " ")[: shutil.get_terminal_size().columns - 1]
