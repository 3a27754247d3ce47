"""What can be wrong with what instances and functions tell each other, and with what a run is given."""

from __future__ import annotations

from collections.abc import Sequence


class DocumentError(Exception):
    """A document is not what it should be.

    Attributes:
        problems: One sentence each: where, what was found, what to do.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{what} cannot be read:\n" + "\n".join(f"  - {problem}" for problem in problems))


class ChannelDataError(Exception):
    """The objects of a channel cannot be its files, or there are none. The message names keys and location."""
