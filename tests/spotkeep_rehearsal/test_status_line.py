"""A rehearsal shows from its first second that its run goes on, and elsewhere than at a terminal it writes lines."""

from __future__ import annotations

import io
import os
import time

import pytest

from spotkeep_rehearsal import status_line
from spotkeep_rehearsal.status_line import StatusLine, wrapped


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(text: str) -> list[str]:
    """Give what a terminal shows: a line of output may be overwritten."""
    return [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(status_line, "_REDRAWN_EVERY_SECONDS", 0.001)


def wait_for(terminal: Terminal, text: str) -> None:
    until = time.monotonic() + 30
    while text not in terminal.getvalue():
        assert time.monotonic() < until, terminal.getvalue()
        time.sleep(0.001)


def test_at_a_terminal_a_run_has_its_time_and_its_last_line_and_nothing_stays_of_it() -> None:
    terminal = Terminal()
    began = time.monotonic() - 12
    line = StatusLine(terminal, began=began)
    with line.showing("left alone", expected_seconds=None):
        wait_for(terminal, " s  left alone")
        seconds = float(terminal.getvalue().partition(" s  left alone")[0].removeprefix("\r\x1b[K"))
        assert 12 <= seconds <= time.monotonic() - began + 0.05
        line.said("\x1b[2Jepoch 3: loss 0.4")
        line.said("  ")
        wait_for(terminal, r"left alone  \x1b[2Jepoch 3: loss 0.4")
        line.write("a line above it")
        assert shown(terminal.getvalue())[-2] == "a line above it"
        assert "left alone" in shown(terminal.getvalue())[-1]
    line.write("done")
    assert shown(terminal.getvalue()) == ["a line above it", "done", ""]


def test_a_run_of_known_length_has_a_bar_that_does_not_say_that_it_is_full() -> None:
    terminal = Terminal()
    with StatusLine(terminal, began=time.monotonic()).showing("interrupted", expected_seconds=1e-6):
        wait_for(terminal, "interrupted  [###################.] about 99%")


def test_it_is_no_wider_than_the_terminal() -> None:
    terminal = Terminal()
    line = StatusLine(terminal, began=time.monotonic())
    with line.showing("left alone", expected_seconds=None):
        line.said("x" * 200)
        wait_for(terminal, "xxx")
    assert max(map(len, shown(terminal.getvalue().replace("\r\x1b[K", "\n")))) == 79


@pytest.mark.parametrize("kind", ["a file", "a dumb terminal"])
def test_elsewhere_it_writes_lines_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO() if kind == "a file" else Terminal()
    monkeypatch.setitem(os.environ, "TERM", "dumb" if kind == "a dumb terminal" else "xterm")
    line = StatusLine(stream, began=time.monotonic())
    with line.showing("left alone", expected_seconds=None):
        line.said("epoch 1")
        line.write("a line")
        time.sleep(0.01)
    assert stream.getvalue() == "a line\n"


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("300", 100)])
def test_text_is_no_wider_than_the_terminal_and_a_path_stays_whole(
    columns: str, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = "the folder had old checkpoints: once more without them, " * 4
    lines = wrapped(text, indent="   1.2 s  ", hanging=" " * 10)
    assert widest - 20 < max(map(len, lines)) <= widest
    assert lines[0].startswith("   1.2 s  the folder")
    assert all(line.startswith(" " * 10) for line in lines[1:])
    assert " ".join(line[10:].strip() for line in lines) == text.strip()
    path = "/" + "x" * 150
    assert f"{path}," in wrapped(f"rehearsing in {path}, in a copy of it")
