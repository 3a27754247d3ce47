"""Passes the script's lines to the search for its metrics, and prints the search's events between them.

The search is a process of its own. It gets whole lines, as far as its pipe has room. Where the search is slow or gone,
it misses lines, and the training never waits. Standard output then goes through the runner, so no event of Spotkeep
stands inside a line of the script.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from spotkeep_fleet.training_spec import SearchedMetric

from .layout import import_root
from .metric_search import MOST_LINE_BYTES, written_metrics

SEARCH_COMMAND = "search-metrics"
_LINE_ENDS = re.compile(rb"[\r\n]+")
_FINISH_SECONDS, _FINISH_SECONDS_ON_NOTICE = 60.0, 5.0
"""On a busy machine a short script may have ended before the search has begun."""
_MOST_WAITING_BYTES = 1 << 16


def write_all(descriptor: int, raw: bytes) -> None:
    """Write all of it. Write nothing where no reader is left, for the command must still be able to write."""
    view = memoryview(raw)
    try:
        while len(view):
            view = view[os.write(descriptor, view) :]
    except OSError:
        return


class BetweenLines:
    """A stream of the script's, passed on as it comes, with Spotkeep's lines between its own.

    Args:
        descriptor: The file descriptor to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writing = threading.Lock()
        self._at_line_start = True
        self._waiting = b""

    def pass_on(self, piece: bytes) -> None:
        """Write the script's output, and the events that wait for the end of its line.

        Args:
            piece: A piece of output. Not empty.
        """
        with self._writing:
            head, newline, rest = piece.partition(b"\n")
            if self._waiting and newline:
                piece, self._waiting = head + newline + self._waiting + rest, b""
            self._at_line_start = piece.endswith(b"\n")
            write_all(self._descriptor, piece)

    def insert(self, line: bytes) -> None:
        """Write a line of Spotkeep, at once or when the script's has ended.

        Args:
            line: With its end.
        """
        with self._writing:
            if not self._at_line_start and len(self._waiting) + len(line) < _MOST_WAITING_BYTES:
                self._waiting += line
                return
            write_all(self._descriptor, self._break() + line)
            self._at_line_start = True

    def finish(self) -> None:
        """Write the events that still wait because the script's last line has no end."""
        with self._writing:
            if self._waiting:
                write_all(self._descriptor, self._break())
                self._at_line_start = True

    def _break(self) -> bytes:
        begun = b"" if self._at_line_start else b"\n"
        waiting, self._waiting = self._waiting, b""
        return begun + waiting


class MetricLines:
    """The search, from its start to its end.

    Args:
        metrics: The metrics to search for, by name.
        environment: The job's environment variables.
        output: Prints the search's events.
    """

    def __init__(
        self, metrics: Mapping[str, SearchedMetric], *, environment: Mapping[str, str], output: BetweenLines
    ) -> None:
        root = import_root()
        program = [sys.executable, root] if Path(root).is_file() else [sys.executable, "-m", "spotkeep"]
        self._output = output
        self._search = subprocess.Popen(
            [*program, SEARCH_COMMAND, written_metrics(metrics)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What is meant for the training's processes is not meant for it: it ends with its input.
            start_new_session=True,
        )
        assert self._search.stdin is not None  # noqa: S101 - it is a pipe
        self._input = self._search.stdin
        self._showing = threading.Lock()
        os.set_blocking(self._input.fileno(), False)
        self._printing = threading.Thread(target=self._print, name="metrics", daemon=True)
        self._printing.start()

    @property
    def pid(self) -> int:
        """The process id of the search."""
        return self._search.pid

    def show(self, line: bytes) -> None:
        """Show a line to the search. One that is slow or gone misses it.

        Args:
            line: Without its end.
        """
        with self._showing:
            if line and not self._input.closed:
                # No longer than a pipe takes whole or not at all.
                with contextlib.suppress(OSError):
                    os.write(self._input.fileno(), line[: MOST_LINE_BYTES - 1] + b"\n")

    def finish(self, *, on_notice: bool) -> None:
        """Let the search end, and print its last events. It is ended where it takes too long.

        Args:
            on_notice: True where the machine is about to be taken.
        """
        most_seconds = _FINISH_SECONDS_ON_NOTICE if on_notice else _FINISH_SECONDS
        with self._showing, contextlib.suppress(OSError):
            self._input.close()
        try:
            self._search.wait(most_seconds)
        except subprocess.TimeoutExpired:
            self._search.kill()
            self._search.wait()
        self._printing.join(most_seconds)
        self._output.finish()

    def _print(self) -> None:
        assert self._search.stdout is not None  # noqa: S101 - it is a pipe
        with self._search.stdout as found:
            for line in found:
                self._output.insert(line)


class ShownLines:
    """The lines of one stream, on their way to the search.

    Args:
        metrics: The search.
    """

    def __init__(self, metrics: MetricLines) -> None:
        self._metrics = metrics
        self._rest = b""

    def add(self, piece: bytes) -> None:
        """Show the lines that have ended with this piece of the stream."""
        *lines, rest = _LINE_ENDS.split(self._rest + piece)
        self._rest = rest[:MOST_LINE_BYTES]
        for line in lines:
            self._metrics.show(line)

    def finish(self) -> None:
        """Show the last line, which has no end."""
        self._metrics.show(self._rest)
        self._rest = b""
