"""Sends results to standard output and all other text to standard error.

With `--json`, standard output holds one JSON value and nothing else. Without a terminal, or with NO_COLOR, Rich writes
no escape codes. The width is the terminal's, `COLUMNS`, or 80. Content from a job, from AWS or from a file is text. Its
control sequences are written out (`rendering.printable_console`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import NotConfirmedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console, RenderableType
    from rich.text import Text

    from spotkeep_cli.errors import CommandLineError, LocatedProblem


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A command that is useful now, and its effect."""

    command: str
    what: str


class Terminal:
    """The two output streams of one command.

    Args:
        as_json: True to reserve standard output for one JSON value.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @cached_property
    def results(self) -> Console:
        """Standard output."""
        return _console(stderr=False)

    @cached_property
    def remarks(self) -> Console:
        """Standard error."""
        return _console(stderr=True)

    @property
    def people(self) -> Console:
        """The stream for text to a person. It is standard output, unless that is reserved for JSON."""
        return self.remarks if self.as_json else self.results

    def show(self, *content: RenderableType) -> None:
        """Print for a person."""
        _print(self.people, *content)

    def remark(self, text: str) -> None:
        """Print something said beside the result."""
        self.remarks.print(text, highlight=False, markup=False, soft_wrap=True)

    def remark_unreadable(self, unreadable: Mapping[str, str]) -> None:
        """Print the number of unreadable records that were left out, and the reason."""
        if unreadable:
            records = "1 record" if len(unreadable) == 1 else f"{len(unreadable)} records"
            self.remark(f"! {records} could not be read:")
            for why in unreadable.values():
                self.remark(f"  {why.partition(': ')[2]}")

    def give_json(self, value: Any) -> None:
        """Print the one JSON value of this command."""
        sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")

    def show_next(self, *steps: NextStep) -> None:
        """End a command with the useful next commands and their reasons.

        The reasons stand beside the commands where all of it fits, else below each. Commands are never wrapped, so that
        they can be copied.
        """
        if self.as_json or not steps:
            return
        from rich.text import Text

        width = max(len(step.command) for step in steps)
        beside = width + 8 + max(len(step.what) for step in steps) <= self.people.width
        self.show("")
        for step in steps:
            line = Text.assemble(("Next: " if step is steps[0] else "      ", "dim"), (step.command, "bold"))
            gap = " " * (width - len(step.command) + 2) if beside else "\n" + " " * 8
            line.append(gap + step.what, style="dim")
            self.people.print(line, soft_wrap=True, highlight=False)

    def show_error(self, error: CommandLineError) -> None:
        """Print an error in one line, with its problems if it has any, and a hint."""
        from rich.text import Text

        problems: tuple[LocatedProblem, ...] = getattr(error, "problems", ())
        self.remarks.print(Text.assemble(("Error: ", "bold red"), error.message), soft_wrap=True, highlight=False)
        if problems:
            _print(self.remarks, problem_list(problems))
        if error.hint:
            self.remarks.print(Text.assemble(("Hint: ", "bold yellow"), error.hint), soft_wrap=True, highlight=False)

    def confirm(self, question: str, *, assume_yes: bool) -> None:
        """Ask, unless `-y` was given.

        Raises:
            NotConfirmedError: The answer was no.
            UsageError: There is no terminal to ask on.
        """
        if assume_yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                "this needs an answer and there is no terminal to ask on", hint="add -y to go ahead without asking"
            )
        self.remarks.print(f"{question} [y/N] ", end="", markup=False, highlight=False)
        try:
            answer = input()
        except (EOFError, KeyboardInterrupt):
            self.remarks.print()
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            raise NotConfirmedError("nothing was done", hint="answer y, or add -y to go ahead without asking")


def _print(console: Console, *content: RenderableType) -> None:
    from rich.console import Group

    # Outside a group, rich joins texts into a new one, which folds although a part of it may not.
    parts = Group(*content)
    if console.is_terminal:
        console.print(parts, highlight=False, crop=False)
        return
    with console.capture() as captured:
        console.print(parts, highlight=False, crop=False)
    # Tables are padded to their width; in a file or a pipe that is only noise.
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _console(*, stderr: bool) -> Console:
    from spotkeep_cli.rendering.printable import PrintableConsole

    return PrintableConsole(stderr=stderr)


def problem_list(problems: Iterable[LocatedProblem], *, mark: str = "✗", style: str = "red") -> RenderableType:
    """Return one block a problem. Long text wraps under itself."""
    from rich.console import Group
    from rich.text import Text

    blocks: list[RenderableType] = []
    for problem in problems:
        if not problem.field:
            blocks.append(_indented(Text.assemble((f"{mark} ", style), problem.problem), by=2))
            continue
        heading = Text.assemble((f"{mark} ", style), (problem.field, "bold"))
        if problem.line is not None:
            heading.append(f"  line {problem.line}", style="dim")
        elif problem.option is not None:
            heading.append("  --set" if problem.option == problem.field else f"  --set {problem.option}", style="dim")
        if problem.found:
            heading.append(f"  found {_shortened(problem.found)}", style="dim")
        blocks.append(_indented(heading, by=2))
        blocks.append(_indented(Text(problem.problem), by=4))
        if problem.fix:
            blocks.append(_indented(Text(f"→ {problem.fix}", style="green"), by=4))
    return Group(*blocks)


def _indented(text: Text, *, by: int) -> RenderableType:
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, by), expand=False)


def _shortened(found: str) -> str:
    one_line = " ".join(found.split())
    return one_line if len(one_line) <= 60 else one_line[:57] + "..."
